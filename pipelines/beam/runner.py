"""Stages, and the pipelines that run them: what pipelines need at the same time is one Beam job, whose elements name shards.

A pipeline is a generator. It yields the stages that it needs next and receives their manifests, so `together` can run the pipelines of
many corpora or pairs side by side, with as many jobs as one of them has.

    def embed(corpus) -> Pipeline[Manifest]:
        sentences = yield from run_stage(...)
        return (yield from run_stage(...))

    run_pipeline(embed(corpus), options)
    run_pipeline(together({name: embed(corpus) for name, corpus in corpora.items()}), options)
"""

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from miner.errors import DataError, MinerError
from miner.io import lock, stages, storage
from miner.io.stages import Manifest, Shard, Stage
from pipelines.beam.retry import RetryPolicy

T = TypeVar("T")

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
        """Load what every shard needs. Called before the first shard that a worker writes."""

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return the amount of work in each shard, of which `miner.progress.add_work` reports parts. Called in the driver."""
        return dict.fromkeys(names, 0)

    @abstractmethod
    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        """Write the shard called `name`. Return its number of rows, and counts to store in its marker."""


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


Pipeline = Generator[Sequence[StageRun], Sequence[Manifest | MinerError], T]


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


def run_pipeline(pipeline: Pipeline[T], options: Sequence[str] = ()) -> T:
    """Run a pipeline to its end and return its result. `options` are Beam's (`--runner=...`)."""
    from pipelines.beam import job

    if options:
        job.check_options(options)
    outcomes: Sequence[Manifest | MinerError] | None = None
    with contextlib.closing(pipeline):
        while True:
            try:
                runs = next(pipeline) if outcomes is None else pipeline.send(outcomes)
            except StopIteration as end:
                result: T = end.value
                return result
            outcomes = job.run_job(runs, options)


@contextlib.contextmanager
def claim_output(output: str) -> Iterator[None]:
    """Hold the lock of an output directory, and remove the output of a run that fails before it finishes any shard.

    Raises StorageError if another run holds the lock, or if the directory holds files of others.
    """
    stages.check_output(output)
    with lock.hold(output), discard_if_empty(output):
        _settle_jobs(output)
        yield


def _settle_jobs(output: str) -> None:
    if storage.exists(storage.join(output, JOBS)):
        from pipelines.beam import started_jobs

        started_jobs.settle(output)


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
