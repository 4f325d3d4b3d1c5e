"""The probability that a pair is right, by its margin, its lengths and its numbers."""

import numpy as np

from miner.arrays import Floats
from miner.config.choices import MARGINS
from miner.config.probability import ProbabilityWeights
from miner.mining.margin_sample import MarginSample
from miner.mining.mixture import estimate_shift


def probabilities(weights: ProbabilityWeights, margins: Floats, length_ratios: Floats, disagreement: Floats) -> Floats:
    """Return the probabilities (n,) of pairs by their margins, length ratios and shares of numbers that disagree (n,).

    A share of NaN, of a pair in which a side has no number, counts as 0; so does a margin of NaN as a margin below all others.
    """
    logits = weights.intercept + weights.margin * np.nan_to_num(margins, nan=-np.inf)
    logits += weights.length_ratio * np.log(length_ratios) + weights.numbers * np.nan_to_num(disagreement)
    return np.exp(-np.logaddexp(0.0, -logits))


def fit_to_corpora(weights: ProbabilityWeights, margin: str, sample: MarginSample) -> ProbabilityWeights:
    """Return the weights with the intercept of the corpora of a sample of margins (see `miner.mining.mixture`).

    The same weights for a margin that the neighbours do not correct, whose right and wrong pairs have other distributions.
    """
    if not MARGINS[margin].is_relative:
        return weights
    bests, *runners_up = (weights.intercept + weights.margin * margins for margins in vars(sample).values())
    return weights.model_copy(update={"intercept": weights.intercept + estimate_shift(bests, runners_up)})
