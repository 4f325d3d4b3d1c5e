"""A Flink cluster by its REST interface: the state of a job, whatever the job server says, and what it waits for.

https://nightlies.apache.org/flink/flink-docs-stable/docs/ops/rest_api/
"""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from miner.errors import ConfigError
from miner.units import counted

TIMEOUT_SECONDS = 10.0
TERMINAL_STATES = ("FINISHED", "FAILED", "CANCELED")


@dataclass(frozen=True)
class FlinkCluster:
    """A cluster whose REST interface is at an address such as http://flink:8081."""

    address: str

    def find(self, name: str) -> dict[str, Any] | None:
        """Return the last job with a name, None if there is none. Its keys are those of Flink: jid, state and so on."""
        jobs = [job for job in self._request("jobs/overview")["jobs"] if job["name"] == name]
        return max(jobs, key=lambda job: int(job["start-time"]), default=None)

    def is_running(self, name: str) -> bool:
        """Return whether a job with this name has not ended."""
        job = self.find(name)
        return job is not None and job["state"] not in TERMINAL_STATES

    def cancel(self, name: str) -> None:
        """Ask Flink to cancel the job with a name, if it has not ended."""
        job = self.find(name)
        if job is not None and job["state"] not in TERMINAL_STATES:
            self._request(f"jobs/{job['jid']}?mode=cancel", "PATCH")

    def describe_wait(self, name: str) -> str:
        """Describe what a job without progress waits for."""
        cluster, job = self._request("overview"), self.find(name)
        slots = f"{cluster['slots-available']} of {counted(cluster['slots-total'], 'slot')} free"
        machines = counted(cluster["taskmanagers"], "task manager")
        if job is None:
            return f"Flink has no job {name} yet ({machines}, {slots}); see the log of the job server"
        if job["tasks"]["running"] == 0 and job["tasks"]["finished"] < job["tasks"]["total"]:
            return f"the job waits for slots or for workers to start ({machines}, {slots}); see {self.address}/#/job/running/{job['jid']}"
        return f"its tasks run, but have written no shard ({machines}, {slots}); see the logs of the workers at {self.address}"

    def _request(self, path: str, method: str = "GET") -> dict[str, Any]:
        request = urllib.request.Request(f"{self.address.rstrip('/')}/{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                text = answer.read()
            values: dict[str, Any] = json.loads(text) if text else {}
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise ConfigError(f"--flink_rest={self.address}: Flink does not answer ({error}); check its address") from error
        return values
