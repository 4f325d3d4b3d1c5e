"""Marks that people give to a sample of pairs: the precision that they show, the threshold that they choose, and the next sample.

Pairs are sorted, best first, and cut into NUM_LEVELS levels of equally many pairs. A level is weighted by its pairs and not by its
marks (post-stratification). So any number of marks per level gives an unbiased estimate, if the marked pairs of a level are a random
sample of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from miner.arrays import Bools, Floats, Ints
from miner.config.choices import PrecisionEstimate, ThresholdChoice
from miner.mining.thresholds import (
    Z_95,
    find_cuts,
    lowest_threshold,
    num_required,
    threshold_after,
    wilson,
)

Pair = tuple[int, int]  # of source id and target id

NUM_LEVELS = 10


@dataclass(frozen=True, eq=False)
class MarkedRows:
    """The m marked pairs among n sorted ones."""

    rows: Ints  # (m,), ascending
    right: Floats  # (m,), share of the marks of each pair that are right: 0 or 1, or between if people disagree


def find_marked(right: Mapping[Pair, float], pairs: Iterable[Pair]) -> MarkedRows:
    """Return which of the pairs, best first, are among those that are marked."""
    scorer = MarkScorer(right)
    scorer.add(pairs)
    return scorer.marked()


def level_bounds(num_pairs: Ints) -> Ints:
    """Numbers of pairs (n,) -> the rows (n, NUM_LEVELS + 1) at which their levels begin and end."""
    return num_pairs[:, None] * np.arange(NUM_LEVELS + 1) // NUM_LEVELS


@dataclass(frozen=True, eq=False)
class LevelCounts:
    """Counts of the l levels of n lists of pairs, (n, l) each."""

    pairs: Floats
    marked: Floats
    right: Floats  # sum of the shares

    def pool(self) -> "PooledLevels":
        """Estimate the precision of each list.

        The interval is Wilson's with the effective sample size: the number of marks of a simple random sample that would have the
        variance of this one (Franco, Little, Louis & Slud, "Comparative study of confidence intervals for proportions in complex sample
        surveys", JSSAM 7, 2019). So that a level without an error has a variance too, variances come from the shares (r + 1/2) / (m + 1).
        """
        weights = self.pairs / np.maximum(self.pairs.sum(axis=1, keepdims=True), 1)
        is_known = ((self.marked > 0) | (self.pairs == 0)).all(axis=1) & (self.marked.sum(axis=1) > 0)
        counts = np.maximum(self.marked, 1)
        smoothed = (self.right + 0.5) / (self.marked + 1)
        mean = (weights * smoothed).sum(axis=1)
        variance = (weights**2 * smoothed * (1 - smoothed) / counts).sum(axis=1)
        value = np.where(is_known, (weights * self.right / counts).sum(axis=1), np.nan)
        low, high = wilson(value, mean * (1 - mean) / np.maximum(variance, np.finfo(float).tiny))
        return PooledLevels(value, low, high, np.where(is_known, 1 / np.maximum((weights**2 / counts).sum(axis=1), 1e-9), 0.0))


@dataclass(frozen=True, eq=False)
class PooledLevels:
    """The estimated precision (n,) of n lists of pairs, NaN where a level has no marks."""

    value: Floats
    low: Floats
    high: Floats
    support: Floats  # the effective sample size if all levels are equally precise (Kish); 0 where a level has no marks

    def estimate(self, row: int) -> PrecisionEstimate | None:
        if np.isnan(self.value[row]):
            return None
        return PrecisionEstimate(float(self.value[row]), float(self.low[row]), float(self.high[row]))


def count_levels(marked: MarkedRows, num_pairs: Ints) -> LevelCounts:
    """Count the marks in the levels of the first `num_pairs` (n,) pairs."""
    bounds = level_bounds(num_pairs)
    starts = np.searchsorted(marked.rows, bounds)
    sums = np.append(0.0, marked.right.cumsum())[starts]
    return LevelCounts(*(np.diff(edges, axis=1).astype(np.float64) for edges in (bounds, starts, sums)))


def from_marks(margins: Floats, marked: MarkedRows, min_precision: float) -> ThresholdChoice:
    """Choose a threshold by the marked ones of pairs (n,), best first.

    Only thresholds whose lowest pair is marked are considered: below the last mark nothing is known. NoThresholdError where none
    reaches the precision.
    """
    cuts = find_cuts(margins)
    cuts = np.unique(cuts[np.searchsorted(cuts, marked.rows, side="right")])
    pooled = count_levels(marked, cuts).pool()
    is_supported = pooled.support / (pooled.support + Z_95**2) >= min_precision
    shortage = (
        f"{len(marked.rows)} marked pairs are worth {int(pooled.support.max(initial=0))} of a simple random sample,"
        f" at least {num_required(min_precision)} are needed"
    )
    row = lowest_threshold(np.nan_to_num(pooled.value), is_supported, min_precision, shortage)
    precision = pooled.estimate(row)
    assert precision is not None, "supported"
    num_marked = int(np.searchsorted(marked.rows, cuts[row]))
    return ThresholdChoice(threshold_after(margins, int(cuts[row])), "marks", precision, None, num_marked, min_precision)


@dataclass(frozen=True)
class MarkScores:
    """The precision of a bitext by the marked ones of its pairs."""

    precision: PrecisionEstimate | None  # None where a level has no marks
    num_marked: int

    def figures(self) -> dict[str, Any]:
        """Return the scores as manifests and --json show them."""
        figures: dict[str, Any] = {"marked": self.num_marked}
        if self.precision is not None:
            figures |= {"precision": self.precision.value, "interval": [self.precision.low, self.precision.high]}
        return figures

    def summary(self) -> str:
        evidence = f"by {self.num_marked:,} marked pairs"
        if self.precision is None:
            return f"precision unknown {evidence}: a tenth of the pairs has no mark; mark more pairs"
        return f"precision {self.precision.value:.4f} ({self.precision.low:.4f}-{self.precision.high:.4f}) {evidence}, with 95 % confidence"


class MarkScorer:
    """Scores a bitext that is read in parts, best pairs first."""

    def __init__(self, right: Mapping[Pair, float]) -> None:
        self._right = right
        self._marked: list[tuple[int, float]] = []  # row, share of right marks
        self._num_pairs = 0

    def add(self, pairs: Iterable[Pair]) -> None:
        """Count the next pairs."""
        for pair in pairs:
            if pair in self._right:
                self._marked.append((self._num_pairs, self._right[pair]))
            self._num_pairs += 1

    def marked(self) -> MarkedRows:
        rows, shares = ([column[number] for column in self._marked] for number in (0, 1))
        return MarkedRows(np.array(rows, dtype=np.int64), np.array(shares, dtype=np.float64))

    def scores(self) -> MarkScores:
        precision = count_levels(self.marked(), np.array([self._num_pairs])).pool().estimate(0)
        return MarkScores(precision, len(self._marked))


def plan_sample(marked: LevelCounts, num_free: Ints, size: int) -> Ints:
    """Return how many of `size` pairs (l,) to draw from the levels (l,) of one list, of which `num_free` (l,) can be drawn.

    One after the other goes to the level whose interval is widest, if its share of right pairs stays what it is.
    """
    shares = (marked.right[0] + 0.5) / (marked.marked[0] + 1)
    drawn = np.zeros(len(num_free), dtype=np.int64)
    for _ in range(min(size, int(num_free.sum()))):
        low, high = wilson(shares, marked.marked[0] + drawn)
        drawn[np.argmax(np.where(drawn < num_free, high - low, -1))] += 1
    return drawn


def cohen_kappa(first: Bools, second: Bools) -> float | None:
    """Return the agreement of two people on n pairs, corrected for chance; None where chance alone makes them agree on all.

    Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20, 1960.
    """
    if not len(first):
        return None
    by_chance = first.mean() * second.mean() + (1 - first.mean()) * (1 - second.mean())
    return None if by_chance == 1 else float(((first == second).mean() - by_chance) / (1 - by_chance))
