"""Errors and warnings of settings name the keys that the user wrote, and the types that a setting accepts."""

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import error_of

from miner.config.base import Settings
from miner.config.messages import TOP_LEVEL, as_keyword, name_keys, respelling
from miner.errors import DataError

RUN = {"output": "out", "corpora": {"en": "a.txt", "de": {"files": ["b.txt"]}}}
SOURCE = {"strategy": "parallel", "files": "a.tsv", "columns": {"source": "a", "target": "b"}}
TRAIN = {
    "encoder": {"kind": "static"},
    "data": [SOURCE],
    "objective": [{"loss": "momentum", "momentum": 0.9}],
    "training": {"steps": 1, "batch_size": 2, "lr": 0.1},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runner": {"profiles": {"x": {"y": None}}}}, "runner.profiles.x.y: expected true or false, a number, text or a list, not None"),
        ({"runner": {"profiles": {"x": {"y": {"z": 1}}}}}, "runner.profiles.x.y: expected true or false, a number, text or a list"),
        ({"runner": {"profiles": {"x": {"y": [1]}}}}, "runner.profiles.x.y.0: expected text, not 1"),
        ({"corpora": {"en": 5}}, "corpora.en: expected a file, a list of files, or a mapping with `files`, not 5"),
        ({"corpora": {"en": {"files": []}}}, "corpora.en.files: expected at least 1 item, not []"),
        ({"engine": "fais"}, "engine: expected 'auto', 'exact' or 'faiss', not 'fais'"),
        ({"k": "four"}, "k: expected an integer, not 'four'"),
    ],
)
def test_configs_of_runs(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump({**RUN, **change}))
    assert error_of("run", config) == f"{config}: {message}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder": {"kind": "statik"}}, "encoder.kind: unknown 'statik'; did you mean 'static'?"),
        ({"encoder": {"kind": "x"}}, "encoder.kind: unknown 'x'; one of static, transformer"),
        ({"encoder": {}}, "encoder.kind: missing, and required"),
        ({"encoder": {"kind": "static", "dims": 3}}, "unknown setting 'encoder.dims'; did you mean 'dim'?"),
        ({"data": {**SOURCE, "columns": {"source": ["a"]}}}, "data.columns.source: expected text, not ['a']"),  # `data` is no list here
        ({"data": [{**SOURCE, "files": {"dataset": "d"}}]}, "data.0.files.path: missing, and required"),
        ({"objective": [{"loss": "momentum", "momentum": "x"}]}, "objective.0.momentum: expected a number, not 'x'"),
        ({"objective": [{"loss": "momentum", "momentum": 0.9, "queue": "x"}]}, "objective.0.queue: expected an integer, not 'x'"),
        ({"training": None}, "training: expected a mapping, not None"),
    ],
)
def test_configs_of_training(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    """The kind of an encoder, a source or a loss is no part of the path."""
    config = tmp_path / "train.yaml"
    config.write_text(yaml.safe_dump({**TRAIN, **change}))
    assert error_of("train", config, "--output", tmp_path / "out") == f"{config}: {message}"


class Reading(Settings):
    text_column: str = "text"
    split: bool = False


class Deciding(Settings):
    split: bool = False
    planted: str = ""


def test_options_become_the_keys_of_a_config() -> None:
    message = "name the column by --text-column, or --split it; --planted or --other-option, not--planted 1--2"
    with pytest.raises(DataError) as error, name_keys({"reading": Reading, TOP_LEVEL: Deciding}):
        raise DataError(message)
    assert str(error.value) == "name the column by reading.text_column, or reading.split it; planted or --other-option, not--planted 1--2"


def test_warnings_are_spelled_until_the_call_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Calls of two threads overlap; the first to start ends first."""
    logger, calls = logging.getLogger("miner.test"), [respelling(as_keyword), respelling(as_keyword)]
    for call in calls:
        call.__enter__()
        logger.warning("give --max-chars %d", 7)
    for call in calls:
        call.__exit__(None, None, None)
        logger.warning("give --max-chars %d", 7)
    assert caplog.messages == [*["give max_chars= 7"] * 3, "give --max-chars 7"]
