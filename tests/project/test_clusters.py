"""Flink, Spark and an S3 server on this machine, started by deploy/clusters/clusters.py: `make flink-test spark-test s3-test`.

The first run fetches their packages into build/clusters.
"""

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDER = ROOT / "build" / "clusters"

clusters = load_script("clusters", ROOT / "deploy" / "clusters")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def start_mining(output: str | Path, *beam_options: str, environment: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    """Start to mine the examples by the command, in a process of its own."""
    inputs = [str(EXAMPLES / "en.txt"), str(EXAMPLES / "de.txt"), "--source-lang", "en", "--target-lang", "de", "--shards", "3"]
    command = [sys.executable, "-m", "miner", "mine", "--no-report", *inputs, "--output", str(output)]
    return subprocess.Popen(
        [*command, *(["--", *beam_options] if beam_options else [])],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> str:
    """Wait for a command that succeeds; return what it prints to stderr."""
    _, printed = process.communicate(timeout=1000)
    assert process.returncode == 0, printed
    return printed


def wait_for(path: Path) -> None:
    """Wait until a path exists."""
    end = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.05)


def pairs(output: Path) -> bytes:
    return (output / "bitext.tsv.gz").read_bytes()


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a cluster that runs during the test prints: options of miner, or of S3 the environment."""
    needed = {"flink": ("java", "mvn"), "spark": ("java", "mvn"), "s3": ("go",)}[request.param]
    if missing := [program for program in needed if shutil.which(program) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{request.param}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side, and a cluster is started once
        clusters.fetch(request.param, FOLDER)
        try:
            yield clusters.start(request.param, FOLDER)
        finally:
            clusters.stop(request.param, FOLDER)


@pytest.mark.parametrize("started", ["flink", "spark"], indirect=True)
def test_a_cluster_gives_the_pairs_of_a_local_run(started: str, tmp_path: Path) -> None:
    finish(start_mining(tmp_path / "cluster", *shlex.split(started)))
    finish(start_mining(tmp_path / "local"))
    assert pairs(tmp_path / "cluster") == pairs(tmp_path / "local")


@pytest.mark.parametrize("started", ["flink", "spark"], indirect=True)
def test_a_run_survives_the_death_of_its_workers(started: str, tmp_path: Path) -> None:
    run = start_mining(tmp_path / "cluster", *shlex.split(started))
    wait_for(tmp_path / "cluster" / "neighbours")
    time.sleep(2)
    subprocess.run(["pkill", "-KILL", "-f", "miner-worker --id"], check=False)
    finish(run)
    finish(start_mining(tmp_path / "local"))
    assert pairs(tmp_path / "cluster") == pairs(tmp_path / "local")


@pytest.mark.parametrize("started", ["flink"], indirect=True)
def test_a_stopped_run_leaves_no_job_in_flink(started: str, tmp_path: Path) -> None:
    options = shlex.split(started)
    run = start_mining(tmp_path / "cluster", *options)
    wait_for(tmp_path / "cluster" / "_jobs")
    time.sleep(3)
    run.send_signal(signal.SIGTERM)
    _, printed = run.communicate(timeout=200)
    assert run.returncode == 143, printed
    address = next(option.removeprefix("--flink_rest=") for option in options if option.startswith("--flink_rest="))
    jobs = clusters.read_json(f"{address}/jobs/overview")["jobs"]
    assert {job["state"] for job in jobs} <= {"FINISHED", "CANCELED", "FAILED"}


@pytest.mark.parametrize("started", ["s3"], indirect=True)
def test_an_s3_server_gives_the_pairs_of_a_local_run(started: str, tmp_path: Path) -> None:
    environment = dict(line.removeprefix("export ").split("=", 1) for line in started.splitlines())
    finish(start_mining("s3://miner/mined", environment=environment))
    finish(start_mining(tmp_path / "local"))
    stored = FOLDER / "s3.state" / "data" / "miner" / "mined" / "bitext.tsv.gz"
    assert stored.read_bytes() == pairs(tmp_path / "local")
