"""The settings of the Python interface: names, values and defaults are those of the commands."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pydantic

from miner.api.embedding import EncoderOptions
from miner.config.choices import MarginName, RescoreName, RetrievalName
from miner.config.commands import (
    EncoderSettings,
    IdentifierSettings,
    LineSelectionSettings,
    MarginSettings,
    MatchSettings,
    NeighbourSettings,
    RescoreSettings,
    SentenceFilters,
    SideLanguages,
    TextSettings,
    Threshold,
    TopSettings,
)
from miner.config.messages import suggest
from miner.errors import ConfigError


class SearchSettings(EncoderSettings, RescoreSettings, SideLanguages, NeighbourSettings, MarginSettings, IdentifierSettings):
    """What mining and scoring in memory have in common."""

    max_chars: int = pydantic.Field(TextSettings.model_fields["max_chars"].default, ge=1)
    sentence_filters: SentenceFilters = SentenceFilters()


class InMemoryMining(SearchSettings, MatchSettings, TopSettings):
    """The settings of `miner.mine`."""

    threshold: Threshold | None = None


class InMemoryScoring(SearchSettings, LineSelectionSettings):
    """The settings of `miner.score`."""


def check_names(options: Mapping[str, Any], choices: Collection[str]) -> None:
    """Raise ConfigError for an option that is not among the choices."""
    for name in options:
        if name not in choices:
            raise ConfigError(f"unknown option {name!r}; {suggest(name, list(choices))}")


class MarginOptions(EncoderOptions, total=False):
    """The options that `miner.mine` and `miner.score` have in common."""

    source_lang: str
    target_lang: str
    max_chars: int
    k: int
    margin: MarginName
    rescore: RescoreName
    rescore_candidates: int | None
    token_layer: int | None
    threshold: float | None
    min_probability: float | None
    filters: Sequence[str]
    lang_id_model: str | None


class ScoringOptions(MarginOptions, total=False):
    """The options of `miner.score`."""

    top: int | None


class MiningOptions(MarginOptions, total=False):
    """The options of `miner.mine`."""

    precision: float
    top: int | None
    retrieval: RetrievalName
    keep_dropped: bool
