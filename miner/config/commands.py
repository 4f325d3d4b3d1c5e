"""The settings of every command, with their defaults."""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from miner.config.base import Settings, Strings
from miner.config.choices import LATE, DtypeName, EngineName, MarginName, RescoreName, RetrievalName


class EncoderSettings(Settings):
    """The encoder, and how it runs."""

    encoder: str = "builtin"  # `builtin`, a model directory or its URI, or a Hugging Face Hub id
    pooling: str | None = None  # cls, mean, max, first_last_avg, layer:N; None: as the model directory says
    device: str = "auto"  # auto, cpu, cuda, cuda:N
    dtype: DtypeName = "auto"  # of the computations of a transformer; int8: of its linear layers, on a CPU
    batch_tokens: int | None = pydantic.Field(None, ge=16)  # maximum of a transformer's batch, padding included; None: by its device
    max_tokens: int | None = pydantic.Field(None, ge=2)  # longer sentences are truncated; None: the limit of the model
    side: Literal["source", "target"] | None = None  # of an encoder with two sides; None: by the language, or by the role of the text


class TextSettings(Settings):
    """How text is read and cleaned."""

    text_column: str | None = None  # of a table: a name, or a number from 1 if it has no header; see docs/text.md
    strict: bool = False  # the first invalid line is an error; otherwise such lines are dropped and counted
    max_chars: int = pydantic.Field(5000, ge=1)  # longer lines, after cleaning, are dropped
    max_expansion: float = pydantic.Field(200, ge=1)  # a compressed file that expands more, to over 64 MB, is an error
    shards: int | None = pydantic.Field(None, ge=1, le=99999)  # None: one shard per 32 MB of text


class SideLanguages(Settings):
    """The languages of both sides."""

    source_lang: str = "und"
    target_lang: str = "und"


class SideColumns(TextSettings, SideLanguages):
    """The columns of both sides, which may be in one file."""

    source_column: str | None = None  # of the source; None: `text_column`, or the language of the source in TMX
    target_column: str | None = None

    def side_text(self, side: Literal["source", "target"], path: str) -> TextSettings:
        """Return how the text of a side is read."""
        column = getattr(self, f"{side}_column") or self.text_column
        lang: str = getattr(self, f"{side}_lang")
        if column is None and lang != "und" and re.search(r"\.tmx(\.\w+)?$", path, re.IGNORECASE):
            column = lang
        return self.part(TextSettings).model_copy(update={"text_column": column})


class Filters(Settings):
    """The bounds of filters: None turns a filter off, `true` stands for its usual bound."""

    model_config = pydantic.ConfigDict(allow_inf_nan=False)  # manifests are JSON, which cannot represent them

    USUAL: ClassVar[dict[str, float]] = {}  # bounds of filters that are named without one
    RECOMMENDED: ClassVar[tuple[str, ...]] = ()  # filters that drop very few translations and need no extra package

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _bound(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if value is True:
            if info.field_name not in cls.USUAL:
                raise PydanticCustomError("unbound", "needs a number for a bound")
            return cls.USUAL[info.field_name]
        return None if value is False else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        settings = handler(schema)
        for bound in handler.resolve_ref_schema(settings)["properties"].values():
            bound["anyOf"].append({"type": "boolean"})
        return settings

    def bounds(self) -> dict[str, float]:
        """Return the bounds of the filters that are on."""
        return {name: bound for name, bound in self.model_dump().items() if bound is not None}


class SentenceFilters(Filters):
    """Filters of sentences, applied before embedding; see docs/filters.md."""

    USUAL: ClassVar[dict[str, float]] = {"letters": 0.4, "script": 0.3, "repeats": 0.5, "language": 0.01}
    RECOMMENDED = ("letters", "script", "repeats")

    min_chars: int | None = pydantic.Field(None, ge=1)
    min_words: int | None = pydantic.Field(None, ge=1)
    max_words: int | None = pydantic.Field(None, ge=1)
    letters: float | None = pydantic.Field(None, ge=0, le=1)  # minimum share of letters
    script: float | None = pydantic.Field(None, ge=0, le=1)  # minimum share of letters in the script of the language
    repeats: float | None = pydantic.Field(None, ge=0, le=1)  # maximum share of repeated character n-grams
    language: float | None = pydantic.Field(None, ge=0, le=1)  # minimum probability of the language, relative to the most probable one


class PairTextFilters(Filters):
    """Filters of pairs by their texts; see docs/filters.md."""

    USUAL: ClassVar[dict[str, float]] = {"copies": 0.7, "junk": 0.6, "languages": 0.01, "numbers": 0, "length_ratio": 2}
    RECOMMENDED: ClassVar[tuple[str, ...]] = ("copies", "junk", "numbers", "length_ratio")

    copies: float | None = pydantic.Field(None, ge=0, le=1)  # maximum share of words that both sides have in common
    junk: float | None = pydantic.Field(None, ge=0, le=1)  # maximum share of addresses, figures, symbols, or list separators
    languages: float | None = pydantic.Field(None, ge=0, le=1)  # as `language`, for the less probable side
    numbers: float | None = pydantic.Field(None, ge=0, le=1)  # maximum share of numbers that disagree
    length_ratio: float | None = pydantic.Field(None, ge=1)  # maximum length of the longer side relative to the shorter


class PairFilters(PairTextFilters):
    """Filters of candidates, applied before matching; see docs/filters.md."""

    USUAL: ClassVar[dict[str, float]] = {**PairTextFilters.USUAL, "hubs": 12}
    RECOMMENDED = (*PairTextFilters.RECOMMENDED, "hubs")

    hubs: float | None = pydantic.Field(None, gt=0)  # maximum candidates of a sentence, relative to k


class IdentifierSettings(Settings):
    """By what filters identify languages."""

    lang_id_model: str | None = None  # file of a fastText model that identifies languages for filters; None: py3langid


class DroppedSettings(IdentifierSettings):
    """What is written of what filters drop."""

    keep_dropped: bool = False  # also write what the filters drop, with the reason


class SentenceSettings(DroppedSettings):
    """The sentences of a text that are embedded."""

    split: bool = False  # split each line, a paragraph, into sentences; needs the language of the text
    sentence_filters: SentenceFilters = SentenceFilters()
    collapse: bool = False  # merge sentences that differ only in case, punctuation and spaces


class EmbedConfig(TextSettings, EncoderSettings, SentenceSettings):
    """`miner embed`: embed text."""

    inputs: tuple[str, ...]  # files, globs, URIs, `-`
    output: str
    lang: str = "und"


class ApproximateSettings(Settings):
    """The recall of approximate search, and its memory."""

    target_recall: float = pydantic.Field(0.98, gt=0, le=1)  # share of the true k nearest neighbours, measured on a sample
    memory: str = "8GB"  # of an index during search; limits the choice of an index type

    @pydantic.field_validator("memory")
    @classmethod
    def _size(cls, value: str) -> str:
        if re.fullmatch(r"\d+(\.\d+)?\s*([kmgt]i?b?|b)", value, re.IGNORECASE) is None:
            raise PydanticCustomError("size", "expected a size with its unit, like 8GB or 500MB")
        return value

    @property
    def memory_bytes(self) -> int:
        """The memory in bytes; GB is 10^9 bytes, GiB is 2^30."""
        number, prefix, binary = re.fullmatch(r"([\d.]+)\s*([kmgt]?)(i?)b?", self.memory.lower()).groups()  # type: ignore[union-attr]
        return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix or " "))


class IndexSettings(ApproximateSettings):
    """How a FAISS index is built."""

    factory: str = "auto"  # a FAISS factory string, or auto
    seed: int = pydantic.Field(0, ge=0, lt=2**31)  # of the training sample, and of training itself
    device: str = "auto"  # auto, cpu, cuda, cuda:N


class NeighbourSettings(Settings):
    """How many neighbours a sentence has."""

    k: int = pydantic.Field(4, ge=1, le=1024)  # neighbours on each side


class IndexConfig(IndexSettings, NeighbourSettings):
    """`miner index`: build a FAISS index of embeddings. Its recall is measured for `k` neighbours."""

    embeddings: str  # an embeddings directory, written by `miner embed`
    output: str


class EngineSettings(ApproximateSettings):
    """How neighbours are searched."""

    engine: EngineName = "auto"  # auto: exact as long as that takes less time


Threshold = Annotated[float, pydantic.Field(ge=float("-inf"), lt=float("inf"))]  # NaN is no bound, and nothing is above infinity


Probability = Annotated[float, pydantic.Field(ge=0, lt=1)]


class TopSettings(Settings):
    """How many pairs are kept."""

    top: int | None = pydantic.Field(None, ge=1)  # the pairs with the largest margins, of those that pass every other bound; None: all


class MarginSettings(Settings):
    """How a pair is scored."""

    margin: MarginName = "ratio"


class MatchSettings(MarginSettings, DroppedSettings):
    """How candidates are scored and matched."""

    min_probability: Probability | None = None  # of a pair; None: 0.5 if no other bound is given, where the encoder has weights
    retrieval: RetrievalName = "max"
    pair_filters: PairFilters = PairFilters()
    precision: float = pydantic.Field(0.95, gt=0, lt=1)  # that threshold `auto` has to reach, and a calibrated threshold aims at


def check_token_layer(layer: int | None, rescore: RescoreName) -> None:
    """Raise an error for a layer that would have no effect."""
    if layer is not None and rescore != LATE:
        raise PydanticCustomError("token_layer", "token_layer has an effect only with rescore late")


class RescoreSettings(Settings):
    """Whether candidates are rescored by late interaction; see docs/mining.md."""

    rescore: RescoreName = "auto"  # auto: where the encoder is static and the output was not mined without it
    # Neighbours on each side that are candidates, at least k. None: 16, or 8 if a side has more than 20,000 sentences.
    rescore_candidates: int | None = pydantic.Field(None, ge=1, le=1024)
    token_layer: int | None = pydantic.Field(None, ge=0)  # of a transformer, 0 for its embeddings; None: two thirds of its depth

    @pydantic.model_validator(mode="after")
    def _check_layer(self) -> Self:
        check_token_layer(self.token_layer, self.rescore)
        return self


class ThresholdSettings(MatchSettings):
    """Above which margin candidates become pairs."""

    threshold: Threshold | Literal["auto"] | None = None  # pairs have a greater margin; None: a default, see docs/mining.md

    @pydantic.field_validator("threshold", mode="wrap")
    @classmethod
    def _check_threshold(cls, value: Any, check: pydantic.ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except pydantic.ValidationError:
            raise PydanticCustomError("threshold", "expected a number or auto") from None


class DecideSettings(ThresholdSettings):
    """Which candidates become pairs, and the known pairs by which they are chosen and scored."""

    gold: Strings = ()  # a file of gold pairs, source line <tab> target line, from 1; or tables of marks
    gold_sample: bool = False  # gold is a random sample of the true pairs
    planted: str | None = None  # file of known pairs to plant for threshold `auto`: source <tab> target


class MineConfig(
    SideColumns, EncoderSettings, EngineSettings, SentenceSettings, RescoreSettings, NeighbourSettings, DecideSettings, TopSettings
):
    """`miner mine`: mine pairs of two sides. A side is text, which is embedded under the output, or an embeddings or index directory."""

    source: str
    target: str
    output: str


class FromCandidatesConfig(EncoderSettings, DecideSettings, TopSettings):
    """`miner mine --from-candidates`: decide again on the candidates of an earlier run. The encoder embeds planted pairs."""

    candidates: str  # output of the earlier run
    output: str


class LineSelectionSettings(TopSettings, IdentifierSettings):
    """Which pairs of a scored bitext are kept: all of them without a bound."""

    threshold: Threshold | None = None  # pairs have a greater margin
    min_probability: Probability | None = None  # of a pair
    sentence_filters: SentenceFilters = SentenceFilters()
    pair_filters: PairTextFilters = PairTextFilters()


class ScoreConfig(SideColumns, EncoderSettings, RescoreSettings, NeighbourSettings, MarginSettings, LineSelectionSettings):
    """`miner score`: compute the margins of the line pairs of a bitext, and filter it."""

    source: str
    target: str | None = None  # None: both sides are columns of `source`
    output: str
    background_source: str | None = None  # more sentences to search for neighbours: text, or an embeddings or index directory
    background_target: str | None = None

    def backgrounds(self) -> dict[str, str]:
        """Return the backgrounds by side."""
        backgrounds = {"source": self.background_source, "target": self.background_target}
        return {side: path for side, path in backgrounds.items() if path is not None}
