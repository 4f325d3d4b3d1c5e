"""How many of the pairs are right, and how many of the right ones were found."""

from dataclasses import dataclass

import numpy as np

from miner.mining.candidates import Bools, ScoredPairs

Pairs = frozenset[tuple[int, int]]  # of source id and target id


@dataclass(frozen=True)
class GoldScores:
    """Fractions of 1; 0 where there is nothing to divide by."""

    precision: float
    recall: float
    f1: float


def are_right(pairs: ScoredPairs, gold: Pairs) -> Bools:
    """(n,): which of the pairs are gold ones."""
    found = zip(pairs.source_ids.tolist(), pairs.target_ids.tolist(), strict=True)
    return np.fromiter((pair in gold for pair in found), dtype=bool, count=len(pairs))


def scores(right: int, found: int, gold: Pairs, missing: int = 0) -> GoldScores:
    """Of pairs that were found, some right, against the gold ones. `missing` counts gold pairs that cannot be found, as one of their
    lines was dropped."""
    wanted = len(gold) + missing
    return GoldScores(
        precision=right / found if found else 0.0,
        recall=right / wanted if wanted else 0.0,
        f1=2 * right / (found + wanted) if found or wanted else 0.0,
    )
