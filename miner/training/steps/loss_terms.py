"""The losses that a config can name: each takes the vectors of a batch to a scalar. `LOSSES` lists them.

To add a loss, write its settings class in settings.py and its LossTerm here, and add an entry to `LOSSES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from miner.training.data.batches import ANCHOR, NEGATIVE, POSITIVE, SECOND
from miner.training.loss_settings import (
    AlignmentSettings,
    ClassificationSettings,
    InfoNceSettings,
    LabelContrastSettings,
    LateInteractionSettings,
    MlmSettings,
    MomentumSettings,
    MultiPositiveLossSettings,
    NliHeadSettings,
    ObjectiveSettings,
)
from miner.training.losses import contrastive, momentum
from miner.training.models.heads import FirstTokenHead, NliHead
from miner.training.steps.late_interaction import LateInteractionTerm
from miner.training.steps.mlm import MlmTerm
from miner.training.steps.step import ClassifierTerm, LossContext, LossTerm, TrainingStep


class InfoNceTerm(LossTerm):
    """Contrast with the positives and hard negatives of other anchors; within blocks if the batch has them."""

    views = (ANCHOR, POSITIVE, NEGATIVE)

    def forward(self, step: TrainingStep) -> Tensor:
        batch, settings = step.embedding_batch(), self.settings
        weights = torch.ones_like(batch.anchors[:, 0]) if batch.weights is None else batch.weights
        total = torch.zeros((), device=weights.device)
        for block in replace(batch, weights=weights).split(step.batch.blocks or (len(weights),)):
            loss = contrastive.info_nce(block, settings.temperature, settings.two_way, settings.hard_negative_weight)
            total = total + loss * block.weights.sum()  # type: ignore[union-attr]
        return total / weights.sum()


class MultiPositiveTerm(LossTerm):
    """Contrast each positive of an anchor with the positives of other anchors."""

    views = (ANCHOR, POSITIVE, NEGATIVE)

    def forward(self, step: TrainingStep) -> Tensor:
        batch, settings = step.embedding_batch(), self.settings
        temperature = contrastive.rescaled_temperature(batch, settings.temperature) if settings.rescale else settings.temperature
        return contrastive.multi_positive(batch, temperature, settings.form, settings.siblings)


class LabelContrastTerm(LossTerm):
    """Contrast with views of another label or, without labels, with positives of another group and hard negatives."""

    views = (ANCHOR, POSITIVE, NEGATIVE)

    def forward(self, step: TrainingStep) -> Tensor:
        if step.batch.labels is None:
            return contrastive.retrieval_contrast(step.embedding_batch(), self.settings.temperature)
        return contrastive.label_contrast(step.embedding_batch(), step.tensor(step.batch.labels), self.settings.temperature)


class AlignmentTerm(LossTerm):
    """Distance between an anchor and each of its positives, from unit vectors."""

    def forward(self, step: TrainingStep) -> Tensor:
        unit, owners = step.unit_vectors, step.tensor(step.batch.owners)
        return contrastive.alignment(unit[ANCHOR][owners], unit[POSITIVE], self.settings.distance)


class NliHeadTerm(ClassifierTerm):
    """Cross entropy of the relation of two texts, from the unit vectors of both."""

    views = (ANCHOR, SECOND)

    def __init__(self, settings: NliHeadSettings, context: LossContext) -> None:
        super().__init__(settings, context)
        self.labels = context.labels
        self.head = NliHead(context.towers[0].dim, len(context.labels), settings.hidden, settings.dropout)

    def forward(self, step: TrainingStep) -> Tensor:
        unit = step.unit_vectors
        return functional.cross_entropy(self.head(unit[ANCHOR], unit[SECOND]), step.tensor(step.batch.labels))


class ClassificationTerm(ClassifierTerm):
    """Cross entropy of the class of a pair that is read as one sequence."""

    views = (ANCHOR,)

    def __init__(self, settings: ClassificationSettings, context: LossContext) -> None:
        super().__init__(settings, context)
        self.labels = context.labels
        self.head = FirstTokenHead(context.towers[0].dim, len(context.labels))

    def forward(self, step: TrainingStep) -> Tensor:
        return functional.cross_entropy(self.head(step.vectors[ANCHOR]), step.tensor(step.batch.labels))


class MomentumTerm(LossTerm):
    """Contrast of the encoders' queries with keys of momentum encoders; negatives are queues of earlier keys."""

    def __init__(self, settings: MomentumSettings, context: LossContext) -> None:
        super().__init__(settings, context)
        # Momentum encoders. Checkpoints name their tensors after `slow` and `queues`.
        self.slow = nn.ModuleList([momentum.copy_momentum_encoder(tower) for tower in context.towers])
        self.queues = nn.ModuleList([momentum.Queue(settings.queue, context.towers[0].dim) for _ in range(2)])
        self.pending: list[tuple[dict[str, Tensor], Tensor]] = []  # keys and groups of the batches since the last optimizer step

    def train(self, mode: bool = True) -> "MomentumTerm":
        super().train(mode)
        self.slow.eval()  # keys are computed without dropout
        return self

    def forward(self, step: TrainingStep) -> Tensor:
        unit, groups = step.unit_vectors, step.tensor(step.batch.groups)
        keys = {view: functional.normalize(rows, dim=1) for view, rows in step.encode_with(list(self.slow)).items()}
        self.pending.append((keys, groups))
        queries, keys_of_sides = (unit[ANCHOR], unit[POSITIVE]), (keys[ANCHOR], keys[POSITIVE])
        queues: tuple[Any, Any] = (self.queues[0], self.queues[1])
        return momentum.dual_momentum_contrast(queries, keys_of_sides, groups, queues, self.settings.temperature)

    def after_optimizer_step(self, towers: Sequence[nn.Module]) -> None:
        for momentum_encoder, tower in zip(self.slow, towers, strict=True):
            momentum.update_momentum_encoder(momentum_encoder, tower, self.settings.momentum)
        for keys, groups in self.pending:
            for view, queue in zip((ANCHOR, POSITIVE), self.queues, strict=True):
                queue.enqueue(keys[view], groups)  # type: ignore[operator]
        self.pending = []


@dataclass(frozen=True)
class Loss:
    """A loss by name: its settings, its implementation, and what it requires of encoder and source."""

    settings: type[ObjectiveSettings]
    term: Callable[[Any, LossContext], LossTerm]
    pairs: bool = False  # pulls anchor and positive together, so both must have one meaning
    one_positive: bool = False  # takes exactly one positive per anchor
    blocks: bool = False  # supports batches that are contrasted in blocks
    hard_negatives: bool = True  # accepts sources with hard negatives
    pair_weights: bool = True  # accepts sources that weight their pairs
    labels: Literal["joint", "separate"] | None = None  # needs labelled pairs, read as one sequence or as two
    transformer: bool = False  # needs a transformer
    static: bool = False  # needs a static encoder


LOSSES: dict[str, Loss] = {
    "info_nce": Loss(InfoNceSettings, InfoNceTerm, pairs=True, one_positive=True, blocks=True),
    "late_interaction": Loss(LateInteractionSettings, LateInteractionTerm, pairs=True, one_positive=True, blocks=True, static=True),
    "multi_positive": Loss(MultiPositiveLossSettings, MultiPositiveTerm, pairs=True),
    "label_contrast": Loss(LabelContrastSettings, LabelContrastTerm, pairs=True),
    "alignment": Loss(AlignmentSettings, AlignmentTerm, pairs=True, pair_weights=False),
    "momentum": Loss(MomentumSettings, MomentumTerm, pairs=True, one_positive=True, hard_negatives=False, pair_weights=False),
    "mlm": Loss(MlmSettings, MlmTerm, transformer=True),
    "nli_head": Loss(NliHeadSettings, NliHeadTerm, labels="separate"),
    "classification": Loss(ClassificationSettings, ClassificationTerm, labels="joint"),
}


def build_term(settings: ObjectiveSettings, context: LossContext) -> LossTerm:
    """Build the loss that the settings name."""
    return LOSSES[settings.loss].term(settings, context)
