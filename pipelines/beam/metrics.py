"""What stages did, in figures: counters of Beam for whoever watches the engine, and a record of each stage for the summary of a run.

The record is made from the markers that shards leave. So it tells the same wherever a stage ran, though some runners hand back no
counters, and others count what they did twice.
"""

import contextlib
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

from apache_beam.metrics import Metrics

from miner import storage
from miner.stages import Manifest, Stage
from pipelines.beam.retry import set_aside_in

logger = logging.getLogger(__name__)


class CountedTask(Protocol):
    """How a task names what it counts (`pipelines.beam.runner.ShardTask`)."""

    row_unit: ClassVar[str | None]
    shard_unit: ClassVar[str | None]
    processed_counts: ClassVar[Set[str]]


def counters(work: CountedTask, rows: int, counts: Mapping[str, int], size: int) -> Counter[str]:
    """What a shard adds to the counters: sentences or pairs, tokens, blocks, bytes, and lines or sentences that were skipped."""
    counted = Counter({"shards": 1, "bytes": size})
    if work.row_unit is not None:
        counted[work.row_unit] = rows
    if work.shard_unit is not None:
        counted[work.shard_unit] = 1
    if "tokens" in counts:
        counted["tokens"] = counts["tokens"]
    counted["skipped"] = sum(count for name, count in counts.items() if name not in work.processed_counts)
    return counted


def rate(unit: str | None, rows: int, seconds: float) -> str:
    """Format rows per second; an empty string where there is nothing to show."""
    return f"{rows / seconds:,.0f} {unit}/s" if rows and unit is not None else ""


def count(stage: str, found: Mapping[str, int]) -> None:
    """Add to Beam's counters, whose namespace is the stage. Runs in a worker."""
    for name, value in found.items():
        Metrics.counter(stage, name).inc(value)


@dataclass(frozen=True)
class StageRecord:
    """What one stage did in this run."""

    stage: str
    folder: str
    seconds: float
    shards: int  # of the stage
    made: int  # in this run; the others were there already
    counters: Mapping[str, int]  # of the shards that were made
    set_aside: Mapping[str, str]  # shard -> why

    def figures(self) -> dict[str, Any]:
        """The same for a program."""
        return asdict(self)


_open: dict[object, tuple[str, list[StageRecord]]] = {}  # key -> below which folder, and what was told


@contextlib.contextmanager
def collecting(output: str) -> Iterator[list[StageRecord]]:
    """Gives a list that fills with the records of the stages below `output`, whichever thread they run in."""
    key, found = object(), list[StageRecord]()
    _open[key] = (storage.join(output, ""), found)
    try:
        yield found
    finally:
        del _open[key]


def totals(records: Sequence[StageRecord]) -> dict[str, dict[str, int]]:
    """The counters of all stages of a kind, added up."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        found[record.stage].update(record.counters)
    return {stage: dict(counted) for stage, counted in found.items()}


def tell(stage: Stage, work: CountedTask, manifest: Manifest, made: set[str], start: float) -> None:
    """Log what a stage did that was begun at `start`, and add it to the lists that are open. `made` are its shards of this run."""
    sizes = storage.sizes(stage.folder) if made else {}
    new = [shard for shard in manifest.shards if shard.name in made]
    found: Counter[str] = Counter()
    for shard in new:
        found.update(counters(work, shard.rows, shard.counts, sizes.get(shard.name, 0)))
    seconds = round(time.perf_counter() - start, 3)
    left_out = dict(set_aside_in(manifest))
    record = StageRecord(stage.stage, stage.folder, seconds, len(manifest.shards), len(new), dict(found), left_out)
    for output, found_there in list(_open.values()):
        if stage.folder.startswith(output):
            found_there.append(record)
    told = ", ".join(f"{value:,} {name}" for name, value in found.items()) or "all shards were there already"
    logger.info("%s: finished in %.1f s: %s", stage.stage, seconds, told, extra={"stage": stage.stage, "figures": record.figures()})
