"""Run a stage as a Beam pipeline whose elements are the names of its shards.

Only shard names pass between Beam steps. Workers read and write the shards themselves and leave a marker for each, so the driver needs
no results from the runner: it reads the directory. Errors (`pipelines/beam/retry.py`) and counters (`pipelines/beam/metrics.py`) also
go through the directory.
"""

import contextlib
import ctypes
import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, ClassVar

import pyarrow as pa

from miner import lock, stages, storage
from miner.errors import DataError, MinerError
from miner.stages import Manifest, Shard, Stage
from pipelines.beam import metrics, retry
from pipelines.beam.retry import RetryPolicy
from pipelines.beam.watch import watch_progress

JOBS = "_jobs"  # folder of an output directory: the jobs that its runs have started

logger = logging.getLogger(__name__)


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
        """Load what every shard needs. Called once per worker, before its first shard."""

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return the amount of work in each shard, of which `miner.progress.add_work` reports parts. Called in the driver."""
        return dict.fromkeys(names, 0)

    @abstractmethod
    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        """Write the shard called `name`. Return its number of rows, and counts to store in its marker."""


def run_stage(
    stage: Stage,
    shard_keys: Mapping[str, str],
    task: ShardTask,
    options: Sequence[str] = (),
    details: Callable[[Sequence[Shard]], Mapping[str, Any]] | None = None,
    skip_failed: bool = False,
) -> Manifest:
    """Write the shards of `stage` that are missing or out of date, then its manifest.

    `shard_keys` maps the name of each shard to the key of its inputs (`stage.key(...)`), `options` are Beam's (`--runner=...`), and
    `details(shards)` returns what to record in the manifest. Raises the MinerError of a failed shard. With `skip_failed`, a shard that
    fails every attempt is skipped instead: the manifest lists the other shards, and the reason under `set_aside`. The next run tries
    it again. Raises DataError if every shard is skipped.
    """
    start = time.perf_counter()
    if options:
        check_options(options)
    stage.start()
    retry.remove_records(stage)
    pending = stage.reopen(shard_keys)
    if pending:
        _write_shards(stage, {name: shard_keys[name] for name in pending}, list(shard_keys), task, options, skip_failed)
    skipped = retry.pop_skipped(stage)
    if skipped and len(skipped) == len(shard_keys):
        raise DataError(next(iter(skipped.values())))
    for name, reason in skipped.items():
        logger.info("%s: skipped: %s", stage.stage, reason, extra={"stage": stage.stage, "shard": name})
    written_keys = {name: key for name, key in shard_keys.items() if name not in skipped}
    skipped_details = {retry.SKIPPED_KEY: skipped} if skipped else {}
    manifest = stage.finish(written_keys, lambda shards: {**(details(shards) if details else {}), **skipped_details})
    metrics.report_stage(stage, task, manifest, set(pending) - set(skipped), time.perf_counter() - start)
    return manifest


def check_options(options: Sequence[str]) -> None:
    """Raise ConfigError for invalid options of Beam."""
    from pipelines.beam.pipeline import parse_beam_options

    parse_beam_options(options)


def _write_shards(
    stage: Stage, pending: Mapping[str, str], names: Sequence[str], task: ShardTask, options: Sequence[str], skip_failed: bool
) -> None:
    """Write the pending shards {name: key} by a pipeline. Beam, which takes a second to import, is imported only here."""
    from pipelines.beam import pipeline

    beam_options = pipeline.parse_beam_options(options)
    # Dask creates a DoFn per partition; those of one run share what they load.
    run_id = uuid.uuid4().hex if pipeline.shares_tasks(beam_options) else None
    write = pipeline.WriteShard(stage, pending, task, skip_failed, run_id)
    _release_memory()
    logger.info("%s: %d of %d shards to write", stage.stage, len(pending), len(names), extra={"stage": stage.stage})
    with watch_progress(stage, names, task), retry.raise_failure(stage):
        pipeline.run_pipeline(list(pending), write, beam_options)


def _release_memory() -> None:
    """Return freed memory to the system; allocators would keep hundreds of MB of earlier stages."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def claim_output(output: str) -> Iterator[None]:
    """Hold the lock of an output directory, and remove the output of a run that fails before it finishes any shard.

    Raises StorageError if another run holds the lock, or if the directory holds files of others.
    """
    stages.check_output(output)
    with lock.hold(output), _remove_empty_output(output):
        _settle_jobs(output)
        yield


def _settle_jobs(output: str) -> None:
    if storage.exists(storage.join(output, JOBS)):
        from pipelines.beam import started_jobs

        started_jobs.settle(output)


@contextlib.contextmanager
def _remove_empty_output(output: str) -> Iterator[None]:
    """If the run fails, remove the entries that it created in `output` and that contain no finished shard to resume from."""
    is_new, previous_names = not storage.exists(output), storage.names_in(output)
    try:
        yield
    except MinerError:
        for name in set(storage.names_in(output)) - set(previous_names):
            fs, path = storage.filesystem(storage.join(output, name))
            if not any(f"/{stages.MARKERS}/" in str(file) for file in fs.find(path)):
                storage.remove(storage.join(output, name))
        if is_new and not storage.names_in(output):
            storage.remove(output)
        raise
