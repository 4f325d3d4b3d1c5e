"""Text in other encodings than UTF-8: transcode it while it is read, and name the encoding that a text probably has."""

import codecs
import contextlib
import io
from typing import Any, BinaryIO, cast

from miner.text import streams

UTF8 = "utf-8"
GUESSED_BYTES = 1 << 16  # of a text, by which its encoding is guessed
MAX_TIE = 0.05  # difference of the scores of encodings, each from 0 to 1, that are equally likely
CENTRAL_EUROPEAN = ("bos", "ces", "hrv", "hun", "pol", "ron", "slk", "slv", "sqi")


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


def guess_encoding(uri: str, lang: str = "und") -> str | None:
    """Return the encoding that the start of a text probably has, as `--encoding` takes it; None where it is UTF-8 or not clear.

    Of equally likely ones it is that of the Latin alphabets of the region of the language, a canonical code.
    """
    with contextlib.suppress(ImportError):  # installed with Beam, whose dependency needs it
        from charset_normalizer import from_bytes

        with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
            matches = from_bytes(handle.read(GUESSED_BYTES))
        best = matches.best()
        if best is not None and best.encoding not in ("utf_8", "ascii"):
            usual = "cp1250" if lang.partition("_")[0] in CENTRAL_EUROPEAN else "cp1252"
            is_usual = any(
                usual in match.could_be_from_charset and match.chaos - best.chaos < MAX_TIE and best.coherence - match.coherence < MAX_TIE
                for match in matches
            )
            return usual if is_usual else str(best.encoding)
    return None
