"""A job as a Beam pipeline, whose elements name shards.

Only names pass between Beam steps. The stages of a job, with their tasks and the keys of their shards, are in one file, so that elements,
and the functions that Beam sends with them, stay small.
"""

import contextlib
import copy
import hashlib
import logging
import os
import pickle
import posixpath
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.runners.runner import PipelineRunner, create_runner

from miner.errors import ClusterError, ConfigError, MinerError, StorageError, first_line
from miner.io import storage
from miner.io.stages import Stage
from pipelines.beam import shards, started_jobs
from pipelines.beam.local_runner import WorkerDiedError, create_local_runner, raise_interruptions
from pipelines.beam.options import IN_PROCESS_RUNNERS, LOCAL_RUNNERS, WorkerOptions, is_dask, parse_beam_options, runner_of
from pipelines.beam.reporting import watch_cluster
from pipelines.beam.shards import ShardWriter
from pipelines.beam.tasks import WORKERS, Element, StageRun, elements_of

PENDING = "_pending.pickle"
MAX_PENDING_BYTES = 1 << 30
RESUBMIT_SECONDS = 5.0  # before a failed job is submitted again; four times as long after each further failure

logger = logging.getLogger(__name__)

_thread = threading.local()  # the writer that the DoFns of a worker thread share, and its file


@dataclass(frozen=True)
class PendingFile:
    """The file of the stages of a job, and its checksum: a pickle is only loaded if it is the one that the driver wrote."""

    uri: str  # absolute
    sha256: str
    folder: str  # working directory of the driver, in which relative paths of the stages are resolved
    is_remote: bool  # whether workers may be on other machines

    @classmethod
    def write(cls, runs: Sequence[StageRun], is_remote: bool) -> "PendingFile":
        """Write the stages of a job to the directory of the first one."""
        data, uri = pickle.dumps(list(runs)), runs[0].stage.path(PENDING)
        if is_remote:
            storage.remove(runs[0].stage.path(WORKERS))  # of an earlier attempt
        with storage.atomic(uri) as handle:
            handle.write(data)
        return cls(storage.absolute(uri), hashlib.sha256(data).hexdigest(), str(Path.cwd()), is_remote)

    def open_writer(self) -> ShardWriter:
        """Return the writer of the shards, in a worker. Raises StorageError for another file, and where there is no such file."""
        data = storage.find_bytes(self.uri, MAX_PENDING_BYTES)
        if data is None:
            raise StorageError(f"{self.uri}: no such file for the worker on {socket.gethostname()}; {shards.SHARED_REMEDY}")
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise StorageError(f"{self.uri}: not the file that this run wrote; run one command at a time in a directory")
        if self.is_remote:
            storage.write_json(storage.join(posixpath.dirname(self.uri), WORKERS, f"{socket.gethostname()}-{os.getpid()}"), {})
        return ShardWriter(pickle.loads(data), socket.gethostname() if self.is_remote else "")


class WorkingFolder:
    """The working directory of a worker: that of the driver while it writes a shard, so that relative paths name the same files.

    The threads of a process share it, so runs that were started in different directories cannot use a worker at the same time.
    """

    def __init__(self) -> None:
        self.lock, self.folder, self.users = threading.Lock(), "", 0

    @contextlib.contextmanager
    def of(self, folder: str) -> Iterator[None]:
        """Work in a directory. One that this machine does not have is ignored: the paths may all be absolute or URIs."""
        if not Path(folder).is_dir():
            yield
            return
        with self.lock:
            if self.users and self.folder != folder:
                message = f"the worker on {socket.gethostname()} serves runs that were started in {self.folder} and in {folder}"
                raise ConfigError(f"{message}; start them in one directory")
            if not self.users:
                self.previous, self.folder = Path.cwd(), folder
                os.chdir(folder)
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if not self.users:
                    os.chdir(self.previous)


_working_folder = WorkingFolder()


class WriteShard(beam.DoFn):  # type: ignore[misc]
    """Write a shard and its marker, or record the failure, in the directory of its stage. Takes an `Element` and returns nothing."""

    def __init__(self, file: PendingFile, is_shared: bool = False) -> None:
        self.file = file
        self.is_shared = is_shared  # DoFns with the same file share the tasks that a thread has set up: Dask creates one per partition

    def setup(self) -> None:
        if not self.is_shared:
            self.writer = self.file.open_writer()
            return
        if getattr(_thread, "file", None) != self.file:
            _thread.file, _thread.writer = self.file, self.file.open_writer()
        self.writer = _thread.writer

    def teardown(self) -> None:
        # Beam's objects are in reference cycles, and frozen objects are never collected: release the tasks explicitly.
        self.__dict__.pop("writer", None)

    def process(self, element: Element) -> None:
        with _working_folder.of(self.file.folder):
            if self.writer.is_pending(element):
                self.writer.write(element, _add_to_beam)


def _add_to_beam(stage: str, counter: Mapping[str, int]) -> None:
    """Add to Beam's counters in the namespace `stage`. Called in workers."""
    for name, value in counter.items():
        Metrics.counter(stage, name).inc(value)


def run(runs: Sequence[StageRun], options: Sequence[str]) -> None:
    """Write shards. If a local worker process dies, run the pipeline again for the remaining shards."""
    beam_options = parse_beam_options(options)
    try:
        run_pipeline(runs, beam_options)
    except Exception:  # not Ctrl-C: a detached job reads the file
        _remove_files_of_job(runs[0].stage, beam_options)
        raise
    _remove_files_of_job(runs[0].stage, beam_options)


def _remove_files_of_job(stage: Stage, options: PipelineOptions) -> None:
    storage.remove_files([stage.path(PENDING)])
    if _is_remote(options):
        storage.remove(stage.path(WORKERS))


def _is_remote(options: PipelineOptions) -> bool:
    """Whether workers may be on other machines."""
    return runner_of(options) not in (None, *IN_PROCESS_RUNNERS)


def run_pipeline(runs: Sequence[StageRun], options: PipelineOptions) -> None:
    """Write shards by a pipeline, and by further ones after the death of a local worker process, or of a machine of a cluster."""
    is_remote = _is_remote(options)
    attempts = options.view_as(WorkerOptions).job_attempts if is_remote else max(run.task.retry_policy.attempts for run in runs)
    pause_seconds = RESUBMIT_SECONDS if is_remote else 0.0
    for attempt in range(1, attempts + 1):
        try:
            _run_once(runs, options)
            return
        except (WorkerDiedError, ClusterError) as error:
            if attempt == attempts or any(shards.has_failed(run.stage) for run in runs):
                raise
            kept = [run.stage.find_shards(run.shard_keys) for run in runs]
            missing = ((run, run.shard_keys.keys() - names.keys()) for run, names in zip(runs, kept, strict=True))
            runs = [run.of(sorted(names)) for run, names in missing if names]
            if not runs:
                return
            counts = sum(map(len, kept)), sum(len(run.shard_keys) for run in runs)
            text = "%s; %d finished shards are kept, the other %d are submitted again in %.0f s: attempt %d of %d"
            logger.warning(text, error, *counts, pause_seconds, attempt + 1, attempts)
            time.sleep(pause_seconds)
            pause_seconds *= 4


def _run_once(runs: Sequence[StageRun], options: PipelineOptions) -> None:
    runner = options.view_as(StandardOptions).runner
    is_local = runner_of(options) in (None, *LOCAL_RUNNERS)  # the job ends with this process
    job_options = options if is_local else copy.deepcopy(options)  # which get the name of this job
    is_detached = options.view_as(WorkerOptions).detach
    stages, flink_rest = [run.stage for run in runs], options.view_as(WorkerOptions).flink_rest
    recorded = contextlib.nullcontext() if is_local else started_jobs.recorded(job_options, stages, is_detached, flink_rest)
    with raise_interruptions(), recorded as record:
        pipeline = build_pipeline(runs, job_options)
        try:
            result = pipeline.run()
        except Exception as error:
            is_lost = isinstance(error, OSError) if is_dask(options) else not is_local and started_jobs.is_unreachable(error)
            if isinstance(error, MinerError) or (is_local and not is_lost):  # local runners raise the errors of tasks
                raise
            kind = ClusterError if is_lost else ConfigError  # a server that restarts does not answer yet
            remedy = "check that its cluster runs and its address"
            raise kind(f"--runner={runner}: did not start ({type(error).__name__}: {first_line(error)}); {remedy}") from error
        if record is not None:
            record.set_id(result)
        try:
            with contextlib.nullcontext() if record is None else watch_cluster(runs, record.job.describe_wait):
                result.wait_until_finish()
        except Exception as error:
            if isinstance(error, MinerError) or (is_local and not is_dask(options)) or shards.parse_failure(error) is not None:
                raise
            name, reason = f"--runner={runner}", f"{first_line(error)}; see the log of the cluster"
            if record is not None:
                name, reason = record.job.describe(), record.job.describe_failure(first_line(error))
            raise ClusterError(f"{name} did not finish: {reason}") from error
        finally:
            if is_dask(options) and result.client is not None:  # the runner opens a connection per pipeline and leaves it open
                result.client.close()


def build_pipeline(runs: Sequence[StageRun], options: PipelineOptions) -> beam.Pipeline:
    """Build the pipeline that writes shards. Only tasks that use an accelerator request the one in the options."""
    write = WriteShard(PendingFile.write(runs, _is_remote(options)), is_shared=is_dask(options))
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
            element for element in elements_of(runs) if (bool(accelerators) and runs[element[0]].task.uses_accelerator) == is_accelerated
        ]
        if elements:
            names = pipeline | f"Shards{label}" >> beam.Create(elements, reshuffle=has_workers).with_output_types(tuple[int, str])
            step = beam.ParDo(write)
            _ = names | f"Make{label}" >> (step.with_resource_hints(accelerator=accelerators[-1]) if is_accelerated else step)
    return pipeline


def _create_runner(options: PipelineOptions) -> PipelineRunner:
    """Create the runner that the options name. The default is explicit, because DirectRunner first downloads and starts a Go binary."""
    name = options.view_as(StandardOptions).runner
    if name is None:
        return create_local_runner(options)
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise ConfigError(f"--runner={name}: {first_line(error)}") from error
