"""How alike the two sides of a pair are as strings: a line that was not translated, or hardly."""

from collections.abc import Sequence

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import Indel

from miner.filters import Floats


def likeness(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """n pairs -> (n,) from 0 to 1, which is for texts that differ in case alone: twice their longest common subsequence by their
    length together."""
    folded = [[text.casefold() for text in side] for side in (sources, targets)]
    found: Floats = process.cpdist(*folded, scorer=Indel.normalized_similarity, dtype=np.float64)
    return found
