"""Figures together with the items they are made from, so that they can be made anew of other samples of the items."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
Items = npt.NDArray[Any]  # (n, c): a row an item, such as a sentence that was looked for
Statistic = Callable[[Items], float]


@dataclass(frozen=True, eq=False)
class Score:
    """The mean over groups, such as languages, of a statistic of their items. Every group counts the same."""

    groups: Mapping[str, Items]
    statistic: Statistic

    @property
    def by_group(self) -> dict[str, float]:
        return {name: self.statistic(items) for name, items in self.groups.items()}

    @property
    def value(self) -> float:
        return fmean(self.by_group.values())


class TaskResult(Protocol):
    """What every evaluation gives."""

    def figures(self) -> dict[str, Any]:
        """All that was measured, as JSON."""
        ...

    def summary(self) -> str:
        """For the terminal."""
        ...

    def scores(self) -> dict[str, Score]:
        """The few figures that encoders are compared by."""
        ...


def mean(items: Items) -> float:
    return float(items.mean())


def spearman(items: Items) -> float:
    """Columns (n, 2): two quantities -> the correlation of their ranks, of equal values the mean rank; 0 where one never changes."""
    if _constant(items):
        return 0.0
    return float(stats.spearmanr(items[:, 0], items[:, 1]).statistic)


def pearson(items: Items) -> float:
    """Columns (n, 2): two quantities -> their correlation; 0 where one never changes."""
    if _constant(items):
        return 0.0
    return float(stats.pearsonr(items[:, 0], items[:, 1]).statistic)


def _constant(items: Items) -> bool:
    return bool((items == items[0]).all(axis=0).any())


def agreement(items: Items) -> float:
    """Columns (n, 2): two labels of an item -> the share of the items where they are equal."""
    return float((items[:, 0] == items[:, 1]).mean())


def macro_f1(items: Items) -> float:
    """Columns (n, 2): the true label of an item and the predicted one -> the mean over labels of F1."""
    from sklearn.metrics import f1_score

    return float(f1_score(items[:, 0], items[:, 1], average="macro"))


def f1(items: Items) -> float:
    """Columns (n, 3): pairs that are right, that were found, and that are wanted -> F1 of their sums; 0 where there is none."""
    right, found, wanted = items.sum(axis=0)
    return float(2 * right / (found + wanted)) if found + wanted else 0.0


def percent(share: float) -> str:
    return f"{100 * share:.2f}"


def table(heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """Cells below their heads, behind the name of their row."""
    cells = [["", *heads], *([name, *row] for name, row in rows.items())]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]) for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)
