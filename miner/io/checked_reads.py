"""Read files only after a comparison with the checksums in the manifests beside them."""

import contextlib
import io
import posixpath
from collections.abc import Iterator
from typing import BinaryIO

import xxhash

from miner.errors import StorageError, storage_errors
from miner.io import object_stores, storage
from miner.io.object_stores import is_object_store
from miner.io.storage import MANIFEST

READ_AHEAD_BYTES = 1 << 20  # of tables on object storage, of which often a range is read; fsspec's 50 MB would fetch 50 times as much
WHOLE_BYTES = 1 << 24  # up to which the first read of an object keeps it in memory, instead of fetching it for its checksum and again
WRITE_AGAIN = "run the command that made it again"


def read_whole(uri: str) -> bytes:
    """Read a file, of any size, after a comparison with the checksum in the manifest beside it, if that lists the file.

    Raises StorageError if it has changed. An object of up to WHOLE_BYTES takes one request.
    """
    expected = _listed_checksum(uri)
    fs, path = storage.filesystem(uri)
    with storage_errors(uri):
        start = object_stores.read_start(fs, path, WHOLE_BYTES + 1) if is_object_store(fs) else None
        data: bytes = fs.cat_file(path) if start is None or len(start) > WHOLE_BYTES else start
    if expected is not None:
        _compare(uri, xxhash.xxh3_128_hexdigest(data), expected, is_listed=True)
    return data


def _compare(uri: str, current: str, expected: str, is_listed: bool) -> None:
    """Raise StorageError if a checksum is not the expected one, which `is_listed` in the manifest, as this process has read it."""
    if current != expected and not (is_listed and current == _listed_checksum(uri, is_current=True)):
        raise StorageError(f"{uri}: changed since it was written: its checksum is not that of {MANIFEST}; {WRITE_AGAIN}")


_sizes_read: dict[str, int] = {}  # path of an object that this process has read -> its size then


def _read_checked(uri: str, expected: str | None) -> bytes | None:
    """Compare a file with its checksum, which is that of the manifest if `expected` is None.

    Returns the content of a small object whose first read in this process this is, so that it is fetched once, and always that of an
    object of a few blocks, which takes one request instead of several.
    """
    is_listed = expected is None
    expected = expected or _listed_checksum(uri)
    if expected is None:
        return None
    fs, path = storage.filesystem(uri)
    if is_object_store(fs) and _sizes_read.get(path, 0) <= READ_AHEAD_BYTES:
        with storage_errors(uri):
            data = object_stores.read_start(fs, path, WHOLE_BYTES + 1)
        _sizes_read[path] = len(data)
        if len(data) <= WHOLE_BYTES:
            _compare(uri, xxhash.xxh3_128_hexdigest(data), expected, is_listed)
            return data
    _compare(uri, storage.checksum(uri), expected, is_listed)
    return None


@contextlib.contextmanager
def open_checked(uri: str, expected: str | None) -> Iterator[BinaryIO]:
    """Open a table for reading, after `_read_checked`."""
    data = _read_checked(uri, expected)
    if data is not None:
        yield io.BytesIO(data)
        return
    with open_unchecked(uri) as handle:
        yield handle


def open_unchecked(uri: str) -> contextlib.AbstractContextManager[BinaryIO]:
    fs, path = storage.filesystem(uri)
    return storage.open_file(fs, path, block_size=READ_AHEAD_BYTES)


def _listed_checksum(uri: str, is_current: bool = False) -> str | None:
    """Return the checksum of a file in the manifest beside it.

    A process reads each version of a manifest once; on object stores, where asking for the version takes a request, only another time
    if it does not list the file, or if `is_current`.
    """
    folder, name = posixpath.split(str(uri))
    manifest = storage.join(folder, MANIFEST)
    fs, path = storage.filesystem(manifest)
    is_object = is_object_store(fs)
    version = path if is_object else str(fs.ukey(path)) if storage.exists(manifest) else None
    if version is None:
        return None
    if is_current or name not in _manifests.get(version, {}):
        _manifests[version] = _read_checksums(manifest)
    return _manifests[version].get(name)


def _read_checksums(manifest: str) -> dict[str, str]:
    """Return the checksums in a manifest; none if it is missing or not one of ours."""
    data = storage.find_bytes(manifest)
    try:
        return {} if data is None else {shard["name"]: shard["checksum"] for shard in storage.parse_json(data, manifest)["shards"]}
    except (StorageError, KeyError, TypeError):
        return {}


_manifests: dict[str, dict[str, str]] = {}  # version of a manifest, or path of an object -> name of a file -> its checksum
