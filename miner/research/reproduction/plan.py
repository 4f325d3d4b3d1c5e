"""From a table to runs: the recipe of each row with its paths and seed, and what it needs that is not there."""

import contextlib
import glob
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from miner.config.base import load_values
from miner.config.commands import EncoderSettings
from miner.config.datasets import DatasetFiles
from miner.evaluation.task_base import TaskSettings
from miner.io import storage
from miner.research.reproduction.registry import PaperTable, Registry, select_rows
from miner.training.layout import ENCODER, encoder_name

DATA = "data/"  # every path of a recipe to public data starts with it; it stands for --data
MODEL_SETTINGS = ("model", "positive_model")  # settings of `encoder` that name models
NOT_SELECTED = "not selected"


@dataclass(frozen=True)
class ReproductionOptions:
    """What the user chooses."""

    data: str = "data"  # folder of the public datasets as downloaded
    models: str | None = None  # folder of model folders by hub id, or by its last part
    output: str = "build/reproduce"
    rows: Sequence[str] = ()  # patterns; empty: all
    seeds: int | None = None  # number of seeds; None: that of the table
    changes: Sequence[str] = ()  # changes of every recipe, as in `miner train --set`


@dataclass(frozen=True)
class DataPath:
    """Public data that a recipe or a task reads."""

    setting: str  # such as data.0.files.path
    path: str  # below the data folder
    dataset: str | None  # None: not a dataset of `miner data list`

    def below(self, folder: str) -> str:
        """Return the path below a data folder, and what is expected there."""
        path = storage.join(folder, self.path)
        return path if self.dataset is None else f"{path} (dataset {self.dataset})"


@dataclass(frozen=True)
class PlannedRun:
    """A run with one seed, or a model to evaluate."""

    name: str  # PAPER/RUN
    folder: Path
    encoder: str  # folder or hub id, to evaluate
    pooling: str | None = None  # None: that of the encoder
    recipe: str | None = None  # path of the config; None: nothing to train
    changes: Sequence[str] = ()  # changes of the config
    data: Sequence[DataPath] = ()
    models: Sequence[str] = ()  # folders or hub ids that must be there before it starts
    start: "PlannedRun | None" = None
    best_by: Sequence[str] = ()  # names of held-out data for which the recipe keeps an encoder each

    @property
    def title(self) -> str:
        return self.name if self.recipe is None else f"{self.name}, {self.folder.name.replace('-', ' ')}"

    def chain(self) -> list["PlannedRun"]:
        """Return the runs that this one starts from, the first one first, and itself."""
        return [*(self.start.chain() if self.start else []), self]

    def find_encoder(self, best_by: str) -> str:
        """Return the encoder with the best score on the held-out data of this name; the only one where the recipe keeps no other."""
        return str(self.folder / encoder_name(best_by)) if best_by in self.best_by else self.encoder

    def encoder_settings(self) -> EncoderSettings:
        """Return the settings to evaluate it with."""
        return EncoderSettings(encoder=self.encoder, pooling=self.pooling)

    def command(self) -> str:
        """Return the command that trains it."""
        assert self.recipe is not None
        changes = (word for change in self.changes for word in ("--set", change))
        return shlex.join(["miner", "train", self.recipe, "--output", str(self.folder), "--resume", *changes])


@dataclass(frozen=True)
class PlannedRow:
    """A row with its runs, one per seed; a system that the paper quotes has none."""

    runs: Sequence[PlannedRun] = ()
    reason: str = ""  # why it is not run now


@dataclass(frozen=True)
class ReproductionPlan:
    """What is run for one table."""

    name: str
    table: PaperTable
    options: ReproductionOptions
    rows: Mapping[str, PlannedRow]
    tasks: Mapping[str, TaskSettings]  # tasks of its columns, by title
    missing_tasks: Mapping[str, str] = field(default_factory=dict)  # title -> what is missing

    @property
    def evaluation_file(self) -> str:
        """The name of the file, in the folder of a run, with its figures in the suite of the table."""
        return PurePosixPath(self.table.suite).with_suffix(".json").as_posix().replace("/", "-")

    def task_settings(self, title: str) -> dict[str, Any]:
        """Return the settings with which a task is measured, as they are recorded beside its figures."""
        best_by = self.table.best_by(title)
        return {**self.tasks[title].model_dump(mode="json"), **({"best_by": best_by} if best_by else {})}

    def present_tasks(self) -> dict[str, TaskSettings]:
        """Return the tasks whose data is there, by title."""
        return {title: task for title, task in self.tasks.items() if title not in self.missing_tasks}

    def runs(self) -> list[PlannedRun]:
        """Return all runs, each after the runs that it starts from, and each once."""
        return unique(run for row in self.rows.values() for final in row.runs for run in final.chain())


def unique(runs: Iterable[PlannedRun]) -> list[PlannedRun]:
    """Return each run once, by its folder."""
    return list({run.folder: run for run in runs}.values())


def data_paths(values: Any, setting: str = "", dataset: str | None = None) -> Iterator[DataPath]:
    """Yield the paths below `data/` in the values of a recipe, with the dataset that they are said to be."""
    if isinstance(values, str) and values.startswith(DATA):
        yield DataPath(setting, values.removeprefix(DATA), dataset)
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    named = values.get("dataset") if isinstance(values, dict) else None
    for key, value in items:
        yield from data_paths(value, f"{setting}.{key}" if setting else str(key), named)


def task_paths(task: TaskSettings) -> list[DataPath]:
    """Return what a task of a suite reads."""
    paths = [(path.path, path.dataset) if isinstance(path, DatasetFiles) else (path, None) for path in task.paths()]
    return [DataPath("", path, dataset) for path, dataset in dict.fromkeys(paths)]


def find_model(name: str, models: str | None) -> str:
    """Return the folder of a model below MODELS, which is called as its hub id or its last part; else the hub id."""
    folders = [] if models is None else [Path(models) / name, Path(models) / name.rpartition("/")[2]]
    return next((str(folder) for folder in folders if folder.is_dir()), name)


def plan_table(registry: Registry, name: str, options: ReproductionOptions) -> ReproductionPlan:
    """Plan the rows of a table. Only configs are read: `miner.research.reproduction.checks` checks data and models."""
    table = registry.table(name)
    selected = select_rows(table, options.rows)
    titles = {title for column in table.columns.values() for title in column.tasks}
    tasks = {task.title: task for task in registry.suite(table).tasks if task.title in titles}
    rows = {}
    for key, row in table.rows.items():
        if row.run is None:
            rows[key] = PlannedRow(reason=row.quoted)
            continue
        run = registry.runs[row.run]
        num_seeds = options.seeds or table.seeds
        num_seeds = 1 if run.recipe is None else min(num_seeds, row.seeds or num_seeds)
        runs = [plan_run(registry, row.run, seed, options) for seed in range(num_seeds)]
        rows[key] = PlannedRow(runs, "" if key in selected else NOT_SELECTED)
    return ReproductionPlan(name, table, options, rows, tasks)


def plan_run(registry: Registry, name: str, seed: int, options: ReproductionOptions) -> PlannedRun:
    """Plan a run with one seed: its recipe reads the data folder and the model folders, or starts from another run."""
    run, folder = registry.runs[name], Path(options.output) / name
    if run.model is not None:
        model = find_model(run.model, options.models)
        return PlannedRun(name, folder / "model", model, run.pooling, models=(model,))
    assert run.recipe is not None
    folder /= f"seed-{seed}"
    recipe, changes = str(registry.folder / run.recipe), [*run.changes, *options.changes]
    values = load_values(recipe, changes)
    data = list(data_paths(values))
    if options.data.rstrip("/") != DATA.rstrip("/"):
        changes += [_change(path.setting, storage.join(options.data, path.path)) for path in data]
    start = None if run.start is None else plan_run(registry, run.start, 0, options)
    encoder = values.get("encoder", {})
    models = {f"encoder.{name}": encoder[name] for name in MODEL_SETTINGS if encoder.get(name) is not None}
    if start is not None:
        models.pop("encoder.model", None)
        changes.append(_change("encoder.model", start.encoder))
    folders = {setting: find_model(model, options.models) for setting, model in models.items()}
    changes += [_change(setting, model) for setting, model in folders.items() if model != models[setting]]
    changes.append(_change("training.seed", seed))
    best_by = tuple((values.get("evaluation") or {}).get("best_by") or ())
    return PlannedRun(name, folder, str(folder / ENCODER), None, recipe, changes, data, list(folders.values()), start, best_by)


def _change(setting: str, value: str | int) -> str:
    """Return a change as for `--set`, whose value is YAML: quoted where YAML would read something else."""
    with contextlib.suppress(yaml.YAMLError):
        if yaml.safe_load(str(value)) == value:
            return f"{setting}={value}"
    return f"{setting}={json.dumps(value)}"


def missing_data(paths: Sequence[DataPath], folder: str) -> list[DataPath]:
    """Return the paths without a file, or without a file that matches where the path is a pattern."""
    missing = []
    for path in paths:
        uri = storage.join(folder, path.path)
        fs, name = storage.filesystem(uri)
        if not (fs.glob(name) if glob.has_magic(uri) else storage.exists(uri)):
            missing.append(path)
    return missing
