"""Two encoders on the same items: confidence intervals of a score of each and of their difference, and how sure the difference is.

By the paired bootstrap (Efron & Tibshirani 1993; Koehn 2004): items are drawn with replacement, the same for both encoders, within each
group. Groups, such as languages, stay: what is said holds for other sentences of these languages, not for other languages.
Some scores come out higher or lower in samples with repeats, as purity does. So it is how samples differ from one another that counts:
their spread around their mean, put around the figure itself.
"""

from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from miner.errors import DataError
from miner.evaluation.scores import Floats, Score

TINY = 1e-12  # what rounding makes of no difference
TAILS = (2.5, 97.5)  # percentiles: the ends of a 95 % interval


@dataclass(frozen=True)
class Interval:
    """A figure, and the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """One score of two encoders. `difference` is the second less the first; `p` is two-sided, and of this score alone."""

    one: Interval
    other: Interval
    difference: Interval
    p: float

    def figures(self) -> dict[str, Any]:
        return asdict(self)


def compare(one: Score, other: Score, draws: int, seed: int) -> Comparison:
    """The same score of two encoders, of the same items in the same groups. DataError where the items differ in number."""
    sizes = [{name: len(items) for name, items in score.groups.items()} for score in (one, other)]
    if sizes[0] != sizes[1]:
        raise DataError("the data changed between the two encoders; run again")
    chance = np.random.default_rng(seed)
    values = np.array([one.value, other.value])
    drawn = np.array([_draw(one, other, chance) for _ in range(draws)])
    drawn += values - drawn.mean(axis=0)
    differences = drawn[:, 1] - drawn[:, 0]
    beyond = min((differences <= TINY).sum(), (differences >= -TINY).sum())
    return Comparison(
        _interval(values[0], drawn[:, 0]),
        _interval(values[1], drawn[:, 1]),
        _interval(values[1] - values[0], differences),
        min(1.0, float(2 * (beyond + 1) / (draws + 1))),  # one more than was seen, so that no finite number of draws claims certainty
    )


def _draw(one: Score, other: Score, chance: np.random.Generator) -> tuple[float, float]:
    """Both scores of one sample of the items."""
    found = []
    for name, items in one.groups.items():
        rows = chance.integers(len(items), size=len(items))
        found.append((one.statistic(items[rows]), other.statistic(other.groups[name][rows])))
    return fmean(first for first, _ in found), fmean(second for _, second in found)


def _interval(value: float, drawn: Floats) -> Interval:
    low, high = np.percentile(drawn, TAILS)
    return Interval(float(value), float(low), float(high))
