"""How long a text is, and how much longer one side of a pair is than the other."""

import numpy as np

from miner.filters import Floats
from miner.filters.characters import CharacterTable, Counts

# How many letters of an alphabet say as much as one character of these: measured on sentences and their English translations.
WEIGHTS = {r"\p{scx=Hani}": 3, r"[\p{scx=Hira}\p{scx=Kana}]": 2, r"\p{scx=Hang}": 2}
SLACK = 10  # letters added to both sides, so that a few letters more or less mean little in a short sentence


def characters(texts: CharacterTable) -> Floats:
    """n texts -> (n,)"""
    return texts.lengths.astype(np.float64)


def words(texts: CharacterTable) -> Floats:
    """n cleaned texts -> (n,) stretches between spaces; a text without any is one word."""
    return (texts.count(" ") + 1).astype(np.float64)


def weight(texts: CharacterTable) -> Counts:
    """n texts -> (n,) their lengths in letters of an alphabet."""
    return texts.lengths + sum((texts.count(pattern) * (letters - 1) for pattern, letters in WEIGHTS.items()), np.int64(0))


def length_ratio(sources: CharacterTable, targets: CharacterTable) -> Floats:
    """n pairs -> (n,) length of the longer side by that of the shorter, at least 1."""
    one, other = weight(sources) + SLACK, weight(targets) + SLACK
    return np.maximum(one, other) / np.minimum(one, other)
