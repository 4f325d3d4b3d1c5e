"""Read the state of a run from the files in its output directory, whether it is running or not, on this machine or another."""

from dataclasses import asdict, dataclass
from typing import Any

from miner.errors import DataError, StorageError
from miner.io import lock, stages, storage
from miner.io.lock import LockOwner
from miner.io.stages import MARKERS, stage_folder
from pipelines.mining.select_pairs import DROPPED
from pipelines.runs.training_status import LoopStatus, TrainingStatus, read_loop_status, read_training_statuses

START_RECORDS = {"config.json": "loop", "train.json": "train"}  # file -> the command, which may stop before its first stage
TSV = ".tsv.gz"  # has the same rows as the Parquet file of the same name


@dataclass(frozen=True)
class StageStatus:
    """The state of one stage."""

    folder: str  # relative to the directory of the run
    finished: bool
    shards: int  # finished ones
    total: int | None  # None if it does not follow from the names of the shards
    rows: int | None  # None unless the stage is finished
    skipped: int = 0  # shards and inputs


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

    def figures(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return asdict(self)


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
    trainings, loop = read_training_statuses(folder, names), read_loop_status(folder, names)
    return RunStatus(folder, owner, is_alive, statuses, trainings, loop, command)


def _read_stage_status(folder: str, path: str, names: list[str]) -> StageStatus:
    """Read the state of the stage in FOLDER/path. `names` are all files below `folder`."""
    markers = storage.join(path, MARKERS) if path else MARKERS
    shown_path = path or "."
    try:
        manifest = stages.read_manifest(storage.join(folder, path))
        shards = [shard for shard in manifest.shards if not shard.name.endswith(TSV) and shard.name != DROPPED]
        rows = sum(shard.rows for shard in shards)
        return StageStatus(shown_path, True, len(shards), len(shards), rows, len(manifest.skipped))
    except StorageError:
        finished = [name.removeprefix(f"{markers}/") for name in names if name.startswith(f"{markers}/part-")]
        total = int(finished[0].split("-of-")[1].split(".")[0]) if finished else None
        return StageStatus(shown_path, False, len(finished), total, None)
