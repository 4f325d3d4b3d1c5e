"""The tables of the papers: recipes that give their rows, tasks that give their columns, and the published figures.

`configs/PAPER/tables.yaml` has them, beside the recipes and suites that they name. All of them are checked when they are loaded.
"""

import fnmatch
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config.base import Settings, Strings, load_yaml
from miner.config.recipes import FOLDER
from miner.errors import ConfigError
from miner.evaluation.suite import SuiteConfig

TABLES_FILE = "tables.yaml"
OURS, UNKNOWN = "ours", "unknown"
Setting = Annotated[
    Literal["paper", "ours", "unknown"],
    pydantic.Field(description="Whose settings: the paper's, ours in their place, or unknown: the paper's are not known here."),
]


class RunSettings(Settings):
    """An encoder of a paper: a recipe that trains it once per seed, or a model that is evaluated as it is."""

    recipe: str | None = pydantic.Field(None, description="Path of the recipe below the folder of configs.")
    model: str | None = pydantic.Field(None, description="Hub id of a model.")
    pooling: str | None = pydantic.Field(None, description="Pooling of `model`.")
    changes: Strings = pydantic.Field((), description="Settings of the recipe, as in `miner train --set`.")
    start: str | None = pydantic.Field(None, description="PAPER/RUN whose encoder the recipe starts from, that of seed 0.")
    grid: Mapping[str, Mapping[str, Strings]] = pydantic.Field(
        default_factory=dict,
        description="Axis -> name of a value -> changes: a run for each combination, with the names appended to that of the run.",
    )

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if (self.recipe is None) == (self.model is None):
            raise PydanticCustomError("run", "give either a recipe to train or a model to evaluate")
        if self.recipe is None and (self.changes or self.start or self.grid):
            raise PydanticCustomError("run", "changes, start and grid belong to a recipe; remove them")
        if self.recipe is not None and self.pooling is not None:
            raise PydanticCustomError("run", "the recipe sets the pooling; remove it, or add a change")
        return self


class TableColumn(Settings):
    """A column: a figure of one or more tasks of the suite, their mean."""

    tasks: Strings = pydantic.Field((), description="Titles in the suite; empty: no task here measures it, see `note`.")
    figure: Strings = pydantic.Field((), description="Keys that lead to the figure, as in the JSON of `miner eval`.")
    best_by: str = pydantic.Field(
        "", description="Measure the encoder that the recipe keeps under this name of evaluation.best_by, if any."
    )
    scale: float = pydantic.Field(100, description="Factor by which the paper prints the figure.")
    decimals: int = pydantic.Field(1, ge=0)
    setting: Setting = "paper"
    note: str = pydantic.Field("", description="Protocol, or why it is not measured.")

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.tasks) != bool(self.figure) or not (self.tasks or self.note):
            raise PydanticCustomError("column", "give tasks and figure, or a note that says why there is no task")
        return self


class TableRow(Settings):
    """A row: a run, or a system that the paper quotes."""

    run: str | None = pydantic.Field(None, description="A run of this paper, or PAPER/RUN; by default, the run with the name of the row.")
    quoted: str = pydantic.Field("", description="Why there is nothing to run: the paper quotes the row.")
    seeds: int | None = pydantic.Field(None, ge=1, description="Maximum number of seeds; by default, that of the table.")
    published: Mapping[str, float] = pydantic.Field(default_factory=dict, description="Figures by column.")
    setting: Setting = "paper"
    note: str = ""


class PaperTable(Settings):
    """One table of a paper."""

    title: str
    suite: str = pydantic.Field(description="Path of the suite below the folder of configs.")
    seeds: int = pydantic.Field(1, ge=1)
    columns: Mapping[str, TableColumn] = pydantic.Field(min_length=1)
    rows: Mapping[str, TableRow] = pydantic.Field(min_length=1)
    notes: Strings = ()

    def best_by(self, task: str) -> str:
        """Return the name of the held-out data by which the encoder of a task of its columns is chosen; empty for that of the recipe."""
        return next(column.best_by for column in self.columns.values() if task in column.tasks)


class PaperSettings(Settings):
    """The runs and tables of one paper."""

    paper: str
    runs: Mapping[str, RunSettings] = pydantic.Field(default_factory=dict)
    tables: Mapping[str, PaperTable] = pydantic.Field(min_length=1)


@dataclass(frozen=True)
class Registry:
    """All papers below a folder. Runs are called PAPER/RUN, tables and rows by their keys."""

    folder: Path
    papers: Mapping[str, str]  # table -> title of the paper
    tables: Mapping[str, PaperTable]  # the run of each row is None or a name of `runs`
    runs: Mapping[str, RunSettings]  # without grids

    def table(self, name: str) -> PaperTable:
        if name not in self.tables:
            raise ConfigError(f"unknown table {name!r}; one of {', '.join(self.tables)}")
        return self.tables[name]

    def suite(self, table: PaperTable) -> SuiteConfig:
        return load_yaml(SuiteConfig, str(self.folder / table.suite))


def load_registry(folder: str | None = None) -> Registry:
    """Read the tables below a folder, by default those of the package. Raise ConfigError for the first fault."""
    root = Path(folder) if folder is not None else FOLDER
    root = root.relative_to(Path.cwd()) if root.is_relative_to(Path.cwd()) else root
    paths = sorted(root.glob(f"*/{TABLES_FILE}"))
    if not paths:
        raise ConfigError(f"{root}: no {TABLES_FILE} in its folders; give a folder of recipes by --configs")
    settings = {path: load_yaml(PaperSettings, str(path)) for path in paths}
    runs: dict[str, RunSettings] = {}
    variants: dict[str, dict[str, str]] = {}  # run, also one with a grid -> label -> its run in `runs`
    for path, paper in settings.items():
        for name, run in paper.runs.items():
            expanded = _expand(run)
            full_name = f"{path.parent.name}/{name}"
            names = {label: f"{full_name}-{label}" if label else full_name for label in expanded}
            runs |= {names[label]: variant for label, variant in expanded.items()}
            variants |= {variant: {"": variant} for variant in names.values()} | {full_name: names}
    tables: dict[str, PaperTable] = {}
    for path, paper in settings.items():
        for name, table in paper.tables.items():
            if name in tables:
                raise ConfigError(f"{path}: table {name!r} is also in another file; rename it")
            tables[name] = table.model_copy(update={"rows": _resolve_rows(path, name, table, variants)})
    registry = Registry(root, {name: paper.paper for paper in settings.values() for name in paper.tables}, tables, runs)
    _check(registry, {name: path for path, paper in settings.items() for name in paper.tables})
    return registry


def _expand(run: RunSettings) -> dict[str, RunSettings]:
    """Return a run by label for each combination of its grid; the run itself, under an empty label, if it has none."""
    variants = {}
    for values in itertools.product(*(axis.items() for axis in run.grid.values())):
        changes = itertools.chain(run.changes, *(changes for _, changes in values))
        variants["-".join(label for label, _ in values)] = run.model_copy(update={"changes": tuple(changes), "grid": {}})
    return variants


def _resolve_rows(path: Path, name: str, table: PaperTable, variants: Mapping[str, Mapping[str, str]]) -> dict[str, TableRow]:
    """Return the rows with the full names of their runs, one row for each run of a grid. Raise ConfigError for an unknown run."""
    rows = {}
    for key, row in table.rows.items():
        if row.quoted:
            rows[key] = row
            continue
        run = row.run or key
        full_name = run if "/" in run else f"{path.parent.name}/{run}"
        if full_name not in variants:
            raise ConfigError(f"{path}: tables.{name}.rows.{key}: no run {run!r}; add it to runs, or say in `quoted` why there is none")
        for label, variant in variants[full_name].items():
            rows[f"{key}-{label}" if label else key] = row.model_copy(update={"run": variant})
    return rows


def _check(registry: Registry, paths: Mapping[str, Path]) -> None:
    """Raise ConfigError where a table names a file, a task, a run or a column that does not exist."""
    for name, run in registry.runs.items():
        if run.recipe is not None and not (registry.folder / run.recipe).is_file():
            raise ConfigError(f"{registry.folder / name.partition('/')[0] / TABLES_FILE}: run {name!r}: no recipe {run.recipe}")
        _check_start(registry, name)
    for name, table in registry.tables.items():
        where = f"{paths[name]}: tables.{name}"
        titles = [task.title for task in registry.suite(table).tasks]
        for column, settings in table.columns.items():
            if unknown := [task for task in settings.tasks if task not in titles]:
                raise ConfigError(f"{where}.columns.{column}: no task {unknown[0]!r} in {table.suite}; one of {', '.join(titles)}")
            if others := [task for task in settings.tasks if table.best_by(task) != settings.best_by]:
                raise ConfigError(
                    f"{where}.columns.{column}: another column measures {others[0]!r} with another best_by; give both the same"
                )
        for key, row in table.rows.items():
            if unknown := [column for column in row.published if column not in table.columns]:
                raise ConfigError(f"{where}.rows.{key}: no column {unknown[0]!r}; one of {', '.join(table.columns)}")


def _check_start(registry: Registry, name: str) -> None:
    where = registry.folder / name.partition("/")[0] / TABLES_FILE
    chain: list[str] = [name]
    while (start := registry.runs[chain[-1]].start) is not None:
        if start not in registry.runs or registry.runs[start].recipe is None:
            raise ConfigError(f"{where}: run {chain[-1]!r} starts from {start!r}, which is no run with a recipe; write PAPER/RUN")
        if start in chain:
            raise ConfigError(f"{where}: run {name!r} starts from itself, by way of {chain[-1]!r}; remove one start")
        chain.append(start)


def select_rows(table: PaperTable, patterns: Sequence[str]) -> list[str]:
    """Return the keys of the rows that match one of the patterns, all without patterns. Raise ConfigError for one without a row."""
    for pattern in patterns:
        if not fnmatch.filter(table.rows, pattern):
            raise ConfigError(f"--rows {pattern}: no such row; one of {', '.join(table.rows)}")
    return [key for key in table.rows if not patterns or any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)]
