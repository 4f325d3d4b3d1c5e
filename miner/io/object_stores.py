"""Object stores (S3, GCS): every request takes time and costs money, so files are read, written and compared with few of them.

An object appears when its upload is complete, so it needs no temporary name, and its entry in a listing changes with its content.
"""

import contextlib
import io
import posixpath
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import fsspec

PROTOCOLS = ("s3", "s3a", "gs", "gcs")
UPLOAD_BYTES = 50 << 20  # of a request: a smaller object is uploaded by one, a larger one by blocks
MAX_DELETED = 1000  # objects that a request deletes
IDENTIFIERS = ("generation", "ETag")  # of the content of an object, in a listing and in the answer to an upload


def is_object_store(fs: fsspec.AbstractFileSystem) -> bool:
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    return any(protocol in PROTOCOLS for protocol in protocols)


def read_start(fs: fsspec.AbstractFileSystem, path: str, num_bytes: int) -> bytes:
    """Return the first `num_bytes` of an object, or all of a smaller one, by one request: its size need not be known."""
    data: bytes = fs.cat_file(path, start=0, end=num_bytes)
    return data


def read_parts(fs: fsspec.AbstractFileSystem, paths: Sequence[str], start: int, end: int | None) -> list[bytes | None]:
    """Return the bytes of several objects from `start` to `end`, as slices have them, read side by side; None for a missing object."""
    contents = fs.cat_ranges(list(paths), start, end, on_error="return") if paths else []
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
    upload: Any = ObjectUpload(fs, path)
    try:
        yield upload
        upload.close()
    except BaseException:
        upload.discard()
        raise
    fs.invalidate_cache(posixpath.dirname(path))


class ObjectUpload:
    """A file that is uploaded by one request if it is small, whose answer has its version."""

    def __init__(self, fs: fsspec.AbstractFileSystem, path: str) -> None:
        self.fs, self.path, self.is_small = fs, path, True
        self.file: Any = io.BytesIO()
        self.info: dict[str, Any] = {}  # of the uploaded object, as far as the answers to the requests show it

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: Any) -> int:
        if self.is_small and self.file.tell() + memoryview(data).nbytes > UPLOAD_BYTES:
            start, self.file, self.is_small = self.file.getvalue(), self.fs.open(self.path, "wb", block_size=UPLOAD_BYTES), False
            self.file.write(start)
        return int(self.file.write(data))

    def close(self) -> None:
        if self.file.closed:
            return
        answer: Any = self.fs.pipe_file(self.path, self.file.getvalue()) if self.is_small else None
        self.file.close()
        if not self.is_small:
            answer = {"generation": getattr(self.file, "generation", None)}  # of gcsfs; s3fs drops the answer
        self.info = {name: answer[name] for name in IDENTIFIERS if answer.get(name)} if isinstance(answer, dict) else {}

    def discard(self) -> None:
        """Upload nothing, or not the rest."""
        if self.is_small:
            self.file.close()
            return
        with contextlib.suppress(Exception):
            self.file.discard()
        self.file.closed = True  # closing it would upload the rest
