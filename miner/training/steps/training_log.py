"""The log of a training run: JSON lines, TensorBoard scalars, and progress records."""

import json
import logging
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from typing_extensions import TypedDict

from miner.io import storage
from miner.progress import Progress, report_progress
from miner.training.layout import LOG, TENSORBOARD
from miner.units import format_seconds

logger = logging.getLogger(__name__)


@dataclass
class TrainingProgress:
    """How far a run has come."""

    step: int = 0
    examples: int = 0
    loss: float = math.nan  # that of the last step whose losses were read
    best_scores: dict[str, float] = field(default_factory=dict)  # by name of the held-out data; that of the encoder has no name
    scores_since_best: int = 0  # evaluations since the best score of the encoder
    texts: int = 0  # encoded, over all views and processes
    cut_texts: int = 0  # texts longer than the limit of training
    unlogged_losses: dict[str, list[float]] = field(default_factory=dict)  # losses of the steps since the last entry of the log


class CheckpointState(TypedDict):
    """The state of a checkpoint besides weights and moments."""

    progress: TrainingProgress
    examples_of_sources: list[list[int]]  # by language
    examples_of_streams: list[int]
    scaler: dict[str, Any] | None


@dataclass(frozen=True)
class SourceCounts:
    """How often a source was seen."""

    examples: int  # drawn from it
    epochs: float  # examples as a multiple of those it has

    @classmethod
    def of(cls, examples: int, num_examples: int) -> "SourceCounts":
        return cls(examples, examples / num_examples if num_examples else 0.0)


def _read_step(line: bytes, path: Path) -> float:
    """Return the step of a line of the log, infinity for a damaged line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        logger.warning("%s: a damaged line is removed", path)
        return math.inf


class TrainingLog:
    """Write FOLDER/log.jsonl and, with TensorBoard installed, FOLDER/tensorboard; a resumed run continues both."""

    def __init__(self, folder: Path, progress: TrainingProgress, num_steps: int, log_every: int) -> None:
        step = progress.step
        self.path, self.num_steps, self.log_every = folder / LOG, num_steps, log_every
        folder.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_bytes().splitlines(keepends=True) if step and self.path.exists() else []
        if not step:
            shutil.rmtree(folder / TENSORBOARD, ignore_errors=True)  # an earlier run left no checkpoint
        with storage.atomic(str(self.path)) as file:
            file.writelines(line for line in lines if line.endswith(b"\n") and _read_step(line, self.path) <= step)
        self.tensorboard = _open_tensorboard(folder / TENSORBOARD, step)
        self.start_seconds, self.start_progress = time.perf_counter(), replace(progress)

    def log_step(self, progress: TrainingProgress, lr: float, sources: Mapping[str, SourceCounts]) -> None:
        """Log a finished step: its learning rate, the losses since the last entry, and how often sources were seen."""
        seconds = time.perf_counter() - self.start_seconds
        rate = (progress.examples - self.start_progress.examples) / seconds
        remaining_seconds = seconds / (progress.step - self.start_progress.step) * (self.num_steps - progress.step)
        loss = "" if math.isnan(progress.loss) else f"loss {progress.loss:.3f}, "  # that was read last
        note = f"{loss}{rate:,.0f}/s, {format_seconds(remaining_seconds)} left"
        text = f"train: step {progress.step} of {self.num_steps}, {note}"
        report_progress(logger, Progress("train", progress.step, self.num_steps, "step", note), text)
        if progress.step % self.log_every == 0 or progress.step == self.num_steps:
            means = {name: fmean(values) for name, values in progress.unlogged_losses.items()}
            counts = {f"{name}/{title}": value for title, source in sources.items() for name, value in vars(source).items()}
            counts |= {"examples": progress.examples, "cut_texts": progress.cut_texts}
            self.write(progress.step, {**means, "lr": lr, "examples_per_second": rate, **counts})
            progress.unlogged_losses.clear()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append values to the log and to TensorBoard."""
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        for name, value in values.items():
            if self.tensorboard is not None:
                self.tensorboard.add_scalar(name, value, step)

    def close(self) -> None:
        if self.tensorboard is not None:
            self.tensorboard.close()


def _open_tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        logger.info("TensorBoard is not installed, so no scalars; run: pip install 'bitext-miner[tensorboard]'")
        return None
    return SummaryWriter(str(folder), purge_step=step or None)
