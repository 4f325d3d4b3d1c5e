"""A suite: several tasks in one table, for one encoder or for two side by side. See docs/evaluation.md."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Union

import pydantic

from miner.config.base import OneOrMore, Settings
from miner.config.datasets import DatasetFiles
from miner.encoders import Encoder
from miner.errors import ConfigError, DataError
from miner.evaluation.inputs import one_side
from miner.evaluation.scores import EvaluationResult, Score, table
from miner.evaluation.significance import Comparison, Interval, compare
from miner.evaluation.task_base import TaskSettings
from miner.evaluation.tasks import TASKS, find_task
from miner.io import storage
from miner.progress import Progress, report_progress
from miner.research.datasets.columns import dataset_paths

SIGNIFICANT_P = 0.05  # a difference with a smaller p is starred

logger = logging.getLogger(__name__)


if TYPE_CHECKING:
    AnyTask = TaskSettings
else:
    AnyTask = Annotated[Union[tuple(find_task(name) for name in TASKS)], pydantic.Field(discriminator="task")]  # noqa: UP007


class SuiteConfig(Settings):
    """The settings of `miner eval suite`."""

    data: str = pydantic.Field(".", description="The folder that the paths of the tasks are relative to.")
    tasks: Annotated[tuple[AnyTask, ...], OneOrMore()] = pydantic.Field(min_length=1)
    draws: int = pydantic.Field(1000, ge=100, description="Bootstrap samples.")
    seed: int = 0


def run(encoders: Mapping[str, Callable[[], Encoder]], config: SuiteConfig) -> EvaluationResult:
    """Run every task with each encoder. `encoders` maps a name to the function that loads it, so only one is in memory at a time.

    Raise ConfigError for two tasks with one title, and DataError for missing files, before anything is encoded.
    """
    tasks = [task.in_folder(config.data) for task in config.tasks]
    _check(tasks)
    figures: dict[str, dict[str, Any]] = {}  # encoder -> title of the task
    scores: dict[str, dict[str, Score]] = {}  # encoder -> `title: score`, in the order of the tasks
    for name, load in encoders.items():
        figures[name], scores[name] = _run(load(), tasks)
    values = {name: {label: score.value for label, score in of_encoder.items()} for name, of_encoder in scores.items()}
    # The order of the encoders is given too, as JSON objects do not keep it.
    result = {"order": list(encoders), "encoders": figures, "scores": values}
    if len(encoders) != 2:
        ((name, of_encoder),) = values.items()
        return EvaluationResult(result, table([name], {label: [f"{value:.4f}"] for label, value in of_encoder.items()}))
    comparisons = _compare(list(scores.values()), config)
    rows = {label: _cells(comparison) for label, comparison in comparisons.items()}
    return EvaluationResult(
        {**result, "comparisons": {label: asdict(comparison) for label, comparison in comparisons.items()}},
        f"{table([*encoders, 'difference', 'p'], rows)}\n95 % confidence intervals; * where p < {SIGNIFICANT_P:g}",
    )


def _compare(scores: Sequence[Mapping[str, Score]], config: SuiteConfig) -> dict[str, Comparison]:
    first, second = scores
    labels = [label for label in first if label in second]  # not every encoder can rescore
    comparisons = {}
    for done, label in enumerate(labels):
        report_progress(logger, Progress("compare", done, len(labels), "score", label))
        comparisons[label] = compare(first[label], second[label], config.draws, config.seed)
    report_progress(logger, Progress("compare", len(labels), len(labels), "score"))
    return comparisons


def _cells(comparison: Comparison) -> list[str]:
    def text(interval: Interval, sign: str = "") -> str:
        return f"{interval.value:{sign}.4f} [{interval.low:{sign}.4f}, {interval.high:{sign}.4f}]"

    star = "*" if comparison.p < SIGNIFICANT_P else " "
    return [text(comparison.first), text(comparison.second), text(comparison.difference, "+"), f"{comparison.p:.3f}{star}"]


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


def _run(encoder: Encoder, tasks: Sequence[TaskSettings]) -> tuple[dict[str, Any], dict[str, Score]]:
    """Return the figures of each task by its title, and all scores by `title: score`."""
    figures: dict[str, Any] = {}
    scores: dict[str, Score] = {}
    for task in tasks:
        start = time.perf_counter()
        logger.info("%s", task.title)
        result = task.evaluate(encoder if task.side is None else one_side(encoder, task.side))
        figures[task.title] = {**task.figures(), "seconds": round(time.perf_counter() - start, 3), **result.figures}
        scores |= {f"{task.title}: {name}": score for name, score in result.scores.items()}
    return figures, scores
