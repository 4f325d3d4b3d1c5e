"""How far the run in a folder is, told from its files alone: wherever it runs, and whether it runs at all."""

from dataclasses import asdict, dataclass
from typing import Any

from miner import lock, stages, storage
from miner.errors import DataError, StorageError
from miner.lock import Holder
from miner.stages import MARKERS
from pipelines.beam.retry import set_aside_in
from pipelines.runs.verify import stage_of

TSV = ".tsv.gz"  # the rows of the Parquet file beside it once more


@dataclass(frozen=True)
class StageStatus:
    """One stage, by its folder as seen from the one that was asked for."""

    folder: str
    finished: bool
    shards: int  # that are made
    total: int | None  # None where the names of the shards do not tell
    rows: int | None  # of a stage that is finished
    set_aside: int = 0  # shards and inputs that it was finished without


@dataclass(frozen=True)
class RunStatus:
    """What `miner status` found."""

    folder: str
    run: Holder | None  # the one that is at work, or died at it
    alive: bool
    stages: tuple[StageStatus, ...]

    def figures(self) -> dict[str, Any]:
        """The same for a program."""
        return asdict(self)


def look(folder: str) -> RunStatus:
    """DataError where nothing was made in `folder`, and nothing is being made."""
    if not storage.is_folder(folder):
        raise DataError(f"{folder}: no such folder; give the --output of a command")
    names = storage.files_below(folder)
    holder = lock.holder(folder)
    places = sorted({place for name in names if (place := stage_of(name)) is not None})
    if holder is None and not places:
        raise DataError(f"{folder}: nothing was made here, and nothing is being made; give the --output of a command")
    stages = tuple(_stage(folder, place, names) for place in places)
    return RunStatus(folder, holder, holder is not None and holder.alive, stages)


def _stage(folder: str, place: str, names: list[str]) -> StageStatus:
    here = storage.join(place, MARKERS) if place else MARKERS
    shown = place or "."
    try:
        manifest = stages.read_manifest(storage.join(folder, place))
        shards = [shard for shard in manifest.shards if not shard.name.endswith(TSV)]
        rows = sum(shard.rows for shard in shards)
        return StageStatus(shown, True, len(shards), len(shards), rows, len(set_aside_in(manifest)))
    except StorageError:
        made = [name.removeprefix(f"{here}/") for name in names if name.startswith(f"{here}/part-")]
        total = int(made[0].split("-of-")[1].split(".")[0]) if made else None
        return StageStatus(shown, False, len(made), total, None)
