"""Counting characters of many texts at once: the texts become one array of code points, and a table says which of them count.

A table of all 1.1 million code points costs a few milliseconds to make, and looking a character up in it a nanosecond.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import regex

CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)

Counts = npt.NDArray[np.int64]
Table = npt.NDArray[np.bool_]

# ISO 15924 codes that stand for several scripts of Unicode; all others are themselves one.
SCRIPTS = {
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Jpan": ("Hani", "Hira", "Kana"),
    "Hrkt": ("Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
}
LETTERS = r"[\p{L}\p{M}]"  # marks too: the vowels of the Indic scripts are marks


@lru_cache(maxsize=16)
def table(pattern: str) -> Table:
    """(CODE_POINTS,) whether a character matches the regular expression of one character. regex.error where it is none."""
    everything = "".join("\0" if code in SURROGATES else chr(code) for code in range(CODE_POINTS))
    matches = np.zeros(CODE_POINTS, dtype=bool)
    matches[[found.start() for found in regex.finditer(pattern, everything)]] = True
    matches[SURROGATES.start : SURROGATES.stop] = False
    return matches


def letters_of(script: str) -> str | None:
    """The pattern of the letters of a script by its ISO 15924 code; None for one that Unicode does not know."""
    members = "".join(rf"\p{{scx={code}}}" for code in SCRIPTS.get(script, (script,)))
    pattern = rf"(?V1)[[{members}]&&{LETTERS}]"
    try:
        regex.compile(pattern)
    except regex.error:
        return None
    return pattern


class CharacterTable:
    """n texts as one array of code points."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype=np.uint32)
        self.lengths: Counts = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        self.ends = np.cumsum(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def count(self, pattern: str) -> Counts:
        """(n,) how many characters of each text match the pattern of one character."""
        return self.sum(table(pattern)[self.codes])

    def runs(self, pattern: str) -> Counts:
        """(n,) how many stretches of each text match the pattern of one character."""
        inside = table(pattern)[self.codes]
        before = np.append(False, inside[:-1])
        before[(self.ends - self.lengths)[self.lengths > 0]] = False  # a stretch ends where its text does
        return self.sum(inside & ~before[: len(inside)])

    @property
    def visible(self) -> Counts:
        """(n,) how many characters of each cleaned text are not a space."""
        return self.lengths - self.count(" ")

    def sum(self, values: npt.NDArray[np.bool_] | Counts) -> Counts:
        """A value for each code point -> (n,) their sums by text."""
        running = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
        sums: Counts = running[self.ends] - running[self.ends - self.lengths]
        return sums


def share(part: Counts, whole: Counts) -> npt.NDArray[np.float64]:
    """(n,) part / whole; NaN where the whole is nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 0, part / whole, np.nan)
