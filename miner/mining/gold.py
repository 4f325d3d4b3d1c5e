"""Precision and recall of pairs against gold pairs."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from miner.mining.candidates import Bools, ScoredPairs

Pairs = frozenset[tuple[int, int]]  # of source id and target id


class ResolvedGold(NamedTuple):
    """The gold pairs of two corpora as sentence ids."""

    pairs: Pairs
    num_missing: int = 0  # gold pairs that cannot be mined, because one of their lines was dropped

    def scorer(self) -> "GoldScorer":
        return GoldScorer(self)


@dataclass(frozen=True)
class GoldScores:
    """Fractions of 1; 0 where the denominator is 0."""

    precision: float
    recall: float
    f1: float

    def figures(self) -> dict[str, Any]:
        """Return the scores as manifests and --json show them."""
        return asdict(self)

    def summary(self) -> str:
        return f"precision {self.precision:.4f}, recall {self.recall:.4f}, F1 {self.f1:.4f}"


class GoldScorer:
    """Scores a bitext that is read in parts. A missing gold pair counts as not mined."""

    def __init__(self, gold: ResolvedGold) -> None:
        self._gold = gold
        self._num_pairs = 0
        self._num_correct = 0

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Count the next pairs."""
        for pair in pairs:
            self._num_pairs += 1
            self._num_correct += pair in self._gold.pairs

    def scores(self) -> GoldScores:
        num_pairs, num_gold = self._num_pairs, len(self._gold.pairs) + self._gold.num_missing
        return GoldScores(
            precision=self._num_correct / num_pairs if num_pairs else 0.0,
            recall=self._num_correct / num_gold if num_gold else 0.0,
            f1=2 * self._num_correct / (num_pairs + num_gold) if num_pairs or num_gold else 0.0,
        )


def is_gold(pairs: ScoredPairs, gold: Pairs) -> Bools:
    """Mark (n,) the pairs that are gold pairs."""
    ids = zip(pairs.source_ids.tolist(), pairs.target_ids.tolist(), strict=True)
    return np.fromiter((pair in gold for pair in ids), dtype=bool, count=len(pairs))
