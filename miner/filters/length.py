"""The length of a text, and the length ratio of a pair."""

import numpy as np

from miner.arrays import Floats, Ints
from miner.filters.characters import CharacterTable

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
