"""The settings of the losses of `miner train`."""

from typing import Literal

import pydantic

from miner.config.base import Strings
from miner.training.settings import TrainSettings

Field = pydantic.Field


class ObjectiveSettings(TrainSettings):
    """Settings of every loss; miner/training/steps/loss_terms.py lists the losses."""

    weight: float = Field(1.0, gt=0, description="Factor in the sum of losses.")
    data: Strings = Field((), description="Names of its data sources; by default, all.")
    loss: str


class InfoNceSettings(ObjectiveSettings):
    """InfoNCE with in-batch negatives."""

    loss: Literal["info_nce"]
    temperature: float = Field(0.05, gt=0)
    two_way: bool = Field(False, description="Add the loss of the opposite direction, positives to anchors.")
    hard_negative_weight: float = Field(0.0, description="Number added to the logit of an anchor's own hard negative (SimCSE).")


class LateInteractionSettings(ObjectiveSettings):
    """Contrast by late interaction of piece vectors, among pairs that the mean vectors confuse."""

    loss: Literal["late_interaction"]
    temperature: float = Field(0.05, gt=0)
    candidates: int = Field(8, ge=2, description="Candidates of a text: its translation and those of the most similar texts of the batch.")
    max_pairs: int | None = Field(
        None, ge=2, description="Maximum number of pairs of a batch that are contrasted, which bounds the time; null: all."
    )


class MultiPositiveLossSettings(ObjectiveSettings):
    """Contrastive loss with several positives per anchor (MPCL)."""

    loss: Literal["multi_positive"]
    temperature: float = Field(0.05, gt=0)
    form: Literal["out", "in"] = Field("out", description="Whether the mean over positives is outside or inside the logarithm.")
    siblings: bool = Field(True, description="Keep an anchor's other positives in the denominator.")
    rescale: bool = Field(False, description="Min-max scale the similarities of a batch to 0..1.")


class LabelContrastSettings(ObjectiveSettings):
    """Contrastive loss whose negatives are the rows of other labels (SCL)."""

    loss: Literal["label_contrast"]
    temperature: float = Field(1.0, gt=0)


class AlignmentSettings(ObjectiveSettings):
    """Distance between the two views of a row, without negatives (MVA)."""

    loss: Literal["alignment"]
    distance: Literal["cosine", "mse", "kl", "symmetric_kl"] = "cosine"


class MomentumSettings(ObjectiveSettings):
    """Dual momentum contrast: keys come from momentum encoders, negatives from queues of keys."""

    loss: Literal["momentum"]
    temperature: float = Field(0.04, gt=0)
    momentum: float = Field(0.999, ge=0, lt=1, description="Decay of the momentum encoders; 0: copy the encoder at every step.")
    queue: int = Field(409_600, ge=1, description="Keys per side.")


class MlmSettings(ObjectiveSettings):
    """Masked language modelling."""

    loss: Literal["mlm"]
    weight: float = Field(0.1, gt=0)
    probability: float = Field(0.15, gt=0, lt=1, description="Probability that a token is masked.")


class NliHeadSettings(ObjectiveSettings):
    """Classification of two separately encoded texts: [u, v, |u - v|], one hidden layer, cross-entropy."""

    loss: Literal["nli_head"]
    weight: float = Field(0.1, gt=0)
    hidden: int = Field(256, ge=1, description="Units of the hidden layer.")
    dropout: float = Field(0.1, ge=0, lt=1)


class ClassificationSettings(ObjectiveSettings):
    """Classification of a joint sequence by a linear layer."""

    loss: Literal["classification"]
