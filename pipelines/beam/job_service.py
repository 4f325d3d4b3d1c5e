"""Beam's job service: the API of a job server, by which portable runners such as Flink's start jobs."""

import contextlib
from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]
from apache_beam.portability.api import beam_job_api_pb2 as api
from apache_beam.portability.api import beam_job_api_pb2_grpc as api_grpc

from miner.errors import ConfigError

TIMEOUT_SECONDS = 30.0
EMBEDDED = "embed"  # an endpoint: the server of this process
TERMINAL_STATES = tuple(api.JobState.Enum.Value(name) for name in ("STOPPED", "DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED"))
UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


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


def option_names(endpoint: str | None) -> set[str]:
    """Return the names of the options that a job server reads; none without a server."""
    if endpoint is None or endpoint == EMBEDDED:
        return set()
    with connect(endpoint) as stub:
        described = stub.DescribePipelineOptions(api.DescribePipelineOptionsRequest(), timeout=TIMEOUT_SECONDS)
        return {option.name for option in described.options}


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
        return state not in TERMINAL_STATES

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
