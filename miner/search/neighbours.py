"""The k nearest neighbours of some sentences, and how partial results become whole ones."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Neighbours:
    """Row by row the k nearest, nearest first, ties by smaller id; what is missing has id -1 and similarity NaN."""

    ids: Ids  # (n, k)
    similarities: Similarities  # (n, k)

    @property
    def k(self) -> int:
        return int(self.ids.shape[1])

    @property
    def found(self) -> npt.NDArray[np.bool_]:
        """(n, k): where there is a neighbour. Told by the similarity, because -1 may be the hash of a sentence."""
        return ~np.isnan(self.similarities)

    def merge(self, other: "Neighbours") -> "Neighbours":
        """The k nearest of both. Both are of the same sentences, and found among different ones."""
        return self.add(other.ids, other.similarities)

    def add(self, ids: Ids, similarities: Similarities) -> "Neighbours":
        """The k nearest of these and of candidates (n, c), NaN where there is none."""
        return nearest(np.concatenate([self.ids, ids], axis=1), np.concatenate([self.similarities, similarities], axis=1), self.k)

    def rows(self, which: npt.NDArray[np.int64]) -> "Neighbours":
        """Those of some sentences."""
        return Neighbours(self.ids[which], self.similarities[which])

    def without(self, own: Ids) -> "Neighbours":
        """The k - 1 nearest but for the sentence itself, whose id is own[row]. It need not be among them, where others tie with it."""
        kept = (self.ids != own[:, None]) | ~self.found
        kept[kept.all(axis=1), -1] = False
        shape = (len(own), self.k - 1)
        return Neighbours(self.ids[kept].reshape(shape), self.similarities[kept].reshape(shape))


def nearest(ids: Ids, similarities: Similarities, k: int) -> Neighbours:
    """Candidates (n, c) in any order, NaN where there is none -> the k nearest of each row, padded."""
    order = np.lexsort((ids, -similarities))[:, :k]  # NaN sorts last
    ids, similarities = np.take_along_axis(ids, order, axis=1), np.take_along_axis(similarities, order, axis=1)
    missing = ((0, 0), (0, k - ids.shape[1]))
    ids, similarities = np.pad(ids, missing, constant_values=-1), np.pad(similarities, missing, constant_values=np.nan)
    return Neighbours(np.where(np.isnan(similarities), -1, ids), similarities)


def none(rows: int, k: int) -> Neighbours:
    """The neighbours of `rows` sentences before anything was searched: what `merge` starts from."""
    return Neighbours(np.full((rows, k), -1, dtype=np.int64), np.full((rows, k), np.nan))


def merge_all(parts: Iterable[Neighbours]) -> Neighbours:
    """The k nearest of all parts, in whatever order they come."""
    return reduce(Neighbours.merge, parts)


def stack(parts: Iterable[Neighbours]) -> Neighbours:
    """The neighbours of one group of sentences below those of the next."""
    found = list(parts)
    return Neighbours(np.concatenate([part.ids for part in found]), np.concatenate([part.similarities for part in found]))
