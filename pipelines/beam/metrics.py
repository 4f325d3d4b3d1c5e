"""Counters of stages: Beam counters for the engine's dashboard, and a record of each stage for the summary of a run.

Records are built from the shard markers, so they are the same on every runner. Some runners return no counters, and others count
retried work twice.
"""

import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

from miner.io import storage
from miner.io.stages import Manifest, Stage

logger = logging.getLogger(__name__)


TOKENS, READ_BYTES = "tokens", "read_bytes"  # counts that are counters


class CountedTask(Protocol):
    """How a task names its counters (see `pipelines.beam.runner.ShardTask`)."""

    row_unit: ClassVar[str | None]
    shard_unit: ClassVar[str | None]
    processed_counts: ClassVar[Set[str]]


def count_shard(task: CountedTask, rows: int, counts: Mapping[str, int], size: int) -> Counter[str]:
    """Return the counters of one shard: shards, bytes, rows by their unit, tokens, vectors read, and skipped lines or sentences."""
    counter = Counter({"shards": 1, "bytes": size})
    if task.row_unit is not None:
        counter[task.row_unit] = rows
    if task.shard_unit is not None:
        counter[task.shard_unit] = 1
    counter.update({name: counts[name] for name in (TOKENS, READ_BYTES) if name in counts})
    counter["skipped"] = sum(count for name, count in counts.items() if name not in task.processed_counts)
    return counter


def format_rate(unit: str | None, rows: int, seconds: float) -> str:
    """Format rows per second; an empty string if there are no rows or they have no unit."""
    return f"{rows / seconds:,.0f} {unit}/s" if rows and unit is not None else ""


@dataclass(frozen=True)
class StageRecord:
    """What one stage did in this run."""

    stage: str
    folder: str
    seconds: float
    shards: int  # of the stage
    written: int  # shards that this run wrote; the others were finished before
    counters: Mapping[str, int]  # of the shards written by this run
    skipped: Mapping[str, str]  # shard -> reason

    def figures(self) -> dict[str, Any]:
        """Return the record as JSON values."""
        return asdict(self)


_collectors: dict[object, tuple[str, list[StageRecord]]] = {}  # id -> output directory and its records


@contextlib.contextmanager
def collect_records(output: str) -> Iterator[list[StageRecord]]:
    """Yield a list that receives the record of every stage below `output`, in any thread."""
    key, records = object(), list[StageRecord]()
    _collectors[key] = (storage.join(output, ""), records)
    try:
        yield records
    finally:
        del _collectors[key]


def sum_counters(records: Sequence[StageRecord]) -> dict[str, dict[str, int]]:
    """Sum the counters of the stages of each kind."""
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        totals[record.stage].update(record.counters)
    return {stage: dict(counter) for stage, counter in totals.items()}


def report_stage(stage: Stage, task: CountedTask, manifest: Manifest, written: Set[str], seconds: float) -> None:
    """Log a finished stage and add its record to the collectors. `written` are the shards that this run wrote."""
    sizes = storage.sizes(stage.folder) if written else {}
    shards = [shard for shard in manifest.shards if shard.name in written]
    counter: Counter[str] = Counter()
    for shard in shards:
        counter.update(count_shard(task, shard.rows, shard.counts, sizes.get(shard.name, 0)))
    record = StageRecord(
        stage.stage, stage.folder, round(seconds, 3), len(manifest.shards), len(shards), dict(counter), dict(manifest.skipped)
    )
    for output, records in list(_collectors.values()):
        if stage.folder.startswith(output):
            records.append(record)
    text = ", ".join(f"{value:,} {name}" for name, value in counter.items()) or "all shards are up to date"
    logger.info("%s: finished in %.1f s: %s", stage.stage, seconds, text, extra={"stage": stage.stage, "figures": record.figures()})
