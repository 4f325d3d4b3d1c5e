"""One run at a time in a folder: a lock that tells who holds it and how far that run is, and that a dead run does not hold.

A run creates FOLDER/_lock-00001.json, which only one can, and writes a sign of life into it now and then. A run that finds the lock
of a dead one creates the lock with the next number, which again only one can, and removes the other. So to take over is one step.
Where a file system cannot create a file only if there is none (local disks, S3 and GCS can), two runs that start within the same
moment may both get in; the one whose lock was written over stops when it is to give its next sign of life.
"""

import contextlib
import logging
import os
import posixpath
import shlex
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from miner import storage
from miner.errors import StorageError

PREFIX = "_lock-"
BEAT_SECONDS = 5.0  # from one sign of life to the next
DEAD_SECONDS = 60.0  # without one, a run on another machine is taken for dead

logger = logging.getLogger(__name__)


@dataclass
class Holder:
    """A run that holds a folder: what its lock says."""

    run: str  # a name no other run has
    command: str
    host: str
    machine: int  # hosts may share a name
    pid: int
    born: float  # when the process started: another one may have its pid by now
    started: float  # seconds since 1970, as the others
    beat: float  # the last sign of life
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)  # stage -> its last progress record

    @property
    def here(self) -> bool:
        """Whether it runs, or ran, on this machine."""
        return self.host == socket.gethostname() and self.machine == uuid.getnode()

    @property
    def alive(self) -> bool:
        """Whether it still runs: for certain where that was here, else by its last sign of life."""
        if not self.here:
            return time.time() - self.beat < DEAD_SECONDS
        try:
            process = psutil.Process(self.pid)
            return bool(process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - self.born) < 1)
        except psutil.NoSuchProcess:
            return False

    def told(self) -> str:
        """A few words for a person."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        return f"`{self.command}` (process {self.pid} on {self.host}, since {since}, last sign of life {_ago(self.beat)})"


def holder(folder: str) -> Holder | None:
    """The run that holds a folder, or held it when it died; None where there is none."""
    locks = _locks(folder)
    return _read(storage.join(folder, locks[-1])) if locks else None


@contextlib.contextmanager
def held(folder: str) -> Iterator[None]:
    """Hold a folder, which is made where there is none. StorageError where another run holds it, or took it from this one."""
    lock = _Lock.take(folder)
    listener = _Listener(lock.own)
    logging.getLogger("pipelines").addHandler(listener)
    thread = threading.Thread(target=lock.live, name="lock", daemon=True)
    thread.start()
    try:
        yield
        lock.check(folder)
    except KeyboardInterrupt:
        lock.check(folder)
        raise
    finally:
        logging.getLogger("pipelines").removeHandler(listener)
        lock.over.set()
        thread.join()
        if not lock.lost:
            with contextlib.suppress(StorageError):
                storage.remove(lock.uri)


class _Lock:
    """A lock that this process holds."""

    def __init__(self, uri: str, own: Holder) -> None:
        self.uri = uri
        self.own = own
        self.over = threading.Event()
        self.lost = False

    @classmethod
    def take(cls, folder: str) -> "_Lock":
        """The lock of a folder, or StorageError where another run has it."""
        storage.make_folder(folder)
        locks = _locks(folder)
        before = _read(storage.join(folder, locks[-1])) if locks else None
        if before is not None and _lives(before, storage.join(folder, locks[-1])):
            raise _busy(folder, before)
        number = 1 + (int(locks[-1].removeprefix(PREFIX).removesuffix(".json")) if locks else 0)
        own = _this_process()
        uri = storage.join(folder, f"{PREFIX}{number:05d}.json")
        if not storage.create_json(uri, asdict(own)):
            winner = _read(uri)
            raise _busy(folder, winner) if winner else StorageError(f"{folder}: another run begins there; try again in a moment")
        if before is not None:
            logger.warning("%s: going on from %s, which died", folder, before.told())
        for name in locks:
            storage.remove(storage.join(folder, name))
        return cls(uri, own)

    def check(self, folder: str) -> None:
        """StorageError where another run has the lock by now."""
        if self.lost:
            raise StorageError(f"{folder}: another run took it over while this one gave no sign of life; let that one finish") from None

    def live(self) -> None:
        """Give signs of life until the run is over; where the lock is another's by now, interrupt the run."""
        while not self.over.wait(BEAT_SECONDS):
            try:
                now = _read(self.uri)
                if now is None or now.run != self.own.run:
                    self.lost = True
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                    return
                self.own.beat = time.time()
                storage.write_json(self.uri, asdict(self.own))
            except (StorageError, OSError) as error:
                logger.warning("no sign of life could be written: %s", error)


class _Listener(logging.Handler):
    """Keeps the progress that stages log, so that the lock tells it."""

    def __init__(self, own: Holder) -> None:
        super().__init__(logging.INFO)
        self.own = own

    def emit(self, record: logging.LogRecord) -> None:
        progress: dict[str, Any] | None = getattr(record, "progress", None)
        if progress is not None:
            self.own.stages = {**self.own.stages, progress["stage"]: progress}  # a new one: the old one may just be written


def _busy(folder: str, other: Holder) -> StorageError:
    stop = f"`kill {other.pid}`" if other.here else f"`kill {other.pid}` on {other.host}"
    return StorageError(f"{folder}: held by {other.told()}; wait for it, choose another --output, or stop it with {stop}")


def _this_process() -> Holder:
    now = time.time()
    command = shlex.join([posixpath.basename(sys.argv[0]), *sys.argv[1:]])
    pid = os.getpid()
    return Holder(uuid.uuid4().hex, command, socket.gethostname(), uuid.getnode(), pid, psutil.Process(pid).create_time(), now, now)


def _lives(other: Holder, uri: str) -> bool:
    """Whether a holder is alive. One elsewhere that seems dead is watched for a while: its clock may differ from ours."""
    if other.alive or other.here:
        return other.alive
    logger.warning("%s: no sign of life since %s; watching it for %d s", uri, _ago(other.beat), 3 * BEAT_SECONDS)
    time.sleep(3 * BEAT_SECONDS)
    now = _read(uri)
    return now is not None and now.beat != other.beat


def _locks(folder: str) -> list[str]:
    """The locks of a folder, the latest last."""
    return [name for name in storage.names_in(folder) if name.startswith(PREFIX)]


def _read(uri: str) -> Holder | None:
    """What a lock says; None where it is gone, or was never written to the end."""
    for patience in (1.0, 0.0):
        try:
            return Holder(**storage.read_json(uri))
        except (StorageError, TypeError):
            if patience and storage.exists(uri):  # perhaps it is just being written
                time.sleep(patience)
    return None


def _ago(moment: float) -> str:
    seconds = max(0.0, time.time() - moment)
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
