"""Lines of UTF-8 text, numbered; UTF-16 is an error."""

import io
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from miner.errors import DataError
from miner.text import streams
from miner.text.values import NOT_UTF8, Fault, NumberedValues, Value

SNIFFED_BYTES, MIN_SNIFFED_BYTES = 1000, 10
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")  # neither can occur in UTF-8
HIGH_BYTES = 9  # the high bytes of alphabets in UTF-16 are below, and no printed character is
MIN_CONTROLS, MAX_CONTROLS = 0.4, 0.2  # shares of such bytes among the high bytes, and among the low bytes, of UTF-16


def refuse_utf16(handle: BinaryIO, name: str, block_bytes: int = streams.BLOCK_BYTES) -> BinaryIO:
    """Return a file with the same bytes. Raises DataError if its first block begins with UTF-16."""
    head = handle.read(min(SNIFFED_BYTES, block_bytes))
    if _is_utf16(head):
        raise DataError(f"{name}: UTF-16 text; convert it, as in `iconv -f UTF-16LE -t UTF-8`")
    return cast(BinaryIO, io.BufferedReader(_Rejoined(head, handle), streams.BLOCK_BYTES))


def _is_utf16(head: bytes) -> bool:
    """Whether it has a byte order mark and NUL, or every other byte is a low control character, as in UTF-16 of an alphabet."""
    shares = [sum(byte < HIGH_BYTES for byte in half) / max(1, len(half)) for half in (head[::2], head[1::2])]
    has_controls = len(head) >= MIN_SNIFFED_BYTES and max(shares) > MIN_CONTROLS and min(shares) < MAX_CONTROLS
    return has_controls or (head.startswith(UTF16_BOMS) and b"\0" in head)


class _Rejoined(io.RawIOBase):
    """A file whose head has been read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self.head, self.rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.head[: len(buffer)] or self.rest.read(len(buffer))
        self.head = self.head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def decode_lines(handle: BinaryIO, max_line_bytes: int, block_bytes: int = streams.BLOCK_BYTES) -> Iterator[NumberedValues]:
    r"""Yield the lines of a text in blocks, cut at "\n"; a line that is not UTF-8, or too long, is a Fault. See `read_line_blocks`."""
    too_long = Fault("too_long", f"longer than {max_line_bytes} bytes; cut the line")
    first = 1
    for block in streams.read_line_blocks(handle, max_line_bytes, block_bytes):
        values: list[Value] = [too_long] if block is None else _decode_lines(block)
        yield first, values
        first += len(values)


def _decode_lines(block: bytes) -> list[Value]:
    block = block.removesuffix(b"\n")
    try:
        return [*block.decode().split("\n")]
    except UnicodeDecodeError:
        return [decode(line) for line in block.split(b"\n")]


def decode(data: bytes | None) -> Value:
    """Return the text of bytes, "" for None."""
    try:
        return data.decode() if data is not None else ""
    except UnicodeDecodeError:
        return NOT_UTF8
