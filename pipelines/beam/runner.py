"""Run a stage as a Beam pipeline whose elements are the names of its shards.

Only shard names pass between Beam steps. Workers read and write the shards themselves and leave a marker for each, so the driver needs
no results from the runner: it reads the directory. Errors (`pipelines/beam/retry.py`) and counters (`pipelines/beam/metrics.py`) also
go through the directory.
"""

import contextlib
import copy
import ctypes
import difflib
import gc
import io
import logging
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, ClassVar

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineRunner, create_runner

from miner import lock, stages, storage
from miner.errors import ConfigError, DataError, MinerError
from miner.progress import Progress, report_progress
from miner.stages import Manifest, Shard, Stage
from pipelines.beam import dask, metrics, retry
from pipelines.beam.local_runner import WorkerDiedError, create_local_runner, raise_interruptions
from pipelines.beam.retry import RetryPolicy

POLL_SECONDS = 0.25  # between two looks at the markers of a running stage
LOCAL_RUNNERS = ("DirectRunner", "FnApiRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner", "DaskRunner")  # run() does the work
GC_THRESHOLD = 100_000  # new objects between two garbage collections in a worker

logger = logging.getLogger(__name__)


class ShardTask(ABC):
    """Write the shards of a stage. The task is pickled to the workers, so it holds names and settings, not models or arrays."""

    uses_accelerator: ClassVar[bool] = False  # whether to request the accelerator that Beam's options name
    row_unit: ClassVar[str | None] = "sentences"  # the counter of rows; None: an intermediate step, whose rows are not counted
    shard_unit: ClassVar[str | None] = None  # a second counter of shards
    processed_counts: ClassVar[Set[str]] = frozenset()  # the counts of `write_shard` that do not count skipped input
    retry_policy: ClassVar[RetryPolicy] = RetryPolicy()

    def setup(self) -> None:  # noqa: B027 - most tasks load nothing
        """Load what every shard needs. Called once per worker, before its first shard."""

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
    beam_options, start = parse_beam_options(options), time.perf_counter()
    stage.start()
    retry.remove_records(stage)
    pending = stage.reopen(shard_keys)
    if pending:
        # Dask creates a DoFn per partition; those of one run share what they load.
        run_id = uuid.uuid4().hex if dask.is_selected(beam_options) else None
        write = WriteShard(stage, {name: shard_keys[name] for name in pending}, task, skip_failed, run_id)
        _release_memory()
        logger.info("%s: %d of %d shards to write", stage.stage, len(pending), len(shard_keys), extra={"stage": stage.stage})
        with _watch_progress(stage, len(shard_keys), task.row_unit), retry.raise_failure(stage):
            _run_pipeline(pending, write, beam_options)
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


def _release_memory() -> None:
    """Return freed memory to the system; allocators would keep hundreds of MB of earlier stages."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def claim_output(output: str) -> Iterator[None]:
    """Hold the lock of an output directory, and remove the output of a run that fails before it finishes any shard.

    Raises StorageError if another run holds the lock.
    """
    with lock.hold(output), _remove_empty_output(output):
        yield


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


_thread_task = threading.local()  # the task that the last DoFn of a worker thread has set up, and its run


class WriteShard(beam.DoFn):  # type: ignore[misc]
    """Write a shard and its marker, or record the failure, in the stage's directory. Takes a shard name and returns nothing."""

    def __init__(
        self, stage: Stage, shard_keys: Mapping[str, str], task: ShardTask, skip_failed: bool = False, run_id: str | None = None
    ) -> None:
        self.stage = stage
        self.shard_keys = shard_keys
        self.task = task
        self.skip_failed = skip_failed
        self.run_id = run_id  # DoFns with the same id share the task that a thread has set up

    def setup(self) -> None:
        if self.run_id is not None and getattr(_thread_task, "run_id", None) == self.run_id:
            self.task = _thread_task.task
            return
        with retry.record_failure(self.stage):
            self.task.setup()
        if self.run_id is not None:
            _thread_task.run_id, _thread_task.task = self.run_id, self.task
        # Shards are lists of millions of strings without cycles: collecting rarely, and never the loaded objects, saves time.
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)

    def teardown(self) -> None:
        # Beam's objects are in reference cycles, and frozen objects are never collected: release the task explicitly.
        self.__dict__.pop("task", None)

    def process(self, name: str) -> None:
        # After an error that ends the stage, the other shards would fail too, or be written for nothing.
        if storage.exists(self.stage.path(retry.FAILURE)):
            return
        with retry.record_failure(self.stage, name if self.skip_failed else None):
            stage, task = self.stage.stage, self.task
            rows, counts = retry.call_with_retries(lambda: task.write_shard(name), task.retry_policy, stage, name)
            self.stage.mark_done(name, rows, self.shard_keys[name], counts)
            size = storage.size(self.stage.path(name))
            metrics.add_to_beam(stage, metrics.count_shard(task, rows, counts, size))


def build_pipeline(names: Sequence[str], write: WriteShard, options: PipelineOptions) -> beam.Pipeline:
    """Build the pipeline that writes the shards called `names`. Only tasks that use an accelerator request the one in the options."""
    options = copy.deepcopy(options)  # they are changed for this pipeline only; there may be another attempt
    standard = options.view_as(StandardOptions)
    hints = standard.resource_hints or []
    accelerators = [hint.removeprefix("accelerator=") for hint in hints if hint.startswith("accelerator=")]
    standard.resource_hints = [hint for hint in hints if not hint.startswith("accelerator=")]
    # The reshuffle spreads the names over the workers; without it, runners fuse the steps and one worker writes every shard.
    # A single process is one worker, where the reshuffle would take as long as the rest of a small pipeline.
    has_workers = standard.runner is not None or options.view_as(DirectOptions).direct_running_mode != "in_memory"
    pipeline = beam.Pipeline(runner=_create_runner(options), options=options)
    shards = pipeline | "Shards" >> beam.Create(list(names), reshuffle=has_workers).with_output_types(str)
    step = beam.ParDo(write)
    if accelerators and write.task.uses_accelerator:
        step = step.with_resource_hints(accelerator=accelerators[-1])
    _ = shards | "Make" >> step
    return pipeline


def _run_pipeline(names: Sequence[str], write: WriteShard, options: PipelineOptions) -> None:
    """Write shards. If a local worker process dies, run the pipeline again for the remaining shards."""
    attempts = write.task.retry_policy.attempts
    for attempt in range(1, attempts + 1):
        try:
            _run_once(names, write, options)
            return
        except WorkerDiedError as error:
            names = [name for name in names if write.stage.find_shard(name, write.shard_keys[name]) is None]
            if attempt == attempts or storage.exists(write.stage.path(retry.FAILURE)):
                raise
            logger.warning("%s: %s; attempt %d of %d", write.stage.stage, error, attempt + 1, attempts)
            if not names:
                return


def _run_once(names: Sequence[str], write: WriteShard, options: PipelineOptions) -> None:
    pipeline = build_pipeline(names, write, options)
    with raise_interruptions():
        with _name_runner(options):
            result = pipeline.run()
        try:
            result.wait_until_finish()
        finally:
            dask.close_client(result)


@contextlib.contextmanager
def _name_runner(options: PipelineOptions) -> Iterator[None]:
    """Convert the error of a cluster's runner that does not start into a ConfigError. Local runners raise those of the tasks."""
    runner = options.view_as(StandardOptions).runner
    try:
        yield
    except Exception as error:
        if isinstance(error, MinerError) or runner is None or runner.rpartition(".")[2] in LOCAL_RUNNERS:
            raise
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise ConfigError(
            f"--runner={runner}: did not start ({type(error).__name__}: {reason}); check that its cluster runs and its address"
        ) from error


class CachedPipelineOptions(PipelineOptions):  # type: ignore[misc]
    """Options that cache their views.

    Beam requests fifty views per pipeline and parses the command line for each, a fifth of the time of a small stage.
    """

    def view_as(self, cls: type[PipelineOptions]) -> PipelineOptions:
        views = self.__dict__.setdefault("_views", {})  # setting an attribute would set an option
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def parse_beam_options(options: Sequence[str]) -> PipelineOptions:
    """Parse Beam's options. Raises ConfigError for invalid values."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):  # argparse prints its full usage
            parsed = CachedPipelineOptions(list(options))
            if dask.is_selected(parsed):
                parsed = CachedPipelineOptions(dask.complete_options(options))
            _check_names(parsed)
    except SystemExit as error:
        lines = stderr.getvalue().strip().splitlines()[-1:] or ["invalid"]
        raise ConfigError(f"Beam options {' '.join(options)!r}: {lines[0].partition('error: ')[2] or lines[0]}") from error
    return parsed


def _check_names(options: PipelineOptions) -> None:
    """Raise ConfigError for an option that nothing reads. Runners that are named may have options of their own, such as a job server's."""
    names = set(options.get_all_options())
    unknown = sorted(set(options.get_all_options(retain_unknown_options=True)) - names)
    if unknown and (dask.is_selected(options) or options.view_as(StandardOptions).runner is None):
        similar = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f"did you mean --{similar[0]}?" if similar else "check its name, or name its --runner"
        raise ConfigError(f"--{unknown[0]}: Beam has no such option; {hint}")


def uses_local_processes(options: Sequence[str]) -> bool:
    """Whether Beam's options request worker processes on this machine. Raises ConfigError for invalid options."""
    parsed = parse_beam_options(options)
    return parsed.view_as(StandardOptions).runner is None and parsed.view_as(DirectOptions).direct_running_mode == "multi_processing"


def _create_runner(options: PipelineOptions) -> PipelineRunner:
    """Create the runner that the options name. The default is explicit, because DirectRunner first downloads and starts a Go binary."""
    name = options.view_as(StandardOptions).runner
    if name is None:
        return create_local_runner(options)
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigError(f"--runner={name}: {str(error).splitlines()[0]}") from error


@contextlib.contextmanager
def _watch_progress(stage: Stage, num_shards: int, row_unit: str | None) -> Iterator[None]:
    """Report the progress of a stage by its markers while it runs."""
    stop, reported, start = threading.Event(), stage.marked_shards(), time.perf_counter()
    rows = 0

    def report() -> None:
        nonlocal rows
        new = stage.marked_shards() - reported
        for name in sorted(new):
            rows += stage.read_rows(name)
            logger.info("%s: %s is written", stage.stage, name, extra={"stage": stage.stage, "shard": name})
        reported.update(new)
        note = metrics.format_rate(row_unit, rows, time.perf_counter() - start)
        report_progress(logger, Progress(stage.stage, len(reported), num_shards, note=note))

    def watch() -> None:
        while not stop.wait(POLL_SECONDS):
            with contextlib.suppress(MinerError, OSError):
                if stage.marked_shards() - reported:
                    report()

    report()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        report()
