"""Precision and recall of pairs against gold pairs."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from miner.mining.candidates import Bools, ScoredPairs

Pairs = frozenset[tuple[int, int]]  # of source id and target id


class ResolvedGold(NamedTuple):
    """The gold pairs of two corpora as sentence ids."""

    pairs: Pairs
    num_missing: int = 0  # gold pairs that cannot be mined, because one of their lines was dropped


@dataclass(frozen=True)
class GoldScores:
    """Fractions of 1; 0 where the denominator is 0."""

    precision: float
    recall: float
    f1: float


def is_gold(pairs: ScoredPairs, gold: Pairs) -> Bools:
    """Mark (n,) the pairs that are gold pairs."""
    ids = zip(pairs.source_ids.tolist(), pairs.target_ids.tolist(), strict=True)
    return np.fromiter((pair in gold for pair in ids), dtype=bool, count=len(pairs))


def gold_scores(num_correct: int, num_pairs: int, gold: ResolvedGold) -> GoldScores:
    """Score `num_pairs` pairs, of which `num_correct` are gold pairs. A missing gold pair counts as not mined."""
    num_gold = len(gold.pairs) + gold.num_missing
    return GoldScores(
        precision=num_correct / num_pairs if num_pairs else 0.0,
        recall=num_correct / num_gold if num_gold else 0.0,
        f1=2 * num_correct / (num_pairs + num_gold) if num_pairs or num_gold else 0.0,
    )
