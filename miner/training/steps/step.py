"""The interface between trainer and losses: the vectors of one batch, and the base class of losses."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pydantic
import torch
from torch import Tensor, nn
from torch.nn import functional

from miner.config.base import Strings
from miner.devices import upload
from miner.training.data.batches import ANCHOR, NEGATIVE, POSITIVE, Batch, tower_index
from miner.training.losses import contrastive
from miner.training.settings import TrainSettings
from miner.training.steps import distributed
from miner.training.steps.distributed import Accelerator
from miner.training.steps.grad_cache import EncodingPass, encode_without_gradient

CHUNK_TEXTS = 64  # per forward pass without gradients


class TrainingStep:
    """What the losses of one batch see: `vectors`, from view to (n, d) leaf tensors of any length, over all processes."""

    def __init__(self, batch: Batch, passes: Sequence[tuple[list[str], EncodingPass]], accelerator: Accelerator) -> None:
        """`passes` are this process's part of the views: the views of each tower, and their encoding."""
        self.batch, self.passes, self.accelerator = batch, passes, accelerator
        self.vectors: dict[str, Tensor] = {}
        for views, encoding in passes:
            self.vectors |= {view: rows.requires_grad_() for view, rows in self._gather(views, encoding.vectors).items()}

    @property
    def unit_vectors(self) -> dict[str, Tensor]:
        """The vectors normalized to length 1."""
        return {view: functional.normalize(rows, dim=1) for view, rows in self.vectors.items()}

    def embedding_batch(self) -> contrastive.EmbeddingBatch:
        """Return the unit vectors with groups, owners and weights, as contrastive losses take them."""
        unit, batch = self.unit_vectors, self.batch
        optional = {name: getattr(batch, name) for name in ("weights", "negative_groups", "negative_owners")}
        tensors: dict[str, Any] = {name: self.tensor(values) for name, values in optional.items() if values is not None}
        groups, owners = self.tensor(batch.groups), self.tensor(batch.owners)
        return contrastive.EmbeddingBatch(unit[ANCHOR], unit[POSITIVE], groups, owners, unit.get(NEGATIVE), **tensors)

    def tensor(self, values: Any) -> Tensor:
        """Copy an array of the batch to the device."""
        return upload(torch.from_numpy(values), self.accelerator.device)

    def local_rows(self, view: str) -> slice:
        """Return the rows of a view that this process encodes."""
        return distributed.local_rows(len(self.batch.views[view]), self.accelerator)

    def num_local_rows(self, view: str) -> int:
        """Return the number of rows of a view that this process encodes."""
        rows = self.local_rows(view)
        count: int = rows.stop - rows.start
        return count

    def local_tokens(self, view: str) -> Any:
        """Return the tokens of the rows of a view that this process encodes."""
        for views, encoding in self.passes:
            if view in views:
                counts = np.cumsum([0, *(self.num_local_rows(name) for name in views)])
                number = views.index(view)
                return encoding.inputs.tokens.take(np.arange(counts[number], counts[number + 1]))
        raise KeyError(view)

    def encode_with(self, towers: Sequence[Any]) -> dict[str, Tensor]:
        """Encode the same texts with other encoders, without gradients."""
        vectors: dict[str, Tensor] = {}
        for views, encoding in self.passes:
            tower = towers[tower_index(views[0], len(towers))]
            local = encode_without_gradient(tower, encoding.inputs.tokens, CHUNK_TEXTS, self.accelerator.autocast)
            vectors |= self._gather(views, local)
        return vectors

    def backward(self) -> None:
        """Backpropagate the gradients of this process's rows to the weights of the encoders.

        A process holds only its part of a sum over rows. Gradients are averaged over processes later, hence the factor.
        """
        for views, encoding in self.passes:
            leaves = [self.vectors[view] for view in views]
            gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in leaves]
            local = [gradient[distributed.local_rows(len(gradient), self.accelerator)] for gradient in gradients]
            encoding.backward(torch.cat(local) * self.accelerator.num_processes)

    def _gather(self, views: list[str], rows: Tensor) -> dict[str, Tensor]:
        """Split this process's rows by view, and collect those of all processes."""
        counts = [len(self.batch.views[view]) for view in views]
        local = torch.split(rows, [self.num_local_rows(view) for view in views])
        return {view: distributed.gather(part, count, self.accelerator) for view, part, count in zip(views, local, counts, strict=True)}


@dataclass(frozen=True)
class LossContext:
    """What a loss is built from besides its settings."""

    towers: Sequence[Any]  # the encoders
    labels: tuple[str, ...]  # the classes of its sources, in order


class ObjectiveSettings(TrainSettings):
    """Settings of every loss; `LOSSES` lists the losses."""

    weight: float = pydantic.Field(1.0, gt=0, description="Factor in the sum of losses.")
    data: Strings = pydantic.Field((), description="Names of its data sources; by default, all.")
    loss: str


class LossTerm(nn.Module, ABC):
    """One loss of the weighted sum. `views` names the views it uses, if the batch has them."""

    views: tuple[str, ...] = (ANCHOR, POSITIVE)
    reads_all_weights = False  # of the encoders, and not only in their forward passes

    def __init__(self, settings: Any, context: LossContext) -> None:  # noqa: ARG002
        super().__init__()
        self.settings = settings

    @abstractmethod
    def forward(self, step: TrainingStep) -> Tensor: ...

    def after_optimizer_step(self, towers: Sequence[nn.Module]) -> None:
        """Update state that follows the encoders."""


class ClassifierTerm(LossTerm):
    """A loss that trains a classifier, which is saved beside the encoder."""

    head: nn.Module
    labels: tuple[str, ...]  # the classes, in the order of the logits
