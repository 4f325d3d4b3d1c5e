"""Decontamination: find sentences that equal an evaluation sentence but for case and punctuation, or nearly equal one.

Near matches have a Jaccard similarity of at least t over their character n-grams. Then each of the two sets has at least a = ceil(t n) of
its own n members in common with the other; so, in any global order, the first n - a + l members of both have at least l <= a in common.
With the rarest n-grams first, few pairs of sentences share MAX_PREFIX_OVERLAP of them, and only those are compared in full (prefix
filtering; Chaudhuri, Ganti & Kaushik, "A Primitive Operator for Similarity Joins in Data Cleaning", ICDE 2006; with l > 1: Wang, Li & Feng,
"Can We Beat the Prefix Filtering?", SIGMOD 2012).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from miner.arrays import Hashes, Ints, bounds_of, concatenate_ranges, find_rows, mark_run_starts, run_bounds
from miner.text.near_duplicates import skeleton

Kinds = npt.NDArray[np.int8]

NGRAM_LETTERS = 5
NONE, EXACT, NEAR = 0, 1, 2
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that a hash depends on all letters
MAX_PREFIX_OVERLAP = 10  # n-grams: more than the rare ones of a single long word or name
BLOCK_TEXTS = 4096  # compared together, in some 20 MB
MAX_PREFIX_MATCHES = 1 << 19  # pairs that share a prefix n-gram, compared together in up to 300 MB
ROUNDING_SLACK = 1e-9  # on products of floats that are compared with counts


@dataclass(frozen=True)
class NgramSets:
    """n sets of n-gram hashes; that of row i is `hashes[bounds[i] : bounds[i + 1]]`."""

    hashes: Hashes
    bounds: Ints  # (n + 1,)

    @property
    def sizes(self) -> Ints:
        return np.diff(self.bounds)

    @property
    def rows(self) -> Ints:
        """The row of each hash."""
        return np.repeat(np.arange(len(self.bounds) - 1), self.sizes)

    def take(self, rows: Ints) -> "NgramSets":
        """Return the sets of rows (m,), which may repeat."""
        sizes = self.sizes[rows]
        return NgramSets(self.hashes[concatenate_ranges(self.bounds[rows], sizes)], bounds_of(sizes))


class EvaluationIndex:
    """An index of evaluation sentences that finds exact and near matches. Takes about a kilobyte per sentence."""

    def __init__(self, texts: Iterable[str], near: float) -> None:
        """`near` is the minimum Jaccard similarity of the n-grams of a near match."""
        self.near = near
        self.skeletons = {skeleton(text) for text in texts}
        self.sets = build_ngram_sets(sorted(self.skeletons))
        self._ngrams, self._ngram_counts = np.unique(self.sets.hashes, return_counts=True)
        prefixes = self._select_prefixes(self.sets)
        # Inverted index: n-gram i of `_prefix_ngrams` is in the prefixes of rows `_owners[_owner_bounds[i] : _owner_bounds[i + 1]]`.
        self._owners = prefixes.rows[np.argsort(prefixes.hashes, kind="stable")]
        self._prefix_ngrams, num_owners = np.unique(prefixes.hashes, return_counts=True)
        self._owner_bounds = bounds_of(num_owners)
        self._cache: dict[str, int] = {}  # skeleton -> kind

    def __len__(self) -> int:
        return len(self.skeletons)

    def classify(self, texts: Sequence[str]) -> Kinds:
        """Return NONE, EXACT or NEAR for n texts (n,). Results are cached: a sentence may be mined with many languages."""
        skeletons = [skeleton(text) for text in texts]
        uncached = [text for text in dict.fromkeys(skeletons) if text not in self._cache]
        for start in range(0, len(uncached), BLOCK_TEXTS):
            block = uncached[start : start + BLOCK_TEXTS]
            kinds = self._classify_sets(build_ngram_sets(block)).tolist()
            self._cache.update((text, EXACT if text in self.skeletons else kind) for text, kind in zip(block, kinds, strict=True))
        return np.fromiter((self._cache[text] for text in skeletons), dtype=np.int8, count=len(skeletons))

    def _select_prefixes(self, sets: NgramSets) -> NgramSets:
        """Return the prefix of each set: its rarest hashes by their count in the evaluation sentences, ties by hash."""
        positions = find_rows(sets.hashes, self._ngrams)
        matched = positions >= 0
        counts = np.zeros(len(sets.hashes), dtype=np.int64)
        counts[matched] = self._ngram_counts[positions[matched]]
        order = np.lexsort((sets.hashes, counts, sets.rows))
        lengths = sets.sizes - self._min_overlap(sets.sizes) + self._prefix_overlap(sets.sizes)
        return NgramSets(sets.hashes[order][concatenate_ranges(sets.bounds[:-1], lengths)], bounds_of(lengths))

    def _min_overlap(self, sizes: Ints) -> Ints:
        """Return the minimum number of hashes that sets of these sizes share with a near match."""
        overlap: Ints = np.ceil(self.near * sizes - ROUNDING_SLACK).astype(np.int64)
        return overlap

    def _prefix_overlap(self, sizes: Ints) -> Ints:
        """Return how many of those are in the prefix."""
        return np.minimum(MAX_PREFIX_OVERLAP, self._min_overlap(sizes))

    def _classify_sets(self, sets: NgramSets) -> Kinds:
        """Return NEAR (n,) for sets with a near match among the evaluation sentences, else NONE."""
        prefixes = self._select_prefixes(sets)
        positions = find_rows(prefixes.hashes, self._prefix_ngrams)
        positions, rows = positions[positions >= 0], prefixes.rows[positions >= 0]
        counts = np.diff(self._owner_bounds)[positions]
        kinds = np.full(len(sets.sizes), NONE, dtype=np.int8)
        # Split at row boundaries to bound memory: boilerplate matches every sentence.
        splits = np.searchsorted(rows, rows[run_bounds(np.cumsum(counts) // MAX_PREFIX_MATCHES)[1:-1]])
        for part in np.split(np.arange(len(rows)), splits):
            owners = self._owners[concatenate_ranges(self._owner_bounds[positions[part]], counts[part])]
            kinds[self._verify_matches(sets, np.repeat(rows[part], counts[part]), owners)] = NEAR
        return kinds

    def _verify_matches(self, sets: NgramSets, rows: Ints, owners: Ints) -> Ints:
        """Return the rows of `sets` that are near matches, from m pairs of row and evaluation sentence that share a prefix n-gram."""
        pairs, overlaps = np.unique(rows * len(self) + owners, return_counts=True)
        rows, owners = np.divmod(pairs, max(1, len(self)))
        required = np.minimum(self._prefix_overlap(sets.sizes)[rows], self._prefix_overlap(self.sets.sizes)[owners])
        rows, owners = rows[overlaps >= required], owners[overlaps >= required]
        text_sets, evaluation_sets = sets.take(rows), self.sets.take(owners)
        common = _count_common(text_sets, evaluation_sets)
        return rows[common >= self.near * (text_sets.sizes + evaluation_sets.sizes - common) - ROUNDING_SLACK]


def build_ngram_sets(skeletons: Sequence[str]) -> NgramSets:
    """Return the sorted, distinct n-gram hashes of n skeletons; a skeleton shorter than an n-gram is one n-gram itself."""
    blocks = [_hash_ngrams(skeletons[start : start + BLOCK_TEXTS]) for start in range(0, len(skeletons), BLOCK_TEXTS)]
    hashes = np.concatenate([np.zeros(0, np.uint64), *(block.hashes for block in blocks)])
    return NgramSets(hashes, bounds_of(np.concatenate([np.zeros(0, np.int64), *(block.sizes for block in blocks)])))


def _hash_ngrams(texts: Sequence[str]) -> NgramSets:
    letters = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    counts = np.where(lengths > 0, np.maximum(lengths - NGRAM_LETTERS + 1, 1), 0)
    starts, rows = concatenate_ranges(bounds_of(lengths)[:-1], counts), np.repeat(np.arange(len(texts)), counts)
    widths = np.minimum(lengths, NGRAM_LETTERS)[rows]
    hashes = np.zeros(len(starts), dtype=np.uint64)
    for offset in range(NGRAM_LETTERS):
        within = widths > offset
        mixed = (hashes ^ letters[np.where(within, starts + offset, 0)]) * HASH_MULTIPLIER
        hashes = np.where(within, mixed ^ (mixed >> np.uint64(29)), hashes)
    order = np.lexsort((hashes, rows))
    hashes, rows = hashes[order], rows[order]
    is_first = mark_run_starts(hashes, rows)
    return NgramSets(hashes[is_first], bounds_of(np.bincount(rows[is_first], minlength=len(texts))))


def _count_common(left: NgramSets, right: NgramSets) -> Ints:
    """Return the number of hashes (n,) that row i of n sets and row i of n other sets share."""
    rows = np.concatenate([left.rows, right.rows])
    hashes = np.concatenate([left.hashes, right.hashes])
    order = np.lexsort((hashes, rows))
    rows, hashes = rows[order], hashes[order]
    return np.bincount(rows[~mark_run_starts(hashes, rows)], minlength=len(left.bounds) - 1)
