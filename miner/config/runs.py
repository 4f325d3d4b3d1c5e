"""The settings of `miner run`: corpora by language, which of them are mined with each other, and where it runs."""

import itertools
import re
from typing import Any, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config.base import Settings
from miner.config.commands import EncoderSettings, EngineSettings, MatchSettings, SentenceSettings, TextSettings, Threshold
from miner.config.planning import PlanSettings
from miner.errors import ConfigError


class CorpusSettings(Settings):
    """One corpus. A file, or a list of files, stands for one with the usual settings."""

    files: tuple[str, ...] = pydantic.Field(min_length=1)  # files, globs, URIs; or one folder of `embed` or `index`
    lang: str | None = None  # None: the name of the corpus is its language
    text_column: str | None = None  # of TSV, JSONL, Parquet; None: as for all

    @pydantic.model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"files": [value]} if isinstance(value, str) else {"files": value} if isinstance(value, list) else value


class RunnerSettings(Settings):
    """Beam's options, as profiles that have names."""

    use: str | None = None  # the profile of this run; None runs here
    profiles: dict[str, dict[str, bool | int | float | str | list[str]]] = pydantic.Field({})

    @pydantic.model_validator(mode="after")
    def _known(self) -> Self:
        if self.use is not None and self.use not in self.profiles:
            raise PydanticCustomError("profile", f"use names no profile; one of {', '.join(self.profiles)}")
        return self

    def options(self, profile: str | None = None) -> tuple[str, ...]:
        """What to tell Beam: the options of `profile`, or of the one that is used without it. ConfigError where there is none."""
        profile = self.use if profile is None else profile
        if profile is None:
            return ()
        if profile not in self.profiles:
            raise ConfigError(
                f"--profile {profile}: no such profile; one of {', '.join(self.profiles) or 'none, as runner.profiles is empty'}"
            )
        told = []
        for name, value in self.profiles[profile].items():
            for each in value if isinstance(value, list) else [value]:
                told += [f"--{name}"] if each is True else [] if each is False else [f"--{name}={each}"]
        return tuple(told)


Pair = tuple[str, str]  # names of corpora: source, target


class RunConfig(TextSettings, EncoderSettings, EngineSettings, SentenceSettings, MatchSettings):
    """`miner run`: every corpus is embedded once, and mined with as many others as one likes."""

    output: str
    corpora: dict[str, CorpusSettings]
    pairs: Literal["all"] | dict[str, str] | list[str | list[str]] = "all"  # `pivot: NAME`, or a list of en-de or [en, de]
    k: int = pydantic.Field(4, ge=1, le=1024)  # neighbours on each side
    threshold: Threshold | None = None  # pairs score above it; None: the margin's own
    at_once: int = pydantic.Field(1, ge=1)  # stages that run side by side, where a cluster has room for them
    runner: RunnerSettings = RunnerSettings()
    plan: PlanSettings = PlanSettings()  # of `miner plan` alone

    @pydantic.field_validator("corpora", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if not isinstance(name, str):  # what YAML makes of the code of Norwegian
                raise PydanticCustomError("name", f"YAML reads a name as {name!r}: put it in quotes, as in 'no'")
            if not re.fullmatch(r"\w[\w.-]*", name):
                raise PydanticCustomError("name", f"{name!r} cannot name a folder; take letters, digits, - and _")
        return value

    @pydantic.field_validator("pairs", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        listed = isinstance(value, list) and all(isinstance(each, str) or (isinstance(each, list) and len(each) == 2) for each in value)
        pivot = isinstance(value, dict) and list(value) == ["pivot"]
        if value != "all" and not listed and not pivot:
            raise PydanticCustomError("pairs", "expected all, a mapping `pivot: NAME`, or a list of pairs such as en-de or [en, de]")
        return value

    def named_pairs(self) -> dict[str, Pair]:
        """Name of a pair -> its corpora, in the order of the config. ConfigError for a corpus that is not there, and for what is double."""
        if self.pairs == "all":
            found = list(itertools.combinations(self.corpora, 2))
        elif isinstance(self.pairs, dict):
            pivot = self._known(self.pairs["pivot"])
            found = [(pivot, name) for name in self.corpora if name != pivot]
        else:
            found = [self._pair(each) for each in self.pairs]
        if not found:
            raise ConfigError("pairs: nothing to mine; give two corpora at least, and a pair of them")
        named: dict[str, Pair] = {}
        for source, target in found:
            if source == target:
                raise ConfigError(f"pairs: {source} with itself; give two corpora")
            if (target, source) in named.values():
                raise ConfigError(f"pairs: {source}-{target} is {target}-{source} the other way round; leave one of them out")
            if named.setdefault(f"{source}-{target}", (source, target)) != (source, target) or found.count((source, target)) > 1:
                raise ConfigError(f"pairs: there are two called {source}-{target}; leave one out, or name the corpora otherwise")
        return named

    def _pair(self, told: str | list[str]) -> Pair:
        if not isinstance(told, str):
            return self._known(told[0]), self._known(told[1])
        parts = told.split("-")
        ways = [("-".join(parts[:at]), "-".join(parts[at:])) for at in range(1, len(parts))]
        fitting = [way for way in ways if set(way) <= set(self.corpora)]
        if len(fitting) != 1:
            raise ConfigError(f"pairs: {told!r} does not name two of the corpora {', '.join(self.corpora)}; write it as [en, de]")
        return fitting[0]

    def _known(self, name: str) -> str:
        if name not in self.corpora:
            raise ConfigError(f"pairs: no corpus is called {name!r}; one of {', '.join(self.corpora)}")
        return name
