"""Clusters of Flink and Spark on this machine, by the jar of Beam's job server: `make flink-test`, `make spark-test`.

FLINK_HOME is a Flink distribution; FLINK_JOB_SERVER and SPARK_JOB_SERVER are jars of Beam's job servers for it and for Spark 3.
"""

import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import miner

EXAMPLES = Path(__file__).parents[2] / "examples"
START_SECONDS = 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def require(name: str) -> Path:
    """Return the path in an environment variable; skip the test without it."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    path = Path(os.environ.get(name, ""))
    if not os.environ.get(name) or not path.exists():
        pytest.skip(f"{name} names no file; give it a path, as deploy/README.md says")
    return path


def mine(output: Path, *beam_options: str) -> bytes:
    result = miner(
        "mine", str(EXAMPLES / "en.txt"), str(EXAMPLES / "de.txt"), "--source-lang", "en", "--target-lang", "de",
        "--shards", "3", "--no-report", "--output", str(output), "--", *beam_options,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    return (output / "bitext.tsv.gz").read_bytes()


@pytest.fixture
def flink(tmp_path: Path) -> Iterator[str]:
    """Start a session cluster of two task managers with two slots each; return its address."""
    home = require("FLINK_HOME")
    require("FLINK_JOB_SERVER")
    shutil.copytree(home / "conf", tmp_path / "conf")
    config = next(path for path in ((tmp_path / "conf/config.yaml"), (tmp_path / "conf/flink-conf.yaml")) if path.exists())
    config.write_text(config.read_text() + "\ntaskmanager.numberOfTaskSlots: 2\nrest.port: 28081\nrest.address: localhost\n")
    environment = {**os.environ, "FLINK_CONF_DIR": str(tmp_path / "conf"), "FLINK_LOG_DIR": str(tmp_path), "FLINK_PID_DIR": str(tmp_path)}
    scripts = ["jobmanager.sh", "taskmanager.sh", "taskmanager.sh"]
    try:
        for script in scripts:
            subprocess.run([home / "bin" / script, "start"], env=environment, check=True)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen("http://localhost:28081/overview") as answer:
                    if b'"slots-total":4' in answer.read():
                        break
            except OSError:
                pass
            time.sleep(1)
        else:
            pytest.fail("the cluster has no four slots after a minute")
        yield "http://localhost:28081"
    finally:
        for script in reversed(scripts):
            subprocess.run([home / "bin" / script, "stop"], env=environment, check=False)


def test_flink_gives_the_pairs_of_a_local_run(flink: str, tmp_path: Path) -> None:
    jar = f"--flink_job_server_jar={os.environ['FLINK_JOB_SERVER']}"
    options = ["--runner=FlinkRunner", f"--flink_master={flink}", jar, "--parallelism=4", "--environment_type=LOOPBACK"]
    assert mine(tmp_path / "flink", *options) == mine(tmp_path / "local")


def test_spark_gives_the_pairs_of_a_local_run(tmp_path: Path) -> None:
    jar = require("SPARK_JOB_SERVER")
    options = ["--runner=SparkRunner", "--spark_master_url=local[2]", f"--spark_job_server_jar={jar}", "--environment_type=LOOPBACK"]
    assert mine(tmp_path / "spark", *options) == mine(tmp_path / "local")
