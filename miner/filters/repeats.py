"""How much of a text says again what it has said: `buy now buy now buy now`, a menu copied twice, the output of a broken model."""

import numpy as np
import numpy.typing as npt

from miner.filters import Floats
from miner.filters.characters import CharacterTable, share

DOUBLINGS = 3
LENGTH = 2**DOUBLINGS  # characters of an n-gram; spaces count
PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits without a pattern

Hashes = npt.NDArray[np.uint64]


def repeated_share(texts: CharacterTable) -> Floats:
    """n texts -> (n,) n-grams of characters that stood in the text before, among all; NaN for a text shorter than one."""
    total = np.maximum(texts.lengths - LENGTH + 1, 0)
    if len(texts.codes) < LENGTH:
        return np.full(len(texts), np.nan)
    bits = np.uint64(64 - max(1, (len(texts) - 1).bit_length()))
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), texts.lengths)
    inside = owners[LENGTH - 1 :] == owners[: 1 - LENGTH]
    # The text in the upper bits, the n-gram in the lower: sorted, the n-grams of a text lie together, and equal ones side by side.
    keys = np.sort(((owners[: 1 - LENGTH] << bits) | (_hashes(texts.codes) >> (np.uint64(64) - bits)))[inside])
    different = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    return share(total - np.bincount((keys[different] >> bits).astype(np.int64), minlength=len(texts)), total)


def _hashes(codes: npt.NDArray[np.uint32]) -> Hashes:
    """(m,) code points -> (m - LENGTH + 1,) 64-bit hashes of the n-grams that start at each."""
    hashes = codes.astype(np.uint64) + np.uint64(1)
    for doubling in range(DOUBLINGS):
        half = 2**doubling
        hashes = hashes[:-half] * PRIME + hashes[half:]
        hashes = (hashes ^ (hashes >> np.uint64(29))) * PRIME
    return hashes
