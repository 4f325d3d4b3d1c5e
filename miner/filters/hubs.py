"""Hubs: sentences that occur in very many candidates, mostly short phrases and templates that are close to everything."""

from dataclasses import dataclass

import numpy as np

from miner.arrays import Ids, Ints, find_rows


@dataclass(frozen=True)
class OccurrenceCounts:
    """The number of pairs in which each sentence of one side occurs; `ids` are ascending."""

    ids: Ids
    counts: Ints

    def of(self, ids: Ids) -> Ints:
        """Return (m,) the counts of (m,) ids, 0 for one that does not occur."""
        rows = find_rows(ids, self.ids)
        counts = np.zeros(len(ids), dtype=np.int64)
        counts[rows >= 0] = self.counts[rows[rows >= 0]]
        return counts


def usual_counts(num_neighbours: int, num_sources: int, num_targets: int) -> tuple[float, float]:
    """Return how many candidates a source and a target have if all sentences of their side have as many.

    Each sentence is a candidate of its own neighbours, and of the sentences of the other side that have it among theirs: of a side that is
    30 times as small, each sentence occurs 30 times as often.
    """
    return num_neighbours * max(1.0, num_targets / num_sources), num_neighbours * max(1.0, num_sources / num_targets)


def add_counts(ids: Ids, counts: Ints) -> OccurrenceCounts:
    """Add up the counts (n,) of equal ids (n,)."""
    unique, rows = np.unique(ids, return_inverse=True)
    sums = np.zeros(len(unique), dtype=np.int64)
    np.add.at(sums, rows, counts)
    return OccurrenceCounts(unique, sums)


def count_occurrences(ids: Ids) -> OccurrenceCounts:
    """Count how often each id occurs in (n,) ids of one side of n pairs."""
    return OccurrenceCounts(*np.unique(ids, return_counts=True))
