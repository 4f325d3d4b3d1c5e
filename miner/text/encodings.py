"""Text in other encodings than UTF-8: transcode it while it is read, and name the encoding that a text probably has."""

import codecs
import contextlib
import io
import re
from typing import Any, BinaryIO, cast

from miner.text import streams

UTF8 = "utf-8"
GUESSED_BYTES = 1 << 16  # of a text, by which its encoding is guessed
C1_CONTROLS = re.compile(rb"[\x80-\x9f]")  # of ISO 8859; š, ž, ś and quotes of cp1250
MAX_TIE = 0.02  # difference of the scores of encodings, each from 0 to 1, that are equally likely
USUAL_ENCODINGS = {  # of text in some languages; cp1252 of the others
    ("cp1250", "iso8859_2"): ("bos", "ces", "csb", "dsb", "hrv", "hsb", "hun", "pol", "ron", "slk", "slv", "sqi", "srp_Latn"),
    ("cp1254",): ("aze", "crh_Latn", "tur"),
    ("cp1257", "iso8859_13"): ("est", "lav", "lit", "ltg"),
    ("cp1258",): ("vie",),
    ("big5", "gb18030"): ("zho", "yue", "wuu"),
    ("cp932", "euc_jp"): ("jpn",),
    ("cp949",): ("kor",),
}
ISO_ENCODINGS = {"cp1250": "iso8859_2", "cp1257": "iso8859_13"}  # with letters or quotes where those of Windows have others
CANDIDATES = (  # what text is stored in today, as browsers know it; not terminals of the eighties
    *("ascii", "utf_8", "utf_16", "utf_16_le", "utf_16_be", "utf_32", *(f"cp{number}" for number in range(1250, 1259))),
    *("cp866", "cp874", "iso8859_2", "iso8859_5", "iso8859_6", "iso8859_7", "iso8859_8", "iso8859_13", "koi8_r", "koi8_u"),
    *("big5", "cp932", "cp949", "euc_jp", "euc_kr", "gb18030", "gbk", "iso2022_jp", "shift_jis"),
)


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

    Of equally likely ones it is that of the Latin alphabet of the language, a canonical code.
    """
    with contextlib.suppress(ImportError):  # installed with Beam, whose dependency needs it
        from charset_normalizer import from_bytes

        with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
            text = handle.read(GUESSED_BYTES)
        matches = from_bytes(text, cp_isolation=list(CANDIDATES))
        best = matches.best()
        if best is None or best.encoding in ("utf_8", "ascii"):
            return None
        usual = next((names for names, langs in USUAL_ENCODINGS.items() if {lang, lang.partition("_")[0]} & {*langs}), ("cp1252",))
        for match in matches:
            is_tie = match.chaos - best.chaos < MAX_TIE and best.coherence - match.coherence < MAX_TIE
            names = [name for name in usual if name in match.could_be_from_charset]
            if names and (is_tie or lang != "und"):
                return _iso_or_windows(text, names[0])
        return _iso_or_windows(text, str(best.encoding))
    return None


def _iso_or_windows(text: bytes, encoding: str) -> str:
    """Return the encoding of ISO in place of that of Windows for a text that these read differently, without the controls of ISO 8859."""
    iso = ISO_ENCODINGS.get(encoding)
    is_iso = iso and not C1_CONTROLS.search(text) and text.decode(encoding, "replace") != text.decode(iso, "replace")
    return iso if iso and is_iso else encoding
