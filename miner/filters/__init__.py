"""Sentence filters, applied before embedding, and pair filters, applied before matching. Each scores every row; a bound decides.

Each module here computes the scores of one kind of filter; `sentences.py` and `pairs.py` register the filters. A row is dropped by
the first filter whose bound its score violates. A score of NaN (the filter does not apply to the row) violates no bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from miner.arrays import Bools, Floats, Ints

Rows = TypeVar("Rows")

BLOCK_ROWS = 4096  # rows filtered at a time, so that their characters stay in the processor's cache


@dataclass(frozen=True)
class Filter(Generic[Rows]):
    """One filter. `bound` says whether its bound is the least or the greatest score that is kept."""

    reason: str  # recorded with each row that it drops
    score: Callable[[Rows], Floats]  # n rows -> (n,)
    bound: Literal["least", "most"]

    def drops(self, scores: Floats, bound: float) -> Bools:
        """Return (n,) whether each score violates the bound; a score equal to the bound does not."""
        return scores < bound if self.bound == "least" else scores > bound


@dataclass(frozen=True)
class FilterDecisions:
    """The scores of n rows and which filter drops each."""

    scores: Mapping[str, Floats]  # filter -> (n,), NaN where it does not apply
    dropped_by: Ints  # (n,) index into `scores` of the first filter that drops the row, or -1
    reasons: tuple[str, ...]  # of the filters, in the order of `scores`

    @property
    def kept(self) -> Bools:
        """(n,) whether no filter drops the row."""
        return self.dropped_by < 0

    def counts(self, weights: Ints | None = None) -> dict[str, int]:
        """Return the number of rows dropped for each reason, or the sum of their weights."""
        dropped = ~self.kept
        sums = np.bincount(self.dropped_by[dropped], None if weights is None else weights[dropped], len(self.reasons))
        return dict(zip(self.reasons, sums.astype(int).tolist(), strict=True))

    def drop_reasons(self) -> tuple[list[str], Floats]:
        """Return the reason and the score of each dropped row, in row order."""
        rows = np.flatnonzero(~self.kept)
        filters = self.dropped_by[rows]
        scores = np.stack(list(self.scores.values())) if self.scores else np.zeros((0, 0))
        return [self.reasons[index] for index in filters], scores[filters, rows]


def apply_filters(filters: Mapping[str, Filter[Rows]], rows: Rows, num_rows: int, bounds: Mapping[str, float]) -> FilterDecisions:
    """Score all rows with the filters that have a bound, and decide which to drop."""
    active = {name: row_filter for name, row_filter in filters.items() if name in bounds}
    scores = {name: row_filter.score(rows) for name, row_filter in active.items()}
    dropped_by = np.full(num_rows, -1, dtype=np.int64)
    for index, (name, row_filter) in enumerate(active.items()):
        dropped_by[(dropped_by < 0) & row_filter.drops(scores[name], bounds[name])] = index
    return FilterDecisions(scores, dropped_by, tuple(row_filter.reason for row_filter in active.values()))


def concat_decisions(blocks: Sequence[FilterDecisions]) -> FilterDecisions:
    """Concatenate the decisions of the same filters on one or more blocks of rows."""
    scores = {name: np.concatenate([block.scores[name] for block in blocks]) for name in blocks[0].scores}
    return FilterDecisions(scores, np.concatenate([block.dropped_by for block in blocks]), blocks[0].reasons)
