"""The settings of `miner run`: corpora, the pairs of corpora to mine, and the Beam runner."""

import itertools
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

import pydantic
from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from miner.config.base import Settings, Strings
from miner.config.commands import (
    EncoderSettings,
    EngineSettings,
    FirstUseSettings,
    MinedSentenceSettings,
    NeighbourSettings,
    OutputSettings,
    RescoreSettings,
    TextSettings,
    ThresholdSettings,
)
from miner.config.planning import PlanSettings
from miner.errors import ConfigError


class CorpusSettings(Settings):
    """One corpus. A file or a list of files is short for a corpus with default settings."""

    files: Strings = pydantic.Field(min_length=1, description="Files, globs, URIs; or one embeddings or index directory.")
    lang: str | None = pydantic.Field(None, description="Language of the text; by default, the name of the corpus.")
    text_column: str | None = pydantic.Field(None, description="Column of a table; by default, `text_column` of the run.")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, value: Any) -> Any:
        if not isinstance(value, str | list | Mapping | CorpusSettings):
            raise PydanticCustomError("corpus", "expected a file, a list of files, or a mapping with `files`")
        return {"files": value} if isinstance(value, str | list) else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        settings = handler(schema)
        files = handler.resolve_ref_schema(settings)["properties"]["files"]
        return {"anyOf": [*files["anyOf"], settings]}


class RunnerSettings(Settings):
    """Named profiles of Beam options."""

    use: str | None = pydantic.Field(None, description="The profile of this run; by default, it runs on this machine.")
    profiles: dict[str, dict[str, bool | int | float | str | list[str]]] = pydantic.Field({})

    @pydantic.model_validator(mode="after")
    def _check_profile(self) -> Self:
        if self.use is not None and self.use not in self.profiles:
            raise PydanticCustomError("profile", f"use names no profile; one of {', '.join(self.profiles)}")
        return self

    def options(self, profile: str | None = None) -> tuple[str, ...]:
        """Return the Beam options of `profile`, by default of `use`. Raises ConfigError for an unknown profile."""
        profile = self.use if profile is None else profile
        if profile is None:
            return ()
        if profile not in self.profiles:
            raise ConfigError(
                f"--profile {profile}: no such profile; one of {', '.join(self.profiles) or 'none, as runner.profiles is empty'}"
            )
        options = []
        for name, value in self.profiles[profile].items():
            for item in value if isinstance(value, list) else [value]:
                options += [f"--{name}"] if item is True else [] if item is False else [f"--{name}={item}"]
        return tuple(options)

    def plan_settings(self, profile: str | None = None) -> PlanSettings:
        """Return the machines that a profile names, for `miner plan`. Raises ConfigError for an unknown profile."""
        self.options(profile)
        values = self.profiles.get(profile or self.use or "", {})
        return PlanSettings.check(**{name: values[name] for name in ("hardware", "workers") if name in values})


Pair = tuple[str, str]  # names of corpora: source, target


class RunConfig(
    TextSettings,
    EncoderSettings,
    EngineSettings,
    MinedSentenceSettings,
    RescoreSettings,
    NeighbourSettings,
    ThresholdSettings,
    FirstUseSettings,
    OutputSettings,
):
    """`miner run`: embed every corpus once, and mine pairs of corpora."""

    output: str
    corpora: dict[str, CorpusSettings]
    pairs: Literal["all"] | dict[str, str] | list[str | list[str]] = pydantic.Field(
        "all", description="all, `pivot: NAME`, or a list of en-de or [en, de]."
    )
    at_once: int | None = pydantic.Field(
        None, ge=1, description="Number of corpora, then of pairs, that share jobs; fewer take less disk. By default, all."
    )
    runner: RunnerSettings = RunnerSettings()
    plan: PlanSettings = pydantic.Field(PlanSettings(), description="Settings of `miner plan`.")

    @pydantic.field_validator("corpora", mode="before")
    @classmethod
    def _check_names(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if not isinstance(name, str):  # YAML reads `no`, the code of Norwegian, as false
                raise PydanticCustomError("name", f"YAML reads a name as {name!r}: put it in quotes, as in 'no'")
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise PydanticCustomError("name", f"{name!r} cannot name a folder; take letters, digits, - and _")
        return value

    @pydantic.field_validator("pairs", mode="before")
    @classmethod
    def _check_pairs(cls, value: Any) -> Any:
        is_list = isinstance(value, list) and all(isinstance(pair, str) or (isinstance(pair, list) and len(pair) == 2) for pair in value)
        is_pivot = isinstance(value, dict) and list(value) == ["pivot"]
        if value != "all" and not is_list and not is_pivot:
            raise PydanticCustomError("pairs", "expected all, a mapping `pivot: NAME`, or a list of pairs such as en-de or [en, de]")
        return value

    def named_pairs(self) -> dict[str, Pair]:
        """Return {name: pair}, in the order of the config. Raises ConfigError for unknown corpora and for duplicate pairs."""
        if self.pairs == "all":
            pairs = list(itertools.combinations(self.corpora, 2))
        elif isinstance(self.pairs, dict):
            pivot = self._check_corpus(self.pairs["pivot"])
            pairs = [(pivot, name) for name in self.corpora if name != pivot]
        else:
            pairs = [self._parse_pair(pair) for pair in self.pairs]
        if not pairs:
            raise ConfigError("pairs: nothing to mine; give at least two corpora, and a pair of them")
        named: dict[str, Pair] = {}
        for source, target in pairs:
            if source == target:
                raise ConfigError(f"pairs: {source} with itself; give two corpora")
            if (target, source) in named.values():
                raise ConfigError(f"pairs: {source}-{target} repeats {target}-{source} in the other direction; remove one of them")
            if named.setdefault(f"{source}-{target}", (source, target)) != (source, target) or pairs.count((source, target)) > 1:
                raise ConfigError(f"pairs: two pairs are called {source}-{target}; remove one, or rename the corpora")
        return named

    def _parse_pair(self, pair: str | list[str]) -> Pair:
        if not isinstance(pair, str):
            return self._check_corpus(pair[0]), self._check_corpus(pair[1])
        parts = pair.split("-")
        splits = [("-".join(parts[:end]), "-".join(parts[end:])) for end in range(1, len(parts))]
        matches = [split for split in splits if set(split) <= set(self.corpora)]
        if len(matches) != 1:
            raise ConfigError(f"pairs: {pair!r} does not name two of the corpora {', '.join(self.corpora)}; write it as [en, de]")
        return matches[0]

    def _check_corpus(self, name: str) -> str:
        if name not in self.corpora:
            raise ConfigError(f"pairs: there is no corpus {name!r}; one of {', '.join(self.corpora)}")
        return name
