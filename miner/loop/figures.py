"""How two rounds differ: what they selected, and where their encoders put the same sentences."""

from collections.abc import Set

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.floating]


def jaccard(one: Set[object], other: Set[object]) -> float:
    """The share of what either has that both have; 1 where neither has any."""
    either = len(one | other)
    return len(one & other) / either if either else 1.0


def drift(one: Vectors, other: Vectors) -> float:
    """(n, d) and (n, e), the same sentences by two encoders -> 0 where they lie alike up to turning and scaling, 1 where nothing is left.

    One less linear CKA: Kornblith et al., "Similarity of Neural Network Representations Revisited", ICML 2019, section 3.
    """
    x, y = (side.astype(np.float64) - side.mean(axis=0, dtype=np.float64) for side in (one, other))
    norms = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(1 - np.linalg.norm(x.T @ y) ** 2 / norms) if norms else 1.0
