"""Sentences that are neighbours of far too many: short phrases and templates that lie close to everything."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OccurrenceCounts:
    """In how many pairs each sentence of one side stands; `ids` ascending."""

    ids: Ids
    counts: npt.NDArray[np.int64]

    def of(self, ids: Ids) -> npt.NDArray[np.int64]:
        """(m,) ids, all of which are known -> (m,) their counts."""
        counts: npt.NDArray[np.int64] = self.counts[np.searchsorted(self.ids, ids)]
        return counts


def times(ids: Ids) -> OccurrenceCounts:
    """(n,) the ids of one side of n pairs."""
    return OccurrenceCounts(*np.unique(ids, return_counts=True))
