"""Published beside measured figures, and why there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from miner.evaluation.scores import table
from miner.research.reproduction.plan import PlannedRow, ReproductionPlan
from miner.research.reproduction.registry import OURS, UNKNOWN, PaperTable, TableColumn, TableRow

NOT_RUN, UNPUBLISHED = "not run", "-"
MARKS = {OURS: "*", UNKNOWN: "?"}
LEGEND = {OURS: "with a setting of ours in place of the paper's", UNKNOWN: "with a setting of ours, since the paper's is not known here"}


@dataclass(frozen=True)
class TableCell:
    """One figure of a table, in the unit of the paper."""

    published: float | None
    measured: Sequence[float]  # one per seed
    reason: str  # why nothing was measured; empty if something was
    setting: str = "paper"  # whose settings the row and the column have, together

    @property
    def mean(self) -> float | None:
        return fmean(self.measured) if self.measured else None

    @property
    def std(self) -> float | None:
        """The standard deviation over seeds (n - 1)."""
        return stdev(self.measured) if len(self.measured) > 1 else None

    def figures(self) -> dict[str, Any]:
        values = {"published": self.published, "measured": list(self.measured), "mean": self.mean, "std": self.std}
        return {**values, "setting": self.setting, **({} if self.measured else {"reason": self.reason})}

    def texts(self, decimals: int) -> tuple[str, str]:
        """Return the published and the measured figure."""
        published = UNPUBLISHED
        if self.published is not None:
            published = f"{self.published:.{max(decimals, len(f'{self.published:g}'.partition('.')[2]))}f}"
        std = "" if self.std is None else f" ± {self.std:.{decimals}f}"
        mark = MARKS.get(self.setting, "")
        return published, (NOT_RUN if self.mean is None else f"{self.mean:.{decimals}f}{std}") + mark


@dataclass(frozen=True)
class ReproducedTable:
    """The result of `miner reproduce`."""

    name: str
    settings: PaperTable
    cells: Mapping[str, Mapping[str, TableCell]]  # row -> column
    notes: Sequence[str]
    changes: Sequence[str]  # changes by the user

    def figures(self) -> dict[str, Any]:
        return {
            "table": self.name,
            "title": self.settings.title,
            "changes": list(self.changes),
            "order": list(self.cells),  # JSON objects do not keep the order of the rows
            "columns": list(self.settings.columns),
            "rows": {key: {column: cell.figures() for column, cell in row.items()} for key, row in self.cells.items()},
            "notes": list(self.notes),
        }

    def heads(self) -> list[str]:
        return [head for column in self.settings.columns for head in (column, "measured")]

    def texts(self) -> dict[str, list[str]]:
        """Return the cells of each row: for each column the published figure, then the measured one."""
        decimals = {name: column.decimals for name, column in self.settings.columns.items()}
        return {key: [text for column, cell in row.items() for text in cell.texts(decimals[column])] for key, row in self.cells.items()}

    def summary(self) -> str:
        return "\n".join([self.settings.title, "", table(self.heads(), self.texts()), "", *self.notes])


def markdown(result: ReproducedTable) -> str:
    """Return the table and its notes in Markdown."""
    lines = [["", *result.heads()], ["---", *(["--:"] * len(result.heads()))], *([key, *row] for key, row in result.texts().items())]
    notes = [f"- {note}" for note in result.notes]
    return "\n".join([f"## {result.settings.title}", "", *(f"| {' | '.join(line)} |" for line in lines), "", *notes, ""])


def collect(plan: ReproductionPlan, figures: Mapping[Path, Mapping[str, Any]]) -> ReproducedTable:
    """Return the table from the figures of each run, by folder and title of the task."""
    columns = plan.table.columns
    cells = {
        key: {
            name: _cell(row, column, plan.table.rows[key], name, [figures.get(run.folder, {}) for run in row.runs], plan)
            for name, column in columns.items()
        }
        for key, row in plan.rows.items()
    }
    return ReproducedTable(plan.name, plan.table, cells, _notes(plan, cells), plan.options.changes)


def _cell(
    row: PlannedRow, column: TableColumn, settings: TableRow, name: str, runs: Sequence[Mapping[str, Any]], plan: ReproductionPlan
) -> TableCell:
    published, setting = settings.published.get(name), joint_setting(settings.setting, column.setting)
    if not column.tasks:
        return TableCell(published, (), column.note, setting)
    values = [value for run in runs if (value := _read_figure(column, run)) is not None]
    missing = [plan.missing_tasks[title] for title in column.tasks if title in plan.missing_tasks]
    reason = row.reason or "; ".join(missing) or f"no figure {'.'.join(column.figure)} in {', '.join(column.tasks)}: its data lacks a part"
    return TableCell(published, [column.scale * value for value in values], "" if values else reason, setting)


def joint_setting(*settings: str) -> str:
    """Return whose a figure's settings are: ours where one of them is, then unknown where one is, else the paper's."""
    return next((setting for setting in (OURS, UNKNOWN) if setting in settings), "paper")


def _read_figure(column: TableColumn, tasks: Mapping[str, Any]) -> float | None:
    """Return the mean of the figure over the tasks of a column; None where one of them has none."""
    values = []
    for title in column.tasks:
        value: Any = tasks.get(title)
        for key in column.figure:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            return None
        values.append(float(value))
    return fmean(values)


def _notes(plan: ReproductionPlan, cells: Mapping[str, Mapping[str, TableCell]]) -> list[str]:
    """Return what a reader must know: why cells are empty, seeds that are missing, protocols, and changes."""
    notes = [
        f"{key}, not run: {row.reason}"
        for key, row in plan.rows.items()
        if row.reason and not any(cell.measured for cell in cells[key].values())
    ]
    for name, column in plan.table.columns.items():
        reasons = {cell.reason: None for key, row in cells.items() if (cell := row[name]).reason and cell.reason != plan.rows[key].reason}
        notes += [f"{name}, not run: {reason}" for reason in reasons if reason != column.note]
        notes += [f"{name}: {column.note}"] if column.note else []
    for key, row in plan.rows.items():
        num_seeds = {name: len(cell.measured) for name, cell in cells[key].items() if cell.measured}
        notes += [f"{key}, {name}: {count} of {len(row.runs)} seeds" for name, count in num_seeds.items() if count < len(row.runs)]
        notes += [f"{key}: {plan.table.rows[key].note}"] if plan.table.rows[key].note else []
    shown = {cell.setting for row in cells.values() for cell in row.values()}
    notes += [f"{MARKS[setting]} {text}" for setting, text in LEGEND.items() if setting in shown]
    notes += [f"not as published: {change}" for change in plan.options.changes]
    return [*notes, *plan.table.notes]
