"""Two runs in one directory exclude each other, a dead run holds no lock, and the lock shows its owner and the owner's progress."""

import json
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from command import error_of

from miner.errors import StorageError
from miner.io import lock, storage
from miner.progress import Progress, report_progress

HOLD_LOCK = "import sys, time\nfrom miner.io import lock\nwith lock.hold(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(60)\n"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def other_process(folder: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of `folder`."""
    with subprocess.Popen([sys.executable, "-c", HOLD_LOCK, folder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def locks_in(folder: str) -> list[str]:
    return [name for name in storage.names_in(folder) if name.startswith(lock.PREFIX)]


def read_owner(folder: str) -> lock.LockOwner:
    owner = lock.read_owner(folder)
    assert owner is not None
    return owner


def write_lock(uri: str, owner: lock.LockOwner) -> None:
    storage.write_json(uri, asdict(owner))


def leave_lock(folder: str, **changes: object) -> lock.LockOwner:
    """Leave the lock of a run that ended without releasing it: this process, with some fields changed."""
    with lock.hold(folder):
        owner = replace(read_owner(folder), **changes)
    write_lock(storage.join(folder, f"{lock.PREFIX}00001.json"), owner)
    return owner


def test_a_lock_is_held_once_and_then_released(folder: str) -> None:
    with lock.hold(folder):
        owner = read_owner(folder)
        assert owner.is_alive
        with (
            pytest.raises(StorageError, match=r"out: held by `.*` \(process \d+ on .*wait for it, choose another --output, or stop it"),
            lock.hold(folder),
        ):
            pass
        assert lock.read_owner(folder) == owner
    assert lock.read_owner(folder) is None
    with lock.hold(folder):
        pass
    assert storage.names_in(folder) == []


def test_the_error_names_the_owner_and_a_killed_owner_holds_nothing(folder: str, other_process: subprocess.Popen[str]) -> None:
    with pytest.raises(StorageError, match=f"process {other_process.pid} on "), lock.hold(folder):
        pass
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    with lock.hold(folder):
        assert locks_in(folder) == [f"{lock.PREFIX}00002.json"]
    assert locks_in(folder) == []


def test_a_zombie_process_is_dead(folder: str, other_process: subprocess.Popen[str]) -> None:
    other_process.kill()
    time.sleep(0.2)
    with lock.hold(folder):
        assert locks_in(folder) == [f"{lock.PREFIX}00002.json"]


def test_a_reused_pid_holds_nothing(folder: str) -> None:
    owner = leave_lock(folder)
    assert owner.is_alive
    storage.remove(storage.join(folder, locks_in(folder)[0]))
    leave_lock(folder, process_ticks="1")
    with lock.hold(folder):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"run": "x"}'])
def test_an_incomplete_lock_file_holds_nothing(content: bytes, folder: str) -> None:
    Path(folder).mkdir()
    (Path(folder) / f"{lock.PREFIX}00007.json").write_bytes(content)
    with lock.hold(folder):
        assert locks_in(folder) == [f"{lock.PREFIX}00008.json"]


@pytest.mark.parametrize(
    "changes",
    [
        {"pid": -1},
        {"pid": 2**80},
        {"pid": "many"},
        {"started": 1e300},
        {"stages": {"a": 1}},
        {"stages": [1]},
        {"command": None},
        {"heartbeat": "then"},
        {"host": {"a": []}},
    ],
)
def test_an_odd_lock_file_never_ends_in_a_traceback(changes: dict[str, object], folder: str) -> None:
    owner = leave_lock(folder, process_started=0.0, process_ticks="0")
    path = Path(folder) / f"{lock.PREFIX}00001.json"
    path.write_text(json.dumps({**asdict(owner), **changes}))
    with lock.hold(folder):
        assert locks_in(folder) == [f"{lock.PREFIX}00002.json"]


@pytest.mark.parametrize("name", [f"{lock.PREFIX}x.json", f"{lock.PREFIX}.json", f"{lock.PREFIX}-1.json"])
def test_a_file_that_is_named_like_a_lock_is_not_one(name: str, folder: str) -> None:
    Path(folder).mkdir()
    (Path(folder) / name).write_text("{}")
    with lock.hold(folder):
        assert lock.read_owner(folder) is not None
    assert storage.names_in(folder) == [name]


def test_a_living_run_keeps_its_lock_when_the_clock_is_set(folder: str, other_process: subprocess.Popen[str]) -> None:
    """The start time that is derived from the clock moves with it."""
    owner = read_owner(folder)
    assert owner.pid == other_process.pid
    write_lock(storage.join(folder, locks_in(folder)[0]), replace(owner, process_started=owner.process_started - 3600))
    with pytest.raises(StorageError, match="held by"), lock.hold(folder):
        pass


def test_a_run_in_another_container_keeps_its_lock(folder: str) -> None:
    """Its process id is that of no process or of another one here."""
    leave_lock(folder, pid=2**22 + 1, system="the same boot pid:[1]", heartbeat=time.time() - 5)
    with pytest.raises(StorageError, match="held by"), lock.hold(folder):
        pass


def test_locks_hide_credentials(monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    secrets = ["https://user:pa55@host/a", "--", "--s3_secret_access_key=abc", "--api-token", "def", "--output", "shown"]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/miner", "embed", *secrets])
    with lock.hold(folder):
        expected = "miner embed https://host/a -- '--s3_secret_access_key=***' --api-token '***' --output shown"
        assert read_owner(folder).command == expected


@pytest.mark.parametrize("has_dead_owner", [False, True], ids=["a new directory", "the directory of a dead run"])
def test_one_of_many_concurrent_runs_gets_the_lock(has_dead_owner: bool, folder: str) -> None:
    if has_dead_owner:
        leave_lock(folder, process_ticks="1")
    start, all_refused, winners, errors = threading.Barrier(16), threading.Event(), [], []

    def attempt() -> None:
        start.wait()
        try:
            with lock.hold(folder):
                winners.append(1)
                all_refused.wait()
        except StorageError as error:
            errors.append(str(error))
            if len(errors) == 15:
                all_refused.set()

    threads = [threading.Thread(target=attempt) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(winners), len(errors)) == (1, 15)
    assert locks_in(folder) == []


class TestRemoteRuns:
    """The owner is on another machine, so only its heartbeats show whether it is alive."""

    def test_a_recent_heartbeat_holds_the_lock(self, folder: str) -> None:
        leave_lock(folder, host="far.example", heartbeat=time.time() - 30)
        with (
            pytest.raises(StorageError, match=r"on far\.example, .*last heartbeat 30 s ago\); .* `kill \d+` on far\.example"),
            lock.hold(folder),
        ):
            pass

    def test_a_heartbeat_in_the_future_does_not(self, folder: str) -> None:
        leave_lock(folder, host="far.example", heartbeat=time.time() + 3600)
        with lock.hold(folder, heartbeat_seconds=0.1):
            assert locks_in(folder) == [f"{lock.PREFIX}00002.json"]

    def test_an_old_heartbeat_does_not(self, folder: str) -> None:
        leave_lock(folder, host="far.example", heartbeat=time.time() - 3600)
        with lock.hold(folder, heartbeat_seconds=0.1):
            assert locks_in(folder) == [f"{lock.PREFIX}00002.json"]

    def test_a_machine_of_the_same_host_name_is_remote(self, folder: str) -> None:
        leave_lock(folder, machine=-1, pid=2**22 + 1, heartbeat=time.time() - 30)
        with pytest.raises(StorageError, match="held by"), lock.hold(folder):
            pass

    def test_an_old_heartbeat_of_a_wrong_clock_holds_the_lock(self, folder: str) -> None:
        owner = leave_lock(folder, host="far.example", heartbeat=time.time() - 3600)
        uri = storage.join(folder, f"{lock.PREFIX}00001.json")
        timer = threading.Timer(0.1, lambda: write_lock(uri, replace(owner, heartbeat=owner.heartbeat + 5)))
        timer.start()
        with pytest.raises(StorageError, match=r"far\.example"), lock.hold(folder, heartbeat_seconds=0.1):
            pass
        timer.join()

    def test_a_run_whose_lock_was_taken_over_stops(self, folder: str) -> None:
        def run() -> None:
            with lock.hold(folder, heartbeat_seconds=0.1):
                write_lock(storage.join(folder, locks_in(folder)[0]), replace(read_owner(folder), run="another"))
                time.sleep(30)

        with pytest.raises(StorageError, match="another run took over"):
            run()
        assert read_owner(folder).run == "another"


def test_a_run_that_recreated_its_lock_after_another_run_removed_it_stops(folder: str) -> None:
    """As a run does that stood still between reading its lock and writing it."""

    def run() -> None:
        with lock.hold(folder, heartbeat_seconds=0.1):
            write_lock(storage.join(folder, f"{lock.PREFIX}00002.json"), replace(read_owner(folder), run="another"))
            time.sleep(30)

    with pytest.raises(StorageError, match="another run took over"):
        run()
    assert read_owner(folder).run == "another"


def test_heartbeats_include_the_progress_of_stages(folder: str) -> None:
    logger = logging.getLogger("pipelines.test")
    with lock.hold(folder, heartbeat_seconds=0.05):
        first = read_owner(folder)
        report_progress(logger, Progress("embeddings", 3, 7))
        time.sleep(0.3)
        second = read_owner(folder)
        assert second.heartbeat > first.heartbeat
        assert second.stages == {"embeddings": Progress("embeddings", 3, 7)}


def test_a_command_is_refused_in_one_line_and_changes_nothing(folder: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two\n")
    with lock.hold(folder):
        contents = {path: path.read_bytes() for path in Path(folder).iterdir()}
        assert error_of("embed", tmp_path / "text.txt", "--output", folder).startswith(f"{folder}: held by ")
        assert {path: path.read_bytes() for path in Path(folder).iterdir()} == contents
