"""Allow one run at a time per output directory, and show which run it is and how much it has done.

The locks of `filelock`, which `miner.io.host_copies` uses, are those of the operating system of one host. They do not exist on object
stores, not between the hosts of most network file systems, and do not say who holds them. So here a lock is a file.

A run creates FOLDER/_lock-00001.json, which succeeds for one process only, and updates a heartbeat in it. A run that finds the lock of
a dead run creates the lock with the next number, which again succeeds for one process only, and removes the old one, so taking over is
atomic. A run that sees the next lock stops at its next heartbeat. On file systems without exclusive creation (local disks, S3
and GCS have it), two runs that start at the same moment may both acquire the lock; the run whose lock was overwritten stops at its next
heartbeat.
"""

import contextlib
import logging
import os
import posixpath
import re
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from miner.errors import StorageError
from miner.io import outputs, records, storage
from miner.io.credentials import hide_in_command
from miner.progress import Progress, receive_progress
from miner.units import format_seconds

PREFIX = storage.LOCK_PREFIX
HEARTBEAT_SECONDS = 5.0  # between two heartbeats
DEAD_SECONDS = 60.0  # a run on another machine is dead after this time without a heartbeat

logger = logging.getLogger(__name__)


@dataclass
class LockOwner:
    """The run that owns a lock, as written in the lock file."""

    run: str  # unique name
    command: str
    host: str
    machine: int  # hosts may share a name
    pid: int
    process_started: float  # pids are reused. Seconds since 1970, like the next two
    started: float
    heartbeat: float  # last heartbeat
    system: str  # boot and process namespace; empty without /proc, like the next one
    process_ticks: str  # start of the process on the clock of the boot, which nobody sets
    stages: dict[str, Progress] = field(default_factory=dict)  # stage -> its last progress

    @property
    def is_local(self) -> bool:
        """Whether the run is, or was, on this machine, and its process id is one here: containers have ids of their own."""
        is_same_system = self.system == _system()
        return self.host == socket.gethostname() and self.machine == uuid.getnode() and is_same_system

    @property
    def is_alive(self) -> bool:
        """Whether the run is alive: exact for a run on this machine, otherwise decided by its last heartbeat."""
        if not self.is_local:
            return abs(time.time() - self.heartbeat) < DEAD_SECONDS  # a clock that is ahead does not keep a lock forever
        try:
            process = psutil.Process(self.pid)
            if self.process_ticks:
                is_same = _ticks(self.pid) == self.process_ticks
            else:
                is_same = abs(process.create_time() - self.process_started) < 1
            return bool(is_same and process.status() != psutil.STATUS_ZOMBIE)
        except (psutil.NoSuchProcess, OverflowError, ValueError):
            return False

    def describe(self) -> str:
        """Describe the run in a few words for error messages and `miner status`."""
        try:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        except (OSError, OverflowError, ValueError):
            since = "an unknown time"
        return f"`{self.command}` (process {self.pid} on {self.host}, since {since}, last heartbeat {_format_age(self.heartbeat)})"


def read_owner(folder: str) -> LockOwner | None:
    """Return the run that has the lock of a directory, or had it when it died; None if there is no lock."""
    locks = _lock_names(folder)
    return _read_lock(storage.join(folder, locks[-1])) if locks else None


_held: list[str] = []  # directories that this process has locked, outermost first


def held_folder(path: str) -> str | None:
    """Return the outermost directory that this process has locked and that contains a path; None if there is none."""
    return next((folder for folder in list(_held) if path == folder or storage.is_inside(path, folder)), None)


@contextlib.contextmanager
def hold(folder: str, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> Iterator[None]:
    """Hold the lock of a directory. It is created if missing, and then removed if the run fails before it writes a file.

    Raises StorageError if another run has the lock, or takes it over while this run does not write heartbeats, and if a link in the
    directory leads out of it.
    """
    if not folder:
        raise StorageError("--output is empty; name a directory")
    outputs.check_links(folder)
    is_new, has_failed = not storage.exists(folder), True
    lock = _Lock.acquire(folder, heartbeat_seconds)
    thread = threading.Thread(target=lock.write_heartbeats, name="lock", daemon=True)
    thread.start()
    _held.append(folder)
    try:
        with receive_progress(lock.record_progress):
            yield
        lock.check()
        has_failed = False
    except KeyboardInterrupt:
        lock.check()
        raise
    finally:
        _held.remove(folder)
        lock.release(thread)
        if has_failed and is_new and not storage.files_below(folder):
            storage.remove(folder)


class _Lock:
    """A lock that this process owns."""

    def __init__(self, uri: str, owner: LockOwner, heartbeat_seconds: float) -> None:
        self.uri = uri
        self.owner = owner
        self.heartbeat_seconds = heartbeat_seconds
        self.released = threading.Event()
        self.is_lost = False

    @classmethod
    def acquire(cls, folder: str, heartbeat_seconds: float) -> "_Lock":
        """Create the lock of a directory. Raises StorageError if another run has it."""
        storage.make_folder(folder)
        locks = _lock_names(folder)
        previous = _read_lock(storage.join(folder, locks[-1])) if locks else None
        if previous is not None and _is_running(previous, storage.join(folder, locks[-1]), heartbeat_seconds):
            raise _held_by(folder, previous)
        owner = _this_process()
        uri = _next_lock(storage.join(folder, locks[-1] if locks else f"{PREFIX}0.json"))
        if not storage.create_json(uri, asdict(owner)):
            winner = _read_lock(uri)
            raise _held_by(folder, winner) if winner else StorageError(f"{folder}: another run starts there; try again in a moment")
        if previous is not None:
            logger.warning("%s: resuming after %s, which died", folder, previous.describe())
        for name in locks:
            storage.remove(storage.join(folder, name))
        return cls(uri, owner, heartbeat_seconds)

    def check(self) -> None:
        """Raise StorageError if another run has taken over the lock."""
        if self.is_lost:
            folder = posixpath.dirname(self.uri)
            raise StorageError(f"{folder}: another run took over while this run wrote no heartbeat; let the other run finish") from None

    def record_progress(self, progress: Progress) -> None:
        self.owner.stages = {**self.owner.stages, progress.stage: progress}  # a copy: the heartbeat thread may be writing the old dict

    def write_heartbeats(self) -> None:
        """Write heartbeats until the lock is released. If another run has taken it over, interrupt this one."""
        while not self.released.wait(self.heartbeat_seconds):
            try:
                if self._has_lost():
                    self.is_lost = True
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                    return
                self.owner.heartbeat = time.time()
                storage.write_json(self.uri, asdict(self.owner))
            except (StorageError, OSError) as error:
                logger.warning("the heartbeat could not be written: %s", error)

    def _has_lost(self) -> bool:
        """Whether another run has taken over the lock.

        A run that stands still between this look and its next write recreates a lock that another run has removed, so the lock of that run
        counts too.
        """
        current = _read_lock(self.uri)
        return current is None or current.run != self.owner.run or storage.find_bytes(_next_lock(self.uri)) is not None

    def release(self, thread: threading.Thread) -> None:
        """Stop the heartbeat thread and remove the lock file, unless it belongs to another run by now."""
        self.released.set()
        thread.join()
        if not self.is_lost:
            with contextlib.suppress(StorageError):
                storage.remove(self.uri)


def _next_lock(uri: str) -> str:
    """Return the lock of the run that takes over a lock."""
    folder, name = posixpath.split(uri)
    number = int(name.removeprefix(PREFIX).removesuffix(".json"))
    return storage.join(folder, f"{PREFIX}{number + 1:05d}.json")


def _held_by(folder: str, owner: LockOwner) -> StorageError:
    stop = f"`kill {owner.pid}`" if owner.is_local else f"`kill {owner.pid}` on {owner.host}"
    return StorageError(f"{folder}: held by {owner.describe()}; wait for it, choose another --output, or stop it with {stop}")


def _this_process() -> LockOwner:
    now = time.time()
    command = hide_in_command([posixpath.basename(sys.argv[0]), *sys.argv[1:]])
    pid = os.getpid()
    identity = uuid.uuid4().hex, command, socket.gethostname(), uuid.getnode(), pid
    return LockOwner(*identity, psutil.Process(pid).create_time(), started=now, heartbeat=now, system=_system(), process_ticks=_ticks(pid))


def _system() -> str:
    """Return the boot and the process namespace of this process; empty where the system has no /proc."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _ticks(pid: int) -> str:
    """Return the start of a process in ticks since the boot, which a change of the clock does not move; empty without /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_running(owner: LockOwner, uri: str, heartbeat_seconds: float) -> bool:
    """Whether a run is alive. A remote run that seems dead is observed for three heartbeats, because its clock may be wrong."""
    if owner.is_alive or owner.is_local:
        return owner.is_alive
    seconds = 3 * heartbeat_seconds
    logger.warning("%s: last heartbeat %s; watching it for %d s", uri, _format_age(owner.heartbeat), seconds)
    time.sleep(seconds)
    current = _read_lock(uri)
    return current is not None and current.heartbeat != owner.heartbeat


def _lock_names(folder: str) -> list[str]:
    """The lock files in a directory, the latest last."""
    return [name for name in storage.names_in(folder) if re.fullmatch(rf"{PREFIX}\d{{1,9}}\.json", name)]


def _read_lock(uri: str) -> LockOwner | None:
    """Read a lock file; None if it is missing or incomplete."""
    for retry_seconds in (1.0, 0.0):
        try:
            owner: LockOwner = records.parse(storage.read_json(uri), LockOwner, uri)
            return owner
        except StorageError:
            if retry_seconds and storage.exists(uri):  # it may be being written
                time.sleep(retry_seconds)
    return None


def _format_age(moment: float) -> str:
    return f"{format_seconds(max(0.0, time.time() - moment))} ago"  # 0 for NaN
