"""How many pairs of a bitext are right: by gold, which is all the true pairs, or by marks that people gave to some of the pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from miner.errors import DataError
from miner.evaluation.inputs import read_lines
from miner.evaluation.precision_recall import Bools, Curve, curve
from miner.evaluation.scores import Floats, percent, table
from miner.mining.thresholds import wilson
from miner.text import streams
from miner.text.normalise import sentence_ids

Ids = npt.NDArray[np.int64]

LEVELS = 10  # of margin, each of as many pairs
ROWS = 12  # of a curve on the terminal
MARKS = {"right": True, "wrong": False}


class PrecisionReport(Protocol):
    """How many pairs are right."""

    def figures(self) -> dict[str, Any]: ...

    def summary(self) -> str: ...


@dataclass(frozen=True)
class GoldPairs:
    """All the true pairs of two corpora, as ids; `missing` counts those that cannot be found, as one of their lines was dropped."""

    pairs: frozenset[tuple[int, int]]
    missing: int = 0

    def judge(self, source_ids: Ids, target_ids: Ids, margins: Floats) -> PrecisionReport:
        right = [pair in self.pairs for pair in zip(source_ids.tolist(), target_ids.tolist(), strict=True)]
        return GoldReport(curve(margins, np.array(right, dtype=bool), len(self.pairs) + self.missing), len(self.pairs) + self.missing)


@dataclass(frozen=True, eq=False)
class GoldReport:
    """Precision, recall and F1 by threshold, from that at which the bitext was mined upwards."""

    curve: Curve
    wanted: int

    def figures(self) -> dict[str, Any]:
        best = self.curve.best()
        return {
            "gold": {
                "pairs": self.wanted,
                "mined": self.curve.point(len(self.curve.pairs) - 1),
                "best": None if best is None else self.curve.point(best),
                "curve": self.curve.figures(),
            }
        }

    def summary(self) -> str:
        points = self.curve.figures()
        shown = [points[row] for row in np.unique(np.linspace(0, len(points) - 1, ROWS).astype(int))]
        rows = {f"above {point['threshold']:.4f}": _cells(point) for point in shown}
        best = self.curve.best()
        if best is not None:
            rows[f"best F1: {self.curve.thresholds[best]:.4f}"] = _cells(self.curve.point(best))
        return f"{self.wanted:,} gold pairs\n{table(['pairs', 'precision', 'recall', 'F1'], rows)}"


def _cells(point: dict[str, float]) -> list[str]:
    return [str(point["pairs"]), *(percent(point[share]) for share in ("precision", "recall", "f1"))]


@dataclass(frozen=True)
class ReviewMarks:
    """What people say of some pairs, by the ids of their texts."""

    uri: str
    right: dict[tuple[int, int], bool]

    def judge(self, source_ids: Ids, target_ids: Ids, margins: Floats) -> PrecisionReport:
        """DataError where none of the marks is of a pair of the bitext."""
        marks = [self.right.get(pair) for pair in zip(source_ids.tolist(), target_ids.tolist(), strict=True)]
        judged = np.array([mark is not None for mark in marks], dtype=bool)
        if not judged.any():
            raise DataError(f"{self.uri}: none of its pairs is in the bitext; give the marks of this bitext")
        right = np.array([bool(mark) for mark in marks], dtype=bool)
        order = np.argsort(-margins, kind="stable")
        levels = [ReviewLevel(margins[rows], judged[rows], right[rows]) for rows in np.array_split(order, min(LEVELS, len(order)))]
        return ReviewReport(levels, len(self.right) - int(judged.sum()))


@dataclass(frozen=True, eq=False)
class ReviewLevel:
    """The pairs of one level of margin, best first."""

    margins: Floats
    judged: Bools
    right: Bools

    @property
    def share(self) -> float | None:
        """Of the judged pairs that are right."""
        judged = int(self.judged.sum())
        return int(self.right.sum()) / judged if judged else None

    def figures(self) -> dict[str, Any]:
        judged = int(self.judged.sum())
        low, high = wilson(np.array([self.share or 0.0]), np.array([float(judged)]))
        return {
            "from": float(self.margins[-1]),
            "to": float(self.margins[0]),
            "pairs": len(self.margins),
            "judged": judged,
            "precision": self.share,
            "interval": [float(low[0]), float(high[0])],
        }


@dataclass(frozen=True, eq=False)
class ReviewReport:
    """Precision by level of margin, and of all pairs from a level upwards.

    Levels are weighed by their pairs, so the latter holds however many of each level were marked, if those of a level were drawn by chance.
    """

    levels: Sequence[ReviewLevel]
    elsewhere: int  # marks of pairs that the bitext does not have

    def precisions_above(self) -> list[float | None]:
        """By level the precision of it and all above it; None where one of them has no mark."""
        found: list[float | None] = []
        right, pairs = 0.0, 0
        for level in self.levels:
            pairs += len(level.margins)
            right += np.nan if level.share is None else level.share * len(level.margins)
            found.append(None if np.isnan(right) else right / pairs)
        return found

    def figures(self) -> dict[str, Any]:
        above = self.precisions_above()
        levels = [{**level.figures(), "precision_above": share} for level, share in zip(self.levels, above, strict=True)]
        return {"marks": {"elsewhere": self.elsewhere, "levels": levels}}

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
    """Whether a file is a table of marks: its first line, which of gold is two numbers, names their columns."""
    with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
        first = handle.readline(streams.MAX_LINE_BYTES).removeprefix(streams.BOM)
    return {"mark", "source", "target"} <= set(first.decode(errors="replace").split())


def read_marks(uri: str) -> ReviewMarks:
    """A table of mark, source and target -> the marks; rows whose mark is neither `right` nor `wrong` say nothing.

    DataError where no row is marked.
    """
    sources, targets, marks = (read_lines(uri, column) for column in ("source", "target", "mark"))
    pairs = zip(sentence_ids(sources).tolist(), sentence_ids(targets).tolist(), strict=True)
    right = {pair: MARKS[mark] for pair, mark in zip(pairs, marks, strict=True) if mark in MARKS}
    if not right:
        raise DataError(f"{uri}: no row is marked {' or '.join(MARKS)}; mark some")
    return ReviewMarks(uri, right)
