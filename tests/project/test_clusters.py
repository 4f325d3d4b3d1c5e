"""Flink, Spark and an S3 server on this machine, started by deploy/clusters/clusters.py: `make flink-test spark-test s3-test`.

The tests fetch nothing: `make clusters` does. benchmarks/kill_cluster.py has more attacks.
"""

import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "clusters"
ATTACKS = {
    "s3": ("the server restarted after 8 s", "the driver killed, run again elsewhere"),
    "flink": ("all workers killed while they embed", "a task manager killed", "the job server restarted", "SIGTERM to the driver"),
    "spark": ("all workers killed while they search", "an executor killed", "the job server restarted", "SIGTERM to the driver"),
}

kill_cluster = load_script("kill_cluster", ROOT / "benchmarks")
clusters = kill_cluster.clusters

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run without a cluster."""
    output = tmp_path_factory.mktemp("local") / "whole"
    outcome, message = kill_cluster.end_of(kill_cluster.start_driver(kill_cluster.texts(), str(output)))
    assert outcome == "goes on", message
    return output


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[object]:
    """A cluster that runs during the test."""
    name = request.param
    needed = ("go",) if name == "s3" else ("java", "mvn")
    if missing := [program for program in needed if shutil.which(program) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    if not clusters.is_fetched(name, FOLDER):
        pytest.skip("its packages are not fetched; `make clusters` does it")
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side, and a cluster is started once
        with kill_cluster.serve(name, FOLDER) as started:
            yield started


def assert_survives(attack: str, cluster: object, whole: Path, output: Path, delay_seconds: float = 1) -> None:
    (found,) = (each for each in kill_cluster.ATTACKS if each.name == attack)
    result = kill_cluster.run_attack(found, cluster, output, whole, delay_seconds)
    assert result.is_right, result


@pytest.mark.parametrize("cluster", ATTACKS, indirect=True)
def test_the_smallest_run_has_the_pairs_of_a_local_run(cluster: object, whole: Path, tmp_path: Path) -> None:
    """`make clusters-smoke` runs this one."""
    assert_survives("none", cluster, whole, tmp_path / "smallest")


@pytest.mark.parametrize(("cluster", "attack"), [(name, each) for name in ATTACKS for each in ATTACKS[name]], indirect=["cluster"])
def test_a_run_survives(cluster: object, attack: str, whole: Path, tmp_path: Path) -> None:
    assert_survives(attack, cluster, whole, tmp_path / "attacked")


@pytest.mark.parametrize("cluster", ["flink"], indirect=True)
def test_workers_that_end_at_their_start_are_an_error_with_their_last_line(cluster: object, whole: Path, tmp_path: Path) -> None:
    (attack,) = (each for each in kill_cluster.ATTACKS if each.name == "workers whose Python lacks the package")
    result = kill_cluster.run_attack(attack, cluster, tmp_path / "attacked", whole, 0)
    assert result.is_right, result
    assert "No module named 'pipelines'" in result.message
