"""The registry of the evaluation tasks, for `miner eval`, suites and the report.

A task is one module: a class of its settings, whose `evaluate` measures an encoder. The module is imported when the task is needed, so that
`miner eval --help` imports none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from miner.errors import ConfigError

if TYPE_CHECKING:
    from miner.evaluation.task_base import TaskSettings


class TaskEntry(NamedTuple):
    """Where the settings of a task are, and what it measures."""

    module: str
    settings: str
    help: str


TASKS = {
    "retrieval": TaskEntry("miner.evaluation.retrieval", "RetrievalTask", "How often a line finds its translation."),
    "tatoeba": TaskEntry("miner.evaluation.tatoeba", "TatoebaTask", "Retrieval between English and the languages of Tatoeba."),
    "bucc": TaskEntry("miner.evaluation.bucc", "BuccTask", "F1 of pairs mined from BUCC."),
    "alignment": TaskEntry("miner.evaluation.alignment", "AlignmentTask", "Alignment and uniformity of vectors."),
    "sts": TaskEntry("miner.research.tasks.sts", "StsTask", "Correlation of cosines with human similarity scores."),
    "clustering": TaskEntry("miner.research.tasks.clustering", "ClusteringTask", "Purity of clusters of texts."),
    "classification": TaskEntry("miner.research.tasks.probe", "ClassificationTask", "Accuracy of a linear classifier of texts."),
    "pair-classification": TaskEntry(
        "miner.research.tasks.pair_classification", "PairClassificationTask", "Accuracy of a classifier of text pairs."
    ),
    "language-probe": TaskEntry("miner.research.tasks.language_probe", "LanguageProbeTask", "How well vectors reveal their language."),
    "map": TaskEntry("miner.research.tasks.language_map", "MapTask", "Similarity of languages by the same sentences."),
}


def find_task(name: str) -> type["TaskSettings"]:
    """Import the settings of a task. Raise ConfigError for an unknown name."""
    if name not in TASKS:
        raise ConfigError(f"unknown task {name!r}; one of {', '.join(TASKS)}")
    settings: type[TaskSettings] = getattr(import_module(TASKS[name].module), TASKS[name].settings)
    return settings
