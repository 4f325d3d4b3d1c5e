"""A job on a cluster that writes nothing says which workers have started, and why a job ended."""

import logging
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from square_stage import SquareTask, square_stage

from miner.io import storage
from pipelines.beam import reporting
from pipelines.beam.beam_job import PendingFile
from pipelines.beam.started_jobs import StartedJob
from pipelines.beam.tasks import WORKERS, StageRun

JOB = StartedJob("label", "miner-squares", "PortableRunner", "id")


@pytest.fixture
def runs(tmp_path: Path) -> list[StageRun]:
    stage, keys = square_stage(tmp_path)
    return [StageRun(stage, keys, SquareTask(tmp_path))]


def test_a_worker_leaves_its_name_until_the_job_is_submitted_again(runs: list[StageRun]) -> None:
    folder = runs[0].stage.path(WORKERS)
    PendingFile.write(runs, is_remote=False).open_writer()
    assert storage.names_in(folder) == []
    PendingFile.write(runs, is_remote=True).open_writer()
    assert storage.names_in(folder) == [f"{socket.gethostname()}-{os.getpid()}"]
    PendingFile.write(runs, is_remote=True)
    assert storage.names_in(folder) == []


def test_a_silent_job_is_warned_of_with_its_workers(runs: list[StageRun], caplog: pytest.LogCaptureFixture) -> None:
    def first_warning(workers: Sequence[str]) -> str:
        caplog.clear()
        for name in workers:
            storage.write_json(storage.join(runs[0].stage.path(WORKERS), name), {})
        with caplog.at_level(logging.WARNING), reporting.watch_cluster(runs, JOB.describe_wait, silent_seconds=0.6):
            end = time.monotonic() + 60
            while not caplog.records and time.monotonic() < end:
                time.sleep(0.05)
        return caplog.records[0].getMessage().partition(": ")[2]

    none = first_warning([])
    assert none.startswith(
        "no worker has started: the job waits for slots, or its workers for their image, or they end at their start; see"
    )
    some = first_warning(["node-1-71", "node-1-72", "node-2-9"])
    assert some.startswith("3 workers started on node-1, node-2: a shard takes long, or a worker or the storage of its files hangs; see")


def test_a_worker_that_ended_at_its_start_is_told_from_other_failures() -> None:
    assert JOB.describe_failure("lost").startswith("lost; see the log of the cluster")
    ended = JOB.describe_failure("java.lang.IllegalStateException: Process died with exit code 1")
    assert "run its command with --help on the machines of the cluster to see why" in ended
