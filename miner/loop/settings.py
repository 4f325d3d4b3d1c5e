"""The config of `miner loop`: which text, mined how, what is learnt from it, and when to stop. docs/loop.md explains it."""

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config.base import Settings
from miner.config.commands import DecideSettings, EncoderSettings, EngineSettings, PairFilters, SentenceSettings, TextSettings
from miner.errors import ConfigError
from miner.evaluation.settings import RetrievalTask
from miner.languages import canonical
from miner.training.settings import TrainConfig

Field = pydantic.Field


def _code(code: str) -> str:
    try:
        return canonical(code)
    except ConfigError as error:
        raise PydanticCustomError("language", "{fault}", {"fault": str(error)}) from error


Language = Annotated[str, pydantic.AfterValidator(_code)]


class StartSettings(EncoderSettings):
    """The encoder of the first round: one that is there, or one trained first. How it runs holds for later encoders, too."""

    train: TrainConfig | None = None  # the config of that training; what would be `encoder` is then what comes out

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.train is not None and "encoder" in self.model_fields_set:
            raise PydanticCustomError("start", "give either encoder or train")
        return self


class ReadingSettings(TextSettings, SentenceSettings):
    """How the corpora are read, and which of their sentences are embedded."""


class MiningSettings(EngineSettings, DecideSettings):
    """How each pair of languages is mined. In `gold` and `planted`, `{source}` and `{target}` stand for the languages of a pair."""

    k: int = Field(4, ge=1, le=1024)  # neighbours on each side
    pair_filters: PairFilters = PairFilters(**{name: PairFilters.USUAL[name] for name in PairFilters.RECOMMENDED})


class SelectionSettings(Settings):
    """Which of the mined pairs are learnt from."""

    top: int | None = Field(None, ge=1)  # at most so many of a pair of languages, best first
    min_count: int = Field(0, ge=0)  # where fewer are above the threshold: the best so many that are above the floor
    floor: float = 1.0  # margin
    one_way: float = Field(0.02, ge=0)  # taken off the margin of a pair that is the best of one of its sentences only
    skip_top: float = Field(0.01, ge=0, lt=1)  # share left out at the very top, where boilerplate gathers
    repeats: int = Field(3, ge=1)  # pairs whose sentence is the same but for figures, punctuation and case
    validation: float = Field(0.02, ge=0, lt=1)  # share that is drawn at random and not learnt from
    seed: int = Field(0, ge=0)


class LoopEvaluation(Settings):
    """What encoders are measured on. Nothing that stands in these files is learnt from."""

    dev: Mapping[str, RetrievalTask] = Field(min_length=1)  # name -> aligned lines; the mean decides what is better
    test: Mapping[str, RetrievalTask] = Field(default_factory=dict)  # measured alike, and decides nothing
    tatoeba: str | None = None  # folder of tatoeba.xxx-eng.tsv.gz
    decontaminate: tuple[str, ...] = ()  # more files whose sentences are not to be learnt from; globs and URIs
    near: float = Field(0.7, gt=0, le=1)  # share of letter sequences in common from which on two sentences count as one


class StopSettings(Settings):
    """When the loop ends. It always does where a round mines too little to learn from."""

    rounds: int = Field(3, ge=1)
    patience: int = Field(1, ge=1)  # so many rounds without a better dev score
    least_gain: float = Field(0.0, ge=0)  # what counts as better, of 1
    jaccard: float = Field(0.98, gt=0, le=1)  # what two rounds select is the same from this share in common on
    hours: float | None = Field(None, gt=0)  # no round begins that would end later, by what the last one took
    least_pairs: int = Field(100, ge=1)  # of all languages, to learn from


class LoopConfig(Settings):
    """`miner loop`: monolingual text -> an encoder, round by round.

    In `training`, `{round}` stands for the folder of the round, `{last}` for the encoder that mined it, `{start}` for the first.
    """

    corpora: Mapping[Language, tuple[str, ...]] = Field(min_length=2)  # language -> its text: files, globs, URIs
    pivot: Language | None = None  # mine every other language with this one
    pairs: tuple[tuple[Language, Language], ...] = ()  # or mine these; neither: all of them
    start: StartSettings = StartSettings()
    reading: ReadingSettings = ReadingSettings()
    mining: MiningSettings = MiningSettings()
    selection: SelectionSettings = SelectionSettings()
    training: TrainConfig
    evaluation: LoopEvaluation
    stop: StopSettings = StopSettings()

    @pydantic.field_validator("corpora", mode="before")
    @classmethod
    def _check_corpora(cls, corpora: Any) -> Any:
        """Two names of one language would be one key, with the files of the last."""
        names: dict[str, list[str]] = {}
        for name in corpora if isinstance(corpora, Mapping) else []:
            names.setdefault(_code(str(name)), []).append(str(name))
        for alike in names.values():
            if len(alike) > 1:
                raise PydanticCustomError("corpora", f"{' and '.join(alike)} are one language; give all its files under one of them")
        return corpora

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.pivot is not None and self.pairs:
            raise PydanticCustomError("pairs", "give either pivot or pairs")
        named = {self.pivot} if self.pivot else {lang for pair in self.pairs for lang in pair}
        if unknown := sorted(named - set(self.corpora)):
            raise PydanticCustomError("pairs", f"no corpus for {unknown[0]}; corpora has {', '.join(self.corpora)}")
        if any(one == other for one, other in self.pairs):
            raise PydanticCustomError("pairs", "a language cannot be mined with itself")
        if "{round}" not in self.training.model_dump_json():
            raise PydanticCustomError("training", "names no file in {place}: what is mined is not learnt", {"place": "{round}"})
        return self

    @property
    def mined(self) -> list[tuple[str, str]]:
        """The pairs of languages, in the order in which they are mined."""
        if self.pivot is not None:
            return [(self.pivot, lang) for lang in self.corpora if lang != self.pivot]
        return list(dict.fromkeys(self.pairs)) or list(itertools.combinations(self.corpora, 2))
