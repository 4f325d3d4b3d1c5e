"""A suite: several tasks in one table, for one encoder or for two side by side. See docs/evaluation.md."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miner.config.datasets import DatasetFiles
from miner.encoders import Encoder
from miner.errors import ConfigError, DataError
from miner.evaluation.inputs import one_side
from miner.evaluation.scores import Score, TaskResult, table
from miner.evaluation.significance import Comparison, Interval, compare
from miner.evaluation.task_base import TaskSettings
from miner.evaluation.tasks import SuiteConfig
from miner.io import storage
from miner.progress import Progress, report_progress
from miner.research.datasets.columns import dataset_paths

SIGNIFICANT_P = 0.05  # a difference with a smaller p is starred

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class TaskRun:
    """The result of one task."""

    task_name: str
    result: TaskResult
    seconds: float

    def figures(self) -> dict[str, Any]:
        return {"task": self.task_name, "seconds": round(self.seconds, 3), **self.result.figures()}


@dataclass(frozen=True, eq=False)
class SuiteRun:
    """The results of one encoder."""

    tasks: Mapping[str, TaskRun]  # by title

    def scores(self) -> dict[str, Score]:
        """Return the scores by `title: score`, in the order of the tasks."""
        return {f"{title}: {name}": score for title, task in self.tasks.items() for name, score in task.result.scores().items()}

    def figures(self) -> dict[str, Any]:
        return {title: task.figures() for title, task in self.tasks.items()}


@dataclass(frozen=True, eq=False)
class SuiteResult:
    """The result of `miner eval suite`."""

    runs: Mapping[str, SuiteRun]  # by name of the encoder
    comparisons: Mapping[str, Comparison]  # by score; empty with one encoder

    def figures(self) -> dict[str, Any]:
        return {
            "order": list(self.runs),  # the order of the encoders, which JSON objects do not keep
            "encoders": {encoder: run.figures() for encoder, run in self.runs.items()},
            "scores": {encoder: {name: score.value for name, score in run.scores().items()} for encoder, run in self.runs.items()},
            **({"comparisons": {name: pair.figures() for name, pair in self.comparisons.items()}} if self.comparisons else {}),
        }

    def summary(self) -> str:
        if self.comparisons:
            rows = {name: _cells(comparison) for name, comparison in self.comparisons.items()}
            return f"{table([*self.runs, 'difference', 'p'], rows)}\n95 % confidence intervals; * where p < {SIGNIFICANT_P:g}"
        ((encoder, run),) = self.runs.items()
        return table([encoder], {name: [f"{score.value:.4f}"] for name, score in run.scores().items()})


def _cells(comparison: Comparison) -> list[str]:
    star = "*" if comparison.p < SIGNIFICANT_P else " "
    intervals = [_format(comparison.first), _format(comparison.second), _format(comparison.difference, "+")]
    return [*intervals, f"{comparison.p:.3f}{star}"]


def _format(interval: Interval, sign: str = "") -> str:
    return f"{interval.value:{sign}.4f} [{interval.low:{sign}.4f}, {interval.high:{sign}.4f}]"


def run(encoders: Mapping[str, Callable[[], Encoder]], config: SuiteConfig) -> SuiteResult:
    """Run every task with each encoder. `encoders` maps a name to the function that loads it, so only one is in memory at a time.

    Raise ConfigError for two tasks with one title, and DataError for missing files, before anything is encoded.
    """
    tasks = [task.in_folder(config.data) for task in config.tasks]
    _check(tasks)
    runs = {name: _run(load(), tasks) for name, load in encoders.items()}
    comparisons = {}
    if len(runs) == 2:
        first, second = (run.scores() for run in runs.values())
        names = [name for name in first if name in second]  # not every encoder can rescore
        for done, name in enumerate(names):
            report_progress(logger, Progress("compare", done, len(names), "score", name))
            comparisons[name] = compare(first[name], second[name], config.draws, config.seed)
        report_progress(logger, Progress("compare", len(names), len(names), "score"))
    return SuiteResult(runs, comparisons)


def _check(tasks: Sequence[TaskSettings]) -> None:
    titles = [task.title for task in tasks]
    for title in titles:
        if titles.count(title) > 1:
            raise ConfigError(f"two tasks are called {title!r}; give each its own `name`")
    for task in tasks:
        for path in task.paths():
            if isinstance(path, DatasetFiles):
                dataset_paths(path)
            elif not storage.exists(path):
                raise DataError(
                    f"task {task.title}: {path}: no such file or directory; correct the config, or give the data directory by --data"
                )


def _run(encoder: Encoder, tasks: Sequence[TaskSettings]) -> SuiteRun:
    runs = {}
    for task in tasks:
        start = time.perf_counter()
        logger.info("%s", task.title)
        result = task.evaluate(encoder if task.side is None else one_side(encoder, task.side))
        runs[task.title] = TaskRun(task.task_name(), result, time.perf_counter() - start)
    return SuiteRun(runs)
