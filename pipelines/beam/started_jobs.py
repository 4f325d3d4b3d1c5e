"""Jobs on clusters outlive the driver: their ids are in the output directory from before they start until they end.

A run that finds the job of a dead one waits for it, because the shards that it finishes need not be made again, and no shard is made twice
at once. A job whose workers died with the driver is cancelled. Ctrl-C cancels the job of a run, unless `--detach` leaves it running.
"""

import contextlib
import functools
import logging
import posixpath
import re
import time
import uuid
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

import grpc  # type: ignore[import-untyped]
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, PortableOptions, StandardOptions
from apache_beam.portability.api import beam_job_api_pb2 as api
from apache_beam.portability.api import beam_job_api_pb2_grpc as api_grpc

from miner.errors import ConfigError, MinerError, StorageError, require
from miner.io import lock, records, storage
from miner.io.stages import Stage
from miner.units import counted
from pipelines.beam.flink import FlinkCluster
from pipelines.beam.tasks import JOBS

LABEL = "miner-job"  # of a job: a unique name, by which a job is found whose id could not be written
POLL_SECONDS = 2.0
CANCEL_SECONDS = 60.0  # in which a cancelled job ends
LOOPBACK = "LOOPBACK"  # environment: workers in the driver
ENDED_WORKER = "Process died with exit code"  # in an error of Beam
MAX_NAME = 40  # characters of a name on Dataflow
TIMEOUT_SECONDS = 30.0  # of a request to a job server
EMBEDDED = "embed"  # an endpoint: the server of this process
TERMINAL_STATES = ("STOPPED", "DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED")
UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def connect(endpoint: str) -> Iterator[Any]:
    """Yield the stub of the job server at an endpoint. Raises ConfigError if it does not answer."""
    try:
        with grpc.insecure_channel(endpoint) as channel:
            yield api_grpc.JobServiceStub(channel)
    except grpc.RpcError as error:
        reason = error.code().name if isinstance(error, grpc.Call) else str(error)
        message = f"--job_endpoint={endpoint}: the job server does not answer ({reason}); check that it runs and its address"
        raise ConfigError(message) from error


def is_unreachable(error: Exception) -> bool:
    """Whether an error says that a job server, which answered before, does not."""
    return isinstance(error, grpc.FutureTimeoutError) or (isinstance(error, grpc.RpcError) and error.code() in UNREACHABLE)


@functools.cache
def option_names(endpoint: str | None) -> Set[str]:
    """Return the names of the options that a job server reads, asked once; none without a server."""
    if endpoint is None or endpoint == EMBEDDED:
        return frozenset()
    with connect(endpoint) as stub:
        described = stub.DescribePipelineOptions(api.DescribePipelineOptionsRequest(), timeout=TIMEOUT_SECONDS)
        return frozenset(option.name for option in described.options)


class JobServer:
    """The jobs of a job server."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def is_running(self, job_id: str) -> bool:
        """Whether a job has not ended. A server that does not know it was restarted since, so the job has."""
        with connect(self.endpoint) as stub:
            try:
                state = stub.GetState(api.GetJobStateRequest(job_id=job_id), timeout=TIMEOUT_SECONDS).state
            except grpc.RpcError as error:
                if error.code() in UNREACHABLE:
                    raise
                return False
        return api.JobState.Enum.Name(state) not in TERMINAL_STATES

    def cancel(self, job_id: str) -> None:
        """Ask the server to cancel a job."""
        with connect(self.endpoint) as stub:
            stub.Cancel(api.CancelJobRequest(job_id=job_id), timeout=TIMEOUT_SECONDS)

    def find(self, label: str) -> str | None:
        """Return the id of the job with a label, None if there is none."""
        with connect(self.endpoint) as stub:
            for job in stub.GetJobs(api.GetJobsRequest(), timeout=TIMEOUT_SECONDS).job_info:
                if label in str(job.pipeline_options):
                    return str(job.job_id)
        return None


class DataflowJobs:
    """The jobs of a project in a region."""

    def __init__(self, project: str | None, region: str | None) -> None:
        require("apitools", " for Dataflow's client")
        from apache_beam.runners.dataflow.internal import apiclient

        self.api: Any = apiclient.DataflowApplicationClient(PipelineOptions([f"--project={project}", f"--region={region}"]))

    def is_running(self, job_id: str) -> bool:
        """Whether a job has not ended."""
        return str(self.api.get_job(job_id).currentState).removeprefix("JOB_STATE_") not in TERMINAL_STATES

    def cancel(self, job_id: str) -> None:
        """Ask Dataflow to cancel a job."""
        self.api.modify_job_state(job_id, "JOB_STATE_CANCELLED")

    def find(self, label: str) -> str | None:
        """Return None: a job has its id as soon as Dataflow has it, because the submission returns it."""
        del label
        return None


@dataclass(frozen=True)
class StartedJob:
    """A job of a runner that outlives the driver."""

    label: str
    name: str
    runner: str
    id: str | None = None  # None while it is being submitted
    endpoint: str | None = None  # of the job server
    project: str | None = None  # of Dataflow, like the next one
    region: str | None = None
    is_loopback: bool = False  # whether its workers are in the driver
    flink_rest: str | None = None  # address of the REST interface of Flink, which knows jobs that a restarted job server does not

    def is_running(self) -> bool:
        """Whether the job has not ended. Raises ConfigError if its server does not answer."""
        if self.flink_rest is not None:
            return FlinkCluster(self.flink_rest).is_running(self.name)
        return self.id is not None and self._client().is_running(self.id)

    def cancel(self) -> None:
        """Cancel the job. Raises ConfigError if its server does not answer, or if Flink goes on with the job."""
        if self.flink_rest is None:
            if self.id is not None:
                self._client().cancel(self.id)
            return
        with contextlib.suppress(ConfigError):  # the job server may have forgotten the job, or fail to cancel one without workers
            if self.id is not None:
                self._client().cancel(self.id)
        FlinkCluster(self.flink_rest).cancel(self.name)

    def ends_soon(self) -> bool:
        """Wait for a cancelled job to end, for a minute at most; return whether it has."""
        end = time.monotonic() + CANCEL_SECONDS
        while self.is_running():
            if time.monotonic() > end:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def describe_wait(self, workers: Sequence[str]) -> str:
        """Describe what a job without progress waits for. `workers` are the names of those that have started."""
        if workers:
            hosts = ", ".join(sorted({name.rpartition("-")[0] for name in workers}))
            started = (
                f"{counted(len(workers), 'worker')} started on {hosts}: a shard takes long, or a worker or the storage of its files hangs"
            )
        else:
            started = "no worker has started: the job waits for slots, or its workers for their image, or they end at their start"
        if self.flink_rest is None:
            return f"{started}; see the log of the cluster"
        return f"{started}; {FlinkCluster(self.flink_rest).describe(self.name)}"

    def describe_failure(self, reason: str) -> str:
        """Describe why a job did not finish: `reason`, what Flink knows of it, and the last lines of workers that ended."""
        with contextlib.suppress(MinerError):
            if self.flink_rest is not None:
                cluster = FlinkCluster(self.flink_rest)
                reason = cluster.find_failure(self.name) or reason
                if ENDED_WORKER in reason and (lines := cluster.last_lines()):
                    return f"{reason}: {lines}"
        if ENDED_WORKER in reason:
            return f"{reason}: a worker ended at its start; run its command with --help on the machines of the cluster to see why"
        return f"{reason}; see the log of the cluster"

    def find(self) -> "StartedJob | None":
        """Return the job with its id, None if it was not submitted."""
        job_id = self.id or self._client().find(f"{LABEL}={self.label}")
        return None if job_id is None else replace(self, id=job_id)

    def _client(self) -> DataflowJobs | JobServer:
        if self.endpoint is not None:
            return JobServer(self.endpoint)
        return DataflowJobs(self.project, self.region)

    def describe(self) -> str:
        """Describe the job in a few words."""
        return f"job {self.name} ({self.id or 'being submitted'} of {self.runner})"


def name_job(options: PipelineOptions, stages: Sequence[Stage]) -> str:
    """Give the options a name and labels with the stages and what they are of, and return the unique label. The user's name is kept."""
    cloud, label = options.view_as(GoogleCloudOptions), uuid.uuid4().hex
    kinds = list(dict.fromkeys(stage.stage for stage in stages))
    owners = list(dict.fromkeys(posixpath.basename(posixpath.dirname(stage.folder.rstrip("/"))) for stage in stages))
    text = "-".join(["miner", *kinds, owners[0], *([f"and-{len(owners) - 1}-more"] if len(owners) > 1 else [])])
    if cloud.job_name is None:
        cloud.job_name = f"{_plain(text)[:MAX_NAME].strip('-')}-{label[:8]}"
    parts = [f"{LABEL}={label}", f"miner-stage={_plain('-'.join(kinds))}", f"miner-of={_plain(owners[0])}"]
    cloud.labels = [*(cloud.labels or []), *parts]
    return label


def _plain(text: str) -> str:
    """Return text as Dataflow allows it in names and labels."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:63]


@contextlib.contextmanager
def recorded(options: PipelineOptions, stages: Sequence[Stage], is_detached: bool, flink_rest: str | None = None) -> Iterator["JobRecord"]:
    """Record the job that the block starts, in the output directory; on Ctrl-C, cancel it unless the user detaches."""
    label, folder = name_job(options, stages), lock.held_folder(stages[0].folder)
    runner, portable = options.view_as(StandardOptions).runner or "", options.view_as(PortableOptions)
    cloud = options.view_as(GoogleCloudOptions)
    endpoint = portable.job_endpoint if portable.job_endpoint != EMBEDDED else None
    job = StartedJob(label, cloud.job_name, runner, is_loopback=portable.environment_type == LOOPBACK, flink_rest=flink_rest)
    if runner.rpartition(".")[2] == "DataflowRunner":
        job = replace(job, project=cloud.project, region=cloud.region)
    elif endpoint is not None:
        job = replace(job, endpoint=endpoint)
    else:  # the job ends with this process, or cannot be found again
        folder = None
    record = JobRecord(job, None if folder is None else storage.join(folder, JOBS, f"{label}.json"))
    record.write()
    try:
        yield record
    except KeyboardInterrupt:
        record.interrupt(is_detached and not job.is_loopback)
        raise
    except Exception:
        record.end()
        raise
    record.remove()


@dataclass
class JobRecord:
    """A started job and its file; None for a job that ends with the driver, or that cannot be found again."""

    job: StartedJob
    uri: str | None

    def set_id(self, result: Any) -> None:
        """Store the id of a submitted job. `result` is Beam's."""
        job_id = result.job_id() if hasattr(result, "job_id") else getattr(result, "_job_id", None)
        if self.uri is not None and job_id is not None:
            self.job = replace(self.job, id=str(job_id))
            self.write()
            logger.info("started %s", self.job.describe())

    def write(self) -> None:
        if self.uri is not None:
            records.write(self.uri, asdict(self.job))

    def remove(self) -> None:
        if self.uri is not None:
            storage.remove(self.uri)
            folder = posixpath.dirname(self.uri)
            if not storage.names_in(folder):
                storage.remove(folder)

    def interrupt(self, is_detached: bool) -> None:
        """Cancel the job, or leave it to the next run."""
        if self.uri is None:
            return
        if is_detached:
            logger.warning("%s continues; the same command waits for it and resumes", self.job.describe())
            return
        with contextlib.suppress(MinerError):
            submitted = self.job.find()
            if submitted is not None and submitted.is_running():
                submitted.cancel()
                outcome = "cancelled %s" if submitted.ends_soon() else "%s was cancelled, but still runs: look at it in the cluster"
                logger.warning(outcome, submitted.describe())
            self.remove()

    def end(self) -> None:
        """Cancel a failed job that still runs, as after a lost connection, so that another can follow. Its record remains if it goes on."""
        with contextlib.suppress(MinerError):
            submitted = None if self.uri is None else self.job.find()
            if submitted is not None and submitted.is_running():
                submitted.cancel()
                if not submitted.ends_soon():
                    return
            self.remove()


def settle(output: str) -> None:
    """Wait for the jobs that a dead run left in an output directory, and cancel those whose workers died with it.

    Raises StorageError if a job may be running and its server does not answer.
    """
    folder = storage.join(output, JOBS)
    for name in storage.names_in(folder):
        if name.startswith("."):
            continue
        uri = storage.join(folder, name)
        started = records.read(uri, StartedJob)
        try:
            job = started.find()
            if job is not None and job.is_running():
                _settle_running(job, uri)
        except ConfigError as error:
            if not started.is_loopback:
                advice = f"start the server, or cancel the job and delete {uri}"
                raise StorageError(f"{output}: {started.describe()} of an earlier run may still run ({error}); {advice}") from error
        JobRecord(started, uri).remove()


def _settle_running(job: StartedJob, uri: str) -> None:
    if job.is_loopback:
        logger.warning("cancelling %s, whose workers died with the run that started it", job.describe())
        job.cancel()
        return
    logger.warning("waiting for %s, which an earlier run started", job.describe())
    try:
        while job.is_running():
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        JobRecord(job, uri).interrupt(is_detached=False)
        raise
