"""`miner loop` end to end, on corpora of spelled-out numbers, whose translations are all known."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from click.testing import Result
from command import error_of, miner, output_of
from tiny import NUMBERS, numbers, save_transformer, sentence, write_pairs, write_tsv

from miner.cli.loop import summary
from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.io import outputs, records, storage, table_files
from miner.training.models.export import store_pooling
from pipelines.loop import round as loop_round
from pipelines.mining import mine

LANGS = tuple(NUMBERS)
CORPUS_ROWS, SEED_ROWS, DEV_ROWS = 240, 60, 60
ONE_PAIR = [list(LANGS[:2])]
TEMPLATE = "page {} of {}"


pytestmark = pytest.mark.usefixtures("one_thread")  # tiny models train faster without thread synchronisation


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shuffled corpora with the same sentences in all languages, plus the dev sentences and pages of a template."""
    folder = tmp_path_factory.mktemp("loop-data")
    rows = numbers(CORPUS_ROWS + SEED_ROWS + DEV_ROWS, seed=1, digits=6)
    corpus, seeds, dev = rows[:CORPUS_ROWS], rows[CORPUS_ROWS : CORPUS_ROWS + SEED_ROWS], rows[CORPUS_ROWS + SEED_ROWS :]
    for lang in LANGS:
        lines = [sentence(lang, digits) for digits in corpus]
        lines += [sentence(lang, digits).upper() + "!" for digits in dev]
        lines += [TEMPLATE.format(number, number + 7) for number in range(100, 130)]
        random.Random(lang).shuffle(lines)
        (folder / f"{lang}.txt").write_text("\n".join(lines) + "\n")
    groups = [{lang: sentence(lang, digits) for lang in LANGS} for digits in seeds]
    groups += [dict.fromkeys(LANGS, TEMPLATE.format(number, number - 300)) for number in range(500, 530)]  # so that numerals have vectors
    records = [{"group": number, "lang": lang, "text": text} for number, group in enumerate(groups) for lang, text in group.items()]
    pq.write_table(pa.Table.from_pylist(records), folder / "seed.parquet")
    for lang in LANGS[1:]:
        write_tsv(folder / f"dev.{lang}.tsv", ["en", "xx"], [[sentence(LANGS[0], row), sentence(lang, row)] for row in dev])
    return folder


def train_config(*files: str, steps: int) -> dict[str, Any]:
    source = {"strategy": "grouped_pairs", "columns": {"group": "group", "lang": "lang", "text": "text"}, "block_size": 64}
    return {
        "encoder": {"kind": "static", "dim": 16, "spelling_buckets": 64, "vocabulary": {"size": 80, "sentences": 2000}},
        "data": [{**source, "name": Path(name).stem, "files": [name]} for name in files],
        "objective": [{"loss": "info_nce", "two_way": True}],
        "training": {"steps": steps, "batch_size": 128, "lr": 0.02, "floor": 0.1, "checkpoint_every": 5},
    }


def loop_config(data: Path, **changes: Any) -> dict[str, Any]:
    seed = str(data / "seed.parquet")
    dev = {lang: str(data / f"dev.{lang}.tsv") for lang in LANGS[1:]}
    tasks = {lang: {"source": uri, "target": uri, "source_column": "en", "target_column": "xx"} for lang, uri in dev.items()}
    return {
        "corpora": {lang: [str(data / f"{lang}.txt")] for lang in LANGS},
        "start": {"train": train_config(seed, steps=20)},
        "reading": {"sentence_filters": "none"},
        "mining": {"threshold": 1.0, "pair_filters": "none"},
        "selection": {"validation": 0.1, "skip_top": 0.0},
        "training": train_config(seed, "{round}/groups.parquet", steps=60),
        "evaluation": {"dev": tasks, "near": 1.0},
        "stop": {"rounds": 1, "least_pairs": 20},
        **changes,
    }


def write_config(folder: Path, values: dict[str, Any]) -> str:
    path = folder / "loop.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(path)


def run_loop(path: str, output: Path, *options: str) -> Result:
    return miner("loop", path, "--output", output, *options, report="--json" in options)


def training_texts(round_folder: Path, column: str) -> list[str]:
    return [
        text
        for path in sorted(round_folder.glob("pairs/*/bitext.parquet"))
        for text in table_files.read_table(str(path))[column].to_pylist()
    ]


@pytest.fixture(scope="session")
def finished_loop(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loop of two rounds over all pairs of three languages."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("loop")
    values = loop_config(data, stop={"rounds": 2, "least_pairs": 20, "patience": 2, "jaccard": 1.0})
    result = run_loop(write_config(folder, values), folder / "out", "--json", str(folder / "figures.json"))
    assert result.exit_code == 0, result.output
    return folder / "out"


def test_rounds_improve_and_write_all_outputs(finished_loop: Path) -> None:
    figures = records.read(str(finished_loop / "loop.json"), dict[str, Any])
    assert outputs.mark_figures(figures) == storage.read_json(str(finished_loop.parent / "figures.json"))
    dev = [np.mean(list(outcome["dev"].values())) for outcome in (figures["start"], *figures["rounds"])]
    assert len(dev) == 3
    assert max(dev[1:]) > dev[0] + 0.1
    for name in ("seed", "round-00", "round-01"):
        vectors = load_encoder(str(finished_loop / name / "encoder")).encode(["one two", "eins zwei"])
        assert np.allclose((vectors**2).sum(axis=1), 1, atol=1e-5)
    assert (finished_loop / "best").resolve().name == figures["best"]
    assert (finished_loop / "latest" / "encoder" / "miner.json").exists()
    assert figures["best"] in (finished_loop / "report.html").read_text(encoding="utf-8")
    assert "round 2 was the last" in figures["stop_reason"] or "dev is no better" in figures["stop_reason"]


def test_status_of_a_finished_loop(finished_loop: Path) -> None:
    figures = storage.read_json(str(finished_loop / "loop.json"))
    lines = output_of("status", finished_loop).splitlines()
    trainings = [(line.split()[1], line.split(maxsplit=2)[2]) for line in lines if " steps, " in line]
    assert (lines[0], lines[-1]) == ("no run is active", f"ended    {figures['stop_reason']}")
    assert lines[-2] == f"loop     2 rounds, best on dev: {figures['best']}"
    expected_steps = {"round-00": 60, "round-01": 60, "seed": 20}
    assert trainings == [(name, f"{steps} steps, encoder {finished_loop}/{name}/encoder") for name, steps in expected_steps.items()]


def test_evaluation_sentences_are_excluded_from_training(finished_loop: Path, data: Path) -> None:
    evaluation = {
        cell.casefold() for path in data.glob("dev.*.tsv") for line in path.read_text().splitlines()[1:] for cell in line.split("\t")
    }
    assert len(evaluation) == DEV_ROWS * 3
    for folder in (finished_loop / "round-00", finished_loop / "round-01"):
        texts = training_texts(folder, "source_text") + training_texts(folder, "target_text")
        texts += table_files.read_table(str(folder / "groups.parquet"))["text"].to_pylist()
        texts += [cell for path in folder.glob("validation/*.tsv") for line in path.read_text().splitlines() for cell in line.split("\t")]
        assert len(texts) > 500
        assert not {text.casefold().rstrip("!") for text in texts} & evaluation
        selection = storage.read_json(str(folder / "selection.json"))
        assert sum(pair["in_evaluation_files"]["exact"] for pair in selection["pairs"].values()) > DEV_ROWS


def test_the_summary_counts_what_the_filters_drop(finished_loop: Path) -> None:
    figures = storage.read_json(str(finished_loop / "loop.json"))
    pairs = figures["rounds"][0]["selection"]["pairs"]
    for name, pair in pairs.items():
        manifest = storage.read_json(str(finished_loop / "round-00" / "mined" / name / "manifest.json"))
        assert pair["filtered"] == manifest["details"]["dropped"]
        pair["filtered"] = {"near_copy": 3}
    result = SimpleNamespace(figures=lambda: figures, encoder="best/encoder")
    assert f"round 00: the filters dropped {3 * len(pairs)} near copy\n" in summary(result)


def test_template_pairs_are_limited(finished_loop: Path) -> None:
    for folder in (finished_loop / "round-00", finished_loop / "round-01"):
        for path in folder.glob("mined/*/bitext.parquet"):
            assert sum("page" in text for text in table_files.read_table(str(path))["source_text"].to_pylist()) > 20  # many are mined
        for path in folder.glob("pairs/*/bitext.parquet"):
            assert sum("page" in text for text in table_files.read_table(str(path))["source_text"].to_pylist()) <= 3


def test_groups_span_languages(finished_loop: Path) -> None:
    groups = table_files.read_table(str(finished_loop / "round-00" / "groups.parquet")).to_pylist()
    members: dict[int, list[str]] = {}
    for row in groups:
        members.setdefault(row["group"], []).append(row["lang"])
    assert all(len(set(langs)) == len(langs) >= 2 for langs in members.values())
    assert sum(len(langs) == 3 for langs in members.values()) > len(members) / 4


def test_validation_is_random_and_excluded_from_training(finished_loop: Path) -> None:
    folder = finished_loop / "round-00"
    ranks = []
    for path in sorted(folder.glob("validation/*.tsv")):
        validation = [tuple(line.split("\t")) for line in path.read_text().splitlines()[1:]]
        bitext = table_files.read_table(str(folder / "mined" / path.stem / "bitext.parquet"))
        mined = list(zip(bitext["source_text"].to_pylist(), bitext["target_text"].to_pylist(), strict=True))
        ranks += [mined.index(pair) / len(mined) for pair in validation]
        training = table_files.read_table(str(folder / "pairs" / path.stem / "bitext.parquet"))
        assert not {source for source, _ in validation} & set(training["source_text"].to_pylist())
        assert not {target for _, target in validation} & set(training["target_text"].to_pylist())
    assert len(ranks) > 15
    assert 0.25 < np.mean(ranks) < 0.75  # the best pairs would be near 0


@pytest.mark.parametrize(("mining", "warnings"), [({}, 1), ({"threshold": 1.06}, 0)])
def test_the_default_threshold_of_another_encoder_is_a_warning(
    data: Path, toy_encoder: Path, tmp_path: Path, mining: dict[str, float], warnings: int
) -> None:
    values = loop_config(data, start={"encoder": str(toy_encoder)}, pairs=ONE_PAIR, mining=mining)
    values["stop"]["least_pairs"] = 10_000  # the loop ends before it trains
    result = run_loop(write_config(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("the default threshold is calibrated on each pair of corpora") == warnings


def test_an_existing_loop_is_not_overwritten(finished_loop: Path, tmp_path: Path) -> None:
    before = (finished_loop / "config.json").read_bytes()
    path = write_config(tmp_path, yaml.safe_load((finished_loop.parent / "loop.yaml").read_text()))
    assert "--resume" in run_loop(path, finished_loop).output
    result = run_loop(path, finished_loop, "--resume", "--set", "mining.k=5")
    assert result.exit_code == 1
    assert "started with another mining" in result.output
    assert (finished_loop / "config.json").read_bytes() == before


def test_changed_evaluation_files_and_lost_encoders_are_noticed(data: Path, finished_loop: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_loop, tmp_path / "out", symlinks=True)
    path = write_config(tmp_path, yaml.safe_load((finished_loop.parent / "loop.yaml").read_text()))
    dev = data / f"dev.{LANGS[1]}.tsv"
    before = dev.stat()
    try:
        os.utime(dev, (before.st_atime, before.st_mtime + 10))
        assert "evaluation files changed since the loop started" in error_of("loop", path, "--output", tmp_path / "out", "--resume")
    finally:
        os.utime(dev, ns=(before.st_atime_ns, before.st_mtime_ns))
    best = (tmp_path / "out" / "best").resolve()
    shutil.rmtree(best / "encoder")
    message = error_of("loop", path, "--output", tmp_path / "out", "--resume")
    assert f"{best}/encoder: missing; delete {best} and later rounds, which are then run again by --resume" in message


def test_the_pooling_of_the_start_encoder_is_stored(data: Path, tmp_path: Path) -> None:
    """A model of transformers has no pooling, so the copy of it as the best encoder could not be used."""
    model = save_transformer(tmp_path / "model", dropout=0.0)
    values = loop_config(data, pairs=ONE_PAIR, start={"encoder": str(model), "pooling": "mean", "device": "cpu"})
    values["mining"] = {"threshold": 5.0, "pair_filters": "none"}  # above all margins: no round trains
    output_of("loop", write_config(tmp_path, values), "--output", tmp_path / "out")
    expected = load_encoder(str(model), EncoderSettings(pooling="mean", device="cpu")).encode(["one two"])
    np.testing.assert_allclose(load_encoder(str(tmp_path / "out" / "best" / "encoder")).encode(["one two"]), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "pooling", "is_stored"), [("transformer", "mean", True), ("transformer", "max", False), ("static", "mean", True)]
)
def test_a_pooling_that_the_start_encoder_states_is_no_warning(
    kind: str, pooling: str, is_stored: bool, data: Path, toy_encoder: Path, tmp_path: Path
) -> None:
    model = save_transformer(tmp_path / "model", dropout=0.0) if kind == "transformer" else toy_encoder
    if kind == "transformer":
        assert store_pooling(model, "mean")
    values = loop_config(data, pairs=ONE_PAIR, start={"encoder": str(model), "pooling": pooling, "device": "cpu"})
    values["mining"] = {"threshold": 5.0, "pair_filters": "none"}
    result = run_loop(write_config(tmp_path, values), tmp_path / "out")
    assert (result.exit_code, f"start.pooling {pooling} is not stored" not in result.stderr) == (0, is_stored)


@pytest.mark.slow
def test_a_round_resumes_after_its_corpora_changed(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was interrupted in training, so it mines and trains again; another spelling of the output changes nothing."""
    values = loop_config(data, pairs=ONE_PAIR)
    values["corpora"] = {lang: [shutil.copy(files[0], tmp_path)] for lang, files in values["corpora"].items()}
    monkeypatch.chdir(tmp_path)
    path, step, remaining = write_config(tmp_path, values), torch.optim.AdamW.step, iter(range(20 + 30))

    def interrupt(*args: Any, **kwargs: Any) -> Any:
        if next(remaining, None) is None:
            raise KeyboardInterrupt
        return step(*args, **kwargs)

    for output in ("out", "./out"):
        with monkeypatch.context() as patch:
            patch.setattr(torch.optim.AdamW, "step", interrupt)
            assert run_loop(path, Path(output), *(["--resume"] if output != "out" else [])).exit_code == 130
        remaining = iter(range(10))
    with Path(values["corpora"][LANGS[0]][0]).open("a") as file:
        file.write(f"{sentence(LANGS[0], numbers(1, seed=9, digits=5)[0])}\n")
    output_of("loop", path, "--output", tmp_path / "out", "--resume")
    assert (tmp_path / "out" / "round-00" / "round.json").exists()


@pytest.mark.slow
def test_a_worse_round_is_rolled_back(data: Path, tmp_path: Path) -> None:
    values = loop_config(data, training=train_config(str(data / "seed.parquet"), "{round}/groups.parquet", steps=1), pairs=ONE_PAIR)
    values["start"]["train"]["training"]["steps"] = 40
    values["stop"]["rounds"] = 3
    result = run_loop(write_config(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "round 00 was rolled back" in result.output
    figures = storage.read_json(str(tmp_path / "out" / "loop.json"))
    assert [outcome["kept"] for outcome in figures["rounds"]] == [False]
    assert "rolled back" in figures["stop_reason"]
    assert (tmp_path / "out" / "best").resolve().name == (tmp_path / "out" / "latest").resolve().name == "seed"


def test_too_few_pairs_end_the_loop(data: Path, toy_encoder: Path, tmp_path: Path) -> None:
    values = loop_config(data, mining={"threshold": 50.0}, start={"encoder": str(toy_encoder)}, pairs=ONE_PAIR)
    result = run_loop(write_config(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "mined 0 pairs, too few to learn from" in result.output
    assert (tmp_path / "out" / "best" / "encoder" / "miner.json").exists()


def test_marks_measure_the_selected_pairs(data: Path, finished_loop: Path, tmp_path: Path) -> None:
    """One of two people finds all translations right, the other one none; a loop that needs more pairs ends before it trains."""
    rows = numbers(CORPUS_ROWS + SEED_ROWS + DEV_ROWS, seed=1, digits=6)[:CORPUS_ROWS]
    for mark in ("right", "wrong"):
        lines = [[mark, *(sentence(lang, digits) for lang in LANGS[:2])] for digits in rows]
        write_tsv(tmp_path / f"{mark}.{LANGS[0]}-{LANGS[1]}.tsv", ["mark", "source", "target"], lines)
    marks = [str(tmp_path / f"{mark}.{{source}}-{{target}}.tsv") for mark in ("right", "wrong")]
    start = {"encoder": str(finished_loop / "seed" / "encoder")}
    values = loop_config(data, mining={"threshold": 1.0, "gold": marks, "pair_filters": "none"}, start=start, pairs=ONE_PAIR)
    values["stop"]["least_pairs"] = 10**6
    result = run_loop(write_config(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    selection = storage.read_json(str(tmp_path / "out" / "round-00" / "selection.json"))["pairs"]["-".join(LANGS[:2])]
    assert selection["precision"] == pytest.approx(0.5)
    assert "recall" not in selection


@pytest.fixture(scope="session")
def one_round(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """A config of one round, and the weights of an uninterrupted run."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("one-round")
    path = write_config(folder, loop_config(data, pairs=ONE_PAIR))
    assert run_loop(path, folder / "out").exit_code == 0
    return path, weights(folder / "out")


def weights(output: Path) -> bytes:
    return (output / "round-00" / "encoder" / "vectors.safetensors").read_bytes()


# Stage -> the function that is interrupted, and the number of calls before.
INTERRUPTIONS = {"seed": (torch.optim.AdamW, "step", 7), "mine": (mine, "run", 0), "evaluate": (loop_round, "drift", 0)}


@pytest.mark.slow
@pytest.mark.parametrize("stage", INTERRUPTIONS)
def test_an_interrupted_loop_resumes_to_the_same_encoder(
    stage: str, one_round: tuple[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected_weights = one_round
    owner, name, num_calls = INTERRUPTIONS[stage]
    function, remaining = getattr(owner, name), iter(range(num_calls))

    def interrupt(*args: Any, **kwargs: Any) -> Any:
        if next(remaining, None) is None:
            raise KeyboardInterrupt
        return function(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupt)
        assert run_loop(path, tmp_path / "out").exit_code == 130
    result = run_loop(path, tmp_path / "out", "--resume")
    assert result.exit_code == 0, result.output
    assert weights(tmp_path / "out") == expected_weights


@pytest.mark.slow
def test_a_killed_loop_resumes_to_the_same_encoder(one_round: tuple[str, bytes], tmp_path: Path) -> None:
    path, expected_weights = one_round
    command = [sys.executable, "-m", "miner.cli.main", "loop", path, "--output", str(tmp_path / "out")]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    while process.poll() is None and not any((tmp_path / "out" / "round-00").glob("checkpoints/step-*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out" / "round-00" / "round.json").exists()
    result = run_loop(path, tmp_path / "out", "--resume")
    assert result.exit_code == 0, result.output
    assert weights(tmp_path / "out") == expected_weights


@pytest.mark.slow
def test_text_added_between_rounds_is_mined(data: Path, tmp_path: Path) -> None:
    added_numbers = numbers(200, seed=9, digits=5)
    for lang in LANGS:
        (tmp_path / f"{lang}.txt").write_text("\n".join(sentence(lang, digits) for digits in added_numbers) + "\n")
    values = loop_config(data, pairs=ONE_PAIR)
    assert run_loop(write_config(tmp_path, values), tmp_path / "out").exit_code == 0
    values["corpora"] = {lang: [*files, str(tmp_path / f"{lang}.txt")] for lang, files in values["corpora"].items()}
    values["stop"]["rounds"] = 2
    result = run_loop(write_config(tmp_path, values), tmp_path / "out", "--resume")
    assert result.exit_code == 0, result.output
    assert sentence(LANGS[0], added_numbers[0]) not in set(training_texts(tmp_path / "out" / "round-00", "source_text"))
    added = {sentence(LANGS[0], digits) for digits in added_numbers}
    assert len(added & set(training_texts(tmp_path / "out" / "round-01", "source_text"))) > 100


@pytest.mark.slow
def test_a_transformer_continues_from_the_last_round(data: Path, tmp_path: Path) -> None:
    encoder = {"kind": "transformer", "model": str(save_transformer(tmp_path / "model", dropout=0.0)), "pooling": "mean"}
    steps = {"batch_size": 64, "lr": 2e-3}
    seed = {"strategy": "parallel", "files": [str(write_pairs(tmp_path / "pairs.tsv"))], "columns": {"source": "en", "target": "de"}}
    mined = {"strategy": "mined", "files": ["{round}/pairs/*"], "weigh_by_margin": True}
    start = {"encoder": encoder, "data": [seed], "objective": [{"loss": "info_nce"}], "training": {**steps, "steps": 30}}
    training = {**start, "encoder": {**encoder, "model": "{last}"}, "data": [mined, seed], "training": {**steps, "steps": 20}}
    training["evaluation"] = {
        "files": ["{round}/validation/*.tsv"],
        "columns": {"source": "source", "target": "target"},
        "every": 10,
    }
    values = loop_config(data, pairs=ONE_PAIR, start={"train": start}, training=training)
    result = run_loop(write_config(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    figures = storage.read_json(str(tmp_path / "out" / "loop.json"))
    assert figures["rounds"][0]["dev"]["deu_Latn"] >= figures["start"]["dev"]["deu_Latn"]
    round_config = storage.read_json(str(tmp_path / "out" / "round-00" / "train.json"))
    assert round_config["encoder"]["model"] == str(tmp_path / "out" / "seed" / "encoder")


@pytest.mark.slow
def test_without_a_precise_threshold_only_the_best_pairs_are_selected(data: Path, finished_loop: Path, tmp_path: Path) -> None:
    planted = [[sentence(lang, digits) for lang in LANGS[:2]] for digits in numbers(20, seed=5, digits=5)]
    (tmp_path / "planted.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in planted))
    mining = {"threshold": "auto", "planted": str(tmp_path / "planted.tsv"), "pair_filters": "none"}
    values = loop_config(data, mining=mining, start={"encoder": str(finished_loop / "seed" / "encoder")}, pairs=ONE_PAIR)
    values["selection"] |= {"min_count": 10, "floor": 1.0}
    values["stop"]["least_pairs"] = 50
    result = run_loop(write_config(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "no threshold can be chosen" in result.output
    selection = storage.read_json(str(tmp_path / "out" / "loop.json"))["rounds"][0]["selection"]["pairs"]["eng_Latn-deu_Latn"]
    assert (selection["selected"], selection["threshold"]) == (10, None)


INVALID_CONFIGS = {
    "pivot": ({"pivot": "fra"}, "no corpus for fra_Latn"),
    "language": ({"pairs": [["eng", "xx-yy-zz"]]}, "unknown language code"),
    "both": ({"start": {"encoder": "labse", "train": train_config("a", steps=1)}}, "either encoder or train"),
    "encoder": ({"start": {"encoder": "./none"}}, "no such encoder folder"),
    "not mined": ({"training": train_config("a", steps=1)}, "so mined pairs are not used"),
    "corpus": ({"corpora": {"eng": ["none.txt"], "deu": ["none.txt"]}}, "none.txt"),
    "seed": ({"training": train_config("none.parquet", "{round}/groups.parquet", steps=1)}, "none.parquet"),
    "dev": ({"evaluation": {"dev": {"x": {"source": "none.txt", "target": "none.txt"}}}}, "none.txt"),
    "gold": ({"mining": {"gold": "none.{source}-{target}.tsv"}}, "none.eng_Latn-deu_Latn.tsv"),
    "no validation": (
        {
            "selection": {"validation": 0},
            "training": {
                **train_config("{round}/groups.parquet", steps=1),
                "evaluation": {"files": ["{round}/validation/*.tsv"], "columns": {"source": "source", "target": "target"}},
            },
        },
        "selection.validation 0 holds out no pairs",
    ),
    "unknown": ({"stop": {"round": 3}}, "unknown setting"),
    "no threshold": ({"mining": {"threshold": "auto"}}, "mining.threshold: auto needs mining.gold or mining.planted"),
    "pooling": ({"start": {"pooling": "cls"}}, "start.pooling cls: "),
    "one language": ({"corpora": {"eng": ["a.txt"], "eng_Latn": ["b.txt"], "deu": ["c.txt"]}}, "eng and eng_Latn are one language"),
}


@pytest.mark.parametrize("case", INVALID_CONFIGS)
def test_invalid_configs_are_reported_before_anything_is_written(case: str, data: Path, tmp_path: Path) -> None:
    changes, message = INVALID_CONFIGS[case]
    assert message in error_of("loop", write_config(tmp_path, loop_config(data, **changes)), "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_errors_name_the_keys_of_the_config(data: Path, tmp_path: Path) -> None:
    """Commands that read the same text name their options, which the loop does not have."""
    table = str(data / "seed.parquet")
    corpora = {"eng": [table], "deu": [table]}
    message = error_of("loop", write_config(tmp_path, loop_config(data, corpora=corpora)), "--output", tmp_path / "out")
    assert message.startswith(f"{table}: is a table; name the column with the text by reading.text_column, ")
    evaluation = {"dev": {"x": {"source": table, "target": table}}}
    message = error_of("loop", write_config(tmp_path, loop_config(data, evaluation=evaluation)), "--output", tmp_path / "out")
    assert message.startswith(f"{table}: is a table; name the column with the text by evaluation.dev.x.text_column, ")
