"""What a stage consists of: a task that writes its shards one by one, and the run that names them."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from miner.io.stages import Shard, Stage

JOBS = "_jobs"  # folder of an output directory: the jobs that its runs have started on clusters
WORKERS = "_workers"  # folder of the first stage of a job on a cluster: a file for each worker that has started
TOKENS, READ_BYTES = "tokens", "read_bytes"  # counts of `write_shard` that are counters


@dataclass(frozen=True)
class RetryPolicy:
    """How often a failed shard, or the pipeline of a died worker, is tried."""

    attempts: int = 3
    wait_seconds: float = 0.5  # before the second attempt, doubled before each further one


class ShardTask(ABC):
    """Write the shards of a stage. The task is pickled to the workers, so it holds names and settings, not models or arrays."""

    uses_accelerator: bool = False  # whether the accelerator that Beam's options name makes this task faster
    row_unit: ClassVar[str | None] = "sentences"  # the counter of rows; None: an intermediate step, whose rows are not counted
    shard_unit: ClassVar[str | None] = None  # a second counter of shards
    processed_counts: ClassVar[Set[str]] = frozenset()  # the counts of `write_shard` that do not count skipped input
    retry_policy: ClassVar[RetryPolicy] = RetryPolicy()
    work_unit: ClassVar[str | None] = None  # of `work`, singular; None: progress counts shards
    label: str = ""  # what the shards are of, such as a side, for the progress

    def setup(self) -> None:  # noqa: B027 - most tasks load nothing
        """Load what every shard needs. Called before the first shard that a worker writes."""

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return the amount of work in each shard, of which `miner.progress.add_work` reports parts. Called in the driver."""
        return dict.fromkeys(names, 0)

    @abstractmethod
    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        """Write the shard called `name`. Return its number of rows, and counts to store in its marker."""

    def counters(self, rows: int, counts: Mapping[str, int], size: int) -> Counter[str]:
        """Return the counters of a shard: shards, bytes, rows by their unit, tokens, vectors read, and skipped lines or sentences."""
        counter = Counter({"shards": 1, "bytes": size})
        if self.row_unit is not None:
            counter[self.row_unit] = rows
        if self.shard_unit is not None:
            counter[self.shard_unit] = 1
        counter.update({name: counts[name] for name in (TOKENS, READ_BYTES) if name in counts})
        counter["skipped"] = sum(count for name, count in counts.items() if name not in self.processed_counts)
        return counter


@dataclass(frozen=True)
class StageRun:
    """A stage to write.

    `shard_keys` maps the name of each shard to the key of its inputs (`stage.key(...)`), and `details(shards)` returns what to record in
    the manifest. With `skip_failed`, a shard that fails every attempt is skipped: the manifest lists the other shards, and the reason under
    `skipped`. The next run tries it again.
    """

    stage: Stage
    shard_keys: Mapping[str, str]
    task: ShardTask
    details: Callable[[Sequence[Shard]], Mapping[str, Any]] | None = None
    skip_failed: bool = False

    def of(self, names: Sequence[str]) -> "StageRun":
        """Return the run of these shards only, for workers: without the details, which the driver records."""
        return replace(self, shard_keys={name: self.shard_keys[name] for name in names}, details=None)


Element = tuple[int, str]  # number of a stage in a job, name of a shard


def elements_of(runs: Sequence[StageRun]) -> list[Element]:
    """Return the shards of a job."""
    return [(number, name) for number, run in enumerate(runs) for name in run.shard_keys]
