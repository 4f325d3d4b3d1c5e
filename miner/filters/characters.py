"""Count characters of many texts at once, and the shares of letters and of one script.

The texts become one array of code points; a boolean table over all 1.1 million code points says which of them count. A table takes
a few milliseconds to build, a lookup about a nanosecond.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import regex

from miner.arrays import Bools, Floats, Ints, bounds_of, sum_rows

NUM_CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)


# ISO 15924 codes that cover several Unicode scripts; every other code is a Unicode script itself.
SCRIPTS = {
    "Hans": ("Hani",),
    "Hant": ("Hani",),
    "Jpan": ("Hani", "Hira", "Kana"),
    "Hrkt": ("Hira", "Kana"),
    "Kore": ("Hang", "Hani"),
}
LETTERS = r"[\p{L}\p{M}]"  # includes marks, because the vowels of Indic scripts are marks
SHARED_LETTERS = r"(?V1)[[\p{scx=Zyyy}\p{scx=Zinh}]&&[\p{L}\p{M}]]"  # letters and marks that belong to no single script


@lru_cache(maxsize=16)
def code_point_table(pattern: str) -> Bools:
    """Return (NUM_CODE_POINTS,) whether each character matches the pattern. regex.error for an invalid pattern."""
    table = np.zeros(NUM_CODE_POINTS, dtype=bool)
    flags, body = ("(?V1)", pattern[5:]) if pattern.startswith("(?V1)") else ("", pattern)
    for match in regex.finditer(f"{flags}(?:{body})+", _all_characters()):  # runs: a tenth of the matches
        table[match.start() : match.end()] = True
    table[SURROGATES.start : SURROGATES.stop] = False
    return table


@lru_cache(maxsize=1)
def _all_characters() -> str:
    codes = np.arange(NUM_CODE_POINTS, dtype=np.uint32)
    codes[SURROGATES.start : SURROGATES.stop] = 0
    return codes.tobytes().decode("utf-32-le")


def script_letters(script: str) -> str | None:
    """Return the pattern of the letters of a script, by its ISO 15924 code; None for a script that Unicode does not define."""
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
        self.lengths: Ints = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        self.bounds = bounds_of(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def count(self, pattern: str) -> Ints:
        """Return (n,) the number of characters of each text that match a single-character pattern."""
        return self.sum(code_point_table(pattern)[self.codes])

    def count_runs(self, pattern: str) -> Ints:
        """Return (n,) the number of runs in each text of characters that match a single-character pattern."""
        inside = code_point_table(pattern)[self.codes]
        before = np.append(False, inside[:-1])
        before[self.bounds[:-1][self.lengths > 0]] = False  # a run does not continue across texts
        return self.sum(inside & ~before[: len(inside)])

    @property
    def visible(self) -> Ints:
        """(n,) the number of characters of each cleaned text that are not a space."""
        return self.lengths - self.count(" ")

    def sum(self, values: Bools | Ints) -> Ints:
        """Sum one value per code point by text -> (n,)."""
        return sum_rows(values, self.bounds)


def share(part: Ints, whole: Ints) -> Floats:
    """Return (n,) part / whole, NaN where the whole is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole > 0, part / whole, np.nan)


def letter_share(texts: CharacterTable) -> Floats:
    """Return (n,) the share of letters and marks among the characters of each cleaned text that are not a space, or NaN."""
    return share(texts.count(LETTERS), texts.visible)


def script_share(texts: CharacterTable, script: str | None) -> Floats:
    """Return (n,) the share of letters of a script (ISO 15924) among all letters; NaN without letters or for an unknown script."""
    pattern = None if script is None else script_letters(script)
    if pattern is None:
        return np.full(len(texts), np.nan)
    return share(texts.count(pattern), texts.count(LETTERS) - texts.count(SHARED_LETTERS))
