"""Precision of a bitext: by gold, which has all true pairs, or by marks that people gave to a sample of the pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from miner.errors import DataError
from miner.evaluation.inputs import read_lines
from miner.evaluation.scores import Floats, percent, table
from miner.mining.precision_recall import Bools, Curve, curve
from miner.mining.thresholds import wilson
from miner.text import streams
from miner.text.normalise import sentence_ids

Ids = npt.NDArray[np.int64]

MARGIN_LEVELS = 10  # with equally many pairs each
MAX_TABLE_ROWS = 12  # of the curve in the terminal
MARKS = {"right": True, "wrong": False}


class PrecisionReport(Protocol):
    """The precision of a bitext."""

    def figures(self) -> dict[str, Any]: ...

    def summary(self) -> str: ...


@dataclass(frozen=True)
class GoldPairs:
    """All true pairs of two corpora, by sentence ids."""

    pairs: frozenset[tuple[int, int]]
    missing: int = 0  # further true pairs, which cannot be mined because one of their lines was dropped

    @property
    def num_gold(self) -> int:
        return len(self.pairs) + self.missing

    def measure_precision(self, source_ids: Ids, target_ids: Ids, margins: Floats) -> "GoldReport":
        return GoldReport(curve(margins, self.is_gold(source_ids, target_ids), self.num_gold), self.num_gold)

    def is_gold(self, source_ids: Ids, target_ids: Ids) -> Bools:
        """Return (n,) which pairs are gold pairs."""
        return np.array([pair in self.pairs for pair in zip(source_ids.tolist(), target_ids.tolist(), strict=True)], dtype=bool)


@dataclass(frozen=True, eq=False)
class GoldReport:
    """Precision, recall and F1 by threshold, from the threshold of mining upwards."""

    curve: Curve
    num_gold: int

    def figures(self) -> dict[str, Any]:
        best = self.curve.best()
        return {
            "gold": {
                "pairs": self.num_gold,
                "mined": self.curve.point(len(self.curve.pairs) - 1),
                "best": None if best is None else self.curve.point(best),
                "curve": self.curve.figures(),
            }
        }

    def summary(self) -> str:
        points = self.curve.figures()
        points = [points[row] for row in np.unique(np.linspace(0, len(points) - 1, MAX_TABLE_ROWS).astype(int))]
        rows = {f"above {point['threshold']:.4f}": _cells(point) for point in points}
        best = self.curve.best()
        if best is not None:
            rows[f"best F1: {self.curve.thresholds[best]:.4f}"] = _cells(self.curve.point(best))
        return f"{self.num_gold:,} gold pairs\n{table(['pairs', 'precision', 'recall', 'F1'], rows)}"


def _cells(point: dict[str, float]) -> list[str]:
    return [str(point["pairs"]), *(percent(point[share]) for share in ("precision", "recall", "f1"))]


@dataclass(frozen=True)
class ReviewMarks:
    """Marks by people: whether a pair is right, by the ids of its texts."""

    uri: str
    right: dict[tuple[int, int], bool]

    def measure_precision(self, source_ids: Ids, target_ids: Ids, margins: Floats) -> "ReviewReport":
        """Raise DataError if no marked pair is in the bitext."""
        marks = [self.right.get(pair) for pair in zip(source_ids.tolist(), target_ids.tolist(), strict=True)]
        is_marked = np.array([mark is not None for mark in marks], dtype=bool)
        if not is_marked.any():
            raise DataError(f"{self.uri}: none of its pairs is in the bitext; give the marks of this bitext")
        is_right = np.array([bool(mark) for mark in marks], dtype=bool)
        order = np.argsort(-margins, kind="stable")
        level_rows = np.array_split(order, min(MARGIN_LEVELS, len(order)))
        levels = [ReviewLevel(margins[rows], is_marked[rows], is_right[rows]) for rows in level_rows]
        return ReviewReport(levels, len(self.right) - int(is_marked.sum()))


@dataclass(frozen=True, eq=False)
class ReviewLevel:
    """The pairs of one level of margin, best first."""

    margins: Floats
    is_marked: Bools
    is_right: Bools

    @property
    def precision(self) -> float | None:
        """The share of the marked pairs that are right; None without marks."""
        num_marked = int(self.is_marked.sum())
        return int(self.is_right.sum()) / num_marked if num_marked else None

    def figures(self) -> dict[str, Any]:
        num_marked = int(self.is_marked.sum())
        low, high = wilson(np.array([self.precision or 0.0]), np.array([float(num_marked)]))
        return {
            "from": float(self.margins[-1]),
            "to": float(self.margins[0]),
            "pairs": len(self.margins),
            "judged": num_marked,
            "precision": self.precision,
            "interval": [float(low[0]), float(high[0])],
        }


@dataclass(frozen=True, eq=False)
class ReviewReport:
    """Precision by level of margin, and of all pairs from a level upwards.

    Levels are weighted by their pairs and not by their marks, so the latter is unbiased for any number of marks per level, if the marked
    pairs of a level are a random sample.
    """

    levels: Sequence[ReviewLevel]
    num_unmatched: int  # marks of pairs that are not in the bitext

    def precisions_above(self) -> list[float | None]:
        """Return for each level the precision of all pairs from it upwards; None if one of these levels has no marks."""
        precisions: list[float | None] = []
        num_right, num_pairs = 0.0, 0
        for level in self.levels:
            num_pairs += len(level.margins)
            num_right += np.nan if level.precision is None else level.precision * len(level.margins)
            precisions.append(None if np.isnan(num_right) else num_right / num_pairs)
        return precisions

    def figures(self) -> dict[str, Any]:
        precisions_above = self.precisions_above()
        levels = [{**level.figures(), "precision_above": above} for level, above in zip(self.levels, precisions_above, strict=True)]
        return {"marks": {"elsewhere": self.num_unmatched, "levels": levels}}

    def summary(self) -> str:
        levels = self.figures()["marks"]["levels"]
        rows = {
            f"{level['from']:.4f} to {level['to']:.4f}": [
                str(level["pairs"]),
                str(level["judged"]),
                *("" if share is None else percent(share) for share in (level["precision"], *level["interval"], level["precision_above"])),
            ]
            for level in levels
        }
        return table(["pairs", "marked", "precision", "from", "to", "of all above"], rows)


def is_marks(uri: str) -> bool:
    """Return whether a file is a table of marks, by its header; gold has two numbers per line instead."""
    with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
        first_line = handle.readline(streams.MAX_LINE_BYTES).removeprefix(streams.BOM)
    return {"mark", "source", "target"} <= set(first_line.decode(errors="replace").split())


def read_marks(uri: str) -> ReviewMarks:
    """Read a table of mark, source and target. Rows whose mark is neither `right` nor `wrong` are ignored.

    Raise DataError if no row is marked.
    """
    sources, targets, marks = (read_lines(uri, column) for column in ("source", "target", "mark"))
    pairs = zip(sentence_ids(sources).tolist(), sentence_ids(targets).tolist(), strict=True)
    right = {pair: MARKS[mark] for pair, mark in zip(pairs, marks, strict=True) if mark in MARKS}
    if not right:
        raise DataError(f"{uri}: no row is marked {' or '.join(MARKS)}; mark some pairs")
    return ReviewMarks(uri, right)
