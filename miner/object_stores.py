"""Object stores (S3, GCS): every request takes time and costs money, so files are read, written and compared with few of them.

An object appears when its upload is complete, so it needs no temporary name, and its entry in a listing changes with its content.
"""

import contextlib
import posixpath
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import fsspec

PROTOCOLS = ("s3", "s3a", "gs", "gcs")
MAX_DELETED = 1000  # objects that a request deletes


def is_object_store(fs: fsspec.AbstractFileSystem) -> bool:
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    return any(protocol in PROTOCOLS for protocol in protocols)


def read_start(fs: fsspec.AbstractFileSystem, path: str, num_bytes: int) -> bytes:
    """Return the first `num_bytes` of an object, or all of a smaller one, by one request: its size need not be known."""
    data: bytes = fs.cat_file(path, start=0, end=num_bytes)
    return data


def read_starts(fs: fsspec.AbstractFileSystem, paths: Sequence[str], num_bytes: int) -> list[bytes | None]:
    """Return the start of several objects, read side by side; None for one that is missing."""
    contents = fs.cat_ranges(list(paths), 0, num_bytes, on_error="return") if paths else []
    for content in contents:
        if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
            raise content
    return [None if isinstance(content, FileNotFoundError) else content for content in contents]


def delete(fs: fsspec.AbstractFileSystem, paths: Sequence[str]) -> None:
    """Delete objects that exist, many with one request."""
    for start in range(0, len(paths), MAX_DELETED):
        with contextlib.suppress(FileNotFoundError):  # gcsfs raises it if none of them exists
            fs.rm(list(paths[start : start + MAX_DELETED]))


@contextlib.contextmanager
def put(fs: fsspec.AbstractFileSystem, path: str) -> Iterator[BinaryIO]:
    """Upload an object, which appears when the block ends, and not at all if the block raises."""
    handle = fs.open(path, "wb")
    try:
        yield handle
        handle.close()
    except BaseException:
        with contextlib.suppress(Exception):
            handle.discard()
        handle.closed = True  # closing it would upload the rest
        raise
    fs.invalidate_cache(posixpath.dirname(path))
