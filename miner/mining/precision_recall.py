"""Precision, recall and F1 of scored pairs above every threshold. A pair is above a threshold if its margin is larger."""

from dataclasses import dataclass

import numpy as np

from miner.arrays import Bools, Floats, Ints, run_bounds

MAX_CURVE_POINTS = 200  # in the JSON


@dataclass(frozen=True, eq=False)
class Curve:
    """Thresholds (n,), descending, with precision, recall and F1 of the pairs above each, and their number."""

    thresholds: Floats
    precision: Floats
    recall: Floats
    f1: Floats
    pairs: Ints

    def best(self) -> int | None:
        """Return the row with the largest F1, of equal ones the highest threshold; None if no pair is correct."""
        return int(self.f1.argmax()) if self.f1.any() else None

    def point(self, row: int) -> dict[str, float]:
        return {
            "threshold": float(self.thresholds[row]),
            "pairs": int(self.pairs[row]),
            "precision": float(self.precision[row]),
            "recall": float(self.recall[row]),
            "f1": float(self.f1[row]),
        }

    def figures(self) -> list[dict[str, float]]:
        """Return at most MAX_CURVE_POINTS points, evenly spaced over the pairs, including the first and the last."""
        if not len(self.pairs):
            return []
        num_pairs = np.linspace(self.pairs[0], self.pairs[-1], MAX_CURVE_POINTS)
        return [self.point(row) for row in np.unique(np.searchsorted(self.pairs, num_pairs))]


def curve(margins: Floats, is_correct: Bools, num_gold: int) -> Curve:
    """Margins (n,) of pairs in any order, which are correct (n,), and the number of gold pairs -> the curve.

    Pairs with equal margins are above the same thresholds. A threshold is midway between the lowest margin above it and the next one, so
    that it generalises to other pairs; the lowest threshold is just below the lowest margin.
    """
    order = np.argsort(-margins, kind="stable")
    margins, is_correct = margins[order], is_correct[order]
    last_rows = run_bounds(margins)[1:] - 1
    midpoints = (margins[last_rows[:-1]] + margins[last_rows[:-1] + 1]) / 2
    thresholds = np.append(midpoints, np.nextafter(margins[last_rows[-1:]], -np.inf))
    num_mined, num_correct = last_rows + 1, is_correct.cumsum()[last_rows]
    recall, f1 = num_correct / max(num_gold, 1), 2 * num_correct / (num_mined + num_gold)
    return Curve(thresholds, num_correct / num_mined, recall, f1, num_mined)
