"""Object stores (S3, GCS): every request takes time and costs money, so files are read, written and compared with few of them.

An object appears when its upload is complete, so it needs no temporary name, and its entry in a listing changes with its content.
"""

import contextlib
import io
import posixpath
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import fsspec

GCS_PROTOCOLS = ("gs", "gcs")
PROTOCOLS = ("s3", "s3a", *GCS_PROTOCOLS)
UPLOAD_BYTES = 50 << 20  # of a request to GCS, that of s3fs: a smaller object is uploaded by one, a larger one by blocks
MAX_DELETED = 1000  # objects that a request deletes


def is_object_store(fs: fsspec.AbstractFileSystem) -> bool:
    return _has_protocol(fs, PROTOCOLS)


def _has_protocol(fs: fsspec.AbstractFileSystem, names: Sequence[str]) -> bool:
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    return any(protocol in names for protocol in protocols)


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
    handle: Any = GcsUpload(fs, path) if _has_protocol(fs, GCS_PROTOCOLS) else fs.open(path, "wb")
    try:
        yield handle
        handle.close()
    except BaseException:
        with contextlib.suppress(Exception):
            handle.discard()
        handle.closed = True  # closing it would upload the rest
        raise
    fs.invalidate_cache(posixpath.dirname(path))


class GcsUpload:
    """A file on GCS that is uploaded by one request if it is small; gcsfs takes two or more for a file of any size."""

    def __init__(self, fs: fsspec.AbstractFileSystem, path: str) -> None:
        self.fs, self.path, self.is_small = fs, path, True
        self.file: Any = io.BytesIO()
        self.generation: str | None = None  # of the uploaded object; None if it is not known

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: Any) -> int:
        if self.is_small and self.file.tell() + memoryview(data).nbytes > UPLOAD_BYTES:
            start, self.file, self.is_small = self.file.getvalue(), self.fs.open(self.path, "wb", block_size=UPLOAD_BYTES), False
            self.file.write(start)
        return int(self.file.write(data))

    def close(self) -> None:
        if self.is_small and not self.file.closed:
            uploaded = self.fs.pipe_file(self.path, self.file.getvalue())
            self.generation = uploaded.get("generation") if isinstance(uploaded, dict) else None
            self.file.close()
        elif not self.file.closed:
            self.file.close()
            self.generation = self.file.generation

    def discard(self) -> None:
        """Upload nothing."""
        if not self.is_small:
            with contextlib.suppress(Exception):
                self.file.discard()
            self.file.closed = True  # closing it would upload the rest
