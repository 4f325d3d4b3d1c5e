"""Flink, Spark and an S3 server on this machine, started by deploy/clusters/clusters.py: `make flink-test spark-test s3-test`.

The first run fetches their packages into build/clusters.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDER = ROOT / "build" / "clusters"

clusters = load_script("clusters", ROOT / "deploy" / "clusters")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def mine(output: str | Path, *beam_options: str, environment: dict[str, str] | None = None) -> None:
    """Mine the examples by the command, in a process of its own."""
    inputs = [str(EXAMPLES / "en.txt"), str(EXAMPLES / "de.txt"), "--source-lang", "en", "--target-lang", "de", "--shards", "3"]
    command = [sys.executable, "-m", "miner", "mine", "--no-report", *inputs, "--output", str(output)]
    done = subprocess.run(
        [*command, *(["--", *beam_options] if beam_options else [])],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a cluster that runs during the test prints: options of miner, or of S3 the environment."""
    needed = {"flink": ("java", "mvn"), "spark": ("java", "mvn"), "s3": ("go",)}[request.param]
    if missing := [program for program in needed if shutil.which(program) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    clusters.fetch(request.param, FOLDER)
    try:
        yield clusters.start(request.param, FOLDER)
    finally:
        clusters.stop(request.param, FOLDER)


@pytest.mark.parametrize("started", ["flink", "spark"], indirect=True)
def test_a_cluster_gives_the_pairs_of_a_local_run(started: str, tmp_path: Path) -> None:
    mine(tmp_path / "cluster", *shlex.split(started))
    mine(tmp_path / "local")
    pairs = [(tmp_path / name / "bitext.tsv.gz").read_bytes() for name in ("cluster", "local")]
    assert pairs[0] == pairs[1]


@pytest.mark.parametrize("started", ["s3"], indirect=True)
def test_an_s3_server_gives_the_pairs_of_a_local_run(started: str, tmp_path: Path) -> None:
    environment = dict(line.removeprefix("export ").split("=", 1) for line in started.splitlines())
    mine("s3://miner/mined", environment=environment)
    mine(tmp_path / "local")
    stored = FOLDER / "s3.state" / "data" / "miner" / "mined" / "bitext.tsv.gz"
    assert stored.read_bytes() == (tmp_path / "local" / "bitext.tsv.gz").read_bytes()
