"""A suite: many evaluations in one table, and a second encoder beside the first. See docs/evaluation.md."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miner import storage
from miner.encoders import Encoder
from miner.errors import ConfigError, DataError
from miner.evaluation import (
    alignment,
    bucc,
    classification,
    clustering,
    language_map,
    language_probe,
    pair_classification,
    retrieval,
    sts,
    tatoeba,
)
from miner.evaluation.scores import Score, TaskResult, table
from miner.evaluation.settings import SuiteConfig, TaskSettings
from miner.evaluation.significance import Comparison, Interval, compare
from miner.progress import Progress, report_progress

TASKS: dict[str, Callable[[Encoder, Any], TaskResult]] = {
    "retrieval": retrieval.evaluate,
    "tatoeba": tatoeba.evaluate,
    "bucc": bucc.evaluate,
    "sts": sts.evaluate,
    "clustering": clustering.evaluate,
    "classification": classification.evaluate,
    "pair-classification": pair_classification.evaluate,
    "language-probe": language_probe.evaluate,
    "alignment": alignment.evaluate,
    "map": language_map.evaluate,
}
SURE = 0.05  # a difference with a smaller p is marked

logger = logging.getLogger(__name__)


def evaluate(encoder: Encoder, task: TaskSettings) -> TaskResult:
    """Run one task. DataError where its files are missing or not as they should be."""
    return TASKS[task.kind](encoder, task)


@dataclass(frozen=True, eq=False)
class SuiteRun:
    """What one encoder scored."""

    results: Mapping[str, TaskResult]  # by title of the task
    seconds: Mapping[str, float]

    def scores(self) -> dict[str, Score]:
        """By `title: score`, in the order of the tasks."""
        return {f"{title}: {name}": score for title, result in self.results.items() for name, score in result.scores().items()}

    def figures(self) -> dict[str, Any]:
        return {title: {"seconds": round(self.seconds[title], 3), **result.figures()} for title, result in self.results.items()}


@dataclass(frozen=True, eq=False)
class SuiteResult:
    """What `miner eval suite` found. `compared` has a comparison for each score where there were two encoders."""

    runs: Mapping[str, SuiteRun]  # by name of the encoder
    compared: Mapping[str, Comparison]

    def figures(self) -> dict[str, Any]:
        return {
            "names": list(self.runs),  # in their order: what is compared is the second with the first
            "encoders": {name: run.figures() for name, run in self.runs.items()},
            "scores": {name: {title: score.value for title, score in run.scores().items()} for name, run in self.runs.items()},
            **({"compared": {name: found.figures() for name, found in self.compared.items()}} if self.compared else {}),
        }

    def summary(self) -> str:
        if self.compared:
            rows = {name: _compared(found) for name, found in self.compared.items()}
            return f"{table([*self.runs, 'difference', 'p'], rows)}\n95 % confidence intervals; * where p < {SURE:g}"
        ((encoder, run),) = self.runs.items()
        return table([encoder], {title: [f"{score.value:.4f}"] for title, score in run.scores().items()})


def _compared(found: Comparison) -> list[str]:
    star = "*" if found.p < SURE else " "
    return [_told(found.one), _told(found.other), _told(found.difference, "+"), f"{found.p:.3f}{star}"]


def _told(found: Interval, sign: str = "") -> str:
    return f"{found.value:{sign}.4f} [{found.low:{sign}.4f}, {found.high:{sign}.4f}]"


def run(encoders: Mapping[str, Callable[[], Encoder]], config: SuiteConfig) -> SuiteResult:
    """Every task with each encoder, by its name; an encoder is loaded when its turn comes, and let go after it.

    Raises ConfigError for tasks of one title, and DataError for files that are missing, before anything is encoded.
    """
    tasks = [task.below(config.data) for task in config.tasks]
    _check(tasks)
    runs = {name: _run(load(), tasks) for name, load in encoders.items()}
    compared = {}
    if len(runs) == 2:
        one, other = (run.scores() for run in runs.values())
        for done, name in enumerate(one):
            report_progress(logger, Progress("compare", done, len(one), "score", name))
            compared[name] = compare(one[name], other[name], config.draws, config.seed)
        report_progress(logger, Progress("compare", len(one), len(one), "score"))
    return SuiteResult(runs, compared)


def _check(tasks: Sequence[TaskSettings]) -> None:
    titles = [task.title for task in tasks]
    for title in titles:
        if titles.count(title) > 1:
            raise ConfigError(f"two tasks are called {title!r}; give each a `name` of its own")
    for task in tasks:
        for place in task.places():
            if not storage.exists(place):
                raise DataError(f"{task.title}: no such file or folder as {place}; mend the config, or say by --data where the files are")


def _run(encoder: Encoder, tasks: Sequence[TaskSettings]) -> SuiteRun:
    results, seconds = {}, {}
    for task in tasks:
        start = time.perf_counter()
        logger.info("%s", task.title)
        results[task.title] = evaluate(encoder, task)
        seconds[task.title] = time.perf_counter() - start
    return SuiteRun(results, seconds)
