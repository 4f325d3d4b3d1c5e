"""The losses that a config can name: each takes the vectors of a batch to a scalar. `LOSSES` lists them.

To add a loss, write its settings class and its LossTerm here, and add an entry to `LOSSES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pydantic
import torch
from torch import Tensor, nn
from torch.nn import functional

from miner.training.data.batches import ANCHOR, NEGATIVE, POSITIVE, SECOND
from miner.training.losses import contrastive, momentum
from miner.training.models.heads import FirstTokenHead, NliHead
from miner.training.steps.late_interaction import LateInteractionSettings, LateInteractionTerm
from miner.training.steps.mlm import MlmSettings, MlmTerm
from miner.training.steps.step import ClassifierTerm, LossContext, LossTerm, ObjectiveSettings, TrainingStep


class InfoNceSettings(ObjectiveSettings):
    """InfoNCE with in-batch negatives."""

    loss: Literal["info_nce"]
    temperature: float = pydantic.Field(0.05, gt=0)
    two_way: bool = pydantic.Field(False, description="Add the loss of the opposite direction, positives to anchors.")
    hard_negative_weight: float = pydantic.Field(0.0, description="Number added to the logit of an anchor's own hard negative (SimCSE).")


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


class MultiPositiveLossSettings(ObjectiveSettings):
    """Contrastive loss with several positives per anchor (MPCL)."""

    loss: Literal["multi_positive"]
    temperature: float = pydantic.Field(0.05, gt=0)
    form: Literal["out", "in"] = pydantic.Field("out", description="Whether the mean over positives is outside or inside the logarithm.")
    siblings: bool = pydantic.Field(True, description="Keep an anchor's other positives in the denominator.")
    rescale: bool = pydantic.Field(False, description="Min-max scale the similarities of a batch to 0..1.")


class MultiPositiveTerm(LossTerm):
    """Contrast each positive of an anchor with the positives of other anchors."""

    views = (ANCHOR, POSITIVE, NEGATIVE)

    def forward(self, step: TrainingStep) -> Tensor:
        batch, settings = step.embedding_batch(), self.settings
        temperature = contrastive.rescaled_temperature(batch, settings.temperature) if settings.rescale else settings.temperature
        return contrastive.multi_positive(batch, temperature, settings.form, settings.siblings)


class LabelContrastSettings(ObjectiveSettings):
    """Contrastive loss whose negatives are the rows of other labels (SCL)."""

    loss: Literal["label_contrast"]
    temperature: float = pydantic.Field(1.0, gt=0)


class LabelContrastTerm(LossTerm):
    """Contrast with views of another label or, without labels, with positives of another group and hard negatives."""

    views = (ANCHOR, POSITIVE, NEGATIVE)

    def forward(self, step: TrainingStep) -> Tensor:
        if step.batch.labels is None:
            return contrastive.retrieval_contrast(step.embedding_batch(), self.settings.temperature)
        return contrastive.label_contrast(step.embedding_batch(), step.tensor(step.batch.labels), self.settings.temperature)


class AlignmentSettings(ObjectiveSettings):
    """Distance between the two views of a row, without negatives (MVA)."""

    loss: Literal["alignment"]
    distance: Literal["cosine", "mse", "kl", "symmetric_kl"] = "cosine"


class AlignmentTerm(LossTerm):
    """Distance between an anchor and each of its positives, from unit vectors."""

    def forward(self, step: TrainingStep) -> Tensor:
        unit, owners = step.unit_vectors, step.tensor(step.batch.owners)
        return contrastive.alignment(unit[ANCHOR][owners], unit[POSITIVE], self.settings.distance)


class NliHeadSettings(ObjectiveSettings):
    """Classification of two separately encoded texts: [u, v, |u - v|], one hidden layer, cross-entropy."""

    loss: Literal["nli_head"]
    weight: float = pydantic.Field(0.1, gt=0)
    hidden: int = pydantic.Field(256, ge=1, description="Units of the hidden layer.")
    dropout: float = pydantic.Field(0.1, ge=0, lt=1)


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


class ClassificationSettings(ObjectiveSettings):
    """Classification of a joint sequence by a linear layer."""

    loss: Literal["classification"]


class ClassificationTerm(ClassifierTerm):
    """Cross entropy of the class of a pair that is read as one sequence."""

    views = (ANCHOR,)

    def __init__(self, settings: ClassificationSettings, context: LossContext) -> None:
        super().__init__(settings, context)
        self.labels = context.labels
        self.head = FirstTokenHead(context.towers[0].dim, len(context.labels))

    def forward(self, step: TrainingStep) -> Tensor:
        return functional.cross_entropy(self.head(step.vectors[ANCHOR]), step.tensor(step.batch.labels))


class MomentumSettings(ObjectiveSettings):
    """Dual momentum contrast: keys come from momentum encoders, negatives from queues of keys."""

    loss: Literal["momentum"]
    temperature: float = pydantic.Field(0.04, gt=0)
    momentum: float = pydantic.Field(0.999, ge=0, lt=1, description="Decay of the momentum encoders; 0: copy the encoder at every step.")
    queue: int = pydantic.Field(409_600, ge=1, description="Keys per side.")


class MomentumTerm(LossTerm):
    """Contrast of the encoders' queries with keys of momentum encoders; negatives are queues of earlier keys."""

    reads_all_weights = True

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
