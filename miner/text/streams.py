"""Bytes in: opening an input wherever it is and however it is packed, and cutting it into blocks of whole lines."""

import bz2
import contextlib
import gzip
import io
import lzma
import posixpath
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import pyarrow as pa

from miner import storage
from miner.errors import DataError

BLOCK = 1 << 20  # bytes read at a time
MAX_LINE = 1 << 20  # bytes of the longest line that is held; not less than a block, see `line_blocks`
HEAD = 4 << 20  # bytes of a compressed file that tell how much text is in it
HEAD_TEXT, HEAD_STEP = 64 << 20, 1 << 16  # bytes of text that are looked at, and those that are unpacked at a time
BOM = b"\xef\xbb\xbf"


def _open_zstd(handle: Any) -> Any:
    # Arrow's reader, because that of the zstandard package ends a truncated file without a word.
    return pa.CompressedInputStream(pa.PythonFile(handle, mode="r"), "zstd")


COMPRESSIONS: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".zst": _open_zstd, ".xz": lzma.open, ".bz2": bz2.open}


def extensions(uri: str) -> tuple[str, str]:
    """The extension of what an input holds, and that of its compression ("" where there is none): `a.tsv.gz` -> (".tsv", ".gz")."""
    path = storage.filesystem(uri)[1]
    if "://" in path:  # a web address keeps its query
        path = path.partition("?")[0]
    stem, last = posixpath.splitext(path.lower())
    return (posixpath.splitext(stem)[1], last) if last in COMPRESSIONS else (last, "")


@contextlib.contextmanager
def open_bytes(uri: str, compression: str = "") -> Iterator[BinaryIO]:
    """The decompressed bytes of an input; a missing, unreadable or broken one is a DataError, also while it is being read."""
    fs, path = storage.filesystem(uri)
    with clear_errors(uri, compression), fs.open(path, "rb") as handle:
        if not compression:
            yield handle
            return
        if not handle.read(1):
            raise EOFError  # every decompressor takes no bytes at all for an empty text
        handle.seek(0)
        with COMPRESSIONS[compression](handle) as unpacked:
            yield cast(BinaryIO, unpacked)


@contextlib.contextmanager
def clear_errors(uri: str, packing: str) -> Iterator[None]:
    """Turn what is raised while an input is read into a DataError; `packing` is what its bytes should be, "" for plain ones."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{uri}: no such file; check the name") from error
    except (EOFError, zlib.error, lzma.LZMAError, pa.ArrowInvalid) as error:
        raise _broken(uri, packing, error) from error
    except OSError as error:
        if packing and error.errno is None:  # what gzip, bz2 and Arrow raise for bytes that are not theirs
            raise _broken(uri, packing, error) from error
        raise DataError(f"{uri}: cannot be read ({error.strerror or error}); check the file and its permissions") from error


def _broken(uri: str, packing: str, error: BaseException) -> DataError:
    reason = (str(error).splitlines() or ["it ends too early"])[0]
    return DataError(f"{uri}: truncated or not {packing or 'readable'} ({reason}); copy or download it again")


def head(uri: str, compression: str) -> tuple[int, bytes]:
    """The first HEAD bytes of a compressed file: how many of them were unpacked, and the text they hold, HEAD_TEXT bytes at most.

    There is none where they are not of that compression.
    """
    fs, path = storage.filesystem(uri)
    with clear_errors(uri, compression), fs.open(path, "rb") as handle:
        packed = io.BytesIO(handle.read(HEAD))
    parts: list[bytes] = []
    seen = 0
    with contextlib.suppress(EOFError, zlib.error, lzma.LZMAError, OSError, pa.ArrowInvalid):  # of what is cut off
        unpacked = COMPRESSIONS[compression](packed)
        while len(parts) < HEAD_TEXT // HEAD_STEP and (part := unpacked.read(HEAD_STEP)):
            parts.append(part)
            seen = packed.tell()
    return seen, b"".join(parts)


def line_blocks(handle: BinaryIO, limit: int) -> Iterator[bytes | None]:
    r"""Cut a stream at "\n" into blocks of whole lines; None stands for one line of more than `limit` bytes, which is not held.

    `limit` is at least BLOCK, so only the first line of a block can be too long, and memory stays below `limit` and two blocks.
    A byte order mark at the start is dropped. The last line may lack its "\n".
    """
    rest, skipping = b"", False
    chunk = handle.read(BLOCK).removeprefix(BOM)
    while chunk:
        if skipping:
            _, newline, chunk = chunk.partition(b"\n")
            skipping = not newline
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        whole, rest = data[:end], data[end:]
        first = whole.find(b"\n")
        if first > limit:
            yield None
            whole = whole[first + 1 :]
        if whole:
            yield whole
        if len(rest) > limit:
            yield None
            rest, skipping = b"", True
        chunk = handle.read(BLOCK)
    if rest:
        yield rest
