"""Margins: how much closer two sentences are to each other than to their other neighbours.

Artetxe & Schwenk, "Margin-based Parallel Corpus Mining with Multilingual Sentence Embeddings", ACL 2019, equation 2 and below:
score(x, y) = margin(a, b) with a = cos(x, y), and b the average of the mean similarity of x and that of y to their k nearest.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from miner.errors import ConfigError

Floats = npt.NDArray[np.float64]


def ratio(a: Floats, b: Floats) -> Floats:
    return a / b


def distance(a: Floats, b: Floats) -> Floats:
    return a - b


def absolute(a: Floats, b: Floats) -> Floats:  # noqa: ARG001  # one signature for all
    return a


MARGINS: dict[str, Callable[[Floats, Floats], Floats]] = {"ratio": ratio, "distance": distance, "absolute": absolute}

# Pairs score above these unless told otherwise. Chosen for the built-in encoder by benchmarks/threshold.py; encoders whose
# similarities lie close together want less: CRISS takes a ratio of 1.06 (Tran et al. 2020, section 4).
THRESHOLDS = {"ratio": 1.2, "distance": 0.09, "absolute": 0.46}


def margins(name: str, similarities: Floats, source_means: Floats, target_means: Floats) -> Floats:
    """n pairs -> (n,) margins; NaN where there is none, as for the ratio where both means are 0 (sentences without a vector).

    Raises ConfigError for an unknown name.
    """
    if name not in MARGINS:
        raise ConfigError(f"unknown margin {name!r}; one of {', '.join(MARGINS)}")
    with np.errstate(divide="ignore", invalid="ignore"):
        found = MARGINS[name](similarities, (source_means + target_means) / 2)
    return np.where(np.isfinite(found), found, np.nan)


def mean_similarities(similarities: Floats) -> Floats:
    """(n, k) similarities of the nearest, NaN where there is none -> (n,) their means; NaN for a row without any."""
    found = ~np.isnan(similarities)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(found, similarities, 0.0).sum(axis=1) / found.sum(axis=1)
    return means
