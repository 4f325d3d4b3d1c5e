"""The config of `miner train`: the encoder, its data, the losses and the steps. docs/training.md explains the settings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Union

import pydantic

from miner import languages
from miner.config.base import OneOrMore
from miner.errors import ConfigError
from miner.training.data.datasets import SourceSettings
from miner.training.data.multilingual import LabelledPairsSettings
from miner.training.data.strategies import STRATEGIES
from miner.training.settings import (
    CleaningSettings,
    EvaluationSettings,
    StaticSettings,
    TrainingSettings,
    TrainSettings,
    TransformerSettings,
)
from miner.training.steps.loss_terms import LOSSES, Loss
from miner.training.steps.step import ObjectiveSettings

Field = pydantic.Field

if TYPE_CHECKING:  # mypy cannot read a union that is built at run time
    LossSettings = ObjectiveSettings
    DataSettings = SourceSettings
else:
    DataSettings = Annotated[Union[tuple(settings for settings, _ in STRATEGIES.values())], Field(discriminator="strategy")]  # noqa: UP007
    LossSettings = Annotated[Union[tuple(loss.settings for loss in LOSSES.values())], Field(discriminator="loss")]  # noqa: UP007


class TrainConfig(TrainSettings):
    """Settings of one training run."""

    encoder: Annotated[StaticSettings | TransformerSettings, Field(discriminator="kind")]
    data: Annotated[tuple[DataSettings, ...], OneOrMore()] = Field(min_length=1)
    objective: Annotated[tuple[LossSettings, ...], OneOrMore()] = Field(min_length=1)
    training: TrainingSettings
    evaluation: EvaluationSettings | None = None
    cleaning: CleaningSettings | None = None

    def sources_of(self, titles: tuple[str, ...]) -> list[Any]:
        """Return the sources that a loss names in `data`; all sources if it names none."""
        return [source for source in self.data if not titles or source.title in titles]

    @property
    def streams(self) -> list[tuple[str, ...]]:
        """The titles of each group of sources that share their losses, without duplicates."""
        return list(dict.fromkeys(tuple(source.title for source in self.sources_of(objective.data)) for objective in self.objective))

    def find_labels(self, titles: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the classes of the labelled sources, in order; raise ConfigError where sources differ."""
        label_sets = {source.labels for source in self.sources_of(titles) if isinstance(source, LabelledPairsSettings)}
        if len(label_sets) > 1:
            raise ConfigError(f"data: sources of one loss have different labels ({' and '.join(', '.join(names) for names in label_sets)})")
        return next(iter(label_sets), ())

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the first loss that classifies joint pairs, in order; empty without one."""
        return next((self.find_labels(objective.data) for objective in self.objective if LOSSES[objective.loss].labels == "joint"), ())


def check_config(config: TrainConfig) -> None:
    """Check that the sections of a config fit together; raise ConfigError for the first fault. Reads no data and no model."""
    titles = [source.title for source in config.data]
    if len(set(titles)) < len(titles):
        duplicate = next(title for title in titles if titles.count(title) > 1)
        raise ConfigError(f"data: two sources have the name {duplicate!r}; rename one of them")
    for number in range(len(config.objective)):
        _check_objective(config, number)
    for stream in config.streams:
        _check_mixture(config, [source for source in config.data if source.title in stream])
    for title in titles:
        if not any(title in stream for stream in config.streams):
            raise ConfigError(f"data: no loss uses source {title!r}; remove it, or name it in the data of a loss")
    if isinstance(config.encoder, StaticSettings):
        _check_static(config)
    else:
        _check_transformer(config, config.encoder)
    if config.cleaning is not None:
        _check_cleaning(config)
    if "accuracy" in _dev_metrics(config) and not config.classes:
        raise ConfigError("evaluation.metric accuracy needs the loss classification; add it, or choose retrieval or sts")


def _dev_metrics(config: TrainConfig) -> set[str]:
    return {dev_set.metric for dev_set in config.evaluation.dev_sets.values()} if config.evaluation else set()


def find_mixing_fault(sources: Sequence[Any]) -> str | None:
    """Return why the examples of several sources cannot share a batch."""
    kinds = {source.joint if isinstance(source, LabelledPairsSettings) else None for source in sources}
    if len(kinds) > 1:
        return "labelled_pairs have labels or are read as one sequence, but other sources are not"
    if len(sources) > 1 and any(source.strategy == "grouped_pairs" for source in sources):
        return "grouped_pairs are contrasted in blocks"
    return None


def _check_mixture(config: TrainConfig, sources: Sequence[Any]) -> None:
    """Raise ConfigError where the sources of a stream are empty, or set batch sizes that a mixture does not use."""
    names = ", ".join(source.title for source in sources)
    if all(source.limit == 0 for source in sources):
        raise ConfigError(f"data: limit is 0 for all sources of a loss ({names}); raise one of the limits")
    is_mixed = len(sources) > 1 and config.training.mix == "examples" and not find_mixing_fault(sources)
    if is_mixed and any(source.batch_size is not None for source in sources):
        raise ConfigError(
            f"data: sources {names} share batches, so only training.batch_size applies; remove their batch_size, or set"
            " training.mix to batches"
        )


def _check_objective(config: TrainConfig, number: int) -> None:
    objective, titles = config.objective[number], [source.title for source in config.data]
    loss = LOSSES[objective.loss]
    for title in objective.data:
        if title not in titles:
            raise ConfigError(f"objective.{number}.data: no source {title!r}; the sources are {', '.join(titles)}")
    for source in config.sources_of(objective.data):
        if fault := _find_misfit(loss, source):
            raise ConfigError(f"objective.{number}: {objective.loss} on source {source.title!r}: {fault}")
    if loss.labels:
        config.find_labels(objective.data)


def _find_misfit(loss: Loss, source: Any) -> str | None:
    """Return why a loss cannot train on a source."""
    is_labelled = isinstance(source, LabelledPairsSettings)
    has_several_positives = (source.strategy == "multi_positive" and source.positives != 1 and not source.pairs) or (
        source.strategy == "cross_lingual_nli" and source.positives > 1
    )
    if loss.one_positive and has_several_positives:
        return "an anchor has several positives; use the loss multi_positive, or set positives to 1"
    if loss.one_positive and is_labelled and source.num_views > 1:
        return "an anchor has several views; use the loss multi_positive with siblings: false, or one view"
    if loss.pairs and is_labelled and not source.joint:
        return "the two texts of a pair may differ in meaning; set joint, or use the strategy paraphrases or the loss nli_head"
    if loss.labels and not is_labelled:
        return "the source has no labels; use the strategy labelled_pairs"
    if loss.labels == "joint" and not source.joint:
        return "the texts of a pair are encoded separately; set joint"
    if loss.labels == "separate" and source.joint:
        return "the texts of a pair are read as one sequence; set joint to false"
    if not loss.hard_negatives and source.strategy in ("nli", "cross_lingual_nli", "triplets"):
        return "negatives come from queues of translations; use info_nce, or nli_head on labelled_pairs in addition"
    if not loss.pair_weights and getattr(source, "weigh_by_margin", False):
        return "the loss weights all pairs equally; remove weigh_by_margin, or use info_nce"
    if not loss.blocks and source.strategy == "grouped_pairs":
        return "only info_nce and late_interaction support blocks of pairs; use the strategy multi_positive"
    return None


def _check_cleaning(config: TrainConfig) -> None:
    for source in config.data:
        has_translations = isinstance(source, LabelledPairsSettings) and source.has_translations
        if has_translations or source.strategy in ("cross_lingual_nli", "paraphrases"):
            raise ConfigError(
                f"cleaning: row i of source {source.title!r} is the same example in every language, so no row can be dropped;"
                " remove cleaning, and clean the files"
            )


def _check_transformer(config: TrainConfig, encoder: TransformerSettings) -> None:
    for objective in config.objective:
        if LOSSES[objective.loss].static:
            raise ConfigError(f"objective: {objective.loss} needs a static encoder, but encoder.kind is transformer; remove the loss")
        if encoder.inference_pooling is not None and LOSSES[objective.loss].labels:
            raise ConfigError(
                f"encoder.inference_pooling: the classifier of {objective.loss} reads encoder.pooling, but is saved beside an encoder"
                " with another one; remove inference_pooling"
            )
    if encoder.towers == "shared":
        return
    if any(getattr(source, "swap", False) for source in config.data):
        raise ConfigError("data: swap mixes the sides that encoder.towers pair gives to two encoders; remove one of the two settings")
    if "bucc" in _dev_metrics(config):
        raise ConfigError("evaluation.metric bucc needs one encoder, and encoder.towers pair trains two; choose retrieval or sts")
    for code in (*(encoder.languages or ()), *(encoder.positive_languages or ())):
        languages.canonical(code)  # ConfigError


def _check_static(config: TrainConfig) -> None:
    for objective in config.objective:
        if LOSSES[objective.loss].transformer:
            raise ConfigError(f"objective: {objective.loss} needs a transformer, but encoder.kind is static; remove the loss")
    if any(isinstance(source, LabelledPairsSettings) and source.joint for source in config.data):
        raise ConfigError("data: a static encoder cannot read two texts as one sequence; set joint to false")
    if config.training.gradient_cache is not None or config.training.dtype != "float32":
        raise ConfigError("training: gradient_cache and dtype apply to transformers, but encoder.kind is static; remove them")
