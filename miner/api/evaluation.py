"""`miner.evaluate`: the tasks of `miner eval` from Python."""

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from miner import encoders
from miner.api.results import TableResult
from miner.api.sides import SIDES
from miner.api.workspace import EncoderLike, check_encoder, check_side, list_texts
from miner.config.commands import EncoderSettings
from miner.config.messages import suggest
from miner.encoders import Encoder
from miner.errors import ConfigError
from miner.evaluation.scores import EvaluationResult
from miner.evaluation.task_base import TaskSettings
from miner.evaluation.tasks import find_task
from miner.io import storage
from miner.text.normalise import clean_all


@dataclass(frozen=True, eq=False)
class Evaluation(TableResult):
    """The result of an evaluation task."""

    task: TaskSettings
    result: EvaluationResult

    @property
    def figures(self) -> dict[str, Any]:
        """All measurements, as `--json` writes them."""
        return {**self.task.figures(), **self.result.figures}

    @property
    def scores(self) -> dict[str, float]:
        """The few scores by which encoders are compared."""
        return {name: score.value for name, score in self.result.scores.items()}

    def to_arrow(self) -> pa.Table:
        """Return a table with the columns score, group (such as a language) and value."""
        rows = [(name, group, value) for name, score in self.result.scores.items() for group, value in score.by_group.items()]
        names, groups, values = zip(*rows, strict=True) if rows else ((), (), ())
        columns = {"score": pa.array(names, pa.string()), "group": pa.array(groups, pa.string()), "value": pa.array(values, pa.float64())}
        return pa.table(columns)


def evaluate(task: str | TaskSettings, encoder: EncoderLike = encoders.BUILTIN, **options: Any) -> Evaluation:
    """Evaluate an encoder on a task, as `miner eval` does: all its tasks but `bitext`, which has no encoder, and `suite`.

    Args:
        task: Name of a task, such as `retrieval` or `sts`, or its settings.
        encoder: Name of an encoder, or an encoder of `miner.load_encoder`.
        **options: The settings of the task and of the encoder by name, such as `source`, `target` and `device`. A list of texts may
            be given in place of a file.

    Raises a MinerError for an unknown task, invalid settings or files.

    Example:
        >>> result = miner.evaluate("retrieval", source="news.en.txt", target="news.de.txt")
        >>> result.scores
    """
    encoder = check_encoder(encoder)
    if not isinstance(task, TaskSettings):
        model = find_task(task)
        choices = list(dict.fromkeys([*model.model_fields, *EncoderSettings.model_fields]))
        choices.remove("encoder")
        if unknown := [name for name in options if name not in choices]:
            raise ConfigError(f"unknown option {unknown[0]!r}; {suggest(unknown[0], choices)}")
        with tempfile.TemporaryDirectory(prefix="miner-") as folder:
            values = {name: _as_file(options.pop(name), name, folder) for name in model.model_fields if name in options}
            return _evaluate(model.check(**values), encoder, options)
    return _evaluate(task, encoder, options)


def _as_file(value: Any, name: str, folder: str) -> Any:
    """Return the path of a file of the texts in a list, of a side; any other value as it is."""
    if name not in SIDES or isinstance(value, str | os.PathLike):
        return value
    path = f"{folder}/{name}.txt"
    texts = list_texts(value)
    check_side(texts, name)
    with storage.atomic(path) as file:
        file.writelines(f"{text}\n".encode() for text in clean_all(texts))
    return path


def _evaluate(task: TaskSettings, encoder: str | Encoder, options: dict[str, Any]) -> Evaluation:
    settings = EncoderSettings.check(
        **({"encoder": encoder} if isinstance(encoder, str) else {}), **options, **({} if task.side is None else {"side": task.side})
    )
    loaded = encoders.load_encoder(encoder, settings) if isinstance(encoder, str) else encoder
    return Evaluation(task, task.evaluate(loaded))
