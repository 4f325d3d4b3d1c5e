"""Scores of texts by counts of their characters: lengths, and the shares of letters, of a script, of junk and of repeats.

The texts become one array of code points; a table over all 1.1 million code points says which of them count, and a lookup takes about a
nanosecond.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import regex

from miner.arrays import Bools, Floats, Hashes, Ints, bounds_of, mark_run_starts, sum_rows

NUM_CODE_POINTS = 0x110000


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


class _CodePointTable:
    """Which characters match a pattern of one character; tested when a character first occurs."""

    def __init__(self, pattern: str) -> None:
        self.matches = regex.compile(pattern).match
        self.states: npt.NDArray[np.uint8] = np.zeros(NUM_CODE_POINTS, np.uint8)  # 0: not tested, 1: no match, 2: match

    def look_up(self, codes: npt.NDArray[np.uint32]) -> Bools:
        """Return (m,) whether each of (m,) code points matches."""
        states = self.states[codes]
        if not states.all():
            is_new = np.zeros(NUM_CODE_POINTS, bool)
            is_new[codes[states == 0]] = True
            new = np.flatnonzero(is_new)
            self.states[new] = [2 if self.matches(chr(code)) else 1 for code in new.tolist()]
            states = self.states[codes]
        matches: Bools = states == 2
        return matches


@lru_cache(maxsize=16)
def _code_point_table(pattern: str) -> _CodePointTable:
    return _CodePointTable(pattern)


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
        return self.sum(_code_point_table(pattern).look_up(self.codes))

    def count_runs(self, pattern: str) -> Ints:
        """Return (n,) the number of runs in each text of characters that match a single-character pattern."""
        inside = _code_point_table(pattern).look_up(self.codes)
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


# Letters of an alphabet that one character of these scripts corresponds to, measured on sentences and their English translations.
LETTERS_PER_CHARACTER = {r"\p{scx=Hani}": 3, r"[\p{scx=Hira}\p{scx=Kana}]": 2, r"\p{scx=Hang}": 2}
SMOOTHING_LETTERS = 10  # added to both sides, so that a few letters matter little in a short sentence


def num_characters(texts: CharacterTable) -> Floats:
    """Return (n,) the number of code points of each text."""
    return texts.lengths.astype(np.float64)


def num_words(texts: CharacterTable) -> Floats:
    """Return (n,) the number of words, separated by spaces, of each cleaned text; a text without spaces is one word."""
    return (texts.count(" ") + 1).astype(np.float64)


def letter_equivalents(texts: CharacterTable) -> Ints:
    """Return (n,) the length of each text in letters of an alphabet."""
    extra = (texts.count(pattern) * (letters - 1) for pattern, letters in LETTERS_PER_CHARACTER.items())
    return texts.lengths + sum(extra, np.int64(0))


def length_ratio(sources: CharacterTable, targets: CharacterTable) -> Floats:
    """Return (n,) the length of the longer side divided by that of the shorter, at least 1."""
    source_lengths = letter_equivalents(sources) + SMOOTHING_LETTERS
    target_lengths = letter_equivalents(targets) + SMOOTHING_LETTERS
    return np.maximum(source_lengths, target_lengths) / np.minimum(source_lengths, target_lengths)


ENDINGS = "com|org|net|info|html?|php|pdf|jpe?g|png"
# Each pattern starts only after a character that cannot be part of it; otherwise matching takes quadratic time on long runs.
LINK = r"(?:https?://|www\.)\S+"
MAIL = r"(?<![^\s@])[^\s@]+@[^\s@]+\.\w+"
HOST = rf"(?<![\w-])(?<![\w-]\.)[\w-]+(?:\.[\w-]+)*\.(?:{ENDINGS})\b(?:/\S*)?"
ADDRESS = re.compile(f"{LINK}|{MAIL}|{HOST}", re.IGNORECASE)
WORD = r"[\p{L}\p{M}\p{N}]"
ADDRESS_HINT = re.compile(r"[.@/]\w")  # a cheap test that rules out most sentences
SMOOTHING_WORDS = 2  # added to the word count, so that two commas do not make a list of a short sentence
SEPARATORS = r"[,;|/•·►▶→»›、،]"


def junk_share(texts: Sequence[str]) -> Floats:
    """Return (n,) the junk scores of n cleaned texts, at most 1.

    The score is the larger of two shares: characters that are in an address or are not letters, among those that are not spaces;
    and separators per word.
    """
    prose = CharacterTable([ADDRESS.sub(" ", text) if ADDRESS_HINT.search(text) else text for text in texts])
    visible = CharacterTable(texts).visible
    # Scripts without spaces: two ideographs count as one word.
    words = prose.count_runs(WORD) + SMOOTHING_WORDS + (letter_equivalents(prose) - prose.lengths) // 4
    return np.fmax(share(visible - prose.count(LETTERS), visible), np.minimum(share(prose.count(SEPARATORS), words), 1))


DOUBLINGS = 3
NGRAM_CHARACTERS = 2**DOUBLINGS  # spaces included
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, as in Fibonacci hashing


def repeated_share(texts: CharacterTable) -> Floats:
    """Return (n,) the share of character n-grams that occur earlier in the same text; NaN for a text shorter than one n-gram."""
    num_ngrams = np.maximum(texts.lengths - NGRAM_CHARACTERS + 1, 0)
    if len(texts.codes) < NGRAM_CHARACTERS:
        return np.full(len(texts), np.nan)
    text_bits = np.uint64(max(1, (len(texts) - 1).bit_length()))
    hash_bits = np.uint64(64) - text_bits
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), texts.lengths)
    first_owners = owners[: 1 - NGRAM_CHARACTERS]
    within_text = owners[NGRAM_CHARACTERS - 1 :] == first_owners
    # Text index in the upper bits, n-gram hash in the lower: sorting groups by text and puts equal n-grams side by side.
    keys = np.sort(((first_owners << hash_bits) | (_hash_ngrams(texts.codes) >> text_bits))[within_text])
    num_distinct = np.bincount((keys[mark_run_starts(keys)] >> hash_bits).astype(np.int64), minlength=len(texts))
    return share(num_ngrams - num_distinct, num_ngrams)


def _hash_ngrams(codes: npt.NDArray[np.uint32]) -> Hashes:
    """Return (m - NGRAM_CHARACTERS + 1,) 64-bit hashes of the n-grams that start at each of (m,) code points."""
    hashes = codes.astype(np.uint64) + np.uint64(1)
    for doubling in range(DOUBLINGS):
        half = 2**doubling
        hashes = hashes[:-half] * HASH_MULTIPLIER + hashes[half:]
        hashes = (hashes ^ (hashes >> np.uint64(29))) * HASH_MULTIPLIER
    return hashes
