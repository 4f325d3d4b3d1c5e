"""Run pipelines of stages: what pipelines need at the same time is one job, written in this process or, if it is large, by Beam.

A pipeline is a generator. It yields the stages that it needs next and receives their manifests, so `together` can run the pipelines of
many corpora or pairs side by side, with as many jobs as one of them has.

    def embed(corpus) -> Pipeline[Manifest]:
        sentences = yield from run_stage(...)
        return (yield from run_stage(...))

    run_pipeline(embed(corpus), options)
    run_pipeline(together({name: embed(corpus) for name, corpus in corpora.items()}), options)

Workers read and write the shards themselves and leave a marker for each, so the driver needs no results from Beam: it reads the
directories. Errors and counters also go through the directories, so a stage that fails does not stop the others.
"""

import contextlib
import ctypes
import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import pyarrow as pa

from miner.errors import AllSkippedError, DataError, MinerError
from miner.io import lock, stages, storage
from miner.io.stages import SKIPPED, Manifest, Shard, Stage
from pipelines.beam import reporting, shards
from pipelines.beam.reporting import StageRecord
from pipelines.beam.shards import ShardWriter
from pipelines.beam.tasks import JOBS, ShardTask, StageRun, elements_of

T = TypeVar("T")
Pipeline = Generator[Sequence[StageRun], Sequence[Manifest | MinerError], T]

is_in_this_process: ContextVar[bool] = ContextVar("whether all shards of the pipeline are written in this process", default=False)

MAX_SHARDS_WITHOUT_BEAM = 16  # of a job that runs in this process: more, and the start of Beam is a small share of the time

logger = logging.getLogger(__name__)


def run_stages(runs: Sequence[StageRun]) -> Pipeline[list[Manifest]]:
    """Write the shards of several stages that are missing or out of date, then the manifests. The stages share a job.

    Raises the MinerError of a failed shard, and DataError if every shard of a stage is skipped.
    """
    outcomes = (yield runs) if runs else []
    manifests = []
    for outcome in outcomes:
        if isinstance(outcome, MinerError):
            raise outcome
        manifests.append(outcome)
    return manifests


def run_stage(
    stage: Stage,
    shard_keys: Mapping[str, str],
    task: ShardTask,
    details: Callable[[Sequence[Shard]], Mapping[str, Any]] | None = None,
    skip_failed: bool = False,
) -> Pipeline[Manifest]:
    """Write one stage: see `StageRun` and `run_stages`."""
    (manifest,) = yield from run_stages([StageRun(stage, shard_keys, task, details, skip_failed)])
    return manifest


def together(
    pipelines: Mapping[str, Pipeline[T]], at_once: int | None = None, skip_failed: bool = False
) -> Pipeline[tuple[dict[str, T], dict[str, DataError]]]:
    """Run pipelines side by side, at most `at_once` of them; return what each returned, and the errors of those that failed.

    With `skip_failed`, a DataError ends only the pipeline that raised it. Another error ends all: the next run resumes.
    """
    waiting, requests = dict(pipelines), dict[str, Sequence[StageRun]]()
    results, failed = dict[str, T](), dict[str, DataError]()

    def resume(name: str, outcomes: Sequence[Manifest | MinerError] | None) -> None:
        requests.pop(name, None)
        try:
            requests[name] = next(pipelines[name]) if outcomes is None else pipelines[name].send(outcomes)
        except StopIteration as end:
            results[name] = end.value
        except DataError as error:
            if not skip_failed:
                raise
            failed[name] = error
            logger.info("%s: skipped: %s", name, error)

    try:
        while waiting or requests:
            while waiting and (at_once is None or len(requests) < at_once):
                name = next(iter(waiting))
                del waiting[name]
                resume(name, None)
            if requests:
                requested = dict(requests)
                outcomes = yield [run for runs in requested.values() for run in runs]
                for name, runs in requested.items():
                    resume(name, outcomes[: len(runs)])
                    outcomes = outcomes[len(runs) :]
    finally:
        for pipeline in pipelines.values():
            pipeline.close()
    return results, failed


def run_pipeline(pipeline: Pipeline[T], options: Sequence[str] = (), stage_records: list[StageRecord] | None = None) -> T:
    """Run a pipeline to its end and return its result. `options` are Beam's (`--runner=...`); `stage_records` receives what was done."""
    if options:
        from pipelines.beam.options import parse_beam_options

        parse_beam_options(options)  # raises ConfigError
    outcomes: Sequence[Manifest | MinerError] | None = None
    token = is_in_this_process.set(not options)  # Beam's default runner is in this process too
    try:
        while True:
            runs = next(pipeline) if outcomes is None else pipeline.send(outcomes)
            outcomes = run_job(runs, options, [] if stage_records is None else stage_records)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        pipeline.close()
        is_in_this_process.reset(token)


def run_job(runs: Sequence[StageRun], options: Sequence[str], stage_records: list[StageRecord]) -> list[Manifest | MinerError]:
    """Write the missing shards of several stages, then the manifests. Return the manifest of each, or the error that ended it."""
    start = time.perf_counter()
    opened = [_open(run) for run in runs]
    missing = [run for run in opened if isinstance(run, StageRun) and run.shard_keys]
    if missing:
        _write_shards(runs, missing, options)
    seconds = time.perf_counter() - start
    outcomes = list[Manifest | MinerError]()
    for run, written in zip(runs, opened, strict=True):
        outcome = written if isinstance(written, MinerError) else _finish(run)
        if isinstance(outcome, Manifest) and isinstance(written, StageRun):
            stage_records.append(reporting.report_stage(run, outcome, written.shard_keys.keys(), seconds))
        outcomes.append(outcome)
    return outcomes


def _open(run: StageRun) -> StageRun | MinerError:
    """Claim the directory of a stage, and return the run of the shards that are missing, or the error."""
    try:
        shards.remove_records(run.stage, run.stage.start())
        return run.of(run.stage.reopen(run.shard_keys))
    except MinerError as error:
        return error


def _write_shards(runs: Sequence[StageRun], missing: Sequence[StageRun], options: Sequence[str]) -> None:
    """Write the missing shards: by a Beam pipeline or, if there are few and no options, here, because Beam takes longer to start."""
    _release_memory()
    num_shards = {run.stage.folder: len(run.shard_keys) for run in runs}
    for run in missing:
        text, stage = "%s: %d of %d shards to write", run.stage
        logger.info(text, stage.stage, len(run.shard_keys), num_shards[stage.folder], extra={"stage": stage.stage})
    elements = elements_of(missing)
    with reporting.watch_progress(runs), shards.parse_failures([run.stage for run in missing]):
        if needs_beam(len(elements), options):
            from pipelines.beam import beam_job  # Beam takes a second to import

            beam_job.run(missing, options)
        else:
            writer = ShardWriter(missing)
            for element in elements:
                writer.write(element)


def needs_beam(num_shards: int, options: Sequence[str]) -> bool:
    """Return whether Beam writes the shards of a job: many of them, or where options describe how."""
    return bool(options) or num_shards > MAX_SHARDS_WITHOUT_BEAM


def _release_memory() -> None:
    """Return freed memory to the system; allocators would keep hundreds of MB of earlier stages."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def _finish(run: StageRun) -> Manifest | MinerError:
    """Write the manifest of a stage, or return the error that ended it."""
    stage = run.stage
    try:
        names = storage.names_in(stage.folder)
        if shards.FAILURE in names:
            shards.raise_failure(stage)
        skipped = shards.pop_skipped(stage) if shards.SKIPPED in names else {}
        if skipped and len(skipped) == len(run.shard_keys):
            raise AllSkippedError(skipped)
        for name, reason in skipped.items():
            logger.info("%s: skipped: %s", stage.stage, reason, extra={"stage": stage.stage, "shard": name})

        def details(written: Sequence[Shard]) -> Mapping[str, object]:
            return {**(run.details(written) if run.details else {}), **({SKIPPED: skipped} if skipped else {})}

        return stage.finish({name: key for name, key in run.shard_keys.items() if name not in skipped}, details)
    except MinerError as error:
        return error


@contextlib.contextmanager
def claim_output(output: str, command: str | None = None) -> Iterator[None]:
    """Hold the lock of an output directory, and remove the output of a run that fails before it finishes any shard.

    Raises StorageError if another run holds the lock, or if the directory holds files of others or of another command than `command`.
    """
    stages.check_output(output, command)
    with lock.hold(output), discard_if_empty(output):
        if storage.exists(storage.join(output, JOBS)):
            from pipelines.beam import started_jobs

            started_jobs.settle(output)
        yield


@contextlib.contextmanager
def discard_if_empty(output: str) -> Iterator[None]:
    """If the block raises a MinerError, remove what it created in `output` and what contains no finished shard to resume from."""
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
