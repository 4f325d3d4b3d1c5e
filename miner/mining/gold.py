"""Precision and recall of pairs against gold pairs."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from miner.arrays import Bools, Ids


@dataclass(frozen=True)
class GoldPairs:
    """The true pairs of two corpora, or a sample of them, by sentence ids."""

    pairs: frozenset[tuple[int, int]]
    num_missing: int = 0  # further true pairs, which cannot be mined because one of their lines was dropped
    is_sample: bool = False  # then a pair that is not in it may be right

    def __len__(self) -> int:
        return len(self.pairs) + self.num_missing

    def is_gold(self, source_ids: Ids, target_ids: Ids) -> Bools:
        """Mark (n,) the pairs that are gold pairs."""
        ids = zip(source_ids.tolist(), target_ids.tolist(), strict=True)
        return np.fromiter((pair in self.pairs for pair in ids), dtype=bool, count=len(source_ids))

    def scorer(self) -> "GoldScorer":
        return GoldScorer(self)


@dataclass(frozen=True)
class GoldScores:
    """Fractions of 1; 0 where the denominator is 0. A sample of gold shows the recall only."""

    precision: float | None
    recall: float
    f1: float | None

    def figures(self) -> dict[str, Any]:
        """Return the scores as manifests and --json show them."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def summary(self) -> str:
        if self.precision is None or self.f1 is None:
            return f"recall {self.recall:.4f}, by a sample of gold, which shows no precision"
        return f"precision {self.precision:.4f}, recall {self.recall:.4f}, F1 {self.f1:.4f}"


class GoldScorer:
    """Scores a bitext that is read in parts. A missing gold pair counts as not mined."""

    def __init__(self, gold: GoldPairs) -> None:
        self._gold = gold
        self._num_pairs = 0
        self._num_correct = 0

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Count the next pairs."""
        for pair in pairs:
            self._num_pairs += 1
            self._num_correct += pair in self._gold.pairs

    def scores(self) -> GoldScores:
        num_pairs, num_gold = self._num_pairs, len(self._gold)
        recall = self._num_correct / num_gold if num_gold else 0.0
        if self._gold.is_sample:
            return GoldScores(None, recall, None)
        precision = self._num_correct / num_pairs if num_pairs else 0.0
        f1 = 2 * self._num_correct / (num_pairs + num_gold) if num_pairs or num_gold else 0.0
        return GoldScores(precision, recall, f1)
