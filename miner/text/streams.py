"""Bytes of inputs: open an input from any file system, decompress it, and split it into blocks of whole lines."""

import bz2
import contextlib
import gzip
import io
import lzma
import posixpath
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, BinaryIO, cast

import pyarrow as pa

from miner.errors import REMOTE_REMEDY, DataError, first_line, is_remote_error
from miner.io import storage
from miner.progress import add_work

BLOCK_BYTES, COMPRESSED_BLOCK_BYTES = 1 << 20, 1 << 14  # read at a time
MAX_LINE_BYTES = 1 << 20  # a longer line is skipped; at least BLOCK_BYTES, see `read_line_blocks`
HEAD_BYTES = 4 << 20  # of a compressed file, from which its compression ratio is estimated
HEAD_TEXT_BYTES, HEAD_STEP_BYTES = 64 << 20, 1 << 16  # most bytes decompressed from a head, and per step
MIN_BOMB_BYTES = 64 << 20  # of text; a compressed file may expand to fewer by any factor
PADDING = b"\0"  # between streams
BOM = b"\xef\xbb\xbf"


def _open_zstd(handle: Any) -> Any:
    # Not the zstandard package, whose reader silently accepts a truncated file.
    return pa.CompressedInputStream(pa.PythonFile(handle, mode="r"), "zstd")


class _StreamsReader(io.RawIOBase):
    """The text of a file of one or several compressed streams. Other data after a stream is an error.

    `bz2.open` and `lzma.open` take such data, which may be a stream with a damaged header, for the end of the file.
    """

    def __init__(self, new_decompressor: Callable[[], Any], handle: Any) -> None:
        self.new_decompressor, self.handle = new_decompressor, handle
        self.decompressor = new_decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            data = b""
            if self.decompressor.eof:
                data = self.decompressor.unused_data.lstrip(PADDING)
                while not data:
                    block = self.handle.read(COMPRESSED_BLOCK_BYTES)
                    if not block:
                        return 0
                    data = block.lstrip(PADDING)
                self.decompressor = self.new_decompressor()
            elif self.decompressor.needs_input and not (data := self.handle.read(COMPRESSED_BLOCK_BYTES)):
                raise EOFError("the last stream has no end")
            text = self.decompressor.decompress(data, len(buffer))
            if text:
                buffer[: len(text)] = text
                return len(text)


def _open_streams(new_decompressor: Callable[[], Any], handle: Any) -> Any:
    return io.BufferedReader(_StreamsReader(new_decompressor, handle), BLOCK_BYTES)


COMPRESSIONS: dict[str, Callable[[Any], Any]] = {
    ".gz": gzip.open,
    ".zst": _open_zstd,
    ".xz": partial(_open_streams, lzma.LZMADecompressor),
    ".bz2": partial(_open_streams, bz2.BZ2Decompressor),
}


def split_extensions(uri: str) -> tuple[str, str]:
    """Return the extensions of the content and of the compression, "" where there is none: `a.tsv.gz` -> (".tsv", ".gz")."""
    path = storage.filesystem(uri)[1]
    if "://" in path:  # a web address can end in a query
        path = path.partition("?")[0]
    stem, last = posixpath.splitext(path.lower())
    return (posixpath.splitext(stem)[1], last) if last in COMPRESSIONS else (last, "")


@contextlib.contextmanager
def open_bytes(
    uri: str, compression: str = "", max_expansion: float | None = None, min_bomb_bytes: int = MIN_BOMB_BYTES
) -> Iterator[BinaryIO]:
    """Open the decompressed bytes of an input. A missing, unreadable or corrupt input raises DataError, also while it is read.

    So does a compressed file of more than `min_bomb_bytes` of text that expands by more than `max_expansion`.
    """
    fs, path = storage.filesystem(uri)
    with convert_read_errors(uri, compression), fs.open(path, "rb") as opened:
        handle = cast(BinaryIO, CountedFile(opened))
        if not compression:
            yield handle
            return
        if not opened.read(1):
            raise EOFError  # decompressors accept an empty file as an empty text
        opened.seek(0)
        with COMPRESSIONS[compression](handle) as decompressed:
            limit = None if max_expansion is None else max_text_bytes(uri, max_expansion, min_bomb_bytes)
            if limit is None:
                yield cast(BinaryIO, decompressed)
            else:
                yield io.BufferedReader(_LimitedReader(uri, decompressed, limit), BLOCK_BYTES)


class CountedFile:
    """A file of an input; the bytes that are read are reported as work."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.file.read(size)
        add_work(len(data))
        return data

    read1 = read  # of text wrappers


class _LimitedReader(io.RawIOBase):
    """The decompressed bytes of a file. Raises DataError when there are more than a limit."""

    def __init__(self, uri: str, decompressed: Any, max_bytes: int) -> None:
        self.uri, self.decompressed, self.max_bytes, self.num_bytes = uri, decompressed, max_bytes, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.decompressed.read(len(buffer))
        self.num_bytes += len(data)
        if self.num_bytes > self.max_bytes:
            raise expansion_error(self.uri, self.max_bytes)
        buffer[: len(data)] = data
        return len(data)


def max_text_bytes(uri: str, max_expansion: float, min_bomb_bytes: int = MIN_BOMB_BYTES) -> int | None:
    """Return the most bytes of text that a file may expand to; None where its size is not known."""
    size = file_bytes(uri, unknown_bytes=-1)
    return None if size < 0 else max(min_bomb_bytes, int(max_expansion * size))


def expansion_error(uri: str, max_bytes: int) -> DataError:
    """Return the error for a file with more text than it may have."""
    return DataError(f"{uri}: expands to more than {max_bytes:,} bytes; decompress it, or raise --max-expansion")


@contextlib.contextmanager
def convert_read_errors(uri: str, compression: str) -> Iterator[None]:
    """Convert errors raised while an input is read to DataError. `compression` is its expected format, "" for plain bytes."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{uri}: no such file; check the name") from error
    except (EOFError, UnicodeDecodeError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise _corrupt(uri, compression, error) from error
    except OSError as error:
        if compression and error.errno is None:  # gzip, bz2 and Arrow raise it for invalid data
            raise _corrupt(uri, compression, error) from error
        remedy = REMOTE_REMEDY if "://" in uri else "check the file and its permissions"
        raise DataError(f"{uri}: cannot be read ({error.strerror or error}); {remedy}") from error
    except Exception as error:
        if is_remote_error(error):
            raise DataError(f"{uri}: cannot be read ({first_line(error)}); {REMOTE_REMEDY}") from error
        raise


def _corrupt(uri: str, compression: str, error: BaseException) -> DataError:
    reason = (str(error).splitlines() or ["unexpected end of file"])[0]
    return DataError(f"{uri}: truncated or not {compression or 'readable'} ({reason}); copy or download it again")


def file_bytes(uri: str, unknown_bytes: int) -> int:
    """Return the size of an input; `unknown_bytes` if a web server does not report it."""
    fs, path = storage.filesystem(uri)
    with convert_read_errors(uri, ""):
        size = fs.size(path)
    return unknown_bytes if size is None else int(size)


def read_head(uri: str, compression: str, head_bytes: int = HEAD_BYTES, step_bytes: int = HEAD_STEP_BYTES) -> tuple[int, bytes]:
    """Decompress the first `head_bytes` of a file; return the compressed bytes consumed, and their text, HEAD_TEXT_BYTES at most.

    The text is empty if the file is not compressed as expected.
    """
    fs, path = storage.filesystem(uri)
    with convert_read_errors(uri, compression), fs.open(path, "rb") as handle:
        compressed = io.BytesIO(handle.read(head_bytes))
    chunks: list[bytes] = []
    consumed = 0
    with contextlib.suppress(EOFError, zlib.error, lzma.LZMAError, OSError, pa.ArrowInvalid):  # the head ends in mid-stream
        decompressed = COMPRESSIONS[compression](compressed)
        while len(chunks) < HEAD_TEXT_BYTES // step_bytes and (chunk := decompressed.read(step_bytes)):
            chunks.append(chunk)
            consumed = compressed.tell()
    return consumed, b"".join(chunks)


def read_line_blocks(handle: BinaryIO, max_line_bytes: int, block_bytes: int = BLOCK_BYTES) -> Iterator[bytes | None]:
    r"""Split a stream at "\n" into blocks of whole lines; None stands for one line of more than `max_line_bytes`, which is skipped.

    `max_line_bytes` must be at least `block_bytes`, so that only the first line of a block can be too long; memory is then bounded by
    `max_line_bytes` and two blocks. Drops a byte order mark at the start. The last line may lack its "\n".
    """
    partial_line, is_skipping = b"", False
    chunk = handle.read(block_bytes).removeprefix(BOM)
    while chunk:
        if is_skipping:
            _, newline, chunk = chunk.partition(b"\n")
            is_skipping = not newline
        data = partial_line + chunk
        end = data.rfind(b"\n") + 1
        lines, partial_line = data[:end], data[end:]
        first_end = lines.find(b"\n")
        if first_end > max_line_bytes:
            yield None
            lines = lines[first_end + 1 :]
        if lines:
            yield lines
        if len(partial_line) > max_line_bytes:
            yield None
            partial_line, is_skipping = b"", True
        chunk = handle.read(block_bytes)
    if partial_line:
        yield partial_line
