"""Cleaning: evaluation sentences and repeated rows are dropped from training data, and counted."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from command import miner

from miner.errors import ConfigError, DataError
from miner.training import run
from miner.training.config import TrainConfig, check_config
from miner.training.data.cleaning import Cleaning
from miner.training.data.datasets import open_dataset, read_dropped, read_source
from miner.training.data.multilingual import LabelledPairsSettings
from miner.training.data.strategies import ParallelSettings
from miner.training.settings import CleaningSettings

PAIRS = [
    ["The committee met in Geneva last week.", "Der Ausschuss tagte letzte Woche in Genf."],
    ["The committee met in Geneva last week.", "Das Komitee traf sich in Genf."],  # another translation: kept
    ["The committee met in Geneva last week.", "Der Ausschuss tagte letzte Woche in Genf."],  # repeated
    ["THE VOTE WAS ON MONDAY", "Die Abstimmung war am Montag."],  # an evaluation sentence
    ["Nothing of the kind.", "Wir fahren morgen nach Hamburg, sagte sie."],  # nearly an evaluation sentence
    ["A last sentence.", "Ein letzter Satz."],
]
EVALUATION = [["The vote was on Monday.", "x1", "3.5"], ["Wir fahren morgen nach Hamburg, sagte er.", "x2", "1.0"]]


def settings(folder: Path, rows: list[list[str]] = PAIRS, **changes: Any) -> tuple[ParallelSettings, CleaningSettings]:
    pairs = tiny.write_tsv(folder / "train.tsv", ["en", "de"], rows)
    evaluation = tiny.write_tsv(folder / "sts.tsv", ["first", "second", "score"], EVALUATION)
    source = ParallelSettings.check(strategy="parallel", files=[str(pairs)], columns={"source": "en", "target": "de"})
    return source, CleaningSettings.check(decontaminate=[str(evaluation)], **changes)


@pytest.mark.parametrize(
    ("changes", "kept", "dropped"),
    [
        ({}, [0, 1, 5], {"evaluation": 1, "near_evaluation": 1, "repeated": 1}),
        ({"deduplicate": False}, [0, 1, 2, 5], {"evaluation": 1, "near_evaluation": 1}),
        ({"near": 1.0}, [0, 1, 4, 5], {"evaluation": 1, "repeated": 1}),
        ({"decontaminate": []}, [0, 1, 3, 4, 5], {"repeated": 1}),
    ],
)
def test_evaluation_sentences_and_repeated_rows_are_dropped(
    tmp_path: Path, changes: dict[str, Any], kept: list[int], dropped: dict[str, int]
) -> None:
    source, cleaning = settings(tmp_path)
    read_source(source, tmp_path / "work", Cleaning(cleaning.model_copy(update=changes)))
    dataset = open_dataset(source, tmp_path / "work")
    assert len(dataset) == len(kept)
    for role, column in (("source", 0), ("target", 1)):
        assert dataset.texts.take(dataset.text_rows(role)) == [PAIRS[row][column] for row in kept]
    assert read_dropped(tmp_path / "work") == dropped


def test_equal_texts_with_another_label_are_kept(tmp_path: Path) -> None:
    rows = [["A man sleeps.", "He rests.", "yes"], ["A man sleeps.", "He rests.", "no"], ["A man sleeps.", "He rests.", "yes"]]
    path = tiny.write_tsv(tmp_path / "nli.tsv", ["a", "b", "label"], rows)
    columns = {"first": "a", "second": "b", "label": "label"}
    source = LabelledPairsSettings.check(strategy="labelled_pairs", files=[str(path)], columns=columns, labels=["yes", "no"], joint=False)
    read_source(source, tmp_path / "work", Cleaning(CleaningSettings()))
    assert open_dataset(source, tmp_path / "work").metadata["label"].to_pylist() == ["yes", "no"]


def test_training_reports_what_was_dropped(folder: Path) -> None:
    lines = (folder / "pairs.tsv").read_text().splitlines(keepends=True)
    (folder / "pairs.tsv").write_text("".join([*lines, *lines[1:21]]))
    dev = tiny.write_tsv(folder / "dev.tsv", ["en", "de"], [line.rstrip("\n").split("\t") for line in lines[50:53]])
    values = tiny.config(folder, steps=2)
    (folder / "config.yaml").write_text(json.dumps(values))
    changes = ["--set", f"cleaning={{decontaminate: [{dev}], near: 1.0}}"]
    output = miner("train", folder / "config.yaml", "--output", folder / "out", "--json", folder / "result.json", *changes)
    assert output.exit_code == 0, output.output
    assert "source parallel: 3 evaluation, 20 repeated dropped" in output.output
    expected = {"parallel": {"evaluation": 3, "repeated": 20}}
    assert json.loads((folder / "out" / "result.json").read_text())["dropped"] == expected
    assert json.loads((folder / "result.json").read_text())["dropped"] == expected


def test_changed_evaluation_files_are_read_again(folder: Path) -> None:
    dev = tiny.write_tsv(folder / "dev.tsv", ["en"], [["unrelated"]])
    values = {**tiny.config(folder, steps=2), "cleaning": {"decontaminate": [str(dev)], "near": 1.0}}
    sizes = []
    for name in ("first", "second"):
        trainer = run.prepare(TrainConfig(**values), folder / "out")[0]
        sizes.append(trainer.streams[0].sources["parallel"].num_examples)
        tiny.write_tsv(dev, ["en"], [[(folder / "pairs.tsv").read_text().splitlines()[1].split("\t")[0]], [name]])
    assert sizes == [400, 399]


def test_errors_name_the_fault(tmp_path: Path) -> None:
    source, cleaning = settings(tmp_path, PAIRS[3:4])
    with pytest.raises(DataError, match=r"train\.tsv: no examples left \(1 evaluation dropped\)"):
        read_source(source, tmp_path / "work", Cleaning(cleaning))
    with pytest.raises(DataError, match=r"nowhere\.tsv: no such file"):
        read_source(source, tmp_path / "other", Cleaning(CleaningSettings.check(decontaminate=["nowhere.tsv"])))
    columns = {"lang": "lang", "premise": "a", "hypothesis": "b", "label": "label"}
    values = {**tiny.config(tmp_path), "cleaning": {}}
    values["data"] = [{"strategy": "cross_lingual_nli", "files": ["x.tsv"], "columns": columns}]
    with pytest.raises(ConfigError, match="'cross_lingual_nli' is the same example in every language, so no row can be dropped"):
        check_config(TrainConfig(**values))
