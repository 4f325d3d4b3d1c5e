"""How reliable the probability of a pair is: the reliability diagram and the expected calibration error."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from miner.arrays import Bools, Floats, Ints

BINS = 10


@dataclass(frozen=True, eq=False)
class Reliability:
    """Pairs by probability, in BINS intervals of the same width, without those that have no pair."""

    pairs: Ints  # (b,)
    probabilities: Floats  # (b,): means
    precision: Floats  # (b,)

    @property
    def error(self) -> float:
        """The expected calibration error (Guo et al., ICML 2017, equation 3): the mean difference over the pairs."""
        return float(np.average(np.abs(self.probabilities - self.precision), weights=self.pairs))

    def figures(self) -> dict[str, Any]:
        columns = (self.pairs.tolist(), self.probabilities.tolist(), self.precision.tolist())
        bins = [{"pairs": pairs, "probability": mean, "precision": share} for pairs, mean, share in zip(*columns, strict=True)]
        return {"error": self.error, "bins": bins}


def measure_reliability(probabilities: Floats, is_right: Bools) -> Reliability:
    """Compare the probabilities (n,) of pairs, at least one, with which of them are right (n,)."""
    bins = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    has_pairs = counts > 0
    means = (np.bincount(bins, weights=values, minlength=BINS)[has_pairs] / counts[has_pairs] for values in (probabilities, is_right))
    return Reliability(counts[has_pairs], *means)
