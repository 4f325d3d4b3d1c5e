"""How much of a text says again what it has said: `buy now buy now buy now`, a menu copied twice, the output of a broken model."""

import numpy as np

from miner.filters import Floats
from miner.filters.characters import Texts, share

LENGTH = 8  # characters of an n-gram; spaces count
PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits without a pattern


def repeated_share(texts: Texts) -> Floats:
    """n texts -> (n,) n-grams of characters that stood in the text before, among all; NaN for a text shorter than one."""
    total = np.maximum(texts.lengths - LENGTH + 1, 0)
    if len(texts.codes) < LENGTH:
        return np.full(len(texts), np.nan)
    hashes = _hashes(texts.codes)
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), texts.lengths)
    inside = owners[LENGTH - 1 :] == owners[: len(hashes)]
    # An n-gram of another text is another n-gram.
    mine = (hashes ^ (owners[: len(hashes)] * PRIME))[inside]
    owner = owners[: len(hashes)][inside].astype(np.int64)
    first = np.unique(mine, return_index=True)[1]
    different = np.bincount(owner[first], minlength=len(texts))
    return share(total - different, total)


def _hashes(codes: np.ndarray) -> np.ndarray:
    """(m,) code points -> (m - LENGTH + 1,) 64-bit hashes of the n-grams that start at each."""
    count = len(codes) - LENGTH + 1
    hashes = np.zeros(count, dtype=np.uint64)
    for place in range(LENGTH):
        hashes = (hashes + codes[place : place + count].astype(np.uint64) + np.uint64(1)) * PRIME
        hashes ^= hashes >> np.uint64(29)
    return hashes
