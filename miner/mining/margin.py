"""Margins: how much more similar two sentences are to each other than to their other neighbours.

Artetxe & Schwenk, "Margin-based Parallel Corpus Mining with Multilingual Sentence Embeddings", ACL 2019, equation 2 and below:
score(x, y) = margin(a, b) with a = cos(x, y), and b the average of the mean similarity of x and that of y to their k nearest.
"""

import numpy as np

from miner.arrays import Floats
from miner.config.choices import MARGINS
from miner.errors import ConfigError

MIN_RATIO_MEAN = 1e-6  # of similarities in float32, which are rounded; a ratio to a mean of 0 or less orders pairs the wrong way round
LATE_WEIGHT = 3.0  # of the margin of late interaction relative to that of the embeddings


def margins(name: str, similarities: Floats, source_means: Floats, target_means: Floats) -> Floats:
    """Return the margins (n,) of n pairs. NaN: undefined, as a ratio to a mean that is not positive, of sentences unlike all others.

    Raises ConfigError for an unknown name.
    """
    if name not in MARGINS:
        raise ConfigError(f"unknown margin {name!r}; one of {', '.join(MARGINS)}")
    means = (source_means + target_means) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = MARGINS[name].score(similarities, means)
    is_defined = np.isfinite(scores)
    if MARGINS[name].is_quotient:
        is_defined &= means >= MIN_RATIO_MEAN
    return np.where(is_defined, scores, np.nan)


def blend(margin_scores: Floats, late_margins: Floats) -> Floats:
    """Return the weighted means (n,) of margins of the embeddings and margins of late interaction (n,)."""
    return (margin_scores + LATE_WEIGHT * late_margins) / (1 + LATE_WEIGHT)


def mean_similarities(similarities: Floats) -> Floats:
    """Return the mean similarity (n,) of each sentence to its neighbours (n, k). A missing neighbour is NaN; NaN for a row of these."""
    is_neighbour = ~np.isnan(similarities)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(is_neighbour, similarities, 0.0).sum(axis=1) / is_neighbour.sum(axis=1)
    return means
