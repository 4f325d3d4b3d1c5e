"""Read the state of training runs and loops from the files in their directories, without torch."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from miner.io import records, storage
from miner.training.layout import CHECKPOINTS, CONFIG, ENCODER, LOG, RESULT

LOOP = "loop.json"
CHECKPOINT_STEP = re.compile(r"step-(\d+)/")


@with_config(ConfigDict(extra="allow"))
class LoopRecord(TypedDict):
    """The part of `loop.json` that is shown."""

    rounds: list[dict[str, Any]]
    best: str
    stop_reason: str | None


@dataclass(frozen=True)
class LoopStatus:
    """The state of a loop between two rounds."""

    rounds: int  # finished ones
    best: str  # directory of the best encoder on dev
    stop_reason: str | None  # why the loop ended; None while it can continue


@dataclass(frozen=True)
class TrainingStatus:
    """The state of a training run."""

    folder: str  # relative to the directory of the run
    finished: bool
    steps: int  # the last one that is recorded
    checkpoint: int | None  # step of the last checkpoint; None if there is none, also after the end
    score: float | None  # of the last validation
    best_score: float | None
    encoder: str | None  # relative to the directory of the run; the best one so far, None before the first


def read_loop_status(folder: str, names: Iterable[str]) -> LoopStatus | None:
    """Return the state of the loop in a directory, None if there is none or its first round has not begun."""
    if LOOP not in names:
        return None
    record = records.read(storage.join(folder, LOOP), LoopRecord)
    return LoopStatus(len(record["rounds"]), record["best"], record["stop_reason"])


def read_training_statuses(folder: str, names: Iterable[str]) -> tuple[TrainingStatus, ...]:
    """Return the state of the training runs in a directory, such as those of the rounds of a loop. `names` are all files below it."""
    paths = sorted(name.removesuffix(CONFIG) for name in names if f"/{name}".endswith(f"/{CONFIG}"))
    files = {path: {name.removeprefix(path) for name in names if name.startswith(path)} for path in paths}
    return tuple(_read_training_status(folder, path, names_below) for path, names_below in files.items())


def _read_training_status(folder: str, path: str, names: set[str]) -> TrainingStatus:
    """Read the state of the run in FOLDER/path. `names` are the files below that directory."""
    uri = f"{folder.rstrip('/')}/{path}"
    checkpoint_steps = [int(match[1]) for name in names if (match := CHECKPOINT_STEP.match(name.removeprefix(f"{CHECKPOINTS}/")))]
    entries = _read_log(storage.read_bytes(uri + LOG)) if LOG in names else []
    scores = [entry["score"] for entry in entries if "score" in entry]
    steps = max([0, *checkpoint_steps, *(int(entry["step"]) for entry in entries)])
    has_encoder = any(name.startswith(f"{ENCODER}/") for name in names)
    return TrainingStatus(
        path.rstrip("/") or ".",
        RESULT in names,
        steps,
        max(checkpoint_steps, default=None),
        scores[-1] if scores else None,
        max(scores, default=None),
        path + ENCODER if has_encoder else None,
    )


def _read_log(content: bytes) -> list[Mapping[str, float]]:
    """Return the entries of a log, without those that a kill has cut."""
    entries: list[Mapping[str, float]] = []
    for line in content.splitlines():
        try:
            entry = json.loads(line)
            entries.append({name: float(entry[name]) for name in ("step", "score") if name in entry or name == "step"})
        except (ValueError, KeyError, TypeError):
            continue
    return entries
