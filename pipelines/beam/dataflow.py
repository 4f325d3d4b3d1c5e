"""Dataflow's API, as far as the jobs of an earlier run need it."""

from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from miner.errors import require

TERMINAL_STATES = {"STOPPED", "DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED"}


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
