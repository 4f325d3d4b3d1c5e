"""Text in other encodings than UTF-8: transcode it while it is read, and name the encoding that a text probably has."""

import codecs
import contextlib
import io
from typing import Any, BinaryIO, cast

from miner.text import streams

UTF8 = "utf-8"
GUESSED_BYTES = 1 << 16  # of a text, by which its encoding is guessed


def transcode(handle: BinaryIO, encoding: str) -> BinaryIO:
    """Return a file with the same text in UTF-8. Bytes that the encoding does not have stay invalid, in their line."""
    if codecs.lookup(encoding).name == UTF8:
        return handle
    return cast(BinaryIO, io.BufferedReader(_Transcoded(handle, encoding), streams.BLOCK_BYTES))


class _Transcoded(io.RawIOBase):
    """A file that is decoded and encoded in blocks."""

    def __init__(self, handle: BinaryIO, encoding: str) -> None:
        self.handle = handle
        self.decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self.pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        is_end = False
        while not self.pending and not is_end:
            block = self.handle.read(streams.BLOCK_BYTES)
            is_end = not block
            self.pending = self.decoder.decode(block, is_end).encode(UTF8, "surrogateescape")
        size = min(len(buffer), len(self.pending))
        buffer[:size], self.pending = self.pending[:size], self.pending[size:]
        return size


def guess_encoding(uri: str) -> str | None:
    """Return the encoding that the start of a text probably has, as `--encoding` takes it; None where it is UTF-8 or not clear."""
    with contextlib.suppress(ImportError):  # installed with Beam, whose dependency needs it
        from charset_normalizer import from_bytes

        with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
            best = from_bytes(handle.read(GUESSED_BYTES)).best()
        if best is not None and best.encoding not in ("utf_8", "ascii"):
            return str(best.encoding)
    return None
