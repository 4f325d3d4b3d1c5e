"""Run a stage as a Beam pipeline whose elements are the names of its shards.

What passes between Beam steps is a shard name. Workers read and write the shards themselves, and leave a marker for each,
so the driver needs nothing back from the runner: it reads the folder. The same holds for errors (`pipelines/beam/retry.py`) and for
figures (`pipelines/beam/metrics.py`).
"""

import contextlib
import copy
import ctypes
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
from miner.stages import Manifest, Shard, Stage
from pipelines.beam import dask, metrics, retry
from pipelines.beam.local_runner import WorkerDiedError, local_runner, stoppable

POLL_SECONDS = 0.25

logger = logging.getLogger(__name__)


class ShardTask(ABC):
    """Process one shard of a stage. The task is pickled to the workers, so it holds names and settings, not models or arrays."""

    uses_accelerator: ClassVar[bool] = False  # whether to request the accelerator that Beam's options name
    row_unit: ClassVar[str | None] = "sentences"  # the counter of rows; None: an intermediate step, whose rows are not counted
    shard_unit: ClassVar[str | None] = None  # a second counter of shards
    processed_counts: ClassVar[Set[str]] = frozenset()  # the counts of `write_shard` that do not count skipped input

    def setup(self) -> None:  # noqa: B027 - most tasks load nothing
        """Load what every shard needs. Called once per worker, before its first shard."""

    @abstractmethod
    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        """Write the shard called `name`. Return its number of rows, and counts to store in its marker."""


def run_stage(
    stage: Stage,
    made_from: Mapping[str, str],
    work: ShardTask,
    options: Sequence[str] = (),
    details: Callable[[Sequence[Shard]], Mapping[str, Any]] | None = None,
    spare: bool = False,
) -> Manifest:
    """Make the shards of `stage` that are not made yet, then write its manifest.

    `made_from` maps each shard's name to the key of what it is made from (`stage.key(...)`), `options` are Beam's own
    (`--runner=...`), and `details(shards)` is what to record in the manifest. Raises the MinerError of a failed shard. Where the
    stage can spare shards, one that fails again and again is set aside: the manifest lists the others, and tells why under
    `set_aside`. It is tried again by the next run. At least one must be made.
    """
    beam_options, start = _parse(options), time.perf_counter()
    stage.start()
    retry.forget(stage)
    pending = stage.pending(made_from)
    if pending:
        # Dask makes a DoFn anew for each of its partitions.
        run = uuid.uuid4().hex if dask.is_asked_for(beam_options) else None
        make = _Make(stage, {name: made_from[name] for name in pending}, work, spare, run)
        _give_memory_back()
        logger.info("%s: %d of %d shards to make", stage.stage, len(pending), len(made_from), extra={"stage": stage.stage})
        with _reporting(stage, len(made_from), work.row_unit), retry.raised(stage):
            _run(pending, make, beam_options)
    set_aside = retry.take_set_aside(stage)
    if set_aside and len(set_aside) == len(made_from):
        raise DataError(next(iter(set_aside.values())))
    for name, reason in set_aside.items():
        logger.info("%s: set aside: %s", stage.stage, reason, extra={"stage": stage.stage, "shard": name})
    made = {name: key for name, key in made_from.items() if name not in set_aside}
    manifest = stage.finish(made, lambda shards: {**(details(shards) if details else {}), **_as_detail(set_aside)})
    metrics.tell(stage, work, manifest, set(pending) - set(set_aside), start)
    return manifest


def _give_memory_back() -> None:
    """Let the system have what was freed before a stage: the allocators would keep it, some hundred MB, beside what the stage takes."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # only the C library of GNU has it
        ctypes.CDLL(None).malloc_trim(0)


def _as_detail(set_aside: Mapping[str, str]) -> dict[str, Any]:
    return {"set_aside": dict(set_aside)} if set_aside else {}


@contextlib.contextmanager
def working_in(output: str) -> Iterator[None]:
    """Hold the folder `output`, so that no other run works there, and leave nothing in it of a run that fails before it did anything.

    StorageError where another run holds it.
    """
    fresh = not storage.exists(output)
    try:
        with lock.held(output), nothing_left_of_nothing(output):
            yield
    finally:
        if fresh and not storage.names_in(output):
            storage.remove(output)


@contextlib.contextmanager
def nothing_left_of_nothing(output: str) -> Iterator[None]:
    """When a run fails, remove what it began in `output` and finished no shard of: there is nothing in it to go on from."""
    fresh, before = not storage.exists(output), storage.names_in(output)
    try:
        yield
    except MinerError:
        for name in set(storage.names_in(output)) - set(before):
            fs, path = storage.filesystem(storage.join(output, name))
            if not any(f"/{stages.MARKERS}/" in str(file) for file in fs.find(path)):
                storage.remove(storage.join(output, name))
        if fresh and not storage.names_in(output):
            storage.remove(output)
        raise


_loaded = threading.local()  # what the last DoFn of a worker's thread has set up


class _Make(beam.DoFn):
    """Shard name -> nothing; the shard and its marker, or the record of what went wrong, are left in the stage's folder."""

    def __init__(self, stage: Stage, made_from: Mapping[str, str], work: ShardTask, spare: bool = False, run: str | None = None) -> None:
        self.stage = stage
        self.made_from = made_from
        self.work = work
        self.spare = spare  # whether the stage can do without a shard
        self.run = run  # its name, where the DoFns of one run are to share what a thread has loaded

    def setup(self) -> None:
        if self.run is not None and getattr(_loaded, "run", None) == self.run:
            self.work = _loaded.work
            return
        with retry.recorded(self.stage):
            self.work.setup()
        if self.run is not None:
            _loaded.run, _loaded.work = self.run, self.work
        # Texts and pieces come in lists by the million, none of them in a cycle: the collector need not look at each
        # thousand of them, nor walk over what is loaded by now and stays.
        gc.freeze()
        gc.set_threshold(100_000)

    def teardown(self) -> None:
        # Beam's objects hold one another, and what is frozen the collector never takes: what was loaded has to be let go of.
        vars(self).pop("work", None)

    def process(self, name: str) -> None:
        # One shard failed for a reason the user must see to: the others would fail too, or be made for nothing.
        if storage.exists(self.stage.path(retry.FAILURE)):
            return
        with retry.recorded(self.stage, name if self.spare else None):
            rows, counts = retry.retried(lambda: self.work.write_shard(name), self.stage.stage, name)
            self.stage.done(name, rows, self.made_from[name], counts)
            size = storage.size(self.stage.path(name))
            metrics.count(self.stage.stage, metrics.counters(self.work, rows, counts, size))


def build(names: Sequence[str], make: _Make, options: PipelineOptions) -> beam.Pipeline:
    """The pipeline that makes the shards called `names`. An accelerator that the options ask for is asked for where it is of use."""
    options = copy.deepcopy(options)  # what is changed here is for this pipeline alone; there may be another attempt
    hints = options.view_as(StandardOptions)
    asked, others = [], []
    for hint in hints.resource_hints or []:
        (asked if hint.startswith("accelerator=") else others).append(hint)
    hints.resource_hints = others
    # With the reshuffle the names spread over the workers; without, a runner fuses the steps and one worker makes every shard.
    # This process is one worker, and would spend as much time again on the reshuffle as on all the rest of the pipeline.
    spread = hints.runner is not None or options.view_as(DirectOptions).direct_running_mode != "in_memory"
    pipeline = beam.Pipeline(runner=_runner(options), options=options)
    shards = pipeline | "Shards" >> beam.Create(list(names), reshuffle=spread).with_output_types(str)
    step = beam.ParDo(make)
    if asked and make.work.uses_accelerator:
        step = step.with_resource_hints(accelerator=asked[-1].removeprefix("accelerator="))
    _ = shards | "Make" >> step
    return pipeline


def _run(names: Sequence[str], make: _Make, options: PipelineOptions) -> None:
    """Make shards; where a worker process of this machine dies, begin again with those that are left."""
    for attempt in range(1, retry.ATTEMPTS + 1):
        try:
            _run_once(names, make, options)
            return
        except WorkerDiedError as error:
            left = [name for name in names if make.stage.finished(name, make.made_from[name]) is None]
            if attempt == retry.ATTEMPTS or storage.exists(make.stage.path(retry.FAILURE)):
                raise
            logger.warning("%s: %s; attempt %d of %d", make.stage.stage, error, attempt + 1, retry.ATTEMPTS)
            names = left
            if not left:
                return


def _run_once(names: Sequence[str], make: _Make, options: PipelineOptions) -> None:
    pipeline = build(names, make, options)
    with stoppable():
        result = pipeline.run()
        try:
            result.wait_until_finish()
        finally:
            dask.close(result)


class _Options(PipelineOptions):
    """Options that keep their views. Beam asks for fifty of them in a pipeline, and parses the command line anew for each: a fifth of
    what a small stage takes."""

    def view_as(self, cls: type[PipelineOptions]) -> PipelineOptions:
        views = self.__dict__.setdefault("_views", {})  # setting an attribute would set an option
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def _parse(options: Sequence[str]) -> PipelineOptions:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):  # argparse prints its whole usage
            parsed = _Options(list(options))
            if dask.is_asked_for(parsed):
                parsed = _Options(dask.complete(options))
            parsed.get_all_options()
    except SystemExit as error:
        reason = said.getvalue().strip().splitlines()[-1:] or ["not understood"]
        raise ConfigError(f"Beam options {' '.join(options)!r}: {reason[0].partition('error: ')[2] or reason[0]}") from error
    return parsed


def in_local_processes(options: Sequence[str]) -> bool:
    """Whether Beam's options ask for worker processes on this machine. ConfigError where they are not understood."""
    parsed = _parse(options)
    return parsed.view_as(StandardOptions).runner is None and parsed.view_as(DirectOptions).direct_running_mode == "multi_processing"


def _runner(options: PipelineOptions) -> PipelineRunner:
    """The runner asked for. The default is named outright: DirectRunner would first download and start a Go binary."""
    name = options.view_as(StandardOptions).runner
    if name is None:
        return local_runner(options)
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigError(f"--runner={name}: {str(error).splitlines()[0]}") from error


@contextlib.contextmanager
def _reporting(stage: Stage, total: int, row_unit: str | None) -> Iterator[None]:
    """Log which shards are made, while they are: the command line draws its bars from these records."""
    stop, seen, start = threading.Event(), stage.marked(), time.perf_counter()
    rows = 0

    def report() -> None:
        nonlocal rows
        new = stage.marked() - seen
        for name in sorted(new):
            rows += stage.rows_of(name)
            logger.info("%s: %s is made", stage.stage, name, extra={"stage": stage.stage, "shard": name})
        seen.update(new)
        note = metrics.rate(row_unit, rows, time.perf_counter() - start)
        progress = {"stage": stage.stage, "done": len(seen), "total": total, "note": note}
        logger.info("%s: %d of %d shards", stage.stage, len(seen), total, extra={"progress": progress})

    def watch() -> None:
        while not stop.wait(POLL_SECONDS):
            with contextlib.suppress(MinerError, OSError):
                if stage.marked() - seen:
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
