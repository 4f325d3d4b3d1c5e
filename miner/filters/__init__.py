"""Filters of sentences, before search, and of pairs, after it. Each gives every row a score; a bound then decides.

A filter has a file of its own. What all share is here: a row is dropped by the first filter whose bound its score breaks, and a
score of NaN, where a filter cannot tell, breaks no bound. `sentences.py` and `pairs.py` list the filters there are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rows = TypeVar("Rows")

BLOCK = 4096  # rows judged at a time: their characters stay in the processor's cache


@dataclass(frozen=True)
class Filter(Generic[Rows]):
    """One filter. `bound` says whether the bound is the least score that is kept, or the most."""

    reason: str  # what a dropped row is said to be
    score: Callable[[Rows], Floats]  # n rows -> (n,)
    bound: Literal["least", "most"]

    def drops(self, scores: Floats, bound: float) -> Bools:
        """(n,) whether a score lies beyond the bound; one that is equal to it does not."""
        return scores < bound if self.bound == "least" else scores > bound


@dataclass(frozen=True)
class Verdicts:
    """What filters say of n rows."""

    scores: Mapping[str, Floats]  # by filter: (n,), NaN where it cannot tell
    dropped_by: npt.NDArray[np.int64]  # (n,) which of `scores` drops the row first; -1 where none does
    reasons: tuple[str, ...]  # of the filters, in the order of `scores`

    @property
    def kept(self) -> Bools:
        return self.dropped_by < 0

    def counts(self, weights: npt.NDArray[np.int64] | None = None) -> dict[str, int]:
        """How many rows are dropped for each reason, or how much they weigh."""
        dropped = ~self.kept
        sums = np.bincount(self.dropped_by[dropped], None if weights is None else weights[dropped], len(self.reasons))
        return dict(zip(self.reasons, sums.astype(int).tolist(), strict=True))

    def why(self) -> tuple[list[str], Floats]:
        """Reason and score of the rows that are dropped, in their order."""
        rows = np.flatnonzero(~self.kept)
        which = self.dropped_by[rows]
        table = np.stack(list(self.scores.values())) if self.scores else np.zeros((0, 0))
        return [self.reasons[at] for at in which], table[which, rows]


def judge(filters: Mapping[str, Filter[Rows]], rows: Rows, count: int, bounds: Mapping[str, float]) -> Verdicts:
    """Score `count` rows by those of the filters that have a bound, and decide."""
    active = {name: known for name, known in filters.items() if name in bounds}
    scores = {name: known.score(rows) for name, known in active.items()}
    dropped_by = np.full(count, -1, dtype=np.int64)
    for at, (name, known) in enumerate(active.items()):
        dropped_by[(dropped_by < 0) & known.drops(scores[name], bounds[name])] = at
    return Verdicts(scores, dropped_by, tuple(known.reason for known in active.values()))


def concat(parts: list[Verdicts]) -> Verdicts:
    """The verdicts of several blocks of rows, of one or more, by the same filters."""
    scores = {name: np.concatenate([part.scores[name] for part in parts]) for name in parts[0].scores}
    return Verdicts(scores, np.concatenate([part.dropped_by for part in parts]), parts[0].reasons)
