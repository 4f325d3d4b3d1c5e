"""Object stores (S3, GCS): every request takes time and costs money, so files are read, written and compared with few of them.

An object appears when its upload is complete, so it needs no temporary name, and its entry in a listing changes with its content.
"""

import contextlib
import errno
import functools
import io
import logging
import os
import posixpath
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, ParamSpec, TypeVar

import fsspec

from miner.errors import ConfigError, StorageError, first_line

PROTOCOLS = ("s3", "s3a", "gs", "gcs")
UPLOAD_BYTES = 50 << 20  # of a request: a smaller object is uploaded by one, a larger one by blocks
MAX_DELETED = 1000  # objects that a request deletes
IDENTIFIERS = ("generation", "ETag")  # of the content of an object, in a listing and in the answer to an upload
RETRY = "MINER_RETRY_SECONDS"  # environment variable: how long a request is repeated while a store does not answer
RETRY_SECONDS = 120.0  # its default
MAX_PAUSE_SECONDS = 15.0  # between two attempts; the first pause is 1 s, each further one twice as long
OUTAGE_ERRNO = (errno.EBUSY, errno.EIO, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE)
OUTAGE_CLASSES = {"EndpointConnectionError", "HTTPClientError", "ClientConnectionError", "ClientPayloadError"}  # of botocore and aiohttp
OUTAGE_STATUS = (429, 500, 502, 503, 504)

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger(__name__)


def is_object_store(fs: fsspec.AbstractFileSystem) -> bool:
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    return any(protocol in PROTOCOLS for protocol in protocols)


def is_outage(error: BaseException) -> bool:
    """Whether an object store may answer later: it cannot be reached, has an internal error, or asks to slow down."""
    is_of_uri = isinstance(error, StorageError) and any(f"{protocol}://" in str(error) for protocol in PROTOCOLS)
    cause = error.__cause__ if is_of_uri else error
    if cause is None or isinstance(cause, StorageError):
        return False
    is_lost = any(base.__name__ in OUTAGE_CLASSES for base in type(cause).__mro__)
    answer = getattr(cause.__cause__, "response", None) or {}  # of botocore's error, which s3fs translates
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", getattr(cause, "code", None))  # or of gcsfs
    return is_lost or (is_of_uri and (status in OUTAGE_STATUS or getattr(cause, "errno", None) in OUTAGE_ERRNO))


class Patience:
    """Waits, with growing pauses, until a store that does not answer has had `MINER_RETRY_SECONDS` to recover."""

    def __init__(self) -> None:
        value = os.environ.get(RETRY, str(RETRY_SECONDS))
        try:
            self.seconds, self.pause, self.start = max(0.0, float(value)), 1.0, 0.0
        except ValueError:
            raise ConfigError(f"{RETRY}={value}: not a number of seconds; unset it or give one, such as {RETRY_SECONDS:.0f}") from None

    def wait(self, error: Exception) -> bool:
        """Pause before another attempt. Return False, at once, if the time is up or the error is not of an outage."""
        self.start = self.start or time.monotonic()
        remaining = self.seconds - (time.monotonic() - self.start)
        if remaining <= 0 or not is_outage(error):
            return False
        logger.warning("%s; repeated for up to %.0f s", first_line(error).partition("; check")[0], self.seconds)
        time.sleep(min(self.pause, remaining))
        self.pause = min(2 * self.pause, MAX_PAUSE_SECONDS)
        return True


def repeat(function: Callable[P, T]) -> Callable[P, T]:
    """Repeat a function while an object store does not answer. Its last StorageError says how long that was."""

    @functools.wraps(function)
    def patient(*args: P.args, **kwargs: P.kwargs) -> T:
        patience: Patience | None = None
        while True:
            try:
                return function(*args, **kwargs)
            except StorageError as error:
                if not is_outage(error):
                    raise
                patience = patience or Patience()
                if not patience.wait(error):
                    raise StorageError(f"{error} (tried for {time.monotonic() - patience.start:.0f} s)") from None

    return patient


def read_range(fs: fsspec.AbstractFileSystem, path: str, start: int, end: int) -> bytes:
    """Return the bytes of an object from `start` up to `end`, or to its end, by one request: its size need not be known."""
    try:
        return bytes(fs.cat_file(path, start=start, end=end))
    except Exception as error:
        if not _is_beyond_end(error):
            raise
        return b""


def _is_beyond_end(error: Exception) -> bool:
    """Whether a store has no byte in a range, as of an empty object, which it answers with status 416."""
    return getattr(error, "code", None) in (416, "416") or "InvalidRange" in f"{error} {error.__cause__}"


def read_parts(fs: fsspec.AbstractFileSystem, paths: Sequence[str], start: int, end: int | None) -> list[bytes | None]:
    """Return the bytes of several objects from `start` to `end`, as slices have them, read side by side; None for a missing object."""
    contents = fs.cat_ranges(list(paths), start, end, on_error="return") if paths else []
    contents = [b"" if isinstance(content, Exception) and _is_beyond_end(content) else content for content in contents]
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
