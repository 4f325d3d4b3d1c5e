"""A Flink cluster by its REST interface: the state of a job, whatever the job server says, and what it waits for.

https://nightlies.apache.org/flink/flink-docs-stable/docs/ops/rest_api/
"""

import contextlib
import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from miner.errors import ConfigError
from miner.units import counted

TIMEOUT_SECONDS = 10.0
LAST_LINES = 3  # of the output of a task manager
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

    def describe(self, name: str) -> str:
        """Describe the state of a job, and the slots that are free for it."""
        cluster, job = self._request("overview"), self.find(name)
        slots = f"{cluster['slots-available']} of {counted(cluster['slots-total'], 'slot')} free"
        machines = f"{slots}, {counted(cluster['taskmanagers'], 'task manager')}"
        if job is None:
            return f"Flink has no job {name} yet ({machines}): see the log of the job server"
        tasks = ", ".join(f"{number} {state}" for state, number in job["tasks"].items() if number and state != "total")
        advice = (
            "; it waits for slots: stop other jobs, or add task managers"
            if job["tasks"]["scheduled"] and not cluster["slots-available"]
            else ""
        )
        return f"its tasks in Flink: {tasks} ({machines}){advice}; see {self.address}/#/job/running/{job['jid']}"

    def find_failure(self, name: str) -> str:
        """Return the first line of the cause of a failed job, with its machine; empty if Flink has none."""
        job = self.find(name)
        history = {} if job is None else self._request(f"jobs/{job['jid']}/exceptions").get("exceptionHistory", {})
        for entry in history.get("entries", [])[:1]:
            causes = [line for line in entry["stacktrace"].splitlines() if not line.startswith(("\t", " "))]
            machine = entry.get("endpoint") or entry.get("location")
            return f"{causes[-1].removeprefix('Caused by: ')}{f' on {machine}' if machine else ''}"
        return ""

    def last_lines(self) -> str:
        """Return the last lines that the processes of the task managers, such as workers that ended, have printed."""
        lines = list[str]()
        for manager in self._request("taskmanagers")["taskmanagers"]:
            with contextlib.suppress(ConfigError):  # it has no such file
                printed = self._read(f"taskmanagers/{manager['id']}/stdout").decode(errors="replace").splitlines()
                lines += [line.strip() for line in printed if line.strip() and not line.startswith("Picked up JAVA")][-LAST_LINES:]
        return " | ".join(dict.fromkeys(lines))

    def _request(self, path: str, method: str = "GET") -> dict[str, Any]:
        text = self._read(path, method)
        try:
            values: dict[str, Any] = json.loads(text) if text else {}
        except ValueError as error:
            raise ConfigError(f"--flink_rest={self.address}: not Flink's REST interface ({error}); check its address") from error
        return values

    def _read(self, path: str, method: str = "GET") -> bytes:
        request = urllib.request.Request(f"{self.address.rstrip('/')}/{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                text: bytes = answer.read()
        except (OSError, ValueError) as error:
            raise ConfigError(f"--flink_rest={self.address}: Flink does not answer ({error}); check its address") from error
        return text
