"""`miner plan`: counts and estimates of lines, costs that equal hand counts, and plans beside the runs that follow."""

import bz2
import functools
import gzip
import json
import lzma
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
import yaml
from command import error_of, output_of

from miner.config.commands import EncoderSettings, TextSettings
from miner.config.planning import Hardware, PlanSettings
from miner.encoders import load_encoder
from miner.errors import ConfigError, DataError
from miner.io.stages import read_manifest
from miner.plan import hardware
from miner.plan.corpus_size import SamplingSettings, count_lines, sample_sentences
from miner.plan.hardware import EncodingCost, Speeds, scale_speeds
from miner.search import cost_model
from miner.search.cost_model import SearchEstimate, SearchWorkload
from pipelines.runs import plan as plan_module
from pipelines.runs import stage_costs
from pipelines.runs.measure_speed import ProbeSettings
from pipelines.runs.stage_costs import CorpusSize, EngineRequest, WorkerPool

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
COSTS = cost_model.expected_costs(SearchWorkload((1, 1), 256, 4, 0.98), cores=2, block_rows=65536)
SPEEDS = Speeds(lines_per_second=1000.0, sentences_per_second=500.0, pairs_per_second=None, search=COSTS, stage_start_seconds=1.0)
SMALL_SAMPLES = SamplingSettings(
    counted_bytes=1 << 16, max_files=4, window_bytes=1 << 14, head_bytes=1 << 16, head_step_bytes=1 << 12, kept_bytes=1 << 11
)  # with which files of a megabyte are sampled
TEXT, COLUMN = TextSettings(), TextSettings(text_column="text")


def lines(count: int, seed: int = 0) -> list[str]:
    """Different sentences of one to thirty words."""
    generator = random.Random(seed)
    return [f"{' '.join(generator.choices(WORDS, k=generator.randint(1, 30)))} {number}" for number in range(count)]


def write(path: Path, texts: list[str], opener: Callable[..., Any] = open) -> str:
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in texts)
    return str(path)


@pytest.mark.parametrize(("name", "opener"), [("a.txt", open), ("a.txt.gz", gzip.open), ("a.jsonl.xz", lzma.open), ("a.bz2", bz2.open)])
def test_small_text_is_counted(tmp_path: Path, name: str, opener: Callable[..., Any]) -> None:
    count = count_lines([write(tmp_path / name, lines(1000), opener)], TEXT)
    assert (count.lines, count.exact, count.reason) == (1000, True, "counted")


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("a\nb", 2), ("a\n\n\n", 3), ("\ufeffa\n", 1)])
def test_empty_files_and_missing_final_newlines(tmp_path: Path, text: str, expected: int) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert count_lines([str(tmp_path / "a.txt")], TEXT).lines == expected


def test_parquet_is_counted_by_its_metadata(tmp_path: Path) -> None:
    for name, rows in (("a", 70_000), ("b", 5)):
        pq.write_table(pa.table({"text": [str(number) for number in range(rows)]}), tmp_path / f"{name}.parquet")
    count = count_lines([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], COLUMN, SMALL_SAMPLES)
    assert (count.lines, count.exact) == (70_005, True)
    assert sample_sentences(count, COLUMN)[1][-5:] == ["0", "1", "2", "3", "4"]


def open_small_blocks(path: Path, mode: str, encoding: str) -> Any:
    """Compress blocks of 100 kB with bz2, instead of 900."""
    return bz2.open(path, mode, compresslevel=1, encoding=encoding)


@pytest.mark.parametrize(
    ("name", "opener"), [("a.txt", open), ("a.tsv.gz", gzip.open), ("a.txt.xz", lzma.open), ("a.bz2", open_small_blocks)]
)
def test_large_text_is_sampled(tmp_path: Path, name: str, opener: Callable[..., Any]) -> None:
    first = write(tmp_path / f"0-{name}", lines(12_000), opener)
    files = [first, *(str(shutil.copy(first, tmp_path / f"{part}-{name}")) for part in range(1, 6))]
    count = count_lines(files, TEXT, SMALL_SAMPLES)
    assert not count.exact
    assert count.reason.startswith("estimated by")
    assert count.lines == pytest.approx(72_000, rel=0.1)
    assert sum(file.bytes_read for file in count.files) < sum(Path(file).stat().st_size for file in files) / 2


def test_windows_cover_long_lines_at_the_end(tmp_path: Path) -> None:
    """From the start of the file alone, the estimate is 190,000 lines."""
    path = write(tmp_path / "a.txt", ["x" * 20] * 95_700 + ["x" * 200] * 10_000)
    assert count_lines([path], TEXT, SMALL_SAMPLES).lines == pytest.approx(105_700, rel=0.05)


def test_sampled_lines_are_parsed_like_the_file(tmp_path: Path) -> None:
    rows = ["lang\ttext", *(f"en\t{text}" for text in lines(12_000)), *["en\t"] * 12_000]
    count = count_lines([write(tmp_path / "a.tsv", rows)], COLUMN, SMALL_SAMPLES)
    num_lines, texts = sample_sentences(count, COLUMN)
    assert set(texts) <= set(lines(12_000))
    assert 100 < len(texts) < num_lines


TMX_UNIT = '<tu><tuv xml:lang="text"><seg>{}</seg></tuv></tu>'
RECORD_FILES: dict[str, Callable[[list[str]], str]] = {
    "one-line.json": lambda texts: json.dumps([{"text": text} for text in texts]),
    "indented.json": lambda texts: json.dumps([{"text": text} for text in texts], indent=2),
    "breaks.csv": lambda texts: "text,id\n" + "".join(f'"{text}\nsecond line",{number}\n' for number, text in enumerate(texts)),
    "units.tmx": lambda texts: "<tmx><body>" + "".join(map(TMX_UNIT.format, texts)) + "</body></tmx>",
}


@pytest.mark.parametrize("name", RECORD_FILES)
def test_records_that_are_not_lines_are_counted(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(RECORD_FILES[name](lines(60_000)), encoding="utf-8")
    whole, sampled = count_lines([str(path)], COLUMN), count_lines([str(path)], COLUMN, SMALL_SAMPLES)
    assert (whole.lines, whole.exact) == (60_000, True)
    assert sampled.lines == pytest.approx(60_000, rel=0.1)
    assert (sampled.exact, sampled.files[0].bytes_read < path.stat().st_size / 1.5) == (False, True)
    texts = sample_sentences(sampled, COLUMN)[1]
    assert texts[0] == lines(1)[0] + " second line" * (path.suffix == ".csv")


def test_broken_and_missing_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"nothing" * 20_000)
    with pytest.raises(DataError, match=r"a\.gz: truncated or not \.gz"):
        count_lines([str(tmp_path / "a.gz")], TEXT, SMALL_SAMPLES)
    with pytest.raises(DataError, match="no such file"):
        count_lines([str(tmp_path / "b.txt")], TEXT, SMALL_SAMPLES)


MACHINE = Hardware(cores=8, memory=64, flops=1e12, bandwidth=1e12, efficiency=0.5, vector_bytes_per_second=1e9)


def test_gpu_speeds_follow_from_the_data_sheet() -> None:
    # 512 operations at half of 10^12 a second take longer than 8 bytes; 512 bytes are read for each 1000 vectors.
    assert 1 / hardware.search_speed(MACHINE, 256, 1000) == pytest.approx(512 / 0.5e12 + 512 / 1000 / 1e9)
    # With a thousand times the operations per second, memory takes longer: 8 bytes at half of 10^12 a second.
    faster = MACHINE.model_copy(update={"flops": 1e15})
    assert 1 / hardware.search_speed(faster, 256, 1000) == pytest.approx(8 / 0.5e12 + 512 / 1000 / 1e9)
    assert hardware.encoding_speed(MACHINE, 1e10) == pytest.approx(50)


def test_speeds_follow_cores_accelerator_and_measurement() -> None:
    static = EncodingCost(dim=256, flops_per_sentence=None, block_rows=1000)
    cpu = scale_speeds(SPEEDS, 2, Hardware(cores=8, memory=1), static)
    assert (cpu.lines_per_second, cpu.sentences_per_second, cpu.pairs_per_second) == (1000, 2000, None)
    assert cpu.search.exact.seconds((1000, 1000)) == pytest.approx(COSTS.exact.seconds((1000, 1000)) / 4)
    assert cpu.search.faiss.probe == pytest.approx(COSTS.faiss.probe / 4)
    gpu = scale_speeds(SPEEDS, 2, MACHINE, static)
    assert (gpu.sentences_per_second, gpu.pairs_per_second) == (2000, hardware.search_speed(MACHINE, 256, 1000))
    transformer = scale_speeds(SPEEDS, 2, MACHINE, EncodingCost(256, 1e10, 1000))
    assert transformer.sentences_per_second == hardware.encoding_speed(MACHINE, 1e10)
    measured = MACHINE.model_copy(update={"lines_per_second": 7.0, "sentences_per_second": 8.0, "pairs_per_second": 9.0})
    assert scale_speeds(SPEEDS, 2, measured, static) == Speeds(7.0, 8.0, 9.0, COSTS.scale(1 / 4), 1.0)


def test_operations_of_a_transformer_equal_a_hand_count(tmp_path: Path) -> None:
    encoder = load_encoder(str(tiny.save_transformer(tmp_path / "model")), EncoderSettings(pooling="mean"))
    attention, feed_forward, norms = 4 * (32 * 32 + 32), 2 * 32 * 48 + 48 + 32, 4 * 32
    weights = 3 * (attention + feed_forward + norms) + 2 * 32 + (32 * 32 + 32)  # the first norm, and the pooler
    assert encoder.operations(10) == 2 * weights * 10 + 3 * 4 * 10**2 * 32


@pytest.mark.parametrize(("parts", "workers", "share"), [(10, 1, 1.0), (10, 4, 0.3), (10, 5, 0.2), (1, 8, 1.0), (3, 8, 1 / 3)])
def test_a_part_is_not_split_between_workers(parts: int, workers: int, share: float) -> None:
    assert WorkerPool(workers, SPEEDS).seconds(100, parts) == pytest.approx(100 * share + SPEEDS.stage_start_seconds)


def sized(sentences: int, shards: int = 4) -> CorpusSize:
    return CorpusSize(sentences, text_bytes=100.0, row_bytes=60.0, shards=shards, dim=256)


def engine_request(fixed_engine: tuple[str, str] | None = None, max_index_bytes: int = 8 * 10**9) -> EngineRequest:
    return EngineRequest(k=4, target_recall=0.98, max_index_bytes=max_index_bytes, cores=2, fixed_engine=fixed_engine)


def estimate(rows: int) -> SearchEstimate:
    return cost_model.estimate_search(SearchWorkload((rows, rows), 256, 4, 0.98), COSTS)


def test_engine_is_the_one_that_a_run_chooses() -> None:
    for rows in (10_000, 10**6):
        choice = stage_costs.plan_engine(sized(rows), sized(rows), engine_request(), SPEEDS)
        assert choice.engine == estimate(rows).engine
    assert choice.factories == ("IVF4096,PQ128x4", "IVF4096,PQ128x4")
    assert choice.recall == 0.98
    assert choice.search_seconds + sum(choice.build_seconds) == pytest.approx(estimate(rows).faiss)
    exact = stage_costs.plan_engine(sized(rows), sized(rows), engine_request(fixed_engine=("exact", "requested")), SPEEDS)
    assert (exact.search_seconds, exact.recall, exact.factories) == (estimate(rows).exact, 1.0, None)
    accelerated = replace(SPEEDS, pairs_per_second=1e6)
    exact = stage_costs.plan_engine(sized(rows), sized(rows), engine_request(fixed_engine=("exact", "requested")), accelerated)
    assert exact.search_seconds == rows**2 / 1e6


def test_an_index_for_a_gpu_is_planned_for_one() -> None:
    """FAISS on a GPU has no codes of 4 bits; 4 GB hold float16 vectors of 2 bytes, 2 GB those of 8 bits."""
    rows = 5 * 10**6
    for max_index_bytes, code, vector_bytes in ((4 * 10**9, "SQfp16", 512), (2 * 10**9, "SQ8", 256)):
        request = replace(engine_request(fixed_engine=("faiss", "requested"), max_index_bytes=max_index_bytes), has_gpu=True)
        choice = stage_costs.plan_engine(sized(rows), sized(rows), request, SPEEDS)
        assert choice.factories == (f"IVF8192,{code}", f"IVF8192,{code}")
        disk = stage_costs.indexing_need(sized(rows), choice.factories[0]).disk
        assert disk == rows * (vector_bytes + 8) + 8192 * 256 * 4 + rows * 512


def test_an_index_is_trained_by_one_machine() -> None:
    rows = 10**6
    share = 10 * 40 * 4096 / (10 * 40 * 4096 + rows)
    assert cost_model.training_share(rows) == pytest.approx(share)
    cost = stage_costs.index_cost("en", sized(rows, shards=4), "IVF4096,PQ128x4", 100.0, WorkerPool(2, SPEEDS))
    assert cost.seconds == pytest.approx(100 * share + 100 * (1 - share) / 2 + 4 * SPEEDS.stage_start_seconds)


def test_an_index_that_exceeds_the_memory_is_an_error() -> None:
    request = engine_request(fixed_engine=("faiss", "requested"), max_index_bytes=10**6)
    with pytest.raises(ConfigError, match="--memory"):
        stage_costs.plan_engine(sized(10**6), sized(10**6), request, SPEEDS)


def test_disk_equals_a_hand_count() -> None:
    assert stage_costs.embedding_need(sized(1000)).disk == 1000 * (8 + 512)
    # Every sentence has an entry for each shard of the other side: an id, four neighbours and their similarities.
    temporary = stage_costs.exact_search_need(sized(1000, 3), sized(500, 2), 4).temporary_disk
    assert temporary == (1000 * 2 + 500 * 3) * 72
    # 32 of 64 target shards at a time: of these, 250 sentences in 3 pairs each; and the neighbours of the passes before.
    temporary = stage_costs.exact_search_need(sized(1000, 3), sized(500, 64), 4).temporary_disk
    assert temporary == (1000 * 32 + 250 * 3 + 1500) * 72


def test_later_settings_override_earlier_ones() -> None:
    section = PlanSettings(price=1, workers=3, sentences={"en": 5}, rates={"a": MACHINE})
    later = PlanSettings(price=2, sentences={"de": 6}).over(section)
    assert (later.price, later.workers, later.sentences, later.machine) == (2, 3, {"en": 5, "de": 6}, "a")
    assert PlanSettings(hardware="here").over(section).machine is None
    with pytest.raises(ConfigError, match="--hardware"):
        _ = PlanSettings(rates={"a": MACHINE, "b": MACHINE}).machine


@pytest.fixture
def _short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the machine for a fraction of a second."""
    probe = ProbeSettings(embed_seconds=0.1, search_seconds=0.001, trial_rows=512)
    monkeypatch.setattr(plan_module, "make_plan", functools.partial(plan_module.make_plan, probe=probe))


@pytest.fixture
def config(tmp_path: Path, toy_encoder: Path, _short_probe: None) -> Path:
    """A run of three texts: 2,000 lines, 1,000 of which a fifth are empty, and a Parquet file of 500."""
    write(tmp_path / "en.txt", lines(2000))
    write(tmp_path / "fr.txt.gz", [text if number % 5 else "" for number, text in enumerate(lines(1000, 1))], gzip.open)
    pq.write_table(pa.table({"words": lines(500, 2)}), tmp_path / "de.parquet")
    corpora = {"en": "en.txt", "fr": "fr.txt.gz", "de": {"files": [str(tmp_path / "de.parquet")], "text_column": "words"}}
    values = {
        "output": str(tmp_path / "out"),
        "encoder": str(toy_encoder),
        "pairs": ["en-fr", "en-de"],
        "corpora": {name: path if isinstance(path, dict) else str(tmp_path / path) for name, path in corpora.items()},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path


def planned(config: Path, *arguments: object) -> tuple[str, dict[str, Any]]:
    """Return what `miner plan` prints, and its figures."""
    path = config.with_name("plan.json")
    printed = output_of("plan", config, *arguments, "--json", path)
    return printed, json.loads(path.read_text())


def test_plan_before_and_after_the_run(config: Path, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    printed, plan = planned(config)
    assert set(tmp_path.iterdir()) == before | {tmp_path / "plan.json"}, "nothing is left"
    assert {name: corpus["sentences"] for name, corpus in plan["corpora"].items()} == {"en": 2000, "fr": 800, "de": 500}
    names = ["read en", "embed en", "read fr", "embed fr", "read de", "embed de"]
    names += [f"{act} {pair}" for pair in ("en-fr", "en-de") for act in ("search", "rescore", "mine")]
    assert [stage["name"] for stage in plan["stages"]] == names
    assert all(name in printed for name in names)
    assert plan["seconds"] == pytest.approx(sum(stage["seconds"] for stage in plan["stages"]))
    assert plan["cost"] is None
    assert all(chosen["engine"] == "exact" for chosen in plan["pairs"].values())
    output_of("run", config)
    for name, needs in {stage["name"]: stage for stage in plan["stages"]}.items():
        act, corpus = name.split()
        if act in ("read", "embed"):
            place = tmp_path / "out/corpora" / corpus / {"read": "sentences", "embed": "embeddings"}[act]
            assert needs["disk"] == pytest.approx(sum(path.stat().st_size for path in place.glob("*.parquet")), rel=0.5)
    after, plan = planned(config)
    assert (plan["stages"], plan["seconds"], len(plan["done"])) == ([], 0, 5)
    assert "embedded already" in after
    assert "embed en" in after


def test_each_corpus_is_filtered_in_its_own_language(config: Path, tmp_path: Path) -> None:
    """Nearly all lines are kept as English, and none of the same corpus as Russian would be."""
    write(tmp_path / "ru.txt", ["это пример номер " + text for text in lines(300, 3)] + lines(100, 4))
    values = [f"corpora={{en: {tmp_path}/en.txt, ru: {tmp_path}/ru.txt}}", "pairs=[en-ru]", "sentence_filters={script: true}"]
    settings = [argument for value in values for argument in ("--set", value)]
    _, plan = planned(config, *settings)
    output_of("run", config, *settings)
    for name, corpus in plan["corpora"].items():
        kept = read_manifest(str(tmp_path / "out/corpora" / name / "sentences")).details["counts"]["kept"]
        assert corpus["sentences"] == kept > 0
    engine = json.loads((tmp_path / "out/pairs/en-ru.json").read_text())["figures"]["engine"]
    assert re.fullmatch(r"[\d,]+ x [\d,]+ vectors x 32 dimensions by exact search in about 0 s, by FAISS .*", engine["reason"])


def test_plan_for_another_machine_workers_and_price(config: Path, tmp_path: Path) -> None:
    speeds = "lines_per_second: 1e3, sentences_per_second: 1e2, pairs_per_second: 1e4"
    (tmp_path / "rates.yaml").write_text(f"price: 3\nrates: {{big: {{cores: 4, memory: 8, {speeds}}}}}\n")
    _, plan = planned(config, "--rates", tmp_path / "rates.yaml", "--workers", 2)
    seconds = {stage["name"]: stage["seconds"] for stage in plan["stages"]}
    start = plan["calibration"]["speeds"]["stage_start_seconds"]
    assert seconds["read en"] == pytest.approx(2 + 2 * start), "one file: the second machine has nothing to read"
    assert seconds["embed fr"] == pytest.approx(8), "by the job that embeds en"
    assert (plan["machine"], plan["workers"]) == ("big", 2)
    assert plan["cost"] == pytest.approx(3 * 2 * plan["seconds"] / 3600)
    assert not any("split" in line for line in plan["advice"]), "one shard is read in seconds"
    assert "split en, fr, de into at least as many files" in output_of("plan", config, "--workers", 2, "--set", "shards=2")


def test_plan_for_more_sentences_than_the_files_hold(config: Path) -> None:
    more = ["--set", "plan.sentences={en: 1e9, fr: 2e8}", "--set", "pairs=[en-fr]", "--hardware", "h100", "--workers", 64]
    printed, plan = planned(config, *more)
    corpus = plan["corpora"]["en"]
    assert corpus["sentences"] == 10**9
    assert corpus["shards"] == pytest.approx(1e9 * corpus["text_bytes"] / 2**25, rel=0.01)
    exact = hardware.search_speed(hardware.HARDWARE["h100"], 32, 2**25 // 64)
    assert {stage["name"]: stage["seconds"] for stage in plan["stages"]}["search en-fr"] > 2e17 / exact / 64
    assert "64 x h100" in printed
    assert "fewer `shards` leave less" in printed


def test_machines_need_disk_for_copies_of_remote_indexes(config: Path, tmp_path: Path) -> None:
    """Flat indexes of 4 bytes per dimension and an id; vectors of 2 bytes per dimension and an id. Each corpus has one index."""
    for output, expected in ((tmp_path / "out", 0), ("memory://bucket/run", 3300 * (4 * 32 + 8 + 2 * 32 + 8))):
        printed, plan = planned(config, "--set", "engine=faiss", "--set", f"output={output}")
        assert plan["worker_disk"] == expected
        assert ("686 kB on the disk of each machine for copies of indexes" in printed) == (expected > 0)


def test_embedded_corpora_need_no_encoder(config: Path, tmp_path: Path, toy_encoder: Path) -> None:
    for name, text in (("en", "en.txt"), ("fr", "fr.txt.gz")):
        output_of("embed", tmp_path / text, "--lang", name, "--encoder", toy_encoder, "--output", tmp_path / name)
    folders = ["--set", f"corpora={{en: {tmp_path}/en, fr: {tmp_path}/fr}}", "--set", "pairs=all", "--set", "encoder=./gone"]
    _, plan = planned(config, *folders)
    assert [stage["name"] for stage in plan["stages"]] == ["search en-fr", "mine en-fr"]
    assert {name: (corpus["sentences"], corpus["dim"]) for name, corpus in plan["corpora"].items()} == {
        "en": (2000, 32),
        "fr": (800, 32),
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hardware", "abacus"], "no such machine; one of cpu8"),
        (["--workers", "0"], "--workers: expected at least 1"),
        (["--price", "-1"], "--price: expected at least 0"),
        (["--rates", "nowhere.yaml"], "nowhere.yaml: no such file; check the name"),
        (["--set", "plan.sentences.xx=5"], "no corpus is called 'xx'; one of en, fr, de"),
        (["--set", "plan.sentences.en=-5"], "plan.sentences.en"),
        (["--set", "plan.speed=5"], "unknown setting 'plan.speed'"),
        (["--set", "corpora.en=nowhere.txt"], "nowhere.txt: no such file"),
        (["--set", "corpora.de.text_column=null"], "by text_column"),
        (["--set", "encoder=./nowhere"], "no such encoder folder"),
        (["--set", "sentence_filters.min_chars=1000"], "the filters leave none of"),
        (["--set", "max_chars=1"], "corpora.en: not one sentence in"),
    ],
)
def test_invalid_plans_are_refused_in_one_line(config: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    before = set(tmp_path.iterdir())
    assert message in error_of("plan", config, *arguments)
    assert set(tmp_path.iterdir()) == before


def test_a_run_ignores_the_plan_settings(config: Path) -> None:
    assert "5 of 5 stages to do" in output_of("run", config, "--dry-run", "--set", "plan.price=2", "--set", "plan.hardware=h100")
