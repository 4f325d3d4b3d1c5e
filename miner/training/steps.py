"""What the losses of one batch see, and what a loss is to the trainer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional

from miner.training import distributed, losses
from miner.training.batches import ANCHOR, NEGATIVE, POSITIVE, Batch, tower_index
from miner.training.grad_cache import EncodingPass, encode

CHUNK = 64  # texts of one pass without a way back


class TrainingStep:
    """What the losses of one batch see: `vectors`, view -> (n, d) leaves, not of length 1, of the batches of all processes."""

    def __init__(self, batch: Batch, passes: Sequence[tuple[list[str], EncodingPass]], accelerator: Accelerator) -> None:
        """`passes` are this process's part of the views, some of them through each tower."""
        self.batch, self.passes, self.accelerator = batch, passes, accelerator
        self.vectors: dict[str, Tensor] = {}
        for names, of in passes:
            self.vectors |= {name: rows.requires_grad_() for name, rows in self._gathered(names, of.vectors).items()}

    @property
    def unit(self) -> dict[str, Tensor]:
        """The vectors at length 1."""
        return {name: functional.normalize(rows, dim=1) for name, rows in self.vectors.items()}

    def compared(self) -> losses.EmbeddingBatch:
        """The vectors at length 1 with all that belongs to them, as the contrastive losses want them."""
        unit, batch = self.unit, self.batch
        weights = None if batch.weights is None else self.tensor(batch.weights)
        groups, owners = self.tensor(batch.groups), self.tensor(batch.owners)
        of_negatives = None if batch.negative_groups is None else self.tensor(batch.negative_groups)
        return losses.EmbeddingBatch(unit[ANCHOR], unit[POSITIVE], groups, owners, unit.get(NEGATIVE), weights, of_negatives)

    def tensor(self, values: Any) -> Tensor:
        """An array of the batch, where the vectors are."""
        return torch.from_numpy(values).to(self.accelerator.device)

    def own(self, view: str) -> int:
        """How many rows of a view this process has."""
        of = distributed.part(len(self.batch.views[view]), self.accelerator)
        count: int = of.stop - of.start
        return count

    def encode(self, towers: Sequence[Any]) -> dict[str, Tensor]:
        """The vectors of the same texts by other encoders, without a way back."""
        found: dict[str, Tensor] = {}
        for names, of in self.passes:
            tower = towers[tower_index(names[0], len(towers))]
            found |= self._gathered(names, encode(tower, of.read, CHUNK, self.accelerator.autocast))
        return found

    def backward(self) -> None:
        """The gradients of the leaves that are this process's own -> added to those of the encoders' weights.

        They are of one process's part of a sum; the gradients of all processes are averaged later.
        """
        for names, of in self.passes:
            leaves = [self.vectors[name] for name in names]
            gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
            own = [gradient[distributed.part(len(gradient), self.accelerator)] for gradient in gradients]
            of.backward(torch.cat(own) * self.accelerator.num_processes)

    def _gathered(self, names: list[str], rows: Tensor) -> dict[str, Tensor]:
        counts = [len(self.batch.views[name]) for name in names]
        own = [distributed.part(count, self.accelerator) for count in counts]
        parts = torch.split(rows, [of.stop - of.start for of in own])
        return {name: distributed.gather(part, count, self.accelerator) for name, part, count in zip(names, parts, counts, strict=True)}


@dataclass(frozen=True)
class LossContext:
    """What a loss may ask for when it is made."""

    towers: Sequence[Any]  # the encoders
    labels: tuple[str, ...]  # of its sources


class LossTerm(nn.Module, ABC):
    """One loss of the sum. `views` names the views it wants, where the batch has them."""

    views: tuple[str, ...] = (ANCHOR, POSITIVE)

    def __init__(self, settings: Any, place: LossContext) -> None:  # noqa: ARG002
        super().__init__()
        self.settings = settings

    @abstractmethod
    def forward(self, step: TrainingStep) -> Tensor: ...

    def stepped(self, towers: Sequence[nn.Module]) -> None:
        """Called after every step of the optimizer."""
