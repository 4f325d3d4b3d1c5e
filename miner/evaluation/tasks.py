"""The registry of the evaluation tasks, and the settings of a suite of them.

`miner eval`, suites and the report read it. The command line imports it before a command is chosen, so it and the modules of the tasks
import nothing heavy: a task imports its function when it runs.
"""

from typing import Annotated, get_args

import pydantic

from miner.config.base import OneOrMore, Settings
from miner.evaluation.label_tasks import ClassificationTask, ClusteringTask, LanguageProbeTask, PairClassificationTask, StsTask
from miner.evaluation.task_base import BarChart, Chart, TaskSettings
from miner.evaluation.translation_tasks import AlignmentTask, BuccTask, MapTask, RetrievalTask, TatoebaTask

AnyTask = (
    RetrievalTask
    | TatoebaTask
    | BuccTask
    | StsTask
    | ClusteringTask
    | ClassificationTask
    | PairClassificationTask
    | LanguageProbeTask
    | AlignmentTask
    | MapTask
)
TASKS: dict[str, type[TaskSettings]] = {task.task_name(): task for task in get_args(AnyTask)}

BITEXT_CHART = BarChart(  # of `miner eval bitext`, which measures mined pairs and no encoder
    groups="suspects",
    value="share",
    caption="Share of the pairs that look wrong",
    is_share=True,
)
CHARTS: dict[str, Chart] = {**{name: task.CHART for name, task in TASKS.items()}, "bitext": BITEXT_CHART}


class SuiteConfig(Settings):
    """The settings of `miner eval suite`."""

    data: str = pydantic.Field(".", description="The folder that the paths of the tasks are relative to.")
    tasks: Annotated[tuple[Annotated[AnyTask, pydantic.Field(discriminator="task")], ...], OneOrMore()] = pydantic.Field(min_length=1)
    draws: int = pydantic.Field(1000, ge=100, description="Bootstrap samples.")
    seed: int = 0
