"""Two runs into one folder exclude each other; a dead one holds nothing; a lock tells who has it and how far that run is."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command import refused

from miner import lock, storage
from miner.errors import StorageError

HOLD = "import sys, time\nfrom miner import lock\nwith lock.held(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(60)\n"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def other(folder: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder."""
    with subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def locks_in(folder: str) -> list[str]:
    return [name for name in storage.names_in(folder) if name.startswith(lock.PREFIX)]


def leave(folder: str, **said: object) -> lock.Holder:
    """The lock of a run of this process that is over without having let go."""
    with lock.held(folder):
        left = replace(lock.holder(folder), **said)
    storage.write_json(storage.join(folder, f"{lock.PREFIX}00001.json"), vars(left))
    return left


def test_a_folder_is_held_once_and_then_free(folder: str) -> None:
    with lock.held(folder):
        found = lock.holder(folder)
        assert found is not None
        assert found.alive
        with (
            pytest.raises(StorageError, match=r"out: held by `.*` \(process \d+ on .*wait for it, choose another --output, or stop it"),
            lock.held(folder),
        ):
            pass
        assert lock.holder(folder) == found
    assert lock.holder(folder) is None
    with lock.held(folder):
        pass
    assert storage.names_in(folder) == []


def test_another_process_is_named_and_when_it_is_killed_holds_nothing(folder: str, other: subprocess.Popen[str]) -> None:
    with pytest.raises(StorageError, match=f"process {other.pid} on "), lock.held(folder):
        pass
    other.send_signal(signal.SIGKILL)
    other.wait()
    with lock.held(folder):
        assert locks_in(folder) == [f"{lock.PREFIX}00002.json"]
    assert locks_in(folder) == []


def test_a_killed_process_that_no_one_waited_for_is_dead(folder: str, other: subprocess.Popen[str]) -> None:
    other.kill()
    time.sleep(0.2)
    with lock.held(folder):
        pass


def test_a_process_that_has_the_number_of_a_dead_one_holds_nothing(folder: str) -> None:
    left = leave(folder)
    assert left.alive
    storage.remove(storage.join(folder, locks_in(folder)[0]))
    leave(folder, born=left.born - 100)
    with lock.held(folder):
        pass


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b'{"run": "x"}'])
def test_a_lock_that_was_not_written_to_the_end_holds_nothing(torn: bytes, folder: str) -> None:
    Path(folder).mkdir()
    (Path(folder) / f"{lock.PREFIX}00007.json").write_bytes(torn)
    with lock.held(folder):
        assert locks_in(folder) == [f"{lock.PREFIX}00008.json"]


@pytest.mark.parametrize("stale", [False, True], ids=["a new folder", "one of a dead run"])
def test_of_many_that_try_at_once_one_gets_it(stale: bool, folder: str) -> None:
    if stale:
        leave(folder, born=0.0)
    start, let_go, got, refused = threading.Barrier(16), threading.Event(), [], []

    def attempt() -> None:
        start.wait()
        try:
            with lock.held(folder):
                got.append(1)
                let_go.wait()
        except StorageError as error:
            refused.append(str(error))
            if len(refused) == 15:
                let_go.set()

    threads = [threading.Thread(target=attempt) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(got), len(refused)) == (1, 15)
    assert locks_in(folder) == []


class TestElsewhere:
    """The other run is on another machine, of which only its signs of life tell."""

    @pytest.fixture(autouse=True)
    def _fast(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lock, "BEAT_SECONDS", 0.1)

    def test_a_fresh_sign_of_life_holds(self, folder: str) -> None:
        leave(folder, host="far.example", beat=time.time() - 30)
        with (
            pytest.raises(StorageError, match=r"on far\.example, .*last sign of life 30 s ago\); .* `kill \d+` on far\.example"),
            lock.held(folder),
        ):
            pass

    def test_an_old_one_does_not(self, folder: str) -> None:
        leave(folder, host="far.example", beat=time.time() - 3600)
        with lock.held(folder):
            pass

    def test_nor_does_the_name_of_this_host_make_another_machine_this_one(self, folder: str) -> None:
        leave(folder, machine=-1, pid=2**22 + 1, beat=time.time() - 30)
        with pytest.raises(StorageError, match="held by"), lock.held(folder):
            pass

    def test_an_old_one_of_a_clock_that_is_wrong_holds(self, folder: str) -> None:
        left = leave(folder, host="far.example", beat=time.time() - 3600)
        uri = storage.join(folder, f"{lock.PREFIX}00001.json")
        beat = threading.Timer(0.1, lambda: storage.write_json(uri, vars(replace(left, beat=left.beat + 5))))
        beat.start()
        with pytest.raises(StorageError, match=r"far\.example"), lock.held(folder):
            pass
        beat.join()

    def test_a_run_whose_lock_was_taken_over_stops(self, folder: str) -> None:
        def run() -> None:
            with lock.held(folder):
                left = lock.holder(folder)
                storage.write_json(storage.join(folder, locks_in(folder)[0]), vars(replace(left, run="another")))
                time.sleep(30)

        with pytest.raises(StorageError, match="another run took it over"):
            run()
        found = lock.holder(folder)
        assert found is not None
        assert found.run == "another"


def test_a_lock_tells_of_life_and_of_the_stages(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT_SECONDS", 0.05)
    progress = {"stage": "embeddings", "done": 3, "total": 7}
    logger = logging.getLogger("pipelines.test")
    monkeypatch.setattr(logger, "level", logging.INFO)
    with lock.held(folder):
        first = lock.holder(folder)
        logger.info("on the way", extra={"progress": progress})
        time.sleep(0.3)
        found = lock.holder(folder)
        assert first is not None
        assert found is not None
        assert found.beat > first.beat
        assert found.stages == {"embeddings": progress}


def test_a_command_is_refused_in_one_line_and_changes_nothing(folder: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("one two\n")
    with lock.held(folder):
        before = {path: path.read_bytes() for path in Path(folder).iterdir()}
        assert refused("embed", tmp_path / "text.txt", "--output", folder).startswith(f"{folder}: held by ")
        assert {path: path.read_bytes() for path in Path(folder).iterdir()} == before
