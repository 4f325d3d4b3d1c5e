"""What stands in evaluation files is not learnt from: the same sentence but for case and signs, or one with nearly the same letters.

Near matches share enough of their sequences of LENGTH letters. If two sets share t of all that either has, each has a = ceil(t n) of its
own n in common with the other; so, in any order that holds for all, the first n - a + l of both have l <= a in common. With the rarest
first, few sentences meet there SHARED times, and those are compared in full (prefix filtering; Chaudhuri, Ganti & Kaushik, "A Primitive
Operator for Similarity Joins in Data Cleaning", ICDE 2006; with l > 1: Wang, Li & Feng, "Can We Beat the Prefix Filtering?", SIGMOD 2012).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from miner.filters.near_duplicates import skeleton

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]

LENGTH = 5  # letters of a sequence
NONE, EXACT, NEAR = 0, 1, 2
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that the hash of a sequence depends on all its letters
SHARED = 10  # rare sequences, that is a long word more than a name makes
BLOCK = 4096  # texts looked at together: some 20 MB
MEETINGS = 1 << 19  # of texts and evaluation sentences, by one sequence each, looked at together: up to 300 MB
SLACK = 1e-9  # of a count that a product of floats should have hit


@dataclass(frozen=True)
class LetterSets:
    """n sets of hashes, that of row i in `hashes[bounds[i] : bounds[i + 1]]`."""

    hashes: Hashes
    bounds: Ints  # (n + 1,)

    @property
    def sizes(self) -> Ints:
        return np.diff(self.bounds)

    @property
    def rows(self) -> Ints:
        """The row of each hash."""
        return np.repeat(np.arange(len(self.bounds) - 1), self.sizes)

    def take(self, rows: Ints) -> "LetterSets":
        """The sets of some rows, which may repeat."""
        sizes = self.sizes[rows]
        return LetterSets(self.hashes[_ranges(self.bounds[rows], sizes)], _bounds(sizes))


class EvaluationIndex:
    """The sentences of evaluation files; tells which others match them. Holds about a kilobyte for each."""

    def __init__(self, texts: Iterable[str], near: float) -> None:
        """`near` is the least share of letter sequences, of all that either has, that a near match has in common (Jaccard)."""
        self.near = near
        self.exact = {skeleton(text) for text in texts}
        self.sets = letter_sets(sorted(self.exact))
        self._known, self._counts = np.unique(self.sets.hashes, return_counts=True)
        prefixes = self._prefixes(self.sets)
        self._owners = prefixes.rows[np.argsort(prefixes.hashes, kind="stable")]
        self._met, counts = np.unique(prefixes.hashes, return_counts=True)
        self._owned = _bounds(counts)  # of the hash at a place of `_met`: where its owners stand
        self._told: dict[str, int] = {}  # skeleton -> its kind

    def __len__(self) -> int:
        return len(self.exact)

    def matches(self, texts: Sequence[str]) -> Kinds:
        """n texts -> (n,) NONE, EXACT or NEAR. What was asked before is remembered: a sentence may be mined with many languages."""
        skeletons = [skeleton(text) for text in texts]
        fresh = [text for text in dict.fromkeys(skeletons) if text not in self._told]
        for start in range(0, len(fresh), BLOCK):
            block = fresh[start : start + BLOCK]
            near = self._near(letter_sets(block))
            self._told.update((text, EXACT if text in self.exact else kind) for text, kind in zip(block, near.tolist(), strict=True))
        return np.fromiter((self._told[text] for text in skeletons), dtype=np.int8, count=len(skeletons))

    def _prefixes(self, sets: LetterSets) -> LetterSets:
        """Of each set the first hashes: the rarest of the evaluation files, and of those alike the lowest."""
        places, there = _find(self._known, sets.hashes)
        counts = np.zeros(len(sets.hashes), dtype=np.int64)
        counts[there] = self._counts[places]
        order = np.lexsort((sets.hashes, counts, sets.rows))
        lengths = sets.sizes - self._least(sets.sizes) + self._shared(sets.sizes)
        return LetterSets(sets.hashes[order][_ranges(sets.bounds[:-1], lengths)], _bounds(lengths))

    def _least(self, sizes: Ints) -> Ints:
        """How many of its hashes a set of a size has in common with one that is alike."""
        least: Ints = np.ceil(self.near * sizes - SLACK).astype(np.int64)
        return least

    def _shared(self, sizes: Ints) -> Ints:
        """How many of those are in the prefix."""
        return np.minimum(SHARED, self._least(sizes))

    def _near(self, sets: LetterSets) -> Kinds:
        """n sets -> (n,) NEAR where one of the evaluation files is alike, else NONE."""
        prefixes = self._prefixes(sets)
        places, there = _find(self._met, prefixes.hashes)
        order = np.argsort(there)
        places, rows = places[order], prefixes.rows[there[order]]
        counts = np.diff(self._owned)[places]
        kinds = np.full(len(sets.sizes), NONE, dtype=np.int8)
        # Together as many as meet few enough: of boilerplate, each meets all.
        parts = np.searchsorted(rows, rows[np.flatnonzero(np.diff(np.cumsum(counts) // MEETINGS)) + 1])
        for part in np.split(np.arange(len(rows)), parts):
            owners = self._owners[_ranges(self._owned[places[part]], counts[part])]
            kinds[self._alike(sets, np.repeat(rows[part], counts[part]), owners)] = NEAR
        return kinds

    def _alike(self, sets: LetterSets, rows: Ints, owners: Ints) -> Ints:
        """m meetings of prefixes -> the rows of `sets` that are alike one they meet."""
        pairs, times = np.unique(rows * len(self) + owners, return_counts=True)
        rows, owners = np.divmod(pairs, max(1, len(self)))
        enough = times >= np.minimum(self._shared(sets.sizes)[rows], self._shared(self.sets.sizes)[owners])
        rows, owners = rows[enough], owners[enough]
        one, other = sets.take(rows), self.sets.take(owners)
        common = _in_common(one, other)
        return rows[common >= self.near * (one.sizes + other.sizes - common) - SLACK]


def letter_sets(texts: Sequence[str]) -> LetterSets:
    """n skeletons -> the hashes of their different sequences of LENGTH letters, ascending; a shorter one is a sequence itself."""
    blocks = [_letter_sets(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK)]
    hashes = np.concatenate([np.zeros(0, np.uint64), *(block.hashes for block in blocks)])
    return LetterSets(hashes, _bounds(np.concatenate([np.zeros(0, np.int64), *(block.sizes for block in blocks)])))


def _letter_sets(texts: Sequence[str]) -> LetterSets:
    letters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    counts = np.where(lengths > 0, np.maximum(lengths - LENGTH + 1, 1), 0)
    starts, rows = _ranges(_bounds(lengths)[:-1], counts), np.repeat(np.arange(len(texts)), counts)
    widths = np.minimum(lengths, LENGTH)[rows]
    hashes = np.zeros(len(starts), dtype=np.uint64)
    for place in range(LENGTH):
        within = widths > place
        mixed = (hashes ^ letters[np.where(within, starts + place, 0)]) * FACTOR
        hashes = np.where(within, mixed ^ (mixed >> np.uint64(29)), hashes)
    order = np.lexsort((hashes, rows))
    hashes, rows = hashes[order], rows[order]
    different = np.append(True, (hashes[1:] != hashes[:-1]) | (rows[1:] != rows[:-1]))[: len(hashes)]
    return LetterSets(hashes[different], _bounds(np.bincount(rows[different], minlength=len(texts))))


def _in_common(one: LetterSets, other: LetterSets) -> Ints:
    """Two times n sets -> (n,) how many hashes the two of a row share."""
    rows = np.concatenate([one.rows, other.rows])
    hashes = np.concatenate([one.hashes, other.hashes])
    order = np.lexsort((hashes, rows))
    rows, hashes = rows[order], hashes[order]
    twice = (rows[1:] == rows[:-1]) & (hashes[1:] == hashes[:-1])
    return np.bincount(rows[1:][twice], minlength=len(one.bounds) - 1)


def _find(known: Hashes, wanted: Hashes) -> tuple[Ints, Ints]:
    """Where in `known`, ascending, those of `wanted` stand that are there, and which of `wanted` these are."""
    order = np.argsort(wanted)  # in this order the search finds in the cache what it needs next
    ordered = wanted[order]
    places = np.searchsorted(known, ordered)
    there = np.flatnonzero(places < len(known))
    there = there[known[places[there]] == ordered[there]]
    return places[there], order[there]


def _bounds(sizes: Ints) -> Ints:
    return np.append(0, np.cumsum(sizes))


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """The numbers start, start + 1, ... of each row, `size` of them, one row after the other."""
    bounds = _bounds(sizes)
    return np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], sizes)
