"""Stages run on Beam: every pending shard is made once, errors of workers arrive as they were raised, a dead worker is noticed."""

import os
import resource
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from miner import stages, storage
from miner.errors import ConfigError, DataError, MinerError, StorageError
from miner.stages import Stage
from pipelines.beam import retry
from pipelines.beam.runner import ShardTask, run_stage

PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


ONE_DIES_THE_OTHER_IS_SLOW = """
import os, signal, time
if name := os.environ.get("WORKER_ID"):
    if int(name.rpartition("_")[2]) % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(4)
"""


class Squares(ShardTask):
    """Shard i holds the square of i, and the process that made it; one name may be made to fail."""

    def __init__(self, folder: Path, failing: str = "", how: str = "") -> None:
        self.folder = str(folder)
        self.failing = failing
        self.how = how
        self.set_up = 0

    def setup(self) -> None:
        self.set_up += 1
        if self.failing == "setup":
            raise DataError("setup: cannot be done; do something else")

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        if name == self.failing and self.how == "error":
            raise DataError(f"{name}: broken [sic]; mend it")
        if name == self.failing and self.how == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # no room to write the error down either
            raise StorageError(f"{name}: No space left on device; free some space")
        if name == self.failing and self.how == "bug":
            raise ZeroDivisionError("a bug")
        if name == self.failing and (self.how == "killed" or (self.how == "killed once" and not Path(self.folder, "died").exists())):
            Path(self.folder, "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "slow":
            Path(self.folder, f"started-{name}").touch()
            time.sleep(60)
        assert self.set_up == 1
        storage.write_json(storage.join(self.folder, name), {"square": stages.shard_index(name) ** 2, "process": os.getpid()})
        return 1, {"seen": 1}


def stage_of(folder: Path) -> tuple[Stage, dict[str, str]]:
    stage = Stage(str(folder), "squares", {"of": "numbers"}, {})
    return stage, {stages.shard_name(index, 6, ".json"): stage.key() for index in range(6)}


def squares_in(folder: Path) -> dict[str, int]:
    return {path.name: storage.read_json(str(path))["square"] for path in folder.glob("part-*")}


def processes_in(folder: Path) -> set[int]:
    return {storage.read_json(str(path))["process"] for path in folder.glob("part-*")}


EXPECTED = {stages.shard_name(index, 6, ".json"): index**2 for index in range(6)}


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes import this file and the project."""
    here = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [here, here.parents[1] / "support", here.parents[2]])))


@pytest.mark.parametrize("options", [(), ("--runner=DirectRunner",), ("--direct_running_mode=multi_threading", "--direct_num_workers=2")])
def test_every_shard_is_made(tmp_path: Path, options: tuple[str, ...]) -> None:
    stage, made_from = stage_of(tmp_path)
    manifest = run_stage(stage, made_from, Squares(tmp_path), options, lambda shards: {"shards": len(shards)})
    assert squares_in(tmp_path) == EXPECTED
    assert (manifest.rows, manifest.details) == (6, {"shards": 6})
    assert stages.read_manifest(str(tmp_path)) == manifest


class Loading(Squares):
    """What it loads is large: an encoder, an index."""

    loaded: ClassVar[list[weakref.ref[np.ndarray]]] = []

    def setup(self) -> None:
        super().setup()
        self.large = np.zeros(1000)
        self.loaded.append(weakref.ref(self.large))


def test_what_a_stage_loaded_is_let_go_of(tmp_path: Path) -> None:
    stage, made_from = stage_of(tmp_path)
    run_stage(stage, made_from, Loading(tmp_path))
    assert [loaded() for loaded in Loading.loaded] == [None]


def test_an_error_arrives_as_it_was_raised_and_the_next_run_goes_on(tmp_path: Path) -> None:
    stage, made_from = stage_of(tmp_path)
    failing = list(made_from)[2]
    with pytest.raises(DataError) as caught:
        run_stage(stage, made_from, Squares(tmp_path, failing, "error"))
    assert str(caught.value) == f"{failing}: broken [sic]; mend it"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("part-*")}
    assert len(before) < 6
    assert not (tmp_path / "_failure.json").exists()
    run_stage(stage, made_from, Squares(tmp_path))
    assert squares_in(tmp_path) == EXPECTED
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_an_error_arrives_though_it_cannot_be_written_down(tmp_path: Path) -> None:
    stage, made_from = stage_of(tmp_path)
    failing = list(made_from)[2]
    try:
        with pytest.raises(StorageError) as caught:
            run_stage(stage, made_from, Squares(tmp_path, failing, "full"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert str(caught.value) == f"{failing}: No space left on device; free some space"


def test_an_error_of_setup_arrives(tmp_path: Path) -> None:
    stage, made_from = stage_of(tmp_path)
    with pytest.raises(DataError, match=r"^setup: cannot be done; do something else$"):
        run_stage(stage, made_from, Squares(tmp_path, "setup"))
    assert squares_in(tmp_path) == {}


def test_a_bug_is_no_error_of_the_users(tmp_path: Path) -> None:
    stage, made_from = stage_of(tmp_path)
    with pytest.raises(Exception, match="a bug") as caught:
        run_stage(stage, made_from, Squares(tmp_path, next(iter(made_from)), "bug"))
    assert not isinstance(caught.value, MinerError)


@pytest.mark.usefixtures("importable")
def test_errors_of_worker_processes_arrive(tmp_path: Path) -> None:
    stage, made_from = stage_of(tmp_path)
    failing = list(made_from)[5]
    with pytest.raises(DataError) as caught:
        run_stage(stage, made_from, Squares(tmp_path, failing, "error"), PROCESSES)
    assert str(caught.value) == f"{failing}: broken [sic]; mend it"
    assert os.getpid() not in processes_in(tmp_path)


@pytest.mark.slow
def test_a_process_that_dies_while_the_other_starts_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam by itself waits for ever for the one that has not called by then."""
    (tmp_path / "sitecustomize.py").write_text(ONE_DIES_THE_OTHER_IS_SLOW, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(retry, "ATTEMPTS", 2)
    stage, made_from = stage_of(tmp_path / "squares")
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for ever"))
    signal.alarm(90)
    try:
        with pytest.raises(MinerError, match="-9: killed"):
            run_stage(stage, made_from, Squares(tmp_path / "squares"), PROCESSES)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
def test_a_process_that_is_killed_again_is_an_error_and_the_next_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ATTEMPTS", 2)
    stage, made_from = stage_of(tmp_path)
    with pytest.raises(MinerError, match=r"return code -9 .* run the same command again to go on"):
        run_stage(stage, made_from, Squares(tmp_path, list(made_from)[2], "killed"), PROCESSES)
    assert stages.STARTED in [path.name for path in tmp_path.iterdir()]
    run_stage(stage, made_from, Squares(tmp_path))
    assert squares_in(tmp_path) == EXPECTED


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
def test_a_stage_survives_the_death_of_a_worker(tmp_path: Path) -> None:
    stage, made_from = stage_of(tmp_path)
    run_stage(stage, made_from, Squares(tmp_path, list(made_from)[2], "killed once"), PROCESSES)
    assert squares_in(tmp_path) == EXPECTED
    assert (tmp_path / "died").exists()
    assert os.getpid() not in processes_in(tmp_path)


STOPPED = """
import sys
from pathlib import Path
from test_runner import Squares, run_stage, stage_of
try:
    run_stage(*stage_of(Path(sys.argv[1])), Squares(sys.argv[1], how="slow"), sys.argv[2:])
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("options", [(), pytest.param(PROCESSES, marks=pytest.mark.slow)], ids=["in one process", "in worker processes"])
def test_ctrl_c_stops_at_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", STOPPED, tmp_path, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        began = time.monotonic()
        while not list(tmp_path.glob("started-*")) and time.monotonic() - began < 120:
            time.sleep(0.05)
        sent = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all processes of the command
        out, err = process.communicate(timeout=120)
    assert out == "stopped\n", err
    assert time.monotonic() - sent < 50, "it waited for the shards to be made"
    assert squares_in(tmp_path) == {}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--runner=NoSuchRunner", "--runner=NoSuchRunner: .*FlinkRunner"),
        ("--runner=nowhere.Runner", "--runner=nowhere.Runner: No module named"),
        ("--direct_num_workers=many", "invalid int value: 'many'"),
        ("--direct_running_mode=sideways", "invalid choice: 'sideways'"),
    ],
)
def test_options_beam_does_not_take_are_refused(tmp_path: Path, option: str, message: str) -> None:
    stage, made_from = stage_of(tmp_path)
    with pytest.raises(ConfigError, match=message):
        run_stage(stage, made_from, Squares(tmp_path), [option])
    assert squares_in(tmp_path) == {}
