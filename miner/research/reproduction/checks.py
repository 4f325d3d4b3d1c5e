"""Checks before the first step of a table: what is missing is marked, what is wrong is an error."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from miner.config.base import load_yaml
from miner.config.datasets import DatasetFiles
from miner.encoders import find_folder, load_encoder
from miner.errors import ConfigError, DataError, ModelError
from miner.evaluation.bucc import BuccTask
from miner.evaluation.task_base import TaskSettings
from miner.io import storage
from miner.progress import Progress, report_progress
from miner.research.datasets.reading import check_dataset
from miner.research.datasets.registry import get_layout
from miner.research.reproduction.plan import (
    NOT_SELECTED,
    DataPath,
    PlannedRow,
    PlannedRun,
    ReproductionPlan,
    missing_data,
    task_paths,
    unique,
)
from miner.training.config import TrainConfig, check_config
from miner.training.data.datasets import check_source
from miner.training.layout import RESULT
from miner.training.models.transformer import Transformer
from miner.training.settings import TransformerSettings

logger = logging.getLogger(__name__)


def is_finished(run: PlannedRun) -> bool:
    """Return whether a run is trained, or has nothing to train."""
    return run.recipe is None or (run.folder / RESULT).exists()


def remaining_runs(plan: ReproductionPlan) -> list[PlannedRun]:
    """Return the runs of the rows that are run, each once, after those that it starts from; these are left out where it is trained."""
    return unique(run for row in plan.rows.values() if not row.reason for run in _remaining(row))


def _remaining(row: PlannedRow) -> list[PlannedRun]:
    return [run for final in row.runs for run in ([final] if is_finished(final) else final.chain())]


def mark_missing(plan: ReproductionPlan) -> ReproductionPlan:
    """Return the plan with the tasks whose data is missing, and the reasons of rows whose data or model is missing."""
    folder = plan.options.data
    if not storage.is_folder(folder):
        raise ConfigError(f"--data {folder}: no such folder; name the one with the public datasets as downloaded")
    missing = {title: missing_data(task_paths(task), folder) for title, task in plan.tasks.items()}
    missing_tasks = {title: _missing_text(paths, folder) for title, paths in missing.items() if paths}
    without_tasks = "" if len(missing_tasks) < len(plan.tasks) else "nothing to evaluate it on"
    faults: dict[str, str] = {}  # model -> why it cannot be used; empty if it can
    rows = {key: replace(row, reason=row.reason or without_tasks or _missing_inputs(row, folder, faults)) for key, row in plan.rows.items()}
    return replace(plan, rows=rows, missing_tasks=missing_tasks)


def _missing_inputs(row: PlannedRow, folder: str, faults: dict[str, str]) -> str:
    needed = [run for run in _remaining(row) if run.recipe is None or not is_finished(run)]
    paths = list(dict.fromkeys(path for run in needed for path in missing_data(run.data, folder)))
    if paths:
        return _missing_text(paths, folder)
    for model in [model for run in needed for model in run.models]:
        if model not in faults:
            faults[model] = ""
            try:
                find_folder(model)  # a model of the hub is downloaded
            except ModelError as error:
                faults[model] = f"no model: {error}"
        if faults[model]:
            return faults[model]
    return ""


def _missing_text(paths: list[DataPath], folder: str) -> str:
    return "no data: " + ", ".join(dict.fromkeys(path.below(folder) for path in paths))


def check(plan: ReproductionPlan) -> None:
    """Raise a MinerError where a config is wrong, nothing can be run, or data is in another layout than expected."""
    chosen = [run for row in plan.rows.values() if row.reason != NOT_SELECTED for final in row.runs for run in final.chain()]
    configs = {run.folder: load_yaml(TrainConfig, run.recipe, run.changes) for run in chosen if run.recipe is not None}
    for config in configs.values():
        check_config(config)
    runs = remaining_runs(plan)
    if not runs:
        raise DataError(f"{plan.name}: no row can be run; {_first_reason(plan)}; see --dry-run")
    datasets = [files for task in plan.present_tasks().values() for files in _task_datasets(task.in_folder(plan.options.data))]
    for run in runs:
        if not is_finished(run):
            datasets += _training_datasets(configs[run.folder])
    datasets = list(dict.fromkeys(datasets))
    for done, files in enumerate(datasets):
        report_progress(logger, Progress("check data", done, len(datasets), "dataset", files.dataset))
        check_dataset(get_layout(files.dataset), files.path, files.languages, files.split)
    report_progress(logger, Progress("check data", len(datasets), len(datasets), "dataset"))
    _check_models(runs, configs)


def _check_models(runs: Sequence[PlannedRun], configs: Mapping[Path, TrainConfig]) -> None:
    """Load each model once with the settings of its recipe. Raise a MinerError where it does not fit them."""
    checked = set()
    for run in runs:
        if run.recipe is None:
            load_encoder(run.encoder, run.encoder_settings())
        elif isinstance(encoder := configs[run.folder].encoder, TransformerSettings) and not is_finished(run):
            for settings in (encoder.model_copy(update={"model": model}) for model in run.models):
                if settings not in checked:
                    checked.add(settings)
                    Transformer(settings)


def _first_reason(plan: ReproductionPlan) -> str:
    """Return why the first selected row is not run."""
    reasons = [f"{key}: {row.reason}" for key, row in plan.rows.items() if row.reason != NOT_SELECTED]
    return "; ".join([reasons[0], *([] if plan.present_tasks() else plan.missing_tasks.values())])


def _task_datasets(task: TaskSettings) -> Iterator[DatasetFiles]:
    """Yield the datasets whose rows a task reads. BUCC is read by file: check that its files are there."""
    if isinstance(task, BuccTask):
        task.find_files()
    else:
        yield from (path for path in task.paths() if isinstance(path, DatasetFiles))


def _training_datasets(config: TrainConfig) -> list[DatasetFiles]:
    """Return the public datasets of a config. Check its sources in plain files."""
    for source in config.data:
        if not any(isinstance(files, DatasetFiles) for files in source.files):
            check_source(source)
    named = [files for source in config.data for files in source.files]
    named += config.cleaning.decontaminate if config.cleaning else ()
    named += config.evaluation.all_files if config.evaluation else ()
    return [files for files in named if isinstance(files, DatasetFiles)]
