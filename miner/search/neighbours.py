"""The k nearest neighbours of a set of sentences, and how partial results are merged."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from miner.arrays import Bools, Floats, Ids, Ints, Vectors

Similarities = Floats


@dataclass(frozen=True)
class VectorBlock:
    """A contiguous part of a corpus: ids (n,) ascending, and vectors (n, dim) float16, finite and of norm 1 or 0."""

    ids: Ids
    vectors: Vectors


@dataclass(frozen=True)
class Neighbours:
    """The k nearest neighbours of n sentences: nearest first, ties by smaller id, padded with id -1 and similarity NaN."""

    ids: Ids  # (n, k)
    similarities: Similarities  # (n, k)

    @property
    def k(self) -> int:
        return int(self.ids.shape[1])

    @property
    def is_neighbour(self) -> Bools:
        """(n, k): False where the row is padded. Derived from the similarities, because -1 can be the hash of a sentence."""
        return ~np.isnan(self.similarities)

    def merge(self, other: "Neighbours") -> "Neighbours":
        """Return the k nearest of both. Both describe the same sentences, compared with different ones."""
        return self.merge_candidates(other.ids, other.similarities)

    def merge_candidates(self, ids: Ids, similarities: Similarities) -> "Neighbours":
        """Return the k nearest of these neighbours and of candidates (n, c), whose similarity is NaN where there is none."""
        return select_nearest(np.concatenate([self.ids, ids], axis=1), np.concatenate([self.similarities, similarities], axis=1), self.k)

    def nearest(self, k: int) -> "Neighbours":
        """Return the k nearest of these neighbours, or all if there are fewer."""
        return Neighbours(self.ids[:, :k], self.similarities[:, :k])

    def take(self, rows: Ints) -> "Neighbours":
        """Return the neighbours of these rows."""
        return Neighbours(self.ids[rows], self.similarities[rows])

    def without_self(self, own_ids: Ids) -> "Neighbours":
        """Return the k - 1 nearest neighbours of each row other than the sentence own_ids[row] itself.

        The sentence itself can be missing where more than k sentences tie with it; the last neighbour is dropped then.
        """
        is_kept = (self.ids != own_ids[:, None]) | ~self.is_neighbour
        is_kept[is_kept.all(axis=1), -1] = False
        shape = (len(own_ids), self.k - 1)
        return Neighbours(self.ids[is_kept].reshape(shape), self.similarities[is_kept].reshape(shape))


def select_nearest(ids: Ids, similarities: Similarities, k: int) -> Neighbours:
    """Return the k nearest of candidates (n, c), which come in any order and have similarity NaN where there is none."""
    order = np.lexsort((ids, -similarities))[:, :k]  # NaN sorts last
    ids, similarities = np.take_along_axis(ids, order, axis=1), np.take_along_axis(similarities, order, axis=1)
    padding = ((0, 0), (0, k - ids.shape[1]))
    ids, similarities = np.pad(ids, padding, constant_values=-1), np.pad(similarities, padding, constant_values=np.nan)
    return Neighbours(np.where(np.isnan(similarities), -1, ids), similarities)


def empty_neighbours(num_rows: int, k: int) -> Neighbours:
    """Return the neighbours of `num_rows` sentences before any search: the identity of `merge`."""
    return Neighbours(np.full((num_rows, k), -1, dtype=np.int64), np.full((num_rows, k), np.nan))


def stack_neighbours(parts: Iterable[Neighbours]) -> Neighbours:
    """Concatenate the neighbours of different sentences, row-wise."""
    listed = list(parts)
    return Neighbours(np.concatenate([part.ids for part in listed]), np.concatenate([part.similarities for part in listed]))
