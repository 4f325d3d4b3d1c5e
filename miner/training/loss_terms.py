"""The losses of a config, each with the vectors it is of: what stands between a batch and `losses`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from miner.training import losses, momentum
from miner.training.batches import ANCHOR, NEGATIVE, POSITIVE, SECOND
from miner.training.heads import FirstTokenHead, NliHead
from miner.training.mlm import MlmTerm
from miner.training.settings import MomentumSettings, NliHeadSettings
from miner.training.steps import LossContext, LossTerm, TrainingStep


class InfoNceTerm(LossTerm):
    """Positives against the positives, and hard negatives, of other anchors; within a block where the batch has blocks."""

    views = (ANCHOR, POSITIVE, NEGATIVE)

    def forward(self, step: TrainingStep) -> Tensor:
        vectors, settings = step.compared(), self.settings
        weights = torch.ones_like(vectors.anchors[:, 0]) if vectors.weights is None else vectors.weights
        total = torch.zeros((), device=weights.device)
        for block in replace(vectors, weights=weights).runs(step.batch.blocks or (len(weights),)):
            loss = losses.info_nce(block, settings.temperature, settings.two_way, settings.hard_negative_weight)
            total = total + loss * block.weights.sum()  # type: ignore[union-attr]
        return total / weights.sum()


class MultiPositiveTerm(LossTerm):
    """Each of the positives of an anchor against those of other anchors."""

    views = (ANCHOR, POSITIVE, NEGATIVE)

    def forward(self, step: TrainingStep) -> Tensor:
        settings, vectors = self.settings, step.compared()
        temperature = losses.rescaled(vectors, settings.temperature) if settings.rescale else settings.temperature
        return losses.multi_positive(vectors, temperature, settings.form, settings.siblings)


class LabelContrastTerm(LossTerm):
    """Negatives are the views of another label; where there are no labels, of another group, and hard negatives."""

    views = (ANCHOR, POSITIVE, NEGATIVE)

    def forward(self, step: TrainingStep) -> Tensor:
        if step.batch.labels is None:
            return losses.retrieval_contrast(step.compared(), self.settings.temperature)
        unit = step.unit
        return losses.label_contrast(unit[ANCHOR], unit[POSITIVE], step.tensor(step.batch.labels), self.settings.temperature)


class AlignmentTerm(LossTerm):
    """The vectors of both views, as they are, come to agree."""

    def forward(self, step: TrainingStep) -> Tensor:
        return losses.alignment(step.vectors[ANCHOR], step.vectors[POSITIVE], self.settings.distance)


class NliHeadTerm(LossTerm):
    """The relation of two texts from the vectors of both, at length 1."""

    views = (ANCHOR, SECOND)

    def __init__(self, settings: NliHeadSettings, place: LossContext) -> None:
        super().__init__(settings, place)
        self.labels = place.labels
        self.head = NliHead(place.towers[0].dim, len(place.labels), settings.hidden, settings.dropout)

    def forward(self, step: TrainingStep) -> Tensor:
        unit = step.unit
        return functional.cross_entropy(self.head(unit[ANCHOR], unit[SECOND]), step.tensor(step.batch.labels))


class ClassificationTerm(LossTerm):
    """The class of a pair that is read as one, from its vector."""

    views = (ANCHOR,)

    def __init__(self, settings: Any, place: LossContext) -> None:
        super().__init__(settings, place)
        self.labels = place.labels
        self.head = FirstTokenHead(place.towers[0].dim, len(place.labels))

    def forward(self, step: TrainingStep) -> Tensor:
        return functional.cross_entropy(self.classes(step.vectors[ANCHOR]), step.tensor(step.batch.labels))

    def classes(self, vectors: Tensor) -> Tensor:
        """Vectors (n, d) -> logits (n, classes)."""
        logits: Tensor = self.head(vectors)
        return logits


class MomentumTerm(LossTerm):
    """Queries of the towers against keys of slow copies, with queues of earlier keys for negatives."""

    def __init__(self, settings: MomentumSettings, place: LossContext) -> None:
        super().__init__(settings, place)
        self.slow = nn.ModuleList([momentum.slow_copy(tower) for tower in place.towers])
        self.queues = nn.ModuleList([momentum.Queue(settings.queue, place.towers[0].dim) for _ in range(2)])
        self.waiting: list[tuple[dict[str, Tensor], Tensor]] = []  # keys of this step's batches, and their groups

    def train(self, mode: bool = True) -> "MomentumTerm":
        super().train(mode)
        self.slow.eval()  # keys do without dropout
        return self

    def forward(self, step: TrainingStep) -> Tensor:
        unit, groups = step.unit, step.tensor(step.batch.groups)
        keys = {name: functional.normalize(rows, dim=1) for name, rows in step.encode(list(self.slow)).items()}
        self.waiting.append((keys, groups))
        sides = (unit[ANCHOR], unit[POSITIVE]), (keys[ANCHOR], keys[POSITIVE])
        queues: tuple[Any, Any] = (self.queues[0], self.queues[1])
        return momentum.dual_momentum_contrast(*sides, groups, queues, self.settings.temperature)

    def stepped(self, towers: Sequence[nn.Module]) -> None:
        for slow, tower in zip(self.slow, towers, strict=True):
            momentum.update(slow, tower, self.settings.momentum)
        for keys, groups in self.waiting:
            for name, queue in zip((ANCHOR, POSITIVE), self.queues, strict=True):
                queue.enqueue(keys[name], groups)  # type: ignore[operator]
        self.waiting = []


TERMS: dict[str, Callable[[Any, LossContext], LossTerm]] = {
    "info_nce": InfoNceTerm,
    "multi_positive": MultiPositiveTerm,
    "label_contrast": LabelContrastTerm,
    "alignment": AlignmentTerm,
    "momentum": MomentumTerm,
    "mlm": MlmTerm,
    "nli_head": NliHeadTerm,
    "classification": ClassificationTerm,
}


def term(settings: Any, place: LossContext) -> LossTerm:
    """The loss that settings ask for."""
    return TERMS[settings.loss](settings, place)
