"""Scores with the items they are computed from, so that the bootstrap can recompute them on samples of the items."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from miner import arrays
from miner.errors import require

Items = npt.NDArray[Any]  # (n, c): one row per item, such as a query sentence
Statistic = Callable[[Items], float]


@dataclass(frozen=True, eq=False)
class Score:
    """The mean over groups, such as languages, of a statistic of their items."""

    groups: Mapping[str, Items]
    statistic: Statistic
    is_weighted: bool = False  # by the items of a group
    lowest: float = 0.0  # that the statistic can be; the highest is 1. The mean of items is between theirs

    @property
    def by_group(self) -> dict[str, float]:
        return {name: self.statistic(items) for name, items in self.groups.items()}

    @property
    def value(self) -> float:
        return self.average(self.by_group.values())

    def average(self, values: Iterable[float]) -> float:
        """Return the mean of one value per group, in their order."""
        return fmean(values, [len(items) for items in self.groups.values()] if self.is_weighted else None)


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """The result of a task, of a suite, or of the evaluation of a bitext."""

    figures: dict[str, Any]  # all measurements, as JSON
    summary: str  # text for the terminal
    scores: Mapping[str, Score] = field(default_factory=dict)  # the few scores by which encoders are compared


def mean(items: Items) -> float:
    return float(items.mean())


def spearman(items: Items) -> float:
    """Two columns (n, 2) -> the correlation of their ranks, ties taking the mean rank; 0 if a column is constant."""
    return float(np.nan_to_num(arrays.spearman(items[:, 0], items[:, 1])))


def pearson(items: Items) -> float:
    """Two columns (n, 2) -> their correlation; 0 if a column is constant."""
    return float(np.nan_to_num(arrays.pearson(items[:, 0], items[:, 1])))


def agreement(items: Items) -> float:
    """True labels and those of e predictions (n, 1 + e) -> the accuracy, the mean over predictions."""
    return float((items[:, :1] == items[:, 1:]).mean())


def macro_f1(items: Items) -> float:
    """True labels and those of e predictions (n, 1 + e) -> the mean over labels of F1, the mean over predictions."""
    f1_score = require("sklearn.metrics").f1_score

    return fmean(float(f1_score(items[:, 0], predicted, average="macro")) for predicted in items[:, 1:].T)


def f1(items: Items) -> float:
    """Numbers of correct, mined and gold pairs (n, 3) -> F1 of their sums; 0 if all are 0."""
    correct, mined, gold = items.sum(axis=0)
    return float(2 * correct / (mined + gold)) if mined + gold else 0.0


def percent(share: float) -> str:
    return f"{100 * share:.2f}"


def figure_table(rows: Mapping[str, Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Return a table of the figures under some keys, with the heads of their columns: shares in percent, counts, or nothing."""

    def cell(value: Any) -> str:
        return "" if value is None else percent(value) if isinstance(value, float) else str(value)

    return table(list(columns.values()), {name: [cell(row.get(key)) for key in columns] for name, row in rows.items()})


def table(heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """Return an aligned table: a head for each column, and a name for each row."""
    cells = [["", *heads], *([name, *row] for name, row in rows.items())]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]) for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)
