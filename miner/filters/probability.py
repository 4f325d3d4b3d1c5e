"""The probability that a pair is right, by its margin, its lengths and its numbers."""

import numpy as np

from miner.config.probability import ProbabilityWeights
from miner.filters import Floats


def probabilities(weights: ProbabilityWeights, margins: Floats, length_ratios: Floats, disagreement: Floats) -> Floats:
    """Return the probabilities (n,) of pairs by their margins, length ratios and shares of numbers that disagree (n,).

    A share of NaN, of a pair in which a side has no number, counts as 0; so does a margin of NaN as a margin below all others.
    """
    logits = weights.intercept + weights.margin * np.nan_to_num(margins, nan=-np.inf)
    logits += weights.length_ratio * np.log(length_ratios) + weights.numbers * np.nan_to_num(disagreement)
    return np.exp(-np.logaddexp(0.0, -logits))
