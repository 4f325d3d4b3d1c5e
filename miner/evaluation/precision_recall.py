"""Precision, recall and F1 of scored pairs above every threshold. A pair is above a threshold when its margin is larger."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from miner.evaluation.scores import Floats

Bools = npt.NDArray[np.bool_]

POINTS = 200  # of a curve as figures


@dataclass(frozen=True, eq=False)
class Curve:
    """Row by row a threshold (n,), falling, and what it keeps: shares of 1, and how many pairs."""

    thresholds: Floats
    precision: Floats
    recall: Floats
    f1: Floats
    pairs: npt.NDArray[np.int64]

    def best(self) -> int | None:
        """The row with the largest F1, of equal ones the highest threshold; None where no pair is right."""
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
        """At most POINTS of the points, evenly spread over the pairs, the first and the last among them."""
        if not len(self.pairs):
            return []
        wanted = np.linspace(self.pairs[0], self.pairs[-1], POINTS)
        return [self.point(row) for row in np.unique(np.searchsorted(self.pairs, wanted))]


def curve(margins: Floats, right: Bools, wanted: int) -> Curve:
    """Margins (n,) of pairs in any order, which of them are right, and how many right ones there are to find.

    Pairs of one margin stay together. A threshold lies midway between the last margin it keeps and the next, so that it says least about
    pairs it has not seen; the lowest just below the last margin.
    """
    order = np.argsort(-margins, kind="stable")
    margins, right = margins[order], right[order]
    last = np.flatnonzero(np.append(margins[1:] != margins[:-1], [True] * bool(len(margins))))
    below = np.append((margins[last[:-1]] + margins[last[:-1] + 1]) / 2, np.nextafter(margins[last[-1:]], -np.inf))
    kept, found = last + 1, right.cumsum()[last]
    return Curve(below, found / kept, found / max(wanted, 1), 2 * found / (kept + wanted), kept)
