"""Encoders by URI: a folder on object storage or a web server is copied once per host, then read like any folder.

A copy is stored by the names and versions of its files, so a model that is replaced at its URI is copied again. Processes of a host wait
for the one that copies. The files are compared with `checksums.json` before they are used; a folder without it gets one when it is copied.
"""

import functools
import logging
import os
import posixpath
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from miner import checksums, storage
from miner.credentials import hide
from miner.errors import MinerError, ModelError, StorageError, first_line

CACHE = "MINER_CACHE"  # environment variable: the directory of the copies
ATTEMPTS, WAIT_SECONDS = 4, 0.2  # doubled after each attempt
REMEDY = "copy the encoder there again"
WRITE_IT = "`miner fetch ENCODER --output DIR` writes it"
UNLISTED = ("http", "https")  # protocols without listings

T = TypeVar("T")

logger = logging.getLogger(__name__)


def is_uri(name: str) -> bool:
    """Whether the name of an encoder is a URI such as gs://bucket/labse."""
    return "://" in name


def fetch(uri: str) -> Path:
    """Return the folder of this host with a copy of the encoder at a URI. Raises ModelError if it is missing or damaged."""
    from filelock import FileLock

    uri = uri.rstrip("/")
    _check_protocol(uri)
    versions = _retry(uri, functools.partial(_list_versions, uri))
    folder = cache_folder() / storage.key(dict(versions))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not _is_intact(folder):
                logger.info("copying the encoder %s to %s", hide(uri), folder)
                _retry(uri, functools.partial(_copy, uri, versions, folder))
    except OSError as error:
        raise ModelError(f"{folder}: {error.strerror or error}; free some space, or set {CACHE} to another directory") from error
    return folder


def cache_folder() -> Path:
    """Return the directory of the copies: $MINER_CACHE, else `miner` in the user's cache directory."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "miner"
    return Path(os.environ.get(CACHE, default)) / "encoders"


def _check_protocol(uri: str) -> None:
    try:
        storage.filesystem(uri)
    except StorageError as error:
        raise ModelError(f"{error}; check the address, or install the package of this file system") from error


def _retry(uri: str, function: Callable[[], T]) -> T:
    """Call a function, again after an error that may be transient. Raises ModelError after the last one."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return function()
        except ModelError:
            raise
        except Exception as error:  # the classes differ between file systems
            is_permanent = isinstance(error, (FileNotFoundError, PermissionError)) or isinstance(error.__cause__, FileNotFoundError)
            if attempt == ATTEMPTS or is_permanent:
                raise ModelError(_describe(uri, error)) from error
            logger.warning("%s: %s; attempt %d of %d", hide(uri), error, attempt + 1, ATTEMPTS)
            time.sleep(WAIT_SECONDS * 2 ** (attempt - 1))
    raise AssertionError


def _describe(uri: str, error: Exception) -> str:
    if isinstance(error, MinerError):
        return str(error)
    return f"{hide(uri)}: the encoder cannot be copied ({type(error).__name__}: {first_line(error)}); check the address and the credentials"


def _list_versions(uri: str) -> Mapping[str, str]:
    """Return the files of an encoder by relative path, each with a value that changes when the file does."""
    fs, path = storage.filesystem(uri)
    if uri.partition(":")[0] not in UNLISTED:
        fs.invalidate_cache()
        infos = fs.find(path, detail=True)
        versions = {posixpath.relpath(str(name), path): storage.version_of(info) for name, info in infos.items()}
        if not versions:
            raise ModelError(f"{hide(uri)}: no such encoder folder; check the address")
        return versions
    try:
        files = checksums.read(uri, REMEDY)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise ModelError(f"{hide(uri)}: no {checksums.FILE}, which lists the files on a web server; {WRITE_IT}") from error
        raise
    edited = {name: storage.join(path, name) for name in checksums.USER_FILES if fs.exists(storage.join(path, name))}
    return {**files, **{name: storage.key(fs.cat_file(file).decode()) for name, file in edited.items()}, checksums.FILE: ""}


def _is_intact(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        checksums.check(folder, REMEDY)
    except MinerError as error:
        logger.warning("%s; copying the encoder again", error)
        shutil.rmtree(folder)
        return False
    return True


def _copy(uri: str, versions: Mapping[str, str], folder: Path) -> None:
    """Copy the files of an encoder into a new folder, which appears when it is complete."""
    fs, path = storage.filesystem(uri)
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}{storage.TEMPORARY}")
    try:
        for name in versions:
            target = temporary / name
            if not target.resolve().is_relative_to(temporary.resolve()):
                raise ModelError(f"{hide(uri)}: {name!r} is outside the folder of the encoder; do not trust it")
            target.parent.mkdir(parents=True, exist_ok=True)
            fs.get_file(storage.join(path, name), str(target))
        if checksums.FILE not in versions:
            checksums.write(temporary, checksums.USER_FILES)
        damaged = checksums.find_damaged(temporary, checksums.read(str(temporary), REMEDY))
        if damaged is not None:
            raise StorageError(f"{hide(uri)}/{damaged}: is not what {checksums.FILE} lists; {REMEDY}")
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
