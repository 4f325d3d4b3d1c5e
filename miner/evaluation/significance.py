"""Two encoders on the same items: 95 % confidence intervals of a score of each and of the difference, and its p value.

By the paired bootstrap (Efron & Tibshirani 1993; Koehn 2004): items are drawn with replacement, the same ones for both encoders, within
each group. Groups, such as languages, are not resampled: the result generalises to other sentences of these languages, not to other
languages. Some scores, such as purity, are biased in samples with repeats; a mean is not. Of other scores, samples determine only the
spread, which is centred on the score itself and ends where the score does, such as at 0 and 1.
"""

from dataclasses import dataclass

import numpy as np

from miner.arrays import Floats
from miner.errors import DataError
from miner.evaluation.scores import Score, mean

ROUNDING = 1e-12  # a smaller difference is none
PERCENTILES = (2.5, 97.5)  # the ends of a 95 % interval


@dataclass(frozen=True)
class Interval:
    """A score with the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """One score of two encoders. `difference` is the second less the first; `p` is two-sided, not corrected for several scores."""

    first: Interval
    second: Interval
    difference: Interval
    p: float


def compare(first: Score, second: Score, num_samples: int, seed: int) -> Comparison:
    """Compare the same score of two encoders on the same items in the same groups. Raise DataError if the numbers of items differ."""
    sizes = [{name: len(items) for name, items in score.groups.items()} for score in (first, second)]
    if sizes[0] != sizes[1]:
        raise DataError("the data changed between the two encoders; run again")
    rng = np.random.default_rng(seed)
    values = np.array([first.value, second.value])
    samples = np.array([_resample(first, second, rng) for _ in range(num_samples)])
    if first.statistic is not mean:
        samples = np.clip(samples + values - samples.mean(axis=0), first.lowest, 1)
    differences = samples[:, 1] - samples[:, 0]
    num_beyond = min((differences <= ROUNDING).sum(), (differences >= -ROUNDING).sum())
    return Comparison(
        _interval(values[0], samples[:, 0]),
        _interval(values[1], samples[:, 1]),
        _interval(values[1] - values[0], differences),
        min(1.0, float(2 * (num_beyond + 1) / (num_samples + 1))),  # add one: a finite number of samples never gives p = 0
    )


def _resample(first: Score, second: Score, rng: np.random.Generator) -> tuple[float, float]:
    """Return both scores on one sample of the items."""
    statistics = []
    for name, items in first.groups.items():
        rows = rng.integers(len(items), size=len(items))
        statistics.append((first.statistic(items[rows]), second.statistic(second.groups[name][rows])))
    return first.average(value for value, _ in statistics), second.average(value for _, value in statistics)


def _interval(value: float, samples: Floats) -> Interval:
    low, high = np.percentile(samples, PERCENTILES)
    return Interval(float(value), float(low), float(high))
