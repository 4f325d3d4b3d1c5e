"""Cleaning: what counts as one and the same sentence, and the id that follows from it.

Everything works on blocks of lines, because cleaning a joined block costs a third of cleaning its lines one by one.
"""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

Ids = npt.NDArray[np.int64]

# White space and control characters, which become one space, but for the line end, which parts the lines of a block.
_SPACE = r"\x00-\x09\x0b-\x1f\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# Marks without width or meaning of their own: soft hyphen, zero-width space, word joiner, byte order mark. The zero-width
# joiners stay (Persian and the Indic scripts spell with them), and so do the marks of writing direction.
_INVISIBLE = "\u00ad\u200b\u2060\ufeff"
_ODD = re.compile(f"[{_SPACE}{_INVISIBLE}]")


def clean(line: str) -> str:
    """One line as it is stored and compared; cleaning it again changes nothing."""
    return clean_all([line])[0]


def clean_all(lines: Sequence[str]) -> list[str]:
    """n lines -> n cleaned lines.

    Control characters become spaces, invisible marks go, the text is put in Unicode NFC, and each run of white space of any
    kind becomes one space, with none left at the ends.
    """
    if not lines:
        return []
    text = "\n".join(lines)
    if text.count("\n") != len(lines) - 1:  # values of JSON and Parquet may hold line ends of their own
        text = "\n".join([line.replace("\n", " ") for line in lines])
    # Before NFC: what an invisible mark kept apart may compose.
    text = _ODD.sub(lambda odd: "" if odd[0] in _INVISIBLE else " ", text)
    while "  " in text:
        text = text.replace("  ", " ")
    cleaned = text.replace(" \n", "\n").replace("\n ", "\n").strip(" ").split("\n")
    # Line by line: one character that might compose with its neighbour makes `normalize` rewrite all it is given.
    return cleaned if text.isascii() else [line if line.isascii() else unicodedata.normalize("NFC", line) for line in cleaned]


def sentence_ids(texts: Sequence[str]) -> Ids:
    """n cleaned texts -> their (n,) ids."""
    return ids_of([text.encode() for text in texts])


def ids_of(encoded: Sequence[bytes]) -> Ids:
    """n cleaned texts in UTF-8 -> (n,) int64: the xxh3-64 of the bytes, its bits read as a signed number."""
    return np.fromiter(map(xxhash.xxh3_64_intdigest, encoded), dtype=np.uint64, count=len(encoded)).view(np.int64)


def sentence_id(text: str) -> int:
    """The id of one cleaned text."""
    return int(sentence_ids([text])[0])
