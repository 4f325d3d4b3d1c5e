"""What stands in evaluation files is not learnt from: the same sentence but for case and signs, or one with nearly the same letters.

Near matches share enough of their sequences of LENGTH letters. If two sets share t of all that either has, each has ceil(t n) of its own
n in common with the other; so, in any order that holds for all, the first n - ceil(t n) + 1 of both have one in common. With the rarest
first, few sentences meet there, and those are compared in full (prefix filtering; Chaudhuri, Ganti & Kaushik, "A Primitive Operator
for Similarity Joins in Data Cleaning", ICDE 2006).
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from miner.filters.near import skeleton

Hashes = npt.NDArray[np.uint64]
Kinds = npt.NDArray[np.int8]

LENGTH = 5  # letters of a sequence
NONE, EXACT, NEAR = 0, 1, 2
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that the hash of a sequence depends on all its letters


class Forbidden:
    """The sentences of evaluation files; tells which others match them."""

    def __init__(self, texts: Iterable[str], near: float) -> None:
        """`near` is the least share of letter sequences, of all that either has, that a near match has in common (Jaccard)."""
        self.near = near
        self.exact = {skeleton(text) for text in texts}
        self.grams = [grams(text) for text in sorted(self.exact)]
        self._known, self._counts = np.unique(np.concatenate([np.zeros(0, np.uint64), *self.grams]), return_counts=True)
        prefixes = [self._prefix(own) for own in self.grams]
        hashes = np.concatenate([np.zeros(0, np.uint64), *prefixes])
        owners = np.repeat(np.arange(len(prefixes)), [len(own) for own in prefixes])
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._owners = hashes[order], owners[order]
        self._told: dict[str, int] = {}  # skeleton -> its kind

    def __len__(self) -> int:
        return len(self.exact)

    def _prefix(self, own: Hashes) -> Hashes:
        """The first of the sequences of a sentence: the rarest of the evaluation files, and of those alike the lowest."""
        if not len(own) or not len(self._known):
            return own
        places = np.searchsorted(self._known, own).clip(max=len(self._known) - 1)
        counts = np.where(self._known[places] == own, self._counts[places], 0)
        return own[np.argsort(counts, kind="stable")[: len(own) - math.ceil(self.near * len(own)) + 1]]

    def matches(self, texts: Sequence[str]) -> Kinds:
        """n texts -> (n,) NONE, EXACT or NEAR. What was asked before is remembered: a sentence may be mined with many languages."""
        return np.array([self._kind(skeleton(text)) for text in texts], dtype=np.int8)

    def _kind(self, text: str) -> int:
        if text not in self._told:
            near = NEAR if self._is_near(grams(text)) else NONE
            self._told[text] = EXACT if text in self.exact else near
        return self._told[text]

    def _is_near(self, own: Hashes) -> bool:
        prefix = self._prefix(own)
        first, last = np.searchsorted(self._hashes, prefix), np.searchsorted(self._hashes, prefix, side="right")
        owners = {int(owner) for at in np.flatnonzero(last > first) for owner in self._owners[first[at] : last[at]]}
        return any(self._alike(own, self.grams[owner]) for owner in owners)

    def _alike(self, one: Hashes, other: Hashes) -> bool:
        """Whether ascending sets have enough in common."""
        small, large = sorted((len(one), len(other)))
        if small < self.near * large:
            return False
        common = len(np.intersect1d(one, other, assume_unique=True))
        return common >= self.near * (small + large - common)


def grams(text: str) -> Hashes:
    """A skeleton -> the hashes of its different sequences of LENGTH letters, ascending; a shorter one is a sequence itself."""
    letters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    width = min(LENGTH, len(letters))
    if not width:
        return np.zeros(0, np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(letters, width)
    hashes = np.zeros(len(windows), dtype=np.uint64)
    for place in range(width):
        hashes = (hashes ^ windows[:, place]) * FACTOR
        hashes ^= hashes >> np.uint64(29)
    return np.unique(hashes)
