"""The settings of each command, with their defaults."""

import re
from typing import Annotated, Any, ClassVar, Literal

import pydantic
from pydantic_core import PydanticCustomError

from miner.choices import EngineName, MarginName, RetrievalName
from miner.config.base import Settings


class EncoderSettings(Settings):
    """Which encoder, and how it runs."""

    encoder: str = "builtin"  # `builtin`, a folder, or a hub id
    pooling: str | None = None  # cls, mean, max, first_last_avg, layer:N; None reads it from the folder
    device: str = "auto"  # auto, cpu, cuda, cuda:N
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"  # of a transformer's arithmetic
    batch_tokens: int = pydantic.Field(16384, ge=16)  # tokens of one transformer batch, padding included
    max_tokens: int | None = pydantic.Field(None, ge=2)  # a transformer cuts longer sentences; None takes the model's own limit


class TextSettings(Settings):
    """How text is read and cleaned."""

    text_column: str | None = None  # a name (the first line is a header) or a number from 1 (no header); for TSV, JSONL, Parquet
    strict: bool = False  # the first bad line is an error instead of a count
    max_chars: int = pydantic.Field(5000, ge=1)  # a longer cleaned line is dropped and counted as too long
    shards: int | None = pydantic.Field(None, ge=1, le=99999)  # id ranges; None makes one for every 32 MB of text


class Filters(Settings):
    """Bounds of filters by name: None leaves a filter out, `true` takes its usual bound."""

    model_config = pydantic.ConfigDict(allow_inf_nan=False)  # manifests are JSON, which has neither

    USUAL: ClassVar[dict[str, float]] = {}  # what a filter takes that is named without a bound
    RECOMMENDED: ClassVar[tuple[str, ...]] = ()  # those that hardly ever lose a translation, and need nothing installed

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _bound(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if value is True:
            if info.field_name not in cls.USUAL:
                raise PydanticCustomError("unbound", "needs a number for a bound")
            return cls.USUAL[info.field_name]
        return None if value is False else value

    def bounds(self) -> dict[str, float]:
        """The bounds of the filters that are on."""
        return {name: bound for name, bound in self.model_dump().items() if bound is not None}


class SentenceFilters(Filters):
    """What a sentence must be to be embedded. docs/filters.md tells what each loses of real text."""

    USUAL: ClassVar[dict[str, float]] = {"letters": 0.4, "script": 0.3, "repeats": 0.5, "language": 0.01}
    RECOMMENDED = ("letters", "script", "repeats")

    min_chars: int | None = pydantic.Field(None, ge=1)
    min_words: int | None = pydantic.Field(None, ge=1)
    max_words: int | None = pydantic.Field(None, ge=1)
    letters: float | None = pydantic.Field(None, ge=0, le=1)  # least share of letters
    script: float | None = pydantic.Field(None, ge=0, le=1)  # least share of letters in the script of its language
    repeats: float | None = pydantic.Field(None, ge=0, le=1)  # most that may stand in it again
    language: float | None = pydantic.Field(None, ge=0, le=1)  # least likelihood of its language, beside the most likely one


class PairFilters(Filters):
    """What a candidate must be to become a pair."""

    USUAL: ClassVar[dict[str, float]] = {"copies": 0.7, "junk": 0.6, "languages": 0.01, "numbers": 0, "length_ratio": 2, "hubs": 12}
    RECOMMENDED = ("copies", "junk", "numbers", "length_ratio", "hubs")

    copies: float | None = pydantic.Field(None, ge=0, le=1)  # most of the words that may be the same
    junk: float | None = pydantic.Field(None, ge=0, le=1)  # most that may be addresses, figures, signs, or a list
    languages: float | None = pydantic.Field(None, ge=0, le=1)  # as `language`, of both sides
    numbers: float | None = pydantic.Field(None, ge=0, le=1)  # most of the numbers that may disagree
    length_ratio: float | None = pydantic.Field(None, ge=1)  # most of the longer side by the shorter
    hubs: float | None = pydantic.Field(None, gt=0)  # most candidates that a sentence may be in, by k


class SentenceSettings(Settings):
    """Which sentences of a text are embedded."""

    sentence_filters: SentenceFilters = SentenceFilters()
    collapse: bool = False  # sentences that differ in case, punctuation and spaces alone are one
    keep_dropped: bool = False  # write what the filters drop, and why


class EmbedConfig(TextSettings, EncoderSettings, SentenceSettings):
    """`miner embed`: text -> sentences and embeddings."""

    inputs: tuple[str, ...]  # files, globs, URIs, `-`
    output: str
    lang: str = "und"


class ApproximateSettings(Settings):
    """What an index may cost, and what it has to find."""

    target_recall: float = pydantic.Field(0.98, gt=0, le=1)  # share of the true k nearest, to be surely reached over a sample
    memory: str = "8GB"  # that an index may take while it is searched, where its kind is chosen

    @pydantic.field_validator("memory")
    @classmethod
    def _size(cls, value: str) -> str:
        if re.fullmatch(r"\d+(\.\d+)?\s*([kmgt]i?)?b?", value, re.IGNORECASE) is None:
            raise PydanticCustomError("size", "expected a size like 8GB or 500MB")
        return value

    @property
    def memory_bytes(self) -> int:
        """GB is 10^9 bytes, GiB is 2^30."""
        number, prefix, binary = re.fullmatch(r"([\d.]+)\s*([kmgt]?)(i?)b?", self.memory.lower()).groups()  # type: ignore[union-attr]
        return int(float(number) * (1024 if binary else 1000) ** " kmgt".index(prefix or " "))


class IndexSettings(ApproximateSettings):
    """Which index is built, and where."""

    factory: str = "auto"  # in FAISS's words
    seed: int = pydantic.Field(0, ge=0, lt=2**31)  # of the sample it is trained on, and of what is random in training
    device: str = "auto"  # auto, cpu, cuda, cuda:N


class IndexConfig(IndexSettings):
    """`miner index`: embeddings -> a FAISS index."""

    embeddings: str  # a folder of `miner embed`
    output: str
    k: int = pydantic.Field(4, ge=1, le=1024)  # neighbours that are to be found


class EngineSettings(ApproximateSettings):
    """How neighbours are found."""

    engine: EngineName = "auto"  # auto: exact as long as that takes less time


Threshold = Annotated[float, pydantic.Field(ge=float("-inf"), lt=float("inf"))]  # NaN is no bound, and nothing is above infinity


class MatchSettings(Settings):
    """How candidates become pairs."""

    margin: MarginName = "ratio"
    retrieval: RetrievalName = "max"
    pair_filters: PairFilters = PairFilters()
    keep_dropped: bool = False  # write what the filters drop, and why


class DecideSettings(MatchSettings):
    """Which candidates are pairs."""

    threshold: Threshold | Literal["auto"] | None = None  # pairs score above it; None: the margin's own
    precision: float = pydantic.Field(0.95, gt=0, lt=1)  # that `auto` expects of the pairs
    gold: str | None = None  # source line <tab> target line, from 1
    gold_sample: bool = False  # gold is a random part of the true pairs, not all of them
    planted: str | None = None  # known pairs, source <tab> target, for `auto`


class MineConfig(TextSettings, EncoderSettings, EngineSettings, SentenceSettings, DecideSettings):
    """`miner mine`: two sides -> pairs. A side is text (embedded first, under the output), or a folder of `embed` or `index`."""

    source: str
    target: str
    output: str
    source_lang: str = "und"
    target_lang: str = "und"
    k: int = pydantic.Field(4, ge=1, le=1024)  # neighbours on each side


class FromCandidatesConfig(EncoderSettings, DecideSettings):
    """`miner mine --from-candidates`: the candidates of an earlier run -> pairs. The encoder is for planted pairs."""

    candidates: str  # the output of that run
    output: str


class ScoreConfig(TextSettings, EncoderSettings):
    """`miner score`: the line pairs of a bitext -> their margins."""

    source: str
    target: str | None = None  # None: both sides are columns of the source
    output: str
    source_column: str | None = None  # a text column of the source
    target_column: str | None = None
    background_source: str | None = None  # where neighbours are looked for as well: text, or a folder of `embed` or `index`
    background_target: str | None = None
    source_lang: str = "und"
    target_lang: str = "und"
    k: int = pydantic.Field(4, ge=1, le=1024)  # neighbours on each side
    margin: MarginName = "ratio"

    def backgrounds(self) -> dict[str, str]:
        """Side -> its background, where there is one."""
        found = {"source": self.background_source, "target": self.background_target}
        return {side: place for side, place in found.items() if place is not None}
