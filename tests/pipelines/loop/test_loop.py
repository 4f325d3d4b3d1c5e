"""`miner loop` from end to end, on corpora of spelled-out numbers in which every translation is known."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from click.testing import Result
from command import miner, refused
from tiny import NUMBERS, numbers, save_transformer, sentence, write_pairs, write_tsv

from miner import storage
from miner.encoders import load_encoder
from miner.training.trainer import Trainer
from pipelines.loop import round

LANGS = tuple(NUMBERS)
ROWS, SEEDS, DEV = 240, 60, 60
ONE_PAIR = [list(LANGS[:2])]
TEMPLATE = "page {} of {}"


pytestmark = pytest.mark.usefixtures("one_thread")  # what is tiny is done sooner without threads that wait for one another


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Corpora of which every sentence is in all languages, shuffled; planted in them are the dev sentences and a template."""
    folder = tmp_path_factory.mktemp("loop-data")
    drawn = numbers(ROWS + SEEDS + DEV, seed=1, digits=6)
    mono, seeds, dev = drawn[:ROWS], drawn[ROWS : ROWS + SEEDS], drawn[ROWS + SEEDS :]
    for lang in LANGS:
        lines = [sentence(lang, digits) for digits in mono]
        lines += [sentence(lang, digits).upper() + "!" for digits in dev]
        lines += [TEMPLATE.format(number, number + 7) for number in range(100, 130)]
        random.Random(lang).shuffle(lines)
        (folder / f"{lang}.txt").write_text("\n".join(lines) + "\n")
    known = [{lang: sentence(lang, digits) for lang in LANGS} for digits in seeds]
    known += [dict.fromkeys(LANGS, TEMPLATE.format(number, number - 300)) for number in range(500, 530)]  # so that figures have vectors
    rows = [{"group": group, "lang": lang, "text": text} for group, texts in enumerate(known) for lang, text in texts.items()]
    pq.write_table(pa.Table.from_pylist(rows), folder / "seed.parquet")
    for lang in LANGS[1:]:
        write_tsv(folder / f"dev.{lang}.tsv", ["en", "xx"], [[sentence(LANGS[0], row), sentence(lang, row)] for row in dev])
    return folder


def recipe(*files: str, steps: int) -> dict[str, Any]:
    source = {"strategy": "grouped_pairs", "columns": {"group": "group", "lang": "lang", "text": "text"}, "block_size": 64}
    return {
        "encoder": {"kind": "static", "dim": 16, "spelling_buckets": 64, "vocabulary": {"size": 80, "sentences": 2000}},
        "data": [{**source, "name": Path(name).stem, "files": [name]} for name in files],
        "objective": [{"loss": "info_nce", "two_way": True}],
        "training": {"steps": steps, "batch_size": 128, "lr": 0.02, "floor": 0.1, "checkpoint_every": 5},
    }


def config(data: Path, **changes: Any) -> dict[str, Any]:
    seed = str(data / "seed.parquet")
    dev = {lang: str(data / f"dev.{lang}.tsv") for lang in LANGS[1:]}
    tasks = {lang: {"source": uri, "target": uri, "text_column": "en", "target_column": "xx"} for lang, uri in dev.items()}
    return {
        "corpora": {lang: [str(data / f"{lang}.txt")] for lang in LANGS},
        "start": {"train": recipe(seed, steps=20)},
        "mining": {"threshold": 1.0, "pair_filters": {}},
        "selection": {"validation": 0.1, "skip_top": 0.0},
        "training": recipe(seed, "{round}/groups.parquet", steps=60),
        "evaluation": {"dev": tasks, "near": 1.0},
        "stop": {"rounds": 1, "least_pairs": 20},
        **changes,
    }


def write(folder: Path, values: dict[str, Any]) -> str:
    path = folder / "loop.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return str(path)


def loop(path: str, output: Path, *more: str) -> Result:
    return miner("loop", path, "--output", output, *more, report="--json" in more)


def texts(place: Path, column: str) -> list[str]:
    return [text for path in sorted(place.glob("pairs/*/bitext.parquet")) for text in storage.read_table(str(path))[column].to_pylist()]


@pytest.fixture(scope="session")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loop of two rounds over all pairs of three languages."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("loop")
    values = config(data, stop={"rounds": 2, "least_pairs": 20, "patience": 2, "jaccard": 1.0})
    result = loop(write(folder, values), folder / "out", "--json", str(folder / "figures.json"))
    assert result.exit_code == 0, result.output
    return folder / "out"


def test_rounds_gain_and_each_is_complete(done: Path) -> None:
    told = storage.read_json(str(done / "loop.json"))
    assert told == storage.read_json(str(done.parent / "figures.json"))
    dev = [np.mean(list(of["dev"].values())) for of in (told["start"], *told["rounds"])]
    assert len(dev) == 3
    assert max(dev[1:]) > dev[0] + 0.1
    for name in ("seed", "round-00", "round-01"):
        vectors = load_encoder(str(done / name / "encoder")).encode(["one two", "eins zwei"])
        assert np.allclose((vectors**2).sum(axis=1), 1, atol=1e-5)
    assert (done / "best").resolve().name == told["best"]
    assert (done / "latest" / "encoder" / "miner.json").exists()
    assert "round-01" in (done / "report.html").read_text(encoding="utf-8")
    assert "2 rounds" in told["stopped"] or "dev is no better" in told["stopped"]


def test_planted_evaluation_sentences_are_never_learnt(done: Path, data: Path) -> None:
    held = {cell.casefold() for path in data.glob("dev.*.tsv") for line in path.read_text().splitlines()[1:] for cell in line.split("\t")}
    assert len(held) == DEV * 3
    for place in (done / "round-00", done / "round-01"):
        learnt = texts(place, "source_text") + texts(place, "target_text")
        learnt += storage.read_table(str(place / "groups.parquet"))["text"].to_pylist()
        learnt += [cell for path in place.glob("validation/*.tsv") for line in path.read_text().splitlines() for cell in line.split("\t")]
        assert len(learnt) > 500
        assert not {text.casefold().rstrip("!") for text in learnt} & held
        selection = storage.read_json(str(place / "selection.json"))
        assert sum(of["in evaluation files"]["exact"] for of in selection["pairs"].values()) > DEV


def test_a_template_does_not_come_to_dominate(done: Path) -> None:
    for place in (done / "round-00", done / "round-01"):
        for path in place.glob("mined/*/bitext.parquet"):
            assert sum("page" in text for text in storage.read_table(str(path))["source_text"].to_pylist()) > 20  # it was mined
        for path in place.glob("pairs/*/bitext.parquet"):
            assert sum("page" in text for text in storage.read_table(str(path))["source_text"].to_pylist()) <= 3


def test_pairs_link_languages_to_groups(done: Path) -> None:
    groups = storage.read_table(str(done / "round-00" / "groups.parquet")).to_pylist()
    members: dict[int, list[str]] = {}
    for row in groups:
        members.setdefault(row["group"], []).append(row["lang"])
    assert all(len(set(langs)) == len(langs) >= 2 for langs in members.values())
    assert sum(len(langs) == 3 for langs in members.values()) > len(members) / 4


def test_validation_is_a_random_part_that_is_not_learnt(done: Path) -> None:
    place = done / "round-00"
    ranks = []
    for path in sorted(place.glob("validation/*.tsv")):
        held = [tuple(line.split("\t")) for line in path.read_text().splitlines()[1:]]
        bitext = storage.read_table(str(place / "mined" / path.stem / "bitext.parquet"))
        mined = list(zip(bitext["source_text"].to_pylist(), bitext["target_text"].to_pylist(), strict=True))
        ranks += [mined.index(pair) / len(mined) for pair in held]
        learnt = storage.read_table(str(place / "pairs" / path.stem / "bitext.parquet"))
        assert not {one for one, _ in held} & set(learnt["source_text"].to_pylist())
        assert not {other for _, other in held} & set(learnt["target_text"].to_pylist())
    assert len(ranks) > 15
    assert 0.25 < np.mean(ranks) < 0.75  # the top would be near 0


def test_another_loop_is_not_written_over(done: Path, tmp_path: Path) -> None:
    before = (done / "config.json").read_bytes()
    path = write(tmp_path, yaml.safe_load((done.parent / "loop.yaml").read_text()))
    assert "--resume" in loop(path, done).output
    result = loop(path, done, "--resume", "--set", "mining.k=5")
    assert result.exit_code == 1
    assert "begun with another mining" in result.output
    assert (done / "config.json").read_bytes() == before


def test_a_round_that_worsens_is_rolled_back(data: Path, tmp_path: Path) -> None:
    values = config(data, training=recipe(str(data / "seed.parquet"), "{round}/groups.parquet", steps=1), pairs=ONE_PAIR)
    values["start"]["train"]["training"]["steps"] = 40
    values["stop"]["rounds"] = 3
    result = loop(write(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "round 00 was rolled back" in result.output
    told = storage.read_json(str(tmp_path / "out" / "loop.json"))
    assert [of["kept"] for of in told["rounds"]] == [False]
    assert "rolled back" in told["stopped"]
    assert (tmp_path / "out" / "best").resolve().name == (tmp_path / "out" / "latest").resolve().name == "seed"


def test_too_little_to_learn_from_ends_the_loop(data: Path, toy_encoder: Path, tmp_path: Path) -> None:
    values = config(data, mining={"threshold": 50.0}, start={"encoder": str(toy_encoder)}, pairs=ONE_PAIR)
    result = loop(write(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "mined 0 pairs, too few to learn from" in result.output
    assert (tmp_path / "out" / "best" / "encoder" / "miner.json").exists()


@pytest.fixture(scope="session")
def one_round(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """A config of one round, and the encoder it ends in when nothing stops it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole")
    path = write(folder, config(data, pairs=ONE_PAIR))
    assert loop(path, folder / "out").exit_code == 0
    return path, weights(folder / "out")


def weights(output: Path) -> bytes:
    return (output / "round-00" / "encoder" / "vectors.safetensors").read_bytes()


STOPS = {"seed": (Trainer, "_step", 7), "mine": (round.mine, "run", 0), "evaluate": (round, "drift", 0)}


@pytest.mark.parametrize("stop", STOPS)
def test_a_loop_stopped_anywhere_ends_in_the_same_encoder(
    stop: str, one_round: tuple[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, whole = one_round
    owner, name, times = STOPS[stop]
    right, calls = getattr(owner, name), iter(range(times))

    def stopping(*arguments: Any, **named: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return right(*arguments, **named)

    monkeypatch.setattr(owner, name, stopping)
    assert loop(path, tmp_path / "out").exit_code == 130
    monkeypatch.setattr(owner, name, right)
    result = loop(path, tmp_path / "out", "--resume")
    assert result.exit_code == 0, result.output
    assert weights(tmp_path / "out") == whole


@pytest.mark.slow
def test_a_killed_loop_ends_in_the_same_encoder(one_round: tuple[str, bytes], tmp_path: Path) -> None:
    path, whole = one_round
    command = [sys.executable, "-m", "miner.cli.main", "loop", path, "--output", str(tmp_path / "out")]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    while process.poll() is None and not any((tmp_path / "out" / "round-00").glob("checkpoints/step-*")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "out" / "round-00" / "round.json").exists()
    result = loop(path, tmp_path / "out", "--resume")
    assert result.exit_code == 0, result.output
    assert weights(tmp_path / "out") == whole


@pytest.mark.slow
def test_text_added_between_rounds_is_mined(data: Path, tmp_path: Path) -> None:
    more = numbers(200, seed=9, digits=5)
    for lang in LANGS:
        (tmp_path / f"{lang}.txt").write_text("\n".join(sentence(lang, digits) for digits in more) + "\n")
    values = config(data, pairs=ONE_PAIR)
    assert loop(write(tmp_path, values), tmp_path / "out").exit_code == 0
    values["corpora"] = {lang: [*files, str(tmp_path / f"{lang}.txt")] for lang, files in values["corpora"].items()}
    values["stop"]["rounds"] = 2
    result = loop(write(tmp_path, values), tmp_path / "out", "--resume")
    assert result.exit_code == 0, result.output
    assert not {sentence(LANGS[0], more[0])} & set(texts(tmp_path / "out" / "round-00", "source_text"))
    added = {sentence(LANGS[0], digits) for digits in more}
    assert len(added & set(texts(tmp_path / "out" / "round-01", "source_text"))) > 100


def test_a_transformer_goes_on_from_the_last_round(data: Path, tmp_path: Path) -> None:
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
    values = config(data, pairs=ONE_PAIR, start={"train": start}, training=training)
    result = loop(write(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    told = storage.read_json(str(tmp_path / "out" / "loop.json"))
    assert told["rounds"][0]["dev"]["deu_Latn"] >= told["start"]["dev"]["deu_Latn"]
    recipe = storage.read_json(str(tmp_path / "out" / "round-00" / "train.json"))
    assert recipe["encoder"]["model"] == str(tmp_path / "out" / "seed" / "encoder")


@pytest.mark.slow
def test_a_pair_for_which_no_threshold_will_do_gives_nothing_but_its_best(data: Path, done: Path, tmp_path: Path) -> None:
    planted = [[sentence(lang, digits) for lang in LANGS[:2]] for digits in numbers(20, seed=5, digits=5)]
    (tmp_path / "planted.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in planted))
    mining = {"threshold": "auto", "planted": str(tmp_path / "planted.tsv"), "pair_filters": {}}
    values = config(data, mining=mining, start={"encoder": str(done / "seed" / "encoder")}, pairs=ONE_PAIR)
    values["selection"] |= {"min_count": 10, "floor": 1.0}
    values["stop"]["least_pairs"] = 50
    result = loop(write(tmp_path, values), tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "no threshold can be chosen" in result.output
    told = storage.read_json(str(tmp_path / "out" / "loop.json"))["rounds"][0]["selection"]["pairs"]["eng_Latn-deu_Latn"]
    assert (told["selected"], told["threshold"]) == (10, None)


FAULTS = {
    "pivot": ({"pivot": "fra"}, "no corpus for fra_Latn"),
    "language": ({"pairs": [["eng", "xx-yy-zz"]]}, "unknown language code"),
    "both": ({"start": {"encoder": "builtin", "train": recipe("a", steps=1)}}, "either encoder or train"),
    "encoder": ({"start": {"encoder": "./none"}}, "no encoder folder there"),
    "not mined": ({"training": recipe("a", steps=1)}, "what is mined is not learnt"),
    "corpus": ({"corpora": {"eng": ["none.txt"], "deu": ["none.txt"]}}, "none.txt"),
    "seed": ({"training": recipe("none.parquet", "{round}/groups.parquet", steps=1)}, "none.parquet"),
    "dev": ({"evaluation": {"dev": {"x": {"source": "none.txt", "target": "none.txt"}}}}, "none.txt"),
    "gold": ({"mining": {"gold": "none.{source}-{target}.tsv"}}, "none.eng_Latn-deu_Latn.tsv"),
    "unknown": ({"stop": {"round": 3}}, "unknown setting"),
    "no threshold": ({"mining": {"threshold": "auto"}}, "--threshold auto needs pairs to choose by"),
    "one language": ({"corpora": {"eng": ["a.txt"], "eng_Latn": ["b.txt"], "deu": ["c.txt"]}}, "eng and eng_Latn are one language"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_work_is_said_in_one_line_before_anything_is_written(fault: str, data: Path, tmp_path: Path) -> None:
    changes, told = FAULTS[fault]
    assert told in refused("loop", write(tmp_path, config(data, **changes)), "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()
