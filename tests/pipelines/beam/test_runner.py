"""Stages on Beam's local runners: every pending shard is written once, errors of workers reach the driver, dead workers are noticed."""

import os
import resource
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from apache_beam.runners.runner import PipelineRunner
from square_stage import EXPECTED_SQUARES, PYTHONPATH, SquareTask, TwoAttemptsTask, read_processes, read_squares, square_stage

from miner.errors import ConfigError, DataError, MinerError, StorageError
from miner.io import stages
from pipelines.beam import runner
from pipelines.beam.runner import run_pipeline, run_stage

PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")

# As sitecustomize.py: of two workers, kill one at once and delay the other.
KILL_ONE_DELAY_ONE = """
import os, signal, time
if name := os.environ.get("WORKER_ID"):
    if int(name.rpartition("_")[2]) % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(4)
"""


@pytest.fixture(params=[True, False], ids=["by Beam", "without Beam"])
def with_and_without_beam(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "needs_beam", lambda _, options: bool(options) or request.param)


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes import the project and tests/support."""
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


class LargeTask(SquareTask):
    """A task that loads something large, as an encoder or an index is."""

    loaded: ClassVar[list[weakref.ref[np.ndarray]]] = []

    def setup(self) -> None:
        super().setup()
        self.array = np.zeros(1000)
        self.loaded.append(weakref.ref(self.array))


@pytest.mark.usefixtures("with_and_without_beam")
@pytest.mark.parametrize("options", [(), ("--runner=DirectRunner",), ("--direct_running_mode=multi_threading", "--direct_num_workers=2")])
def test_every_shard_is_written(tmp_path: Path, options: tuple[str, ...]) -> None:
    stage, keys = square_stage(tmp_path)
    manifest = run_pipeline(run_stage(stage, keys, SquareTask(tmp_path), lambda shards: {"shards": len(shards)}), options)
    assert read_squares(tmp_path) == EXPECTED_SQUARES
    assert (manifest.rows, manifest.details) == (6, {"shards": 6})
    assert stages.read_manifest(str(tmp_path)) == manifest


@pytest.mark.usefixtures("with_and_without_beam")
def test_loaded_objects_are_released_after_the_stage(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    run_pipeline(run_stage(stage, keys, LargeTask(tmp_path)))
    assert LargeTask.loaded.pop()() is None


@pytest.mark.usefixtures("with_and_without_beam")
def test_errors_arrive_unchanged_and_the_next_run_resumes(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    failing_shard = list(keys)[2]
    with pytest.raises(DataError) as caught:
        run_pipeline(run_stage(stage, keys, SquareTask(tmp_path, failing_shard, "error")))
    assert str(caught.value) == f"{failing_shard}: broken [sic]; fix it"
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("part-*")}
    assert len(times) < 6
    assert not (tmp_path / "_failure.json").exists()
    run_pipeline(run_stage(stage, keys, SquareTask(tmp_path)))
    assert read_squares(tmp_path) == EXPECTED_SQUARES
    assert times == {path: path.stat().st_mtime_ns for path in times}


@pytest.mark.usefixtures("with_and_without_beam")
def test_errors_arrive_when_they_cannot_be_recorded(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    failing_shard = list(keys)[2]
    try:
        with pytest.raises(StorageError) as caught:
            run_pipeline(run_stage(stage, keys, SquareTask(tmp_path, failing_shard, "full disk")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert str(caught.value) == f"{failing_shard}: No space left on device; free some space"


@pytest.mark.usefixtures("with_and_without_beam")
def test_errors_of_setup_arrive(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    with pytest.raises(DataError, match=r"^setup: cannot be done; do something else$"):
        run_pipeline(run_stage(stage, keys, SquareTask(tmp_path, "setup")))
    assert read_squares(tmp_path) == {}


@pytest.mark.usefixtures("with_and_without_beam")
def test_bugs_are_not_miner_errors(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    with pytest.raises(Exception, match="a bug") as caught:
        run_pipeline(run_stage(stage, keys, SquareTask(tmp_path, next(iter(keys)), "bug")))
    assert not isinstance(caught.value, MinerError)


@pytest.mark.usefixtures("importable")
def test_errors_of_worker_processes_arrive(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    failing_shard = list(keys)[5]
    with pytest.raises(DataError) as caught:
        run_pipeline(run_stage(stage, keys, SquareTask(tmp_path, failing_shard, "error")), PROCESSES)
    assert str(caught.value) == f"{failing_shard}: broken [sic]; fix it"
    assert os.getpid() not in read_processes(tmp_path)


@pytest.mark.slow
def test_a_worker_that_dies_while_another_starts_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam waits forever for a worker process that has not connected by then."""
    (tmp_path / "sitecustomize.py").write_text(KILL_ONE_DELAY_ONE, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    stage, keys = square_stage(tmp_path / "squares")
    previous_handler = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the run waits forever"))
    signal.alarm(90)
    try:
        with pytest.raises(MinerError, match="-9: killed"):
            run_pipeline(run_stage(stage, keys, TwoAttemptsTask(tmp_path / "squares")), PROCESSES)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous_handler)


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
def test_a_worker_that_is_killed_twice_is_an_error_and_the_next_run_resumes(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    with pytest.raises(MinerError, match=r"return code -9 .* run the same command again to resume"):
        run_pipeline(run_stage(stage, keys, TwoAttemptsTask(tmp_path, list(keys)[2], "killed")), PROCESSES)
    assert stages.STARTED in [path.name for path in tmp_path.iterdir()]
    run_pipeline(run_stage(stage, keys, SquareTask(tmp_path)))
    assert read_squares(tmp_path) == EXPECTED_SQUARES


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
def test_a_stage_survives_the_death_of_a_worker(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    run_pipeline(run_stage(stage, keys, SquareTask(tmp_path, list(keys)[2], "killed once")), PROCESSES)
    assert read_squares(tmp_path) == EXPECTED_SQUARES
    assert (tmp_path / "died").exists()
    assert os.getpid() not in read_processes(tmp_path)


INTERRUPTED_RUN = """
import sys
from pathlib import Path
from pipelines.beam.runner import run_pipeline, run_stage
from square_stage import SquareTask, square_stage
try:
    run_pipeline(run_stage(*square_stage(Path(sys.argv[1])), SquareTask(sys.argv[1], failure="slow")), sys.argv[2:])
except KeyboardInterrupt:
    print("stopped")
"""


def test_few_shards_without_options_are_written_without_beam(tmp_path: Path) -> None:
    code = INTERRUPTED_RUN.replace('failure="slow"', "") + "print('apache_beam' in sys.modules)"
    outputs = []
    for options in ((), ("--direct_running_mode=in_memory",)):
        command = [sys.executable, "-c", code, tmp_path / str(len(options)), *options]
        outputs.append(
            subprocess.run(command, env={**os.environ, "PYTHONPATH": PYTHONPATH}, capture_output=True, text=True, check=True).stdout
        )
    assert outputs == ["False\n", "True\n"]


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    "options",
    [(), ("--direct_running_mode=in_memory",), pytest.param(PROCESSES, marks=pytest.mark.slow)],
    ids=["without Beam", "in one process", "in worker processes"],
)
def test_ctrl_c_stops_at_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", INTERRUPTED_RUN, tmp_path, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        start = time.monotonic()
        while not list(tmp_path.glob("started-*")) and time.monotonic() - start < 120:
            time.sleep(0.05)
        interrupted = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # to all processes of the command, as a terminal does
        out, err = process.communicate(timeout=120)
    assert out == "stopped\n", err
    assert time.monotonic() - interrupted < 50, "the run waited for its shards"
    assert read_squares(tmp_path) == {}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--runner=NoSuchRunner", "--runner=NoSuchRunner: .*FlinkRunner"),
        ("--runner=nowhere.Runner", "--runner=nowhere.Runner: No module named"),
        ("--runnr=FlinkRunner", "--runnr: Beam has no such option; did you mean --runner"),
        ("--output_executable_path=run.jar", "--output_executable_path: a run is several jobs"),
        ("--zzz=1", "--zzz: Beam has no such option; check its name; those of a job server need its --job_endpoint"),
        ("--runner=DaskRunner", "^--runner=DaskRunner: no address of a scheduler; give --dask_client_address="),
        ("--direct_num_workers=many", "invalid int value: 'many'"),
        ("--direct_running_mode=sideways", "invalid choice: 'sideways'"),
    ],
)
def test_invalid_beam_options_are_config_errors(tmp_path: Path, option: str, message: str) -> None:
    stage, keys = square_stage(tmp_path)
    with pytest.raises(ConfigError, match=message):
        run_pipeline(run_stage(stage, keys, SquareTask(tmp_path)), [option])
    assert read_squares(tmp_path) == {}


class RefusingRunner(PipelineRunner):
    """A runner whose cluster cannot be reached."""

    def run_pipeline(self, pipeline: object, options: object) -> None:  # noqa: ARG002
        raise ConnectionError("no route to host\nand more")


def test_a_cluster_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    runner = "--runner=test_runner.RefusingRunner"
    message = r"test_runner.RefusingRunner: did not start \(ConnectionError: no route to host\); check that its cluster runs"
    with pytest.raises(ConfigError, match=message):
        run_pipeline(run_stage(stage, keys, SquareTask(tmp_path)), [runner])
