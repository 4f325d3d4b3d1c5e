"""The config of `miner train`: the encoder, its data, the losses and the steps. docs/training.md explains the settings."""

from typing import TYPE_CHECKING, Annotated, Union

import pydantic

from miner.config.base import OneOrMore
from miner.training.data.source_settings import DataSettings
from miner.training.loss_settings import ObjectiveSettings
from miner.training.settings import (
    CleaningSettings,
    EvaluationSettings,
    StaticSettings,
    TrainingSettings,
    TrainSettings,
    TransformerSettings,
)
from miner.training.steps.loss_terms import LOSSES

Field = pydantic.Field

if TYPE_CHECKING:  # mypy cannot read a union that is built at run time
    LossSettings = ObjectiveSettings
else:
    LossSettings = Annotated[Union[tuple(loss.settings for loss in LOSSES.values())], Field(discriminator="loss")]  # noqa: UP007


class TrainConfig(TrainSettings):
    """Settings of one training run."""

    encoder: Annotated[StaticSettings | TransformerSettings, Field(discriminator="kind")]
    data: Annotated[tuple[DataSettings, ...], OneOrMore()] = Field(min_length=1)
    objective: Annotated[tuple[LossSettings, ...], OneOrMore()] = Field(min_length=1)
    training: TrainingSettings
    evaluation: EvaluationSettings | None = None
    cleaning: CleaningSettings | None = None
