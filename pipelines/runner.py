"""Run a stage as a Beam pipeline whose elements are the names of its shards.

What passes between Beam steps is a shard name. Workers read and write the shards themselves, and leave a marker for each,
so the driver needs nothing back from the runner: it reads the folder. The same holds for errors. A MinerError in a worker is
written into the stage's folder and raised again by the driver, because runners hand back an exception as text, or not at all.
"""

import contextlib
import gc
import io
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineRunner, create_runner

from miner import errors, lock, storage
from miner.errors import ConfigError, MinerError
from miner.storage import Manifest, Shard, Stage
from pipelines import dask_cluster
from pipelines.local import local_runner, stoppable

FAILURE = "_failure.json"
POLL_SECONDS = 0.25
ACCELERATED = ("embeddings", "search")  # stages that are done many times as fast by a GPU

logger = logging.getLogger(__name__)


class Work(Protocol):
    """What a stage does for one shard. It is pickled to the workers, so it holds names and settings, not models or arrays."""

    def setup(self) -> None:
        """Load what every shard needs; called once in each worker, before its first shard."""
        ...

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        """Write the shard called `name` and return its rows, and counts to record beside them."""
        ...


def run_stage(
    stage: Stage,
    made_from: Mapping[str, str],
    work: Work,
    options: Sequence[str] = (),
    details: Callable[[Sequence[Shard]], Mapping[str, Any]] | None = None,
) -> Manifest:
    """Make the shards of `stage` that are not made yet, then write its manifest.

    `made_from` maps each shard's name to the key of what it is made from (`stage.key(...)`), `options` are Beam's own
    (`--runner=...`), and `details(shards)` is what to record in the manifest. Raises the MinerError of a failed shard.
    """
    beam_options = _parse(options)
    stage.start()
    storage.remove(stage.path(FAILURE))
    pending = stage.pending(made_from)
    if pending:
        # Dask makes a DoFn anew for each of its partitions.
        run = uuid.uuid4().hex if dask_cluster.is_asked_for(beam_options) else None
        make = _Make(stage, {name: made_from[name] for name in pending}, work, run)
        with _reporting(stage, len(made_from)), _failures_raised(stage):
            _run(pending, make, beam_options)
    elif storage.exists(stage.path(storage.MANIFEST)):
        logger.info("%s: all %d shards are there already", stage.stage, len(made_from))
    return stage.finish(made_from, details)


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
            if not any(f"/{storage.MARKERS}/" in str(file) for file in fs.find(path)):
                storage.remove(storage.join(output, name))
        if fresh and not storage.names_in(output):
            storage.remove(output)
        raise


_loaded = threading.local()  # what the last DoFn of a worker's thread has set up


class _Make(beam.DoFn):
    """Shard name -> nothing; the shard and its marker, or the record of what went wrong, are left in the stage's folder."""

    def __init__(self, stage: Stage, made_from: Mapping[str, str], work: Work, run: str | None = None) -> None:
        self.stage = stage
        self.made_from = made_from
        self.work = work
        self.run = run  # its name, where the DoFns of one run are to share what a thread has loaded

    def setup(self) -> None:
        if self.run is not None and getattr(_loaded, "run", None) == self.run:
            self.work = _loaded.work
            return
        with _recorded(self.stage):
            self.work.setup()
        if self.run is not None:
            _loaded.run, _loaded.work = self.run, self.work
        # Texts and pieces come in lists by the million, none of them in a cycle: the collector need not look at each
        # thousand of them, nor walk over what is loaded by now and stays.
        gc.freeze()
        gc.set_threshold(100_000)

    def process(self, name: str) -> None:
        # One shard failed for a reason the user must see to: the others would fail too, or be made for nothing.
        if storage.exists(self.stage.path(FAILURE)):
            return
        with _recorded(self.stage):
            rows, counts = self.work.make(name)
            self.stage.done(name, rows, self.made_from[name], counts)


@contextlib.contextmanager
def _recorded(stage: Stage) -> Iterator[None]:
    """Write a MinerError down for the driver. It is not raised here: runners would try again, and wrap it."""
    try:
        yield
    except MinerError as error:
        try:
            storage.write_json(stage.path(FAILURE), {"kind": type(error).__name__, "message": str(error)})
        except MinerError:  # a full disk may have no room for the record either
            raise error from None


@contextlib.contextmanager
def _failures_raised(stage: Stage) -> Iterator[None]:
    """Raise, in the driver, the MinerError that a worker recorded, or that the text of the runner's own error tells of."""
    try:
        yield
    except Exception as error:
        failure = _read_failure(stage) or _failure_in(f"{type(error).__module__}.{type(error).__name__}: {error}")
        if failure is None:
            raise
        raise failure from error
    failure = _read_failure(stage)
    if failure is not None:
        raise failure


def _read_failure(stage: Stage) -> MinerError | None:
    uri = stage.path(FAILURE)
    if not storage.exists(uri):
        return None
    value = storage.read_json(uri)
    storage.remove(uri)
    return _error(value["kind"], value["message"])


def _failure_in(text: str) -> MinerError | None:
    """The MinerError that stands last in `text`, as in a traceback; Beam adds the step's name in brackets."""
    found = re.findall(r"^miner\.errors\.(\w+): (.*?)(?: \[while running .*\])?$", text, flags=re.MULTILINE)
    return _error(*found[-1]) if found else None


def _error(kind: str, message: str) -> MinerError:
    made = getattr(errors, kind, MinerError)(message)
    return made if isinstance(made, MinerError) else MinerError(message)


def build(names: Sequence[str], make: _Make, options: PipelineOptions) -> beam.Pipeline:
    """The pipeline that makes the shards called `names`. An accelerator that the options ask for is asked for where it is of use."""
    hints = options.view_as(StandardOptions)
    asked, others = [], []
    for hint in hints.resource_hints or []:
        (asked if hint.startswith("accelerator=") else others).append(hint)
    hints.resource_hints = others
    pipeline = beam.Pipeline(runner=_runner(options), options=options)
    # With the reshuffle the names spread over the workers; without, a runner fuses the steps and one worker makes every shard.
    shards = pipeline | "Shards" >> beam.Create(list(names), reshuffle=True).with_output_types(str)
    step = beam.ParDo(make)
    if asked and make.stage.stage in ACCELERATED:
        step = step.with_resource_hints(accelerator=asked[-1].removeprefix("accelerator="))
    _ = shards | "Make" >> step
    return pipeline


def _run(names: Sequence[str], make: _Make, options: PipelineOptions) -> None:
    pipeline = build(names, make, options)
    with stoppable():
        result = pipeline.run()
        try:
            result.wait_until_finish()
        finally:
            dask_cluster.close(result)


def _parse(options: Sequence[str]) -> PipelineOptions:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):  # argparse prints its whole usage
            parsed = PipelineOptions(list(options))
            if dask_cluster.is_asked_for(parsed):
                parsed = PipelineOptions(dask_cluster.complete(options))
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
def _reporting(stage: Stage, total: int) -> Iterator[None]:
    """Log how many shards are made, while they are: the command line draws its bars from these records."""
    stop = threading.Event()

    def report(done: int) -> None:
        progress = {"stage": stage.stage, "done": done, "total": total}
        logger.info("%s: %d of %d shards", stage.stage, done, total, extra={"progress": progress})

    def watch() -> None:
        seen = -1
        while not stop.wait(POLL_SECONDS):
            with contextlib.suppress(MinerError, OSError):
                if (done := stage.markers()) != seen:
                    seen = done
                    report(done)

    report(stage.markers())
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        report(stage.markers())
