"""Several held-out sets: the encoder with the best score on each is the one that a run with this set alone keeps."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from command import error_of

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.research.tasks.probe import ClassificationTask
from miner.research.tasks.sts import StsTask
from miner.training import run
from miner.training.config import TrainConfig

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES = {"eng_Latn": 40, "deu_Latn": 20}  # groups of unequal sizes: their mean is not that of all rows


def write_sts(path: Path) -> Path:
    """Write pairs of sentences with the number of digits that they share, by language."""
    rows = []
    for lang, size in SIZES.items():
        digits = tiny.numbers(2 * size, seed=size)
        pairs = zip(digits[:size], digits[size:], strict=True)
        rows += [[lang, tiny.sentence(lang, a), tiny.sentence(lang, b), len({*a.tolist()} & {*b.tolist()})] for a, b in pairs]
    return tiny.write_tsv(path, ["lang", "sentence1", "sentence2", "score"], rows)


def write_classes(path: Path, seed: int) -> Path:
    """Write sentences, labelled by their sum of digits, by language."""
    rows = [
        [lang, tiny.sentence(lang, digits), ("low", "middle", "high")[int(sum(digits)) % 3]]
        for lang, size in SIZES.items()
        for digits in tiny.numbers(2 * size, seed=seed + size)
    ]
    return tiny.write_tsv(path, ["lang", "text", "label"], rows)


@pytest.fixture
def dev_sets(folder: Path) -> dict[str, dict[str, Any]]:
    """Held-out sets by name; the first one chooses the encoder."""
    pairs, sts = tiny.write_pairs(folder / "dev.tsv", rows=60, seed=5), write_sts(folder / "sts.tsv")
    classes, train = write_classes(folder / "classes.tsv", 100), write_classes(folder / "train.tsv", 200)
    sts_columns, columns = (
        {"first": "sentence1", "second": "sentence2", "score": "score", "group": "lang"},
        {"text": "text", "label": "label", "group": "lang"},
    )
    return {
        "": {"files": [str(pairs)], "columns": {"source": "en", "target": "de"}},
        "sts": {"metric": "sts", "files": [str(sts)], "columns": sts_columns},
        "classes": {"metric": "probe", "files": [str(classes)], "train": [str(train)], "columns": columns},
    }


def train(folder: Path, output: str, evaluation: dict[str, Any]) -> list[dict[str, float]]:
    """Train 20 steps at a rate that makes scores rise and fall, and return the lines with scores of the log."""
    values = {**tiny.config(folder, steps=20, lr=0.03, schedule="constant"), "evaluation": {**evaluation, "every": 2}}
    run.train(TrainConfig(**values), str(folder / output))
    lines = [json.loads(line) for line in (folder / output / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if "score" in line]


def test_each_encoder_is_that_of_a_run_with_its_held_out_set_alone(folder: Path, dev_sets: dict[str, dict[str, Any]]) -> None:
    main, *others = dev_sets
    lines = train(folder, "all", {**dev_sets[main], "best_by": {name: dev_sets[name] for name in others}})
    weights = set()
    for name, dev_set in dev_sets.items():
        alone = train(folder, f"alone-{name}", dev_set)
        assert [line["score"] for line in alone] == [line[f"score/{name}" if name else "score"] for line in lines]
        encoder = folder / "all" / (f"encoder-{name}" if name else "encoder")
        assert (encoder / "model.safetensors").read_bytes() == (folder / f"alone-{name}" / "encoder" / "model.safetensors").read_bytes()
        weights.add((encoder / "model.safetensors").read_bytes())
    assert len(weights) > 1


def test_scores_by_group_are_those_of_the_tasks(folder: Path, dev_sets: dict[str, dict[str, Any]]) -> None:
    """The mean over the groups of Spearman's correlation, and of the accuracy of classifiers as in MTEB."""
    main, *others = dev_sets
    lines = train(folder, "out", {**dev_sets[main], "best_by": {name: dev_sets[name] for name in others}})
    sts = StsTask(data=str(folder / "sts.tsv"), track_columns=["lang"])
    classes = ClassificationTask(train=str(folder / "train.tsv"), test=str(folder / "classes.tsv"), lang_column="lang", samples_per_label=8)
    for name, task, key in (("sts", sts, "spearman"), ("classes", classes, "accuracy")):
        figures = task.evaluate(load_encoder(str(folder / "out" / f"encoder-{name}"), EncoderSettings(dtype="float32"))).figures
        assert max(line[f"score/{name}"] for line in lines) == pytest.approx(figures["mean"][key], abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("best_by={a b: {files: [dev.tsv], columns: {source: en, target: de}}}", "a b"),
        ("metric=probe", "the metric probe, and no other, needs the files of its training rows in train"),
        ("columns={source: en, target: de, label: en}", "evaluation.columns: retrieval needs exactly the columns source, target"),
        ("best_by={a: {metric: accuracy, files: [dev.tsv], columns: {first: en, second: de, label: de}}}", "accuracy needs the loss"),
        (
            "best_by={a: {metric: probe, files: [dev.tsv], train: [one.tsv], columns: {text: en, label: de}}}",
            "dev.tsv: evaluation.train has no two labels; add training rows",
        ),
    ],
)
def test_wrong_held_out_sets_are_errors_of_one_line(
    folder: Path, dev_sets: dict[str, dict[str, Any]], change: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    tiny.write_tsv(folder / "one.tsv", ["en", "de"], [["one", "eins"], ["two", "eins"]])
    (folder / "train.yaml").write_text(json.dumps({**tiny.config(folder), "evaluation": dev_sets[""]}))
    assert message in error_of("train", "train.yaml", "--output", "out", "--set", f"evaluation.{change}")
    assert not (folder / "out").exists()
