"""Read the state of a run from the files in its output directory, whether it is running or not, on this machine or another."""

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from miner.errors import DataError, StorageError
from miner.io import lock, records, stages, storage
from miner.io.lock import LockOwner
from miner.io.stages import MARKERS, SENTENCES, stage_folder
from miner.training.layout import CHECKPOINTS, CONFIG, ENCODER, LOG, RESULT
from pipelines.corpus.input_changes import InputChanges, find_changes
from pipelines.mining.select_pairs import DROPPED

START_RECORDS = {"config.json": "loop", "train.json": "train"}  # file -> the command, which may stop before its first stage
TSV = ".tsv.gz"  # has the same rows as the Parquet file of the same name
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
    score: float | None  # score of the last validation
    best_score: float | None
    encoder: str | None  # relative to the directory of the run; the best one so far, None before the first


@dataclass(frozen=True)
class StageStatus:
    """The state of one stage."""

    folder: str  # relative to the directory of the run
    finished: bool
    shards: int  # finished ones
    total: int | None  # None if it does not follow from the names of the shards
    rows: int | None  # None unless the stage is finished
    skipped: int = 0  # shards and inputs
    edited: int = 0  # input files, since they were read
    added: int = 0  # files that match the patterns of the inputs, since these were read


@dataclass(frozen=True)
class RunStatus:
    """The state of a run."""

    folder: str
    run: LockOwner | None  # the run that is active or died
    alive: bool
    stages: tuple[StageStatus, ...]
    trainings: tuple[TrainingStatus, ...]
    loop: LoopStatus | None
    command: str | None  # that writes to the directory: loop, train, or None for another one

    @property
    def can_resume(self) -> bool:
        """Whether a training run or a loop has stopped before its end."""
        can_continue = self.loop is not None and self.loop.stop_reason is None
        return not self.alive and (can_continue or not all(training.finished for training in self.trainings))


def read_status(folder: str) -> RunStatus:
    """Read the state of the run in a directory. Raises DataError if the directory has neither output nor an active run."""
    if not storage.is_folder(folder):
        raise DataError(f"{folder}: no such folder; give the --output of a command")
    names = storage.files_below(folder)
    owner = lock.read_owner(folder)
    stage_folders = sorted({path for name in names if (path := stage_folder(name)) is not None})
    if owner is None and not stage_folders and not START_RECORDS.keys() & set(names):
        raise DataError(f"{folder}: holds no output of `miner`; give the --output of a command")
    statuses = tuple(_read_stage_status(folder, path, names) for path in stage_folders)
    is_alive = owner is not None and owner.is_alive
    command = next((command for name, command in START_RECORDS.items() if name in names), None)
    trainings = [
        _read_training_status(folder, path, {name.removeprefix(path) for name in names if name.startswith(path)})
        for path in sorted(name.removesuffix(CONFIG) for name in names if f"/{name}".endswith(f"/{CONFIG}"))
    ]
    return RunStatus(folder, owner, is_alive, statuses, tuple(trainings), _read_loop_status(folder, names), command)


def _read_stage_status(folder: str, path: str, names: list[str]) -> StageStatus:
    """Read the state of the stage in FOLDER/path. `names` are all files below `folder`."""
    markers = storage.join(path, MARKERS) if path else MARKERS
    shown_path = path or "."
    try:
        manifest = stages.read_manifest(storage.join(folder, path))
        shards = [shard for shard in manifest.shards if not shard.name.endswith(TSV) and shard.name != DROPPED]
        rows = sum(shard.rows for shard in shards)
        changes = find_changes(manifest) if manifest.stage == SENTENCES else InputChanges((), ())
        counts = len(manifest.skipped), len(changes.edited), len(changes.added)
        return StageStatus(shown_path, True, len(shards), len(shards), rows, *counts)
    except StorageError:
        finished = [name.removeprefix(f"{markers}/") for name in names if name.startswith(f"{markers}/part-")]
        total = int(finished[0].split("-of-")[1].split(".")[0]) if finished else None
        return StageStatus(shown_path, False, len(finished), total, None)


def _read_loop_status(folder: str, names: Iterable[str]) -> LoopStatus | None:
    """Return the state of the loop in a directory, None if there is none or its first round has not begun."""
    if LOOP not in names:
        return None
    record = records.read(storage.join(folder, LOOP), LoopRecord)
    return LoopStatus(len(record["rounds"]), record["best"], record["stop_reason"])


def _read_training_status(folder: str, path: str, names: set[str]) -> TrainingStatus:
    """Read the state of the run in FOLDER/path. `names` are the files below that directory."""
    checkpoint_steps = [int(match[1]) for name in names if (match := CHECKPOINT_STEP.match(name.removeprefix(f"{CHECKPOINTS}/")))]
    entries: list[Mapping[str, float]] = []
    for line in storage.read_bytes(f"{folder.rstrip('/')}/{path}{LOG}").splitlines() if LOG in names else ():
        with contextlib.suppress(ValueError, KeyError, TypeError):  # a line that a kill has cut
            entry = json.loads(line)
            entries.append({name: float(entry[name]) for name in ("step", "score") if name in entry or name == "step"})
    scores = [entry["score"] for entry in entries if "score" in entry]
    has_encoder = any(name.startswith(f"{ENCODER}/") for name in names)
    return TrainingStatus(
        path.rstrip("/") or ".",
        RESULT in names,
        max([0, *checkpoint_steps, *(int(entry["step"]) for entry in entries)]),
        max(checkpoint_steps, default=None),
        scores[-1] if scores else None,
        max(scores, default=None),
        path + ENCODER if has_encoder else None,
    )
