"""Jobs of a real job server, Beam's portable one on this machine, whose driver is interrupted or killed."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import job_servers
import pytest
from square_stage import EXPECTED_SQUARES, PYTHONPATH, SquareTask, read_squares, square_stage

from miner.errors import StorageError
from miner.io import records, storage
from pipelines.beam import started_jobs
from pipelines.beam.runner import claim_output, run_pipeline, run_stage

SECONDS = 60
DRIVER = """
import logging, sys
from pathlib import Path
from square_stage import SquareTask, square_stage
from pipelines.beam.runner import claim_output, run_pipeline, run_stage
logging.basicConfig(level=logging.INFO)
folder = Path(sys.argv[1])
stage, keys = square_stage(folder / "squares")
with claim_output(str(folder)):
    run_pipeline(run_stage(stage, keys, SquareTask(folder / "squares", failure="logged")), sys.argv[2:])
"""


@pytest.fixture(scope="module")
def options() -> Iterator[list[str]]:
    """The options that select a job server and a pool of workers, which both outlive a driver."""
    with job_servers.serve() as started:
        yield started


def start_driver(folder: Path, options: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DRIVER, str(folder), *options]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def wait_for_shard(folder: Path) -> None:
    end = time.monotonic() + SECONDS
    while not (folder / "squares.log").exists():
        assert time.monotonic() < end, "no shard was started"
        time.sleep(0.05)


def finish(folder: Path, options: list[str]) -> list[str]:
    """Run the command again to its end, and return the lines of the log of shards, of which no two with one name overlap."""
    stage, keys = square_stage(folder / "squares")
    with claim_output(str(folder)):
        run_pipeline(run_stage(stage, keys, SquareTask(folder / "squares", failure="logged")), options)
    assert read_squares(folder / "squares") == EXPECTED_SQUARES
    assert not (folder / "_jobs").exists()
    lines = (folder / "squares.log").read_text().splitlines()
    running: set[str] = set()
    for event, name in (line.split() for line in lines):
        assert event == "end" or name not in running, f"{name} is made twice at once"
        (running.add if event == "start" else running.discard)(name)
    return lines


@pytest.mark.slow
def test_a_successor_waits_for_the_job_of_a_killed_driver(options: list[str], tmp_path: Path) -> None:
    driver = start_driver(tmp_path, options)
    wait_for_shard(tmp_path)
    driver.kill()
    driver.wait()
    (record,) = (tmp_path / "_jobs").iterdir()
    job = storage.read_json(str(record))
    assert job["id"] is not None
    assert job["name"].startswith(f"miner-squares-{tmp_path.name.replace('_', '-')}"[:30])
    assert started_jobs.JobServer(options[1].partition("=")[2]).is_running(job["id"])
    assert len(finish(tmp_path, options)) == 2 * len(EXPECTED_SQUARES)  # each shard was made once


@pytest.mark.slow
def test_interrupts_cancel_the_job_unless_detached(options: list[str], tmp_path: Path) -> None:
    client = started_jobs.JobServer(options[1].partition("=")[2])
    for name, extra, goes_on in (("attached", [], False), ("detached", ["--detach"], True)):
        folder = tmp_path / name
        driver = start_driver(folder, [*options, *extra])
        wait_for_shard(folder)
        (record,) = (folder / "_jobs").iterdir()
        job_id = storage.read_json(str(record))["id"]
        driver.send_signal(signal.SIGINT)
        messages = driver.communicate(timeout=SECONDS)[1]
        assert ("continues" in messages, "cancelled job" in messages) == (goes_on, not goes_on)
        assert record.exists() == goes_on
        assert goes_on or not client.is_running(job_id)
    finish(tmp_path / "detached", options)


def test_a_job_whose_server_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    job = {
        "label": "a1",
        "name": "miner-search-en-de",
        "runner": "PortableRunner",
        "id": "7",
        "endpoint": f"localhost:{job_servers.free_port()}",
    }
    uri = str(tmp_path / "_jobs/a1.json")
    records.write(uri, job)
    with (
        pytest.raises(StorageError, match=rf"job miner-search-en-de \(7 of PortableRunner\).*cancel the job and delete {uri}"),
        claim_output(str(tmp_path)),
    ):
        pass
    records.write(uri, {**job, "is_loopback": True})  # its workers died with the driver
    with claim_output(str(tmp_path)):
        assert not (tmp_path / "_jobs").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_drivers_never_make_a_shard_twice_at_once(options: list[str], tmp_path: Path) -> None:
    moments = random.Random(3)
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        driver = start_driver(folder, options)
        time.sleep(moments.uniform(1, 7))
        driver.kill()
        driver.wait()
        assert finish(folder, options)  # no two lines with one name overlap
