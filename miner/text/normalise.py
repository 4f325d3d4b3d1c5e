"""Clean lines, and hash cleaned sentences to ids.

Cleaning works on blocks of lines: a joined block takes a third of the time of its lines one by one.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from miner.arrays import Ids
from miner.io.tables import hash_ids

# White space and control characters, each replaced by a space; except LF, which separates the lines of a block.
_SPACE = r"\x00-\x09\x0b-\x1f\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# Invisible marks without a meaning of their own: soft hyphen, zero-width space, word joiner, byte order mark. Zero-width joiners are
# kept, because Persian and Indic spelling needs them, and so are marks of writing direction.
INVISIBLE = "\u00ad\u200b\u2060\ufeff"
MAX_MARKS = 30  # combining marks in a row, as in the stream-safe format of Unicode (UAX 15)
MAX_UNCHECKED_CHARS = 1000  # sorting the marks of a shorter text takes a millisecond
_REPLACED = re.compile(f"[{_SPACE}{INVISIBLE}]")


def clean(line: str) -> str:
    """Clean one line. Idempotent."""
    return clean_all([line])[0]


def clean_all(lines: Sequence[str]) -> list[str]:
    """Clean n lines.

    Replaces control characters by spaces, removes invisible marks, applies Unicode NFC, replaces each run of white space by one
    space, and strips the ends.
    """
    if not lines:
        return []
    text = "\n".join(lines)
    if text.count("\n") != len(lines) - 1:  # values of JSON and Parquet can contain LF
        text = "\n".join([line.replace("\n", " ") for line in lines])
    # Before NFC, which can compose characters that an invisible mark separated.
    text = _REPLACED.sub(lambda match: "" if match[0] in INVISIBLE else " ", text)
    while "  " in text:
        text = text.replace("  ", " ")
    cleaned = text.replace(" \n", "\n").replace("\n ", "\n").strip(" ").split("\n")
    # Line by line, because one character that might compose makes `normalize` rewrite the whole string.
    return cleaned if text.isascii() else [line if line.isascii() else compose(line) for line in cleaned]


def compose(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """Apply a normalisation form, except to a long text with very many combining marks in a row.

    No script has them, and sorting them takes quadratic time: hours for a line of a megabyte.
    """
    return text if len(text) > MAX_UNCHECKED_CHARS and _has_flood(text) else unicodedata.normalize(form, text)


def _has_flood(text: str) -> bool:
    is_mark = bytes(map(bool, map(unicodedata.combining, text)))
    return b"\1" * (MAX_MARKS + 1) in is_mark


def sentence_ids(texts: Sequence[str]) -> Ids:
    """Return the (n,) ids of n cleaned texts."""
    return hash_ids([text.encode() for text in texts])


def sentence_id(text: str) -> int:
    """Return the id of one cleaned text."""
    return int(sentence_ids([text])[0])
