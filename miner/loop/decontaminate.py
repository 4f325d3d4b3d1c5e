"""What stands in evaluation files is not learnt from: the same sentence but for case and signs, or one with nearly the same letters.

Near matches share enough of their sequences of LENGTH letters. A sentence that has a share t of those of another has at least one of
any |e| - ceil(t |e|) + 1 of them: so the rarest so many are all that is looked up (prefix filtering; Chaudhuri, Ganti & Kaushik,
"A Primitive Operator for Similarity Joins in Data Cleaning", ICDE 2006), and the few that hit are compared in full.
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
        self._hashes, self._owners = self._prefixes()

    def __len__(self) -> int:
        return len(self.exact)

    def _prefixes(self) -> tuple[Hashes, npt.NDArray[np.int64]]:
        """The rarest sequences of each sentence, ascending, and whose they are."""
        if not self.grams:
            return np.zeros(0, np.uint64), np.zeros(0, np.int64)
        known, counts = np.unique(np.concatenate(self.grams), return_counts=True)
        rarest = []
        for own in self.grams:
            size = len(own) - math.ceil(self.near * len(own)) + 1 if len(own) else 0
            rarest.append(own[np.argsort(counts[np.searchsorted(known, own)], kind="stable")[:size]])
        hashes, owners = np.concatenate(rarest), np.repeat(np.arange(len(rarest)), [len(own) for own in rarest])
        order = np.argsort(hashes, kind="stable")
        return hashes[order], owners[order]

    def matches(self, texts: Sequence[str]) -> Kinds:
        """n texts -> (n,) NONE, EXACT or NEAR."""
        skeletons = [skeleton(text) for text in texts]
        kinds = np.array([EXACT if text in self.exact else NONE for text in skeletons], dtype=np.int8)
        for row in np.flatnonzero(kinds == NONE):
            if self._is_near(grams(skeletons[row])):
                kinds[row] = NEAR
        return kinds

    def _is_near(self, own: Hashes) -> bool:
        first, last = np.searchsorted(self._hashes, own), np.searchsorted(self._hashes, own, side="right")
        hit = np.flatnonzero(last > first)
        owners = {int(owner) for at in hit for owner in self._owners[first[at] : last[at]]}
        return any(_jaccard(own, self.grams[owner]) >= self.near for owner in owners)


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


def _jaccard(one: Hashes, other: Hashes) -> float:
    """Ascending sets -> the share of what either has that both have."""
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / (len(one) + len(other) - common)
