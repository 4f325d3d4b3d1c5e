"""Precision of a bitext: by gold, which has all true pairs, or by marks that people gave to a sample of the pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from miner.arrays import Floats, Ids
from miner.config.choices import PrecisionEstimate
from miner.errors import DataError
from miner.evaluation.marks import Agreement, ReviewMarks
from miner.evaluation.reliability import Reliability, measure_reliability
from miner.evaluation.scores import percent, table
from miner.mining.gold import GoldPairs
from miner.mining.precision_recall import Curve, curve
from miner.mining.review import NUM_LEVELS, LevelCounts, count_levels, find_marked, level_bounds
from miner.units import counted

MAX_TABLE_ROWS = 12  # rows of the curve in the terminal


@dataclass(frozen=True, eq=False)
class GoldReport:
    """Precision, recall and F1 by threshold, from the threshold of mining upwards."""

    curve: Curve
    num_gold: int
    calibration: Reliability | None  # None without probabilities

    def figures(self) -> dict[str, Any]:
        best = self.curve.best()
        calibration = {} if self.calibration is None else {"calibration": self.calibration.figures()}
        return {
            "gold": {
                "pairs": self.num_gold,
                "mined": self.curve.point(len(self.curve.pairs) - 1),
                "best": None if best is None else self.curve.point(best),
                "curve": self.curve.figures(),
                **calibration,
            }
        }

    def summary(self) -> str:
        points = self.curve.figures()
        points = [points[row] for row in np.unique(np.linspace(0, len(points) - 1, MAX_TABLE_ROWS).astype(int))]
        rows = {f"above {point['threshold']:.4f}": _cells(point) for point in points}
        best = self.curve.best()
        if best is not None:
            rows[f"best F1: {self.curve.thresholds[best]:.4f}"] = _cells(self.curve.point(best))
        lines = [f"{self.num_gold:,} gold pairs", table(["pairs", "precision", "recall", "F1"], rows)]
        if self.calibration is not None:
            lines.append(f"expected calibration error of the probability: {self.calibration.error:.3f}")
        return "\n".join(lines)


def _cells(point: dict[str, float]) -> list[str]:
    return [str(point["pairs"]), *(percent(point[share]) for share in ("precision", "recall", "f1"))]


@dataclass(frozen=True, eq=False)
class ReviewReport:
    """Precision by level of margin, and of all pairs from a level upwards, by the marks of a sample."""

    margins: Floats  # (n,) all pairs, best first
    levels: LevelCounts  # one list
    num_unmatched: int  # judged pairs that are not in the bitext
    agreements: Sequence[Agreement]

    @property
    def num_marked(self) -> int:
        return int(self.levels.marked.sum())

    def figures(self) -> dict[str, Any]:
        lowest_levels = np.tri(NUM_LEVELS)  # row i: the levels down to the i-th
        above = LevelCounts(*(lowest_levels * counts for counts in (self.levels.pairs, self.levels.marked, self.levels.right))).pool()
        alone = LevelCounts(*(np.diag(counts[0]) for counts in (self.levels.pairs, self.levels.marked, self.levels.right))).pool()
        bounds = level_bounds(np.array([len(self.margins)]))[0]
        levels = [
            {
                "min_margin": float(self.margins[end - 1]),
                "max_margin": float(self.margins[start]),
                "pairs": int(end - start),
                "marked": int(self.levels.marked[0, row]),
                **_estimate("precision", "interval", alone.estimate(row)),
                **_estimate("precision_above", "interval_above", above.estimate(row)),
            }
            for row, (start, end) in enumerate(pairwise(bounds.tolist()))
            if end > start
        ]
        agreement = [agreement.figures() for agreement in self.agreements]
        return {"marks": {"unmatched": self.num_unmatched, "levels": levels, "agreement": agreement}}

    def summary(self) -> str:
        levels = self.figures()["marks"]["levels"]
        rows = {
            f"{level['min_margin']:.4f} to {level['max_margin']:.4f}": [
                str(level["pairs"]),
                str(level["marked"]),
                *("" if share is None else percent(share) for share in _shares(level)),
            ]
            for level in levels
        }
        heads = ["pairs", "marked", "precision", "from", "to", "of all above", "from", "to"]
        unmatched = [f"{counted(self.num_unmatched, 'marked pair')} not in the bitext"] if self.num_unmatched else []
        return "\n".join([table(heads, rows), *unmatched, *(agreement.summary() for agreement in self.agreements)])


KnownPairs = GoldPairs | ReviewMarks


def measure_precision(
    known_pairs: KnownPairs, ids: tuple[Ids, Ids], margins: Floats, probabilities: Floats | None
) -> GoldReport | ReviewReport:
    """Measure the precision of pairs (n,), in any order, and the calibration of their probabilities (n,), if they have any.

    Raise DataError if none of them is marked.
    """
    order = np.argsort(-margins, kind="stable")
    source_ids, target_ids = (side[order] for side in ids)
    if isinstance(known_pairs, GoldPairs):
        is_right = known_pairs.is_gold(source_ids, target_ids)
        calibration = None if probabilities is None else measure_reliability(probabilities[order], is_right)
        return GoldReport(curve(margins[order], is_right, len(known_pairs)), len(known_pairs), calibration)
    marked = find_marked(known_pairs.right, zip(source_ids.tolist(), target_ids.tolist(), strict=True))
    if not len(marked.rows):
        raise DataError(f"{known_pairs.name}: none of its pairs is in the bitext; give the marks of this bitext")
    levels = count_levels(marked, np.array([len(margins)]))
    return ReviewReport(margins[order], levels, len(known_pairs.right) - len(marked.rows), known_pairs.agreements())


def _estimate(name: str, interval: str, estimate: PrecisionEstimate | None) -> dict[str, Any]:
    return {name: estimate and estimate.value, interval: [0.0, 1.0] if estimate is None else [estimate.low, estimate.high]}


def _shares(level: Mapping[str, Any]) -> list[float | None]:
    """Return the precision of a level and of all above, each with the ends of its interval."""
    return [level["precision"], *level["interval"], level["precision_above"], *level["interval_above"]]
