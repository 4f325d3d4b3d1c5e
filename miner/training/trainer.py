"""The training loop: draw, embed, compare, step; evaluate, keep the best, save, go on where it stopped.

Everything random in a step follows from the seed, the step and the process, so a checkpoint holds no generators, and a run that
was stopped and resumed ends in the same weights as one that was not.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from miner.training import checkpoints, distributed, errors
from miner.training.batches import Batch, tower_index
from miner.training.grad_cache import EncodingPass, reseed
from miner.training.heads import save_head
from miner.training.loss_terms import ClassificationTerm, NliHeadTerm
from miner.training.settings import TrainingSettings
from miner.training.steps import LossTerm, TrainingStep
from miner.training.strategies import Strategy
from miner.training.training_log import TrainingLog, TrainingProgress
from miner.training.validation import ValidationSet

CHECKPOINTS, ENCODER = "checkpoints", "encoder"
CLASSIFICATION = "classification"  # the first such loss of a config; others have a number in their names
FAR = 1 << 40


@dataclass(frozen=True)
class Stream:
    """Sources that share their losses: each batch is of one of them, drawn by its share."""

    sources: Sequence[Strategy]
    shares: npt.NDArray[np.float64]
    sizes: Sequence[int]  # examples in a batch, by source
    terms: Mapping[str, tuple[float, LossTerm]]  # name -> weight, loss

    def draw(self, random: np.random.Generator) -> Batch:
        chosen = int(random.choice(len(self.sources), p=self.shares))
        batch = self.sources[chosen].draw(self.sizes[chosen], random)
        own = chosen * FAR  # groups of different sources have different numbers
        negatives = None if batch.negative_groups is None else batch.negative_groups + own
        return replace(batch, groups=batch.groups + own, negative_groups=negatives)


class Trainer:
    """Trains `towers`, one encoder or one for anchors and one for the rest, by the losses of `streams`."""

    def __init__(
        self,
        towers: Sequence[Any],
        streams: Sequence[Stream],
        steps: int,
        settings: TrainingSettings,
        output: Path,
        accelerator: Accelerator,
    ) -> None:
        self.towers, self.streams, self.steps, self.settings, self.output = towers, streams, steps, settings, output
        self.accelerator = accelerator
        self.terms = [term for stream in streams for _, term in stream.terms.values()]
        with errors.room(self.accelerator.device):
            self.root = nn.ModuleList([*towers, *self.terms]).to(self.accelerator.device)
        self.weights = [weight for weight in self.root.parameters() if weight.requires_grad]
        self.optimizer = self.accelerator.prepare(_adamw(self.weights, settings))
        self.progress = TrainingProgress()

    def run(self, held_out: ValidationSet | None) -> TrainingProgress:
        """Take the steps that are left. OUTPUT/encoder is then the best state by held_out, or the last."""
        journal = TrainingLog(self.output, self.progress, self.steps, self.settings.log_every) if self.main else None
        while self.progress.step < self.steps and not _patience_lost(self.progress, held_out):
            rate = learning_rate(self.progress.step, self.steps, self.settings)
            losses = self._step(rate)
            if journal:
                journal.step(self.progress, rate, losses)
            if held_out and (self.progress.step % held_out.settings.every == 0 or self.progress.step == self.steps):
                self._score(held_out, journal)
            if self.progress.step % self.settings.checkpoint_every == 0:
                self._save()
        if held_out is None:
            self._export()
        if journal:
            journal.close()
        return self.progress

    @property
    def main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    def _step(self, rate: float) -> dict[str, float]:
        """One step of the optimizer; the losses by name, and `loss`, their sum."""
        self.root.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        total: dict[str, float] = {"loss": 0.0}
        for part in range(self.settings.accumulation):
            for number, stream in enumerate(self.streams):
                seed = [self.settings.seed, self.progress.step, part, number]
                batch = stream.draw(np.random.default_rng(seed))
                with errors.memory(batch, self.progress.step + 1, self.towers[0]):
                    losses = self._learn(batch, stream, seed)
                for name, loss in losses.items():
                    total[name] = total.get(name, 0.0) + loss / self.settings.accumulation
                self.progress.examples += len(batch)
        with errors.memory(batch, self.progress.step + 1, self.towers[0]):  # the first step makes room for the moments
            self._move()
        self.progress.step += 1
        self.progress.loss = total["loss"]
        return total

    def _move(self) -> None:
        """The weights go by their gradients, and what follows them comes after."""
        distributed.average_gradients(self.weights, self.accelerator)
        if self.settings.clip is not None:
            self.accelerator.clip_grad_norm_(self.weights, self.settings.clip)
        self.optimizer.step()
        for term in self.terms:
            term.stepped(self.towers)

    def _learn(self, batch: Batch, stream: Stream, seed: list[int]) -> dict[str, float]:
        """Add the gradients of one batch; its losses by name.

        Every process embeds its part of the batch and knows the vectors of all of it as leaves, so that the losses are those of
        the whole batch in every process. What they say of the leaves that are its own, each sends back through its encoder.
        """
        step = TrainingStep(batch, self._passes(batch, stream, seed), self.accelerator)
        reseed(_number(seed))  # whatever the losses draw, all processes draw alike
        losses = {name: (weight, term(step)) for name, (weight, term) in stream.terms.items()}
        loss = torch.stack([weight * value for weight, value in losses.values()]).sum()
        errors.check_loss(loss, step.vectors, batch, self.progress.step + 1)
        self.accelerator.backward(loss / self.settings.accumulation)
        step.backward()
        return {"loss": loss.item(), **{name: value.item() for name, (_, value) in losses.items()}}

    def _passes(self, batch: Batch, stream: Stream, seed: list[int]) -> list[tuple[list[str], EncodingPass]]:
        """This process's part of the views that the losses want, through the tower of each."""
        wanted = [name for name in batch.views if any(name in term.views for _, term in stream.terms.values())]
        process = self.accelerator.process_index
        passes = []
        for number, tower in enumerate(self.towers):
            names = [name for name in wanted if tower_index(name, len(self.towers)) == number]
            views = [batch.views[name].select(distributed.part(len(batch.views[name]), self.accelerator)) for name in names]
            if views:
                read = tower.tokenize_views(views, np.random.default_rng([*seed, process, number]))
                draws = _number([*seed, process, number])
                passes.append((names, EncodingPass(tower, read, self.settings.gradient_cache, draws, self.accelerator.autocast)))
        return passes

    def _score(self, held_out: ValidationSet, journal: TrainingLog | None) -> None:
        """Score, and keep the encoder where it is the best so far."""
        self.root.eval()
        score = torch.zeros(1, dtype=torch.float64, device=self.accelerator.device)
        if self.main:
            score[0] = held_out.score(self.towers, dict(self._heads()).get(CLASSIFICATION), self.accelerator.autocast)
        value = float(self.accelerator.reduce(score, reduction="sum"))
        if journal:
            journal.write(self.progress.step, {"score": value})
        if self.progress.best is None or value > self.progress.best:
            self.progress.best, self.progress.worse = value, 0
            self._export()
        else:
            self.progress.worse += 1

    def _export(self) -> None:
        """Write the encoders as they are now, and what classifies their vectors beside the first."""
        errors.check_weights(self.weights, self.progress.step)
        for tower, name in zip(self.towers, (ENCODER, f"{ENCODER}-positive"), strict=False):
            if self.main:
                with checkpoints.atomic_folder(self.output / name) as folder:
                    tower.save(folder)
                    for title, head in self._heads() if name == ENCODER else ():
                        save_head(folder / f"{title}.safetensors", head.head, head.labels)
        self.accelerator.wait_for_everyone()

    def _heads(self) -> Iterator[tuple[str, Any]]:
        """The classifiers, by the names of their losses."""
        for stream in self.streams:
            for name, (_, term) in stream.terms.items():
                if isinstance(term, ClassificationTerm | NliHeadTerm):
                    yield name, term

    def _save(self) -> None:
        """Write a checkpoint."""
        errors.check_weights(self.weights, self.progress.step)
        state = asdict(self.progress)
        state["drawn"] = [source.sampler.drawn for stream in self.streams for source in stream.sources]
        state["scaler"] = self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else None
        if self.main:
            checkpoints.save(self.output / CHECKPOINTS, self.root, self.optimizer, state)
        self.accelerator.wait_for_everyone()

    def resume(self) -> None:
        """Go on from the newest checkpoint, or from the start where there is none."""
        checkpoint = checkpoints.latest(self.output / CHECKPOINTS)
        if checkpoint is None:
            return
        state = checkpoints.load(checkpoint, self.root, self.optimizer)
        scaler, drawn = state.pop("scaler"), state.pop("drawn")
        if scaler is not None and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(scaler)
        for source, numbers in zip((source for stream in self.streams for source in stream.sources), drawn, strict=True):
            source.sampler.drawn = numbers
        self.progress = TrainingProgress(**state)


def _patience_lost(progress: TrainingProgress, held_out: ValidationSet | None) -> bool:
    """Whether so many scores came since the best that it is time to stop."""
    patience = held_out.settings.patience if held_out else None
    return patience is not None and progress.worse >= patience


def learning_rate(step: int, steps: int, settings: TrainingSettings) -> float:
    """The learning rate of a step (from 0): a linear rise, then the schedule, never below the floor."""
    warmup = settings.warmup if settings.warmup >= 1 else settings.warmup * steps
    rise = min(1.0, (step + 1) / max(1.0, warmup))
    done = max(0.0, step - warmup) / max(1.0, steps - warmup)
    fall = {"linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2, "constant": 1.0}[settings.schedule]
    return settings.lr * rise * max(settings.floor, fall)


def _adamw(weights: Sequence[Tensor], settings: TrainingSettings) -> torch.optim.AdamW:
    """Matrices decay, biases and norms do not."""
    groups = [
        {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": settings.weight_decay},
        {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=settings.lr, betas=settings.betas, fused=True)


def _number(seed: Sequence[int]) -> int:
    """Several numbers -> one that torch takes as a seed."""
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(2))
