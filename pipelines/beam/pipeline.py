"""A job as a Beam pipeline: the options, the runner, and the function that writes a shard. Only what runs a pipeline imports this."""

import contextlib
import copy
import io
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, PortableOptions, StandardOptions
from apache_beam.runners.runner import PipelineRunner, create_runner

from miner.config.messages import find_similar
from miner.errors import ConfigError, MinerError, first_line
from miner.io.stages import Stage
from miner.plan.hardware import find_hardware
from pipelines.beam import dask, job_service, retry, started_jobs
from pipelines.beam.local_runner import WorkerDiedError, create_local_runner, raise_interruptions
from pipelines.beam.pending import PendingFile, PendingShards
from pipelines.beam.shard_writer import Element, ShardWriter, elements_of
from pipelines.beam.started_jobs import JobRecord
from pipelines.beam.workers import HERE, Workers

IN_PROCESS_RUNNERS = ("DirectRunner", "FnApiRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner")
LOCAL_RUNNERS = (*IN_PROCESS_RUNNERS, "DaskRunner")  # run() does the work

logger = logging.getLogger(__name__)


_thread = threading.local()  # the writer that the DoFns of a worker thread share, and its file


def _shard_writer(file: PendingFile, is_shared: bool) -> ShardWriter:
    """Return a new writer or, where DoFns share it, that of this thread and job."""
    if not is_shared:
        return ShardWriter(file.read())
    if getattr(_thread, "file", None) != file:
        _thread.file, _thread.writer = file, ShardWriter(file.read())
    writer: ShardWriter = _thread.writer
    return writer


class WriteShard(beam.DoFn):  # type: ignore[misc]
    """Write a shard and its marker, or record the failure, in the directory of its stage. Takes an `Element` and returns nothing."""

    def __init__(self, file: PendingFile, is_shared: bool = False) -> None:
        self.file = file
        self.is_shared = is_shared  # DoFns with the same file share the tasks that a thread has set up: Dask creates one per partition

    def setup(self) -> None:
        self.writer = _shard_writer(self.file, self.is_shared)

    def teardown(self) -> None:
        # Beam's objects are in reference cycles, and frozen objects are never collected: release the tasks explicitly.
        self.__dict__.pop("writer", None)

    def process(self, element: Element) -> None:
        self.writer.write(element, _add_to_beam)


def build_pipeline(missing: Sequence[PendingShards], options: PipelineOptions) -> beam.Pipeline:
    """Build the pipeline that writes shards. Only tasks that use an accelerator request the one in the options."""
    write = WriteShard(PendingFile.write(missing), shares_tasks(options))
    options = copy.deepcopy(options)  # they are changed for this pipeline only; there may be another attempt
    standard = options.view_as(StandardOptions)
    hints = standard.resource_hints or []
    accelerators = [hint.removeprefix("accelerator=") for hint in hints if hint.startswith("accelerator=")]
    standard.resource_hints = [hint for hint in hints if not hint.startswith("accelerator=")]
    # The reshuffle spreads the names over the workers; without it, runners fuse the steps and one worker writes every shard.
    # A single process is one worker, where the reshuffle would take as long as the rest of a small pipeline.
    has_workers = standard.runner is not None or options.view_as(DirectOptions).direct_running_mode != "in_memory"
    pipeline = beam.Pipeline(runner=_create_runner(options), options=options)
    for is_accelerated, label in ((False, ""), (True, " on accelerators")):
        elements = [
            element
            for element in elements_of(missing)
            if (bool(accelerators) and missing[element[0]].task.uses_accelerator) == is_accelerated
        ]
        if elements:
            shards = pipeline | f"Shards{label}" >> beam.Create(elements, reshuffle=has_workers).with_output_types(tuple[int, str])
            step = beam.ParDo(write)
            _ = shards | f"Make{label}" >> (step.with_resource_hints(accelerator=accelerators[-1]) if is_accelerated else step)
    return pipeline


def run_pipeline(missing: Sequence[PendingShards], options: PipelineOptions) -> None:
    """Write shards. If a local worker process dies, run the pipeline again for the remaining shards."""
    attempts = max(shards.task.retry_policy.attempts for shards in missing)
    for attempt in range(1, attempts + 1):
        try:
            _run_once(missing, options)
            return
        except WorkerDiedError as error:
            if attempt == attempts or any(retry.has_failed(shards.stage) for shards in missing):
                raise
            missing = [shards for shards in map(_without_written, missing) if shards.shard_keys]
            if not missing:
                return
            logger.warning("%s: %s; attempt %d of %d", missing[0].stage.stage, error, attempt + 1, attempts)


def _without_written(shards: PendingShards) -> PendingShards:
    written = shards.stage.find_shards(shards.shard_keys)
    return replace(shards, shard_keys={name: key for name, key in shards.shard_keys.items() if name not in written})


def _run_once(missing: Sequence[PendingShards], options: PipelineOptions) -> None:
    with raise_interruptions(), _recorded_job(options, [shards.stage for shards in missing]) as (job_options, record):
        pipeline = build_pipeline(missing, job_options)
        with _name_runner(options):
            result = pipeline.run()
        record.set_id(result)
        try:
            result.wait_until_finish()
        finally:
            dask.close_client(result)


@contextlib.contextmanager
def _recorded_job(options: PipelineOptions, stages: Sequence[Stage]) -> Iterator[tuple[PipelineOptions, JobRecord]]:
    """Yield the options of a job, with its name, and its record. Jobs of this process have neither."""
    runner = options.view_as(StandardOptions).runner
    if runner is None or runner.rpartition(".")[2] in LOCAL_RUNNERS:
        yield options, JobRecord()
        return
    options = copy.deepcopy(options)
    with started_jobs.recorded(options, stages, options.view_as(WorkerOptions).detach) as record:
        yield options, record


@contextlib.contextmanager
def _name_runner(options: PipelineOptions) -> Iterator[None]:
    """Convert the error of a cluster's runner that does not start into a ConfigError. Local runners raise those of the tasks."""
    runner = options.view_as(StandardOptions).runner
    try:
        yield
    except Exception as error:
        if isinstance(error, MinerError) or runner is None or runner.rpartition(".")[2] in LOCAL_RUNNERS:
            raise
        raise ConfigError(
            f"--runner={runner}: did not start ({type(error).__name__}: {first_line(error)}); check that its cluster runs and its address"
        ) from error


def _add_to_beam(stage: str, counter: Mapping[str, int]) -> None:
    """Add to Beam's counters in the namespace `stage`. Called in workers."""
    for name, value in counter.items():
        Metrics.counter(stage, name).inc(value)


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


class WorkerOptions(PipelineOptions):  # type: ignore[misc]
    """Options of this package: what the workers of a cluster have."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument("--hardware", help="a machine of `miner plan`, such as l4 or cpu32; by default, like the driver's")
        parser.add_argument("--workers", type=int, help="number of machines, for `miner plan`")
        parser.add_argument("--detach", action="store_true", help="on Ctrl-C, leave the job running; the next run waits for it")


def parse_workers(options: Sequence[str]) -> Workers:
    """Return what Beam's options say of the workers. Raises ConfigError for invalid options."""
    parsed = parse_beam_options(options)
    standard, name = parsed.view_as(StandardOptions), parsed.view_as(WorkerOptions).hardware
    if standard.runner is None or standard.runner.rpartition(".")[2] in IN_PROCESS_RUNNERS:
        return HERE
    accelerators = [hint for hint in standard.resource_hints or [] if hint.startswith("accelerator=")]
    return Workers(False, None if name is None else find_hardware(name, {}), bool(accelerators))


def shares_tasks(options: PipelineOptions) -> bool:
    """Whether the DoFns of a pipeline share what they load."""
    return dask.is_selected(options)


def _check_names(options: PipelineOptions) -> None:
    """Raise ConfigError for an option that neither Beam nor the job server at --job_endpoint reads."""
    names = set(options.get_all_options())
    unknown = set(options.get_all_options(retain_unknown_options=True)) - names
    if unknown:
        names |= job_service.option_names(options.view_as(PortableOptions).job_endpoint)
    for name in sorted(unknown - names):
        similar = find_similar(name, names)
        hint = f"did you mean --{similar}?" if similar else "check its name; those of a job server need its --job_endpoint"
        raise ConfigError(f"--{name}: Beam has no such option; {hint}")


def _create_runner(options: PipelineOptions) -> PipelineRunner:
    """Create the runner that the options name. The default is explicit, because DirectRunner first downloads and starts a Go binary."""
    name = options.view_as(StandardOptions).runner
    if name is None:
        return create_local_runner(options)
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigError(f"--runner={name}: {str(error).splitlines()[0]}") from error
