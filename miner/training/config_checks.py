"""Whether the parts of a config fit each other: said before any data or model is read."""

from collections.abc import Iterator
from typing import Any

from miner.errors import ConfigError
from miner.training.settings import LabelledPairsSettings, StaticSettings, TrainConfig

ONE_POSITIVE = ("info_nce", "label_contrast", "alignment", "momentum")
MEANING = (*ONE_POSITIVE, "multi_positive")  # losses that draw anchor and positive together
NLI_CLASSES = ("entailment", "neutral", "contradiction")


def check(config: TrainConfig) -> None:
    """Raise ConfigError for the first thing that cannot work."""
    titles = [source.title for source in config.data]
    if len(set(titles)) < len(titles):
        twice = next(title for title in titles if titles.count(title) > 1)
        raise ConfigError(f"data: two sources are called {twice!r}; give one of them another name")
    for place, objective in enumerate(config.objective):
        for title in objective.data:
            if title not in titles:
                raise ConfigError(f"objective.{place}.data: no source {title!r}; the sources are {', '.join(titles)}")
        for source in sources_of(config, objective.data):
            if fault := _misfit(objective.loss, source):
                raise ConfigError(f"objective.{place}: {objective.loss} on source {source.title!r}: {fault}")
        if objective.loss in ("nli_head", "classification"):
            labels(config, objective.data)
    for title in titles:
        if not any(title in used for used in streams(config)):
            raise ConfigError(f"data: no loss uses source {title!r}; leave it out, or name it in the data of a loss")
    if isinstance(config.encoder, StaticSettings):
        _check_static(config)
    elif config.encoder.towers == "pair" and any(getattr(source, "swap", False) for source in config.data):
        raise ConfigError("data: swap gives either side to either encoder, and encoder.towers is pair; leave one of them out")
    if config.evaluation and config.evaluation.metric == "accuracy" and not any(of.loss == "classification" for of in config.objective):
        raise ConfigError("evaluation.metric accuracy is of a loss classification, and there is none; choose retrieval or sts")


def sources_of(config: TrainConfig, titles: tuple[str, ...]) -> list[Any]:
    """The sources a loss names, or all."""
    return [source for source in config.data if not titles or source.title in titles]


def streams(config: TrainConfig) -> Iterator[tuple[str, ...]]:
    """Which sources share their losses: the titles of each stream of batches, once."""
    found = [tuple(source.title for source in sources_of(config, objective.data)) for objective in config.objective]
    yield from dict.fromkeys(found)


def labels(config: TrainConfig, titles: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The classes of the labelled sources, in order; ConfigError where they differ."""
    found = {source.labels for source in sources_of(config, titles) if isinstance(source, LabelledPairsSettings)}
    if len(found) > 1:
        raise ConfigError(f"data: sources of one loss have different labels ({' and '.join(', '.join(of) for of in found)})")
    return next(iter(found), ())


def classes(config: TrainConfig) -> tuple[str, ...]:
    """The labels of the loss classification, in order; none without it."""
    return next((labels(config, of.data) for of in config.objective if of.loss == "classification"), ())


def _misfit(loss: str, source: Any) -> str | None:
    """Why a loss cannot learn from a source."""
    labelled, several = isinstance(source, LabelledPairsSettings), source.strategy == "multi_positive" and source.positives != 1
    several = several or (source.strategy == "cross_lingual_nli" and source.positives > 1)
    if loss in ONE_POSITIVE and several:
        return "an anchor has several positives there; use multi_positive, or set positives to 1"
    if loss in MEANING and labelled and not source.joint:
        return "its two texts may say different things; set joint, or use nli_head"
    if loss in ("classification", "nli_head") and not labelled:
        return "it has no labels; its strategy must be labelled_pairs"
    if loss == "classification" and not source.joint:
        return "its texts are read apart; set joint"
    if loss == "nli_head" and source.joint:
        return "its texts are read as one; set joint to false"
    if loss == "momentum" and source.strategy in ("nli", "cross_lingual_nli", "triplets"):
        return "its negatives are queues of translations; use info_nce there, or nli_head on labelled_pairs beside it"
    if loss in ("momentum", "alignment") and getattr(source, "weigh_by_margin", False):
        return "it counts all pairs alike; leave weigh_by_margin out, or use info_nce"
    if loss != "info_nce" and source.strategy == "grouped_pairs":
        return "blocks of pairs are for info_nce; use the strategy multi_positive"
    return None


def _check_static(config: TrainConfig) -> None:
    if any(objective.loss == "mlm" for objective in config.objective):
        raise ConfigError("objective: mlm wants a transformer, and encoder.kind is static; leave it out")
    if any(isinstance(source, LabelledPairsSettings) and source.joint for source in config.data):
        raise ConfigError("data: a static encoder cannot read two texts as one; set joint to false")
    if config.training.gradient_cache is not None or config.training.dtype != "float32":
        raise ConfigError("training: gradient_cache and dtype are for transformers, and encoder.kind is static; leave them out")
