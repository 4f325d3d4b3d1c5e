"""The small files of a loop: a flipped bit, a missing key and an odd value are errors of one line with a remedy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from miner.errors import StorageError
from miner.io import records
from pipelines.loop import loop
from pipelines.loop import round as loop_round

ROUND = {
    "selection": {"pairs": {"eng-deu": {"training": 5, "precision": 0.8, "mined": 9}}, "training": 4, "groups": {"2": 4}},
    "dev": {"news": 0.5},
    "test": {},
    "changes": {"jaccard": None, "gained": {"pairs": 5, "examples": []}, "lost": {"pairs": 0, "examples": []}},
    "seconds": {"embed": 1.5},
    "corpora": {"eng": {"en.txt": "10-1.5"}},
    "drift": 0.25,
}
SCHEMAS = {
    "round.json": (loop.RoundFigures, ROUND),
    "selection.json": (loop_round.SelectionFigures, ROUND["selection"]),
    "evaluation.json": (loop_round.EvaluationFigures, {"dev": {"news": 0.5}, "test": {}, "validation": {}, "tatoeba": 0.5}),
    "seconds.json": (loop_round.StageSeconds, {"embed": 1.5, "mine": 2.0}),
    "started.json": (loop_round.CorpusSignature, ROUND["corpora"]),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_records_of_a_loop_are_read_as_they_were_written(name: str, tmp_path: Path) -> None:
    schema, values = SCHEMAS[name]
    uri = str(tmp_path / name)
    records.write(uri, values)
    assert records.read(uri, schema) == values
    content = Path(uri).read_bytes()
    errors = []
    for position in range(len(content)):
        Path(uri).write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(StorageError) as caught:
            records.read(uri, schema)
        errors.append(str(caught.value))
    assert all(error.startswith(f"{uri}: ") and "; delete it and run" in error for error in errors)


@pytest.mark.parametrize(
    ("name", "edit", "where"),
    [
        ("round.json", lambda values: values.pop("selection"), "selection: Field required"),
        ("round.json", lambda values: values["selection"].pop("training"), "selection.training: Field required"),
        ("round.json", lambda values: values["selection"].update(training="many"), "selection.training: "),
        ("round.json", lambda values: values.update(dev=[0.5]), "dev: "),
        ("round.json", lambda values: values.update(changes={}), "changes.jaccard: Field required"),
        ("round.json", lambda values: values.update(seconds={"embed": None}), "seconds.embed: "),
        ("selection.json", lambda values: values["pairs"]["eng-deu"].update(precision="high"), "pairs.eng-deu.precision: "),
        ("evaluation.json", lambda values: values.pop("dev"), "dev: Field required"),
        ("started.json", lambda values: values.update(eng=3), "eng: "),
    ],
)
def test_odd_records_of_a_loop(name: str, edit: Callable[[dict[str, Any]], object], where: str, tmp_path: Path) -> None:
    schema, values = SCHEMAS[name]
    changed = json.loads(json.dumps(values))
    edit(changed)
    records.write(str(tmp_path / name), changed)
    with pytest.raises(StorageError) as caught:
        records.read(str(tmp_path / name), schema)
    assert str(caught.value).startswith(f"{tmp_path / name}: not valid ({where}")
