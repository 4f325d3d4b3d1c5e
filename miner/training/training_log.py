"""What a run tells while it goes: a line of JSON every few steps, TensorBoard scalars, and progress for the bar."""

import json
import logging
import math
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from miner import storage
from miner.progress import Progress, report_progress

logger = logging.getLogger(__name__)


@dataclass
class TrainingProgress:
    """How far a run has come."""

    step: int = 0
    examples: int = 0
    loss: float = math.nan  # of the last step
    best: float | None = None  # score
    worse: int = 0  # scores since the best


class TrainingLog:
    """Writes FOLDER/log.jsonl and, where TensorBoard is installed, FOLDER/tensorboard. Goes on from where a run is."""

    def __init__(self, folder: Path, progress: TrainingProgress, total: int, every: int) -> None:
        step = progress.step
        self.path, self.total, self.every = folder / "log.jsonl", total, every
        folder.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_bytes().splitlines(keepends=True) if step and self.path.exists() else []
        if not step:
            shutil.rmtree(folder / "tensorboard", ignore_errors=True)  # of a run that got nowhere
        with storage.atomic(str(self.path)) as file:
            file.writelines(line for line in lines if line.endswith(b"\n") and json.loads(line)["step"] <= step)
        self.board = _board(folder / "tensorboard", step)
        self.began, self.first = time.perf_counter(), replace(progress)
        self.recent: dict[str, list[float]] = defaultdict(list)

    def step(self, progress: TrainingProgress, lr: float, losses: Mapping[str, float]) -> None:
        """After a step: how far the run is, the learning rate of the step and its losses, `loss` the sum of them."""
        for name, loss in losses.items():
            self.recent[name].append(loss)
        seconds = time.perf_counter() - self.began
        rate = (progress.examples - self.first.examples) / seconds
        left = seconds / (progress.step - self.first.step) * (self.total - progress.step)
        note = f"loss {losses['loss']:.3f}, {rate:,.0f}/s"
        text = f"train: step {progress.step} of {self.total}, {note}, {_duration(left)} left"
        report_progress(logger, Progress("train", progress.step, self.total, "step", note), text)
        if progress.step % self.every == 0 or progress.step == self.total:
            means = {name: fmean(values) for name, values in self.recent.items()}
            self.write(progress.step, {**means, "lr": lr, "examples": progress.examples, "examples_per_second": rate})
            self.recent.clear()

    def write(self, step: int, values: Mapping[str, float]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        for name, value in values.items():
            if self.board is not None:
                self.board.add_scalar(name, value, step)

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        logger.info("no TensorBoard scalars; pip install 'bitext-miner[tensorboard]' for them")
        return None
    return SummaryWriter(str(folder), purge_step=step or None)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
