"""Encoders by URI: a folder on object storage or a web server is copied once per host, then read like any folder.

A copy is stored by the names and versions of its files, so a model that is replaced at its URI is copied again. Processes of a host wait
for the one that copies. The files are compared with `checksums.json` before they are used; a folder without it gets one when it is copied.
"""

import functools
from collections.abc import Mapping
from pathlib import Path

from miner.errors import DamagedError, ModelError, StorageError
from miner.io import checksums, host_copies, storage
from miner.io.credentials import hide

REMEDY = "copy the encoder there again"
WRITE_IT = "`miner fetch ENCODER --output DIR` writes it"
UNLISTED = ("http", "https")  # protocols without listings


def is_uri(name: str) -> bool:
    """Whether the name of an encoder is a URI such as gs://bucket/labse."""
    return "://" in name


def fetch(uri: str) -> Path:
    """Return the folder of this host with a copy of the encoder at a URI. Raises ModelError if it is missing or damaged."""
    uri = uri.rstrip("/")
    _check_protocol(uri)
    try:
        versions = host_copies.retry(uri, functools.partial(_list_versions, uri))
        folder = host_copies.cache_folder("encoders") / storage.key(dict(versions))
        return host_copies.provide(folder, lambda new: host_copies.retry(uri, functools.partial(_copy, uri, versions, new)))
    except StorageError as error:
        raise ModelError(str(error)) from (error.__cause__ or error)


def _check_protocol(uri: str) -> None:
    try:
        storage.filesystem(uri)
    except StorageError as error:
        raise ModelError(f"{error}; check the address, or install the package of this file system") from error


def _list_versions(uri: str) -> Mapping[str, str]:
    """Return the files of an encoder by relative path, each with a value that changes when the file does."""
    if uri.partition(":")[0] not in UNLISTED:
        versions = storage.versions_below(uri)
        if not versions:
            raise ModelError(f"{hide(uri)}: no such encoder folder; check the address")
        if checksums.STARTED in versions:
            raise ModelError(f"{hide(uri)}: {checksums.INCOMPLETE}")
        return {name: version for name, version in versions.items() if not name.startswith(storage.LOCK_PREFIX)}
    try:
        files = checksums.read(uri, REMEDY)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise ModelError(f"{hide(uri)}: no {checksums.FILE}, which lists the files on a web server; {WRITE_IT}") from error
        raise
    fs, path = storage.filesystem(uri)
    edited = {name: storage.join(path, name) for name in checksums.USER_FILES - files.keys() if fs.exists(storage.join(path, name))}
    return {**files, **{name: storage.key(fs.cat_file(file).decode()) for name, file in edited.items()}, checksums.FILE: ""}


def _copy(uri: str, versions: Mapping[str, str], folder: Path) -> None:
    """Copy the files of an encoder into a folder."""
    for name in versions:
        target = folder / name
        if not target.resolve().is_relative_to(folder.resolve()):
            raise ModelError(f"{hide(uri)}: {name!r} is outside the folder of the encoder; do not trust it")
        host_copies.copy_file(storage.join(uri, name), target)
    if checksums.FILE not in versions:
        checksums.write(folder, checksums.user_files(folder))
    damaged = checksums.find_damaged(folder, checksums.read(str(folder), REMEDY))
    if damaged is not None:
        raise DamagedError(f"{hide(uri)}/{damaged}: is not what {checksums.FILE} lists; {REMEDY}")
