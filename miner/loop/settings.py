"""The config of `miner loop`: corpora, mining, selection, training, evaluation and stop rules. docs/loop.md explains it."""

import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config.base import Settings, Strings
from miner.config.commands import (
    DecideSettings,
    EncoderSettings,
    EngineSettings,
    MinedSentenceSettings,
    NeighbourSettings,
    RescoreSettings,
    TextSettings,
)
from miner.config.datasets import TableFile, TableFiles
from miner.errors import ConfigError
from miner.evaluation.retrieval import RetrievalTask
from miner.languages import canonical
from miner.training.config import TrainConfig

Field = pydantic.Field


def _canonical_code(code: str) -> str:
    try:
        return canonical(code)
    except ConfigError as error:
        raise PydanticCustomError("language", "{problem}", {"problem": str(error)}) from error


Language = Annotated[str, pydantic.AfterValidator(_canonical_code)]


class StartSettings(EncoderSettings):
    """The start encoder: an existing one, or one to train first. Its runtime settings also apply to later encoders."""

    train: TrainConfig | None = Field(None, description="Training config of the start encoder, instead of `encoder`.")

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.train is not None and self.encoder != EncoderSettings.model_fields["encoder"].default:
            raise PydanticCustomError("start", "give either encoder or train")
        return self


class ReadingSettings(TextSettings, MinedSentenceSettings):
    """How corpora are read and which sentences are embedded."""


class MiningSettings(EngineSettings, RescoreSettings, NeighbourSettings, DecideSettings):
    """How each language pair is mined. In `gold` and `planted`, `{source}` and `{target}` are replaced by the language codes."""


class SelectionSettings(Settings):
    """Which mined pairs become training data."""

    top: int | None = Field(None, ge=1, description="Maximum number of pairs per language pair, best first.")
    min_count: int = Field(0, ge=0, description="Minimum number of pairs per language pair: below the threshold, down to the floor.")
    floor: float = Field(1.0, description="Minimum margin of pairs below the threshold.")
    one_way: float = Field(0.02, ge=0, description="Margin penalty of pairs that are the best candidate of only one of their sentences.")
    skip_top: float = Field(0.01, ge=0, lt=1, description="Share of the best pairs to skip, where boilerplate accumulates.")
    repeats: int = Field(3, ge=1, description="Maximum number of pairs whose sentences differ in numerals, punctuation and case only.")
    validation: float = Field(0.02, ge=0, lt=1, description="Share of the groups held out for validation, drawn at random.")
    seed: int = Field(0, ge=0, description="Seed of the validation draw.")


class LoopEvaluation(Settings):
    """Evaluation of encoders. Sentences of these files are excluded from training."""

    dev: Mapping[str, RetrievalTask] = Field(min_length=1, description="Name -> aligned lines; rounds are compared by the mean accuracy.")
    test: Mapping[str, RetrievalTask] = Field(default_factory=dict, description="Name -> aligned lines that are reported only.")
    tatoeba: TableFile | None = Field(None, description="A release, or a directory with tatoeba.xxx-eng.tsv.gz; reported only.")
    decontaminate: TableFiles = Field((), description="Further files whose sentences are excluded; globs and URIs, or public datasets.")
    near: float = Field(0.7, gt=0, le=1, description="Jaccard similarity of character 5-grams from which a sentence is excluded.")


class StopSettings(Settings):
    """When the loop stops. It always stops when a round selects fewer than `least_pairs`."""

    rounds: int = Field(3, ge=1, description="Maximum number of rounds.")
    patience: int = Field(1, ge=1, description="Stop after this number of rounds without a better dev score.")
    least_gain: float = Field(0.0, ge=0, description="Minimum improvement of the dev score (0 to 1) that counts.")
    jaccard: float = Field(0.98, gt=0, le=1, description="Stop when two rounds select the same pairs, to this Jaccard index.")
    hours: float | None = Field(None, gt=0, description="Time budget; a round is not started if it would exceed it, going by the last one.")
    least_pairs: int = Field(100, ge=1, description="Minimum number of selected pairs, over all language pairs.")


class LoopConfig(Settings):
    """The config file of `miner loop`.

    In `training`, `{round}` is replaced by the directory of the round, `{last}` by the encoder that mined, `{start}` by the start encoder.
    """

    corpora: Mapping[Language, Strings] = Field(min_length=2, description="Language -> text: files, globs, URIs.")
    pivot: Language | None = Field(None, description="Mine each other language with this one.")
    pairs: tuple[tuple[Language, Language], ...] = Field(
        (), description="The language pairs, instead of a pivot; without either, all pairs."
    )
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
        """Reject two names of one language: the files of the first would be ignored."""
        names: dict[str, list[str]] = {}
        for name in corpora if isinstance(corpora, Mapping) else []:
            names.setdefault(_canonical_code(str(name)), []).append(str(name))
        for synonyms in names.values():
            if len(synonyms) > 1:
                raise PydanticCustomError("corpora", f"{' and '.join(synonyms)} are one language; list all its files under one of them")
        return corpora

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.pivot is not None and self.pairs:
            raise PydanticCustomError("pairs", "give either pivot or pairs")
        languages = {self.pivot} if self.pivot else {lang for pair in self.pairs for lang in pair}
        if unknown := sorted(languages - set(self.corpora)):
            raise PydanticCustomError("pairs", f"no corpus for {unknown[0]}; corpora has {', '.join(self.corpora)}")
        if any(source == target for source, target in self.pairs):
            raise PydanticCustomError("pairs", "a language cannot be mined with itself")
        if "{round}" not in self.training.model_dump_json():
            raise PydanticCustomError("training", "no file name contains {round}, so mined pairs are not used", {"round": "{round}"})
        return self

    @property
    def language_pairs(self) -> list[tuple[str, str]]:
        """The language pairs in the order of mining."""
        if self.pivot is not None:
            return [(self.pivot, lang) for lang in self.corpora if lang != self.pivot]
        return list(dict.fromkeys(self.pairs)) or list(itertools.combinations(self.corpora, 2))
