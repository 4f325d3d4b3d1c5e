"""The runs of deploy/slurm, without SLURM: jobs of dask-jobqueue's local cluster, and the tasks of the array as processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SLURM = ROOT / "deploy" / "slurm"
BIN = str(Path(sys.executable).parent)

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def mining(tmp_path: Path) -> list[str]:
    """A command of miner over 150 sentences of each side in two shards, to which the output is added."""
    for lang in ("en", "de"):
        lines = (ROOT / "examples" / f"{lang}.txt").read_text(encoding="utf-8").splitlines()[:150]
        (tmp_path / f"{lang}.txt").write_text("\n".join(lines), encoding="utf-8")
    return ["mine", "en.txt", "de.txt", "--source-lang", "en", "--target-lang", "de", "--shards", "2", "--no-report", "--output"]


def run_command(command: list[str], folder: Path, **variables: str) -> None:
    environment = {**os.environ, "PATH": os.pathsep.join([BIN, os.environ["PATH"]]), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env={**environment, **variables}, capture_output=True, text=True, check=False, timeout=1000)
    assert done.returncode == 0, done.stderr


def assert_mined_as_locally(mining: list[str], folder: Path) -> None:
    run_command([sys.executable, "-m", "miner", *mining, "local"], folder)
    assert (folder / "out" / "bitext.tsv.gz").read_bytes() == (folder / "local" / "bitext.tsv.gz").read_bytes()
    assert not [path for path in folder.iterdir() if path.name.startswith(".miner-")]  # no keys are left


@pytest.mark.slow
def test_jobs_of_a_queue_mine_as_one_process(mining: list[str], tmp_path: Path) -> None:
    pytest.importorskip("dask_jobqueue")
    script = [sys.executable, str(SLURM / "cluster.py"), "--system", "local", "--section", "trial", "--jobs", "2", "--"]
    run_command([*script, *mining, "out"], tmp_path)
    assert_mined_as_locally(mining, tmp_path)


@pytest.mark.slow
def test_the_tasks_of_a_job_array_mine_as_one_process(mining: list[str], tmp_path: Path) -> None:
    script = ["bash", str(SLURM / "array.sbatch"), *mining, "out"]
    variables = {**os.environ, "PATH": os.pathsep.join([BIN, os.environ["PATH"]]), "PYTHONPATH": str(ROOT), "SLURM_ARRAY_JOB_ID": "17"}
    workers = [subprocess.Popen(script, cwd=tmp_path, env={**variables, "SLURM_ARRAY_TASK_ID": task}) for task in ("1", "2")]
    run_command(script, tmp_path, SLURM_ARRAY_JOB_ID="17", SLURM_ARRAY_TASK_ID="0")
    for worker in workers:
        worker.wait(timeout=120)  # they end with the scheduler
    assert_mined_as_locally(mining, tmp_path)


def test_the_jobs_of_the_config_are_what_slurm_is_asked_for() -> None:
    jobqueue = pytest.importorskip("dask_jobqueue")
    for name, settings in yaml.safe_load((SLURM / "cluster.yaml").read_text()).items():
        if name != "trial":
            settings = {**settings, "interface": "lo"}
            with jobqueue.SLURMCluster(**settings, scheduler_options={"dashboard_address": None}) as cluster:
                script = cluster.job_script()
            assert re.search(rf"^#SBATCH -p {settings['queue']}$", script, re.MULTILINE)
            assert ("#SBATCH --gres=gpu:1" in script) == (name == "gpu")
            assert "--nthreads 1 " in script
