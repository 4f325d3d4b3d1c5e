"""The share of a text that repeats itself: `buy now buy now buy now`, a menu copied twice, degenerate model output."""

import numpy as np
import numpy.typing as npt

from miner.arrays import Floats, Hashes, mark_run_starts
from miner.filters.characters import CharacterTable, share

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
