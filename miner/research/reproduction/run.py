"""`miner reproduce`: train and evaluate the rows of a table. What is finished is kept, so an interrupted table resumes."""

import logging
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from miner.config.base import load_yaml
from miner.encoders import load_encoder
from miner.errors import ConfigError
from miner.evaluation import suite
from miner.io import lock, outputs, records, stages, storage
from miner.progress import Progress, report_progress
from miner.research.reproduction import checks
from miner.research.reproduction.plan import PlannedRun, ReproductionPlan, unique
from miner.research.reproduction.results import ReproducedTable, collect, markdown
from miner.training import run as training
from miner.training.config import TrainConfig

logger = logging.getLogger(__name__)


class EvaluationRecord(TypedDict):
    """The part of an evaluation file that is read when a table is resumed."""

    encoders: dict[str, dict[str, Any]]  # title of the run -> title of the task -> figures
    scores: dict[str, dict[str, Any]]
    settings: dict[str, Any]  # title of the task -> its settings


def reproduce(plan: ReproductionPlan) -> ReproducedTable:
    """Train and evaluate what is not finished, and return the table; also write it to the output directory.

    Raise a MinerError for a fault in data, configs or models, before the first step where it can be seen then.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("reproduce runs in one process; train with the commands of --dry-run under torchrun, then run it again")
    plan = checks.mark_missing(plan)
    checks.check(plan)
    output = plan.options.output
    runs = checks.remaining_runs(plan)
    rows = {run.folder for row in plan.rows.values() if not row.reason for run in row.runs}
    figures_file, page = (storage.join(output, f"{plan.name}{ending}") for ending in (".json", ".md"))
    stages.check_output(output)
    outputs.claim_file(figures_file, [], records.has_checksum)
    outputs.claim_file(page, [], lambda _: storage.exists(figures_file))
    with lock.hold(output):
        for done, run in enumerate(runs):
            report_progress(logger, Progress("reproduce", done, len(runs), "run", run.title))
            if run.recipe is not None:
                training.train(load_yaml(TrainConfig, run.recipe, run.changes), str(run.folder), resume=True)
            if run.folder in rows:
                evaluate(run, plan)
        report_progress(logger, Progress("reproduce", len(runs), len(runs), "run"))
        result = collect(plan, _read_figures(plan))
        records.write(figures_file, result.figures())
        with storage.atomic(page) as handle:
            handle.write(markdown(result).encode())
    return result


def evaluate(run: PlannedRun, plan: ReproductionPlan) -> None:
    """Evaluate the tasks that have no figures yet, or figures of other settings; write the figures after each task."""
    uri = storage.join(str(run.folder), plan.evaluation_file)
    values = read_evaluation(run, uri)
    load = lru_cache(maxsize=1)(partial(load_encoder, settings=run.encoder_settings()))
    for title, task in plan.present_tasks().items():
        settings = plan.task_settings(title)
        if values["settings"].get(title) == settings:
            continue
        encoder = run.find_encoder(plan.table.best_by(title))
        result = suite.run({run.title: partial(load, encoder)}, suite.SuiteConfig.check(data=plan.options.data, tasks=(task,))).figures
        for key in ("encoders", "scores"):
            values[key].setdefault(run.title, {}).update(result[key][run.title])
        values["settings"][title] = settings
        storage.make_folder(str(run.folder))
        records.write(uri, values)


def read_evaluation(run: PlannedRun, uri: str) -> dict[str, Any]:
    """Return the content of the evaluation file of a run; that of a suite without tasks if there is none of the same run."""
    made_with = {"model": run.encoder, "pooling": run.pooling, "changes": list(run.changes)}
    values = records.read(uri, dict[str, Any]) if storage.exists(uri) else {}
    if values.get("run") == made_with:
        records.parse(values, EvaluationRecord, uri)
        return values
    return {"task": "suite", "order": [run.title], "encoders": {}, "scores": {}, "settings": {}, "run": made_with}


def _read_figures(plan: ReproductionPlan) -> dict[Path, dict[str, Any]]:
    """Return by folder the figures of all runs of a table, by title of the task; also of runs from earlier calls."""
    settings = {title: plan.task_settings(title) for title in plan.tasks}
    figures = {}
    for run in unique(run for row in plan.rows.values() for run in row.runs):
        values = read_evaluation(run, storage.join(str(run.folder), plan.evaluation_file))
        by_title = values["encoders"].get(run.title, {})
        figures[run.folder] = {title: by_title[title] for title in by_title if values["settings"].get(title) == settings.get(title)}
    return figures
