"""Copies of remote folders in a cache directory, which the processes of a host share.

One process copies, the others wait for it. A copy appears when it is complete. It has the checksums of its files, and is compared with
them before it is used; a damaged copy is replaced.
"""

import contextlib
import errno
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from miner.errors import MinerError, ModelError, StorageError, first_line
from miner.io import checksums, storage
from miner.io.credentials import hide
from miner.io.storage import TEMPORARY, write_folder

CACHE = "MINER_CACHE"  # environment variable: the directory of the copies
ATTEMPTS, WAIT_SECONDS = 4, 0.2  # doubled after each attempt
UNUSED_SECONDS = 3 * 86_400.0  # after which `remove_unused` removes a copy

T = TypeVar("T")

logger = logging.getLogger(__name__)


def cache_folder(kind: str) -> Path:
    """Return the directory of the copies of a kind in $MINER_CACHE, else in `miner` in the user's cache directory."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "miner"
    return Path(os.environ.get(CACHE, default)) / kind


def provide(folder: Path, write: Callable[[Path], None]) -> Path:
    """Return a folder of the cache. If it is missing or damaged, `write` fills a new folder, with the checksums of its files.

    Raises StorageError if the cache cannot be written, and what `write` raises.
    """
    from filelock import FileLock

    try:
        if not _is_intact(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):
                if not _is_intact(folder):
                    _replace(folder, write)
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror or error}; free some space, or set {CACHE} to another directory") from error
    with contextlib.suppress(OSError):  # the time of the last use, for `remove_unused`
        os.utime(folder)
    return folder


def _is_intact(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        damaged = checksums.find_damaged(folder, checksums.read(str(folder), "copying it again"))
    except MinerError as error:
        logger.warning("%s", error)
        return False
    if damaged is not None:
        logger.warning("%s: missing, or changed since it was written; copying it again", folder / damaged)
    return damaged is None


def _replace(folder: Path, write: Callable[[Path], None]) -> None:
    for leftover in (folder, *folder.parent.glob(f".{folder.name}.*{TEMPORARY}")):  # of killed processes: the lock is ours
        shutil.rmtree(leftover, ignore_errors=True)
    with write_folder(folder) as temporary:
        write(temporary)


def remove_unused(parent: Path) -> None:
    """Remove the copies that no process has opened for some days, and those of killed processes. Mapped files stay readable."""
    for folder in parent.iterdir():
        if folder.is_dir() and time.time() - folder.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def copy_file(uri: str, target: Path) -> None:
    """Copy a remote file to a local path, whose folder is created."""
    fs, path = storage.filesystem(uri)
    target.parent.mkdir(parents=True, exist_ok=True)
    fs.get_file(path, str(target))


def retry(uri: str, function: Callable[[], T]) -> T:
    """Call a function that reads a URI, again after an error that may be transient. Raises a MinerError after the last one."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return function()
        except Exception as error:  # the classes differ between file systems
            if isinstance(error, ModelError) or _is_full_disk(error):
                raise
            is_permanent = isinstance(error, (FileNotFoundError, PermissionError)) or isinstance(error.__cause__, FileNotFoundError)
            if attempt == ATTEMPTS or is_permanent:
                if isinstance(error, MinerError):
                    raise
                reason = f"{type(error).__name__}: {first_line(error)}"
                raise StorageError(f"{hide(uri)}: cannot be copied ({reason}); check the address and the credentials") from error
            logger.warning("%s: %s; attempt %d of %d", hide(uri), error, attempt + 1, ATTEMPTS)
            time.sleep(WAIT_SECONDS * 2 ** (attempt - 1))
    raise AssertionError


def _is_full_disk(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
