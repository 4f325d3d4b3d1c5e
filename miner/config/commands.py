"""The settings of every command: each option once, with its type, default, bounds and help.

Options of the command line, keyword arguments of Python, keys of YAML files and their documentation derive from these classes.
"""

import codecs
import math
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from miner.config.base import Settings, Strings
from miner.config.choices import LATE, RETRIEVALS, DtypeName, EngineName, MarginName, RescoreName, RetrievalName

# The second part is the placeholder in --help.
File = Annotated[str, "FILE"]
Directory = Annotated[str, "DIR"]
Path = Annotated[str, "PATH"]
Code = Annotated[str, "CODE"]
Size = Annotated[str, "SIZE"]

RESUMED_OUTPUT = "Output directory. Run again, the command resumes where it stopped."


class EncoderSettings(Settings):
    """The encoder, and how it runs."""

    encoder: str = Field("builtin", description="`builtin`, a model directory or its URI, or a model id of the Hugging Face Hub.")
    pooling: str | None = Field(None, description="cls, mean, max, first_last_avg or layer:N; by default, that of the model directory.")
    prompt: str | None = Field(
        None,
        description="Text before each sentence, such as 'query: ' for E5, or the name of a prompt of the model directory; by default, its"
        " default prompt.",
    )
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N.")
    dtype: DtypeName = Field(
        "auto",
        description="Data type of a transformer; int8: of its linear layers, on CPUs. auto: bfloat16 where the processor computes in it"
        " and gives vectors like those of float32, otherwise float32.",
    )
    batch_tokens: int | None = Field(
        None, ge=16, description="Tokens per batch of a transformer, padding included; by default, 4096 on a CPU, 16384 on a GPU."
    )
    max_tokens: int | None = Field(
        None, ge=2, description="Truncate sentences with more tokens; by default, at the limit of the transformer."
    )
    side: Literal["source", "target"] | None = Field(
        None, description="Side of an encoder with two sides; by default, that of the language, or of the role of the text."
    )


class TextSettings(Settings):
    """How text is read and cleaned; see docs/text.md."""

    text_column: str | None = Field(None, description="Column of a table: a name, a number from 1, or a language of TMX.")
    strict: bool = Field(False, description="Stop at the first invalid line or file instead of skipping it.")
    encoding: str = Field("utf-8", description="Encoding of text files, such as cp1252 or utf-16; not of TMX and Parquet.")
    clean: bool = Field(
        False,
        description="Repair entities, mojibake, curled quotes, widths, ligatures, marks of direction and control characters by ftfy.",
    )
    max_chars: int = Field(5000, ge=1, description="Drop lines with more characters, after cleaning.")
    max_expansion: float = Field(200, ge=1, description="Refuse compressed files that expand by a larger factor, to over 64 MB.")
    shards: int | None = Field(
        None, ge=1, le=99999, description="Number of shards; by default, one per 32 MB of text; above 16, at most one per 10 kB."
    )

    @pydantic.field_validator("encoding")
    @classmethod
    def _check_encoding(cls, name: str) -> str:
        try:
            "".encode(name)  # fails for codecs that are not of text
            return codecs.lookup(name).name
        except (LookupError, ValueError) as error:
            raise ValueError("not an encoding; one such as utf-8, cp1252, iso8859-2, shift_jis or utf-16") from error


class SideLanguages(Settings):
    """The languages of both sides."""

    source_lang: Code = Field("und", description="Language of the source, if it is text: de, deu, deu_Latn.")
    target_lang: Code = Field("und", description="Language of the target, if it is text.")


class SideColumns(TextSettings, SideLanguages):
    """How the texts of both sides, which may be columns of one file, are read and cleaned."""

    source_column: str | None = Field(None, description="Column of the source: a name, a number from 1, or a language of TMX.")
    target_column: str | None = Field(None, description="Column of the target, which may be in the same file: leave TARGET out.")

    def side_text(self, side: Literal["source", "target"], path: str) -> TextSettings:
        """Return how the text of a side is read."""
        column = getattr(self, f"{side}_column") or self.text_column
        lang: str = getattr(self, f"{side}_lang")
        if column is None and lang != "und" and _is_tmx(path):
            column = lang
        return self.part(TextSettings).model_copy(update={"text_column": column})

    @pydantic.model_validator(mode="before")
    @classmethod
    def _complete_sides(cls, values: Any) -> Any:
        """Complete source and target: both may be one file with two columns, or the stem of Moses files such as corpus.en and corpus.de."""
        source = values.get("source") if isinstance(values, Mapping) else None
        if not isinstance(source, str) or not source or values.get("target") is not None:
            return values
        if values.get("paraphrases"):
            return {**values, "target": source, "target_lang": values.get("source_lang", "und")}
        languages = [values.get(f"{side}_lang", "und") for side in ("source", "target")]
        stems = [f"{source}.{lang}" for lang in languages]
        if not os.path.exists(source) and all(map(os.path.isfile, stems)):  # noqa: PTH110  # strings, as in the settings
            return {**values, "source": stems[0], "target": stems[1]}
        columns = [values.get(f"{side}_column") for side in ("source", "target")]
        if None in columns and ("und" in languages or not _is_tmx(source)):
            raise PydanticCustomError(
                "sides",
                "give TARGET, or one file with --source-column and --target-column, TMX with --source-lang and --target-lang,"
                " or the stem of files SOURCE.LANG",
            )
        return {**values, "target": source}


def _is_tmx(path: str) -> bool:
    return re.search(r"\.tmx(\.\w+)?$", path, re.IGNORECASE) is not None


NO_FILTERS = "none"  # in place of the bounds


class Filters(Settings):
    """The bounds of filters: None turns a filter off, `true` stands for its usual bound.

    The recommended filters, which drop very few translations and need no extra package, are on by default.
    """

    model_config = pydantic.ConfigDict(allow_inf_nan=False)  # manifests are JSON, which cannot represent them

    USUAL: ClassVar[dict[str, float]] = {}  # bounds of filters that are off by default and can be named without a bound

    @pydantic.model_validator(mode="before")
    @classmethod
    def _expand_none(cls, value: Any) -> Any:
        return dict.fromkeys(cls.model_fields) if value == NO_FILTERS else value

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _bound(cls, value: Any, info: pydantic.ValidationInfo) -> Any:
        if value is True:
            bound = cls.usual().get(str(info.field_name))
            if bound is None:
                raise PydanticCustomError("unbound", "needs a number for a bound")
            return bound
        return None if value is False else value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        settings = handler(schema)
        for bound in handler.resolve_ref_schema(settings)["properties"].values():
            bound["anyOf"].append({"type": "boolean"})
        return {"anyOf": [settings, {"const": NO_FILTERS}]}

    @classmethod
    def recommended(cls) -> dict[str, float]:
        """Return the bounds of the filters that are on by default."""
        return cls().bounds()

    @classmethod
    def usual(cls) -> dict[str, float]:
        """Return the bounds of the filters that can be named without one."""
        return {**cls.recommended(), **cls.USUAL}

    @classmethod
    def none(cls) -> Self:
        """Return the settings with all filters off."""
        return cls(**dict.fromkeys(cls.model_fields))

    def bounds(self) -> dict[str, float]:
        """Return the bounds of the filters that are on."""
        return {name: bound for name, bound in self.model_dump().items() if bound is not None}


class SentenceFilters(Filters):
    """Filters of sentences, applied before embedding; see docs/filters.md."""

    USUAL: ClassVar[dict[str, float]] = {"language": 0.01}

    min_chars: int | None = Field(None, ge=1, description="Minimum number of characters.")
    min_words: int | None = Field(None, ge=1, description="Minimum number of words.")
    max_words: int | None = Field(None, ge=1, description="Maximum number of words.")
    letters: float | None = Field(0.4, ge=0, le=1, description="Minimum share of letters.")
    script: float | None = Field(0.3, ge=0, le=1, description="Minimum share of letters in the script of the language.")
    repeats: float | None = Field(0.5, ge=0, le=1, description="Maximum share of repeated character n-grams.")
    language: float | None = Field(None, ge=0, le=1, description="Minimum probability of the language, relative to the most probable one.")


WITH_LETTERS = SentenceFilters(**{**SentenceFilters.none().model_dump(), "letters": 0.01})  # drops numbers, dates and rules only


class PairTextFilters(Filters):
    """Filters of pairs by their texts; see docs/filters.md."""

    USUAL: ClassVar[dict[str, float]] = {"languages": 0.01}

    copies: float | None = Field(0.7, ge=0, le=1, description="Maximum share of words that both sides have in common.")
    junk: float | None = Field(0.6, ge=0, le=1, description="Maximum share of addresses, figures, symbols, or list separators.")
    languages: float | None = Field(None, ge=0, le=1, description="As the filter `language`, for the less probable side.")
    numbers: float | None = Field(0.0, ge=0, le=1, description="Maximum share of numbers that disagree.")
    length_ratio: float | None = Field(2.0, ge=1, description="Maximum length of the longer side relative to the shorter.")


class PairFilters(PairTextFilters):
    """Filters of candidates, applied before matching; see docs/filters.md."""

    hubs: float | None = Field(12.0, gt=0, description="Maximum number of candidates of a sentence, relative to a usual one.")


class IdentifierSettings(Settings):
    """By what filters identify languages."""

    lang_id_model: File | None = Field(
        None, description="fastText model that identifies languages for filters, such as that of GlotLID; by default, py3langid."
    )


class DroppedSettings(IdentifierSettings):
    """What is written of what filters drop."""

    keep_dropped: bool = Field(False, description="Also write what the filters drop, with reason and score.")


class SentenceSettings(DroppedSettings):
    """The sentences of a text that are embedded."""

    sentence_filters: SentenceFilters = Field(WITH_LETTERS, description="Bounds of the filters of sentences.")
    split: bool = Field(False, description="Split each line into sentences by the rules of its language; needs the extra `split`.")
    collapse: bool = Field(False, description="Treat sentences that differ only in case, punctuation and spaces as one.")


class OutputSettings(Settings):
    """How an output that was made from other inputs is handled."""

    replace: bool = Field(False, description="Replace an output that was made from files or corpora that are no longer inputs.")


class MinedSentenceSettings(SentenceSettings):
    """The sentences of a text that are mined."""

    sentence_filters: SentenceFilters = Field(SentenceFilters(), description="Bounds of the filters of sentences.")


def check_token_layer(layer: int | None, rescore: RescoreName) -> None:
    """Raise an error for a layer that would have no effect."""
    if layer is not None and rescore != LATE:
        raise PydanticCustomError("token_layer", "--token-layer has an effect only with --rescore late")


class TokenSettings(Settings):
    """Whether the tokens of sentences rescore candidates; those of a transformer are stored when it embeds the sentences."""

    rescore: RescoreName = Field(
        "auto",
        description="Rescore candidates by late interaction of tokens; auto: if the encoder has tokens, and its profile does not advise"
        " against it.",
    )
    token_layer: int | None = Field(
        None, ge=0, description="Layer of a transformer whose tokens rescore, 0 for its embeddings; by default, two thirds of its depth."
    )

    @pydantic.model_validator(mode="after")
    def _check_layer(self) -> Self:
        check_token_layer(self.token_layer, self.rescore)
        return self


class EmbedConfig(SentenceSettings, TextSettings, EncoderSettings, TokenSettings, OutputSettings):
    """`miner embed`: embed text."""

    ARGUMENTS = ("inputs",)

    inputs: tuple[str, ...] = Field(min_length=1, description="Files, patterns, URIs, or `-` for standard input.")
    output: Directory = Field(description=RESUMED_OUTPUT)
    lang: Code = Field("und", description="Language of the text: de, deu, deu_Latn.")


class ApproximateSettings(Settings):
    """The recall of approximate search, and its memory."""

    target_recall: float = Field(0.98, gt=0, le=1, description="Recall of the k nearest neighbours with FAISS, measured on a sample.")
    memory: Size = Field("8GB", description="Memory limit of a FAISS index during search, for the choice of its type.")

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

    factory: Annotated[str, "FACTORY"] = Field("auto", description="auto, or a FAISS factory string: Flat, IVF4096,PQ64x4, HNSW32, ...")
    seed: int = Field(0, ge=0, lt=2**31, description="Random seed of the training sample, and of training itself.")
    device: str = Field("auto", description="auto, cpu, cuda (all GPUs) or cuda:N.")


class NeighbourSettings(Settings):
    """How many neighbours a sentence has."""

    k: int = Field(4, ge=1, le=1024, description="Neighbours per sentence.")


class IndexConfig(NeighbourSettings, IndexSettings):
    """`miner index`: build a FAISS index of embeddings. Its recall is measured for `k` neighbours."""

    ARGUMENTS = ("embeddings",)

    embeddings: str = Field(description="An embeddings directory, written by `miner embed`.")
    output: Directory = Field(description=RESUMED_OUTPUT)


class CalibrateConfig(EncoderSettings):
    """`miner calibrate`: measure the probabilities of an encoder."""

    ARGUMENTS = ("encoder",)

    encoder: str = Field(description="A model directory or its URI, or a model id of the Hugging Face Hub.")
    replace: bool = Field(False, description="Replace the probabilities that the encoder has.")


class EngineSettings(ApproximateSettings):
    """How neighbours are searched."""

    engine: EngineName = Field("auto", description="Search engine; auto: the one with the lower estimated time.")


def _check_bound(value: float) -> float:
    """Raise an error for NaN, which is no bound, and for infinity, which nothing is above; minus infinity keeps all pairs."""
    if math.isnan(value) or value == math.inf:
        raise PydanticCustomError("float_type", "expected a number")
    return value


Threshold = Annotated[float, pydantic.AfterValidator(_check_bound)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class TopSettings(Settings):
    """How many pairs are kept."""

    top: int | None = Field(None, ge=1, description="Keep the N pairs with the largest margins, of those that pass every other bound.")


class MarginSettings(Settings):
    """How a pair is scored."""

    margin: MarginName = Field("ratio", description="Score of a pair.")


class MatchSettings(MarginSettings, DroppedSettings):
    """How candidates are scored and matched."""

    retrieval: RetrievalName = Field(
        "max", description=f"{'; '.join(f'{name}: {retrieval.summary}' for name, retrieval in RETRIEVALS.items())}."
    )
    min_probability: Probability | None = Field(
        None,
        description="Keep pairs with at least this probability of being right; by default, 0.5 without --threshold and --top, where the"
        " encoder has probabilities.",
    )
    precision: float = Field(0.95, gt=0, lt=1, description="Target precision of --threshold auto, and of a calibrated threshold.")
    pair_filters: PairFilters = Field(PairFilters(), description="Bounds of the filters of pairs.")


class RescoreSettings(TokenSettings):
    """Whether candidates are rescored by late interaction; see docs/mining.md."""

    rescore_candidates: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Candidates per sentence with rescoring, at least --k; by default, 16, or 8 if a side has more than 20,000 sentences.",
    )


class ThresholdSettings(MatchSettings):
    """Above which margin candidates become pairs."""

    threshold: Threshold | Literal["auto"] | None = Field(
        None,
        description="Keep pairs with a larger margin. auto: choose the threshold for --precision, by --gold, --planted or probabilities."
        " By default, recommended by the encoder, or calibrated.",
    )


class DecideSettings(ThresholdSettings):
    """Which candidates become pairs, and the known pairs by which they are chosen and scored."""

    gold: Annotated[Strings, "FILE"] = Field(
        (),
        description="File of all true pairs, `source line<TAB>target line`, counted from 1; or marks of `miner report`. Repeatable.",
    )
    gold_sample: bool = Field(False, description="Gold is a random part of the true pairs, not all of them.")
    planted: File | None = Field(
        None, description="Known pairs that are not in the corpora, `source<TAB>target`: hundreds, of the same kind of text."
    )


class FirstUseSettings(Settings):
    """What is measured before an encoder mines for the first time."""

    calibrate: Literal["auto", "none"] = Field(
        "auto",
        description="auto: measure the probabilities of an encoder that has none, as miner calibrate does, if the text is ten times as long"
        " as that of the measurement; none: do not.",
    )


class PairGroupSettings(Settings):
    """What is written beside the pairs."""

    groups: bool = Field(False, description="Also write groups.tsv.gz: the sentences that pairs connect, such as paraphrases, by group.")


class MineConfig(
    MinedSentenceSettings,
    SideColumns,
    EncoderSettings,
    TopSettings,
    DecideSettings,
    EngineSettings,
    RescoreSettings,
    NeighbourSettings,
    SideLanguages,
    FirstUseSettings,
    OutputSettings,
    PairGroupSettings,
):
    """`miner mine`: mine pairs of two sides. A side is text, which is embedded under the output, or an embeddings or index directory."""

    ARGUMENTS = ("source", "target")

    source: str = Field(description="Text, or an embeddings or index directory.")
    target: str = Field("", description="The same for the other side; by default, both are columns of the source.")
    output: Directory = Field(description=RESUMED_OUTPUT)
    paraphrases: bool = Field(
        False, description="Mine SOURCE alone: pairs of its different sentences, each once. --filter copies=SHARE leaves out near copies."
    )

    @pydantic.model_validator(mode="after")
    def _check_paraphrases(self) -> Self:
        """Refuse a second side, and what needs one, of paraphrases."""
        if self.paraphrases and self.target not in ("", self.source):
            raise PydanticCustomError("sides", "--paraphrases takes one corpus; leave TARGET out")
        if self.paraphrases and self.planted is not None:
            raise PydanticCustomError("sides", "--planted needs two corpora; remove it, or --paraphrases")
        return self


class FromCandidatesConfig(EncoderSettings, TopSettings, DecideSettings, PairGroupSettings):
    """`miner mine --from-candidates`: decide again on the candidates of an earlier run. The encoder embeds planted pairs."""

    candidates: Directory = Field(description="Output of the earlier run.")
    output: Directory = Field(description=RESUMED_OUTPUT)

    @pydantic.model_validator(mode="after")
    def _check_encoder(self) -> Self:
        """Refuse how an encoder runs if it embeds nothing; its name may recommend a threshold."""
        unused = [name for name in EncoderSettings.model_fields if name in self.model_fields_set and name != "encoder"]
        if unused and self.planted is None:
            raise PydanticCustomError("sides", f"--{unused[0].replace('_', '-')} has no effect with --from-candidates; remove it")
        return self


class LineSelectionSettings(IdentifierSettings, TopSettings):
    """Which pairs of a scored bitext are kept: all of them without a bound. Sentences without letters have no margin, by default."""

    threshold: Threshold | None = Field(None, description="Keep pairs with a larger margin.")
    min_probability: Probability | None = Field(None, description="Keep pairs with at least this probability of being right.")
    sentence_filters: SentenceFilters = Field(WITH_LETTERS, description="Bounds of the filters of sentences.")
    pair_filters: PairTextFilters = Field(PairTextFilters.none(), description="Bounds of the filters of pairs.")

    @property
    def drops_pairs(self) -> bool:
        """Whether there is any bound besides the default ones."""
        bounds = (self.threshold, self.min_probability, self.top)
        is_filtered = self.sentence_filters not in (WITH_LETTERS, SentenceFilters.none()) or bool(self.pair_filters.bounds())
        return is_filtered or any(bound is not None for bound in bounds)


class ScoreConfig(SideColumns, EncoderSettings, LineSelectionSettings, MarginSettings, RescoreSettings, NeighbourSettings, SideLanguages):
    """`miner score`: compute the margins of the line pairs of a bitext, and filter it."""

    ARGUMENTS = ("source", "target")

    source: str = Field(description="Text whose line i is a pair with line i of the target, or a file of both sides.")
    target: str | None = Field(None, description="Text of the target; by default, both sides are columns of the source.")
    output: File = Field(description="File to write: .tsv, .jsonl (also with .gz) or .parquet.")
    reasons: bool = Field(False, description="Write the pairs that are dropped too, with the reason, and what each filter found.")
    background_source: Path | None = Field(
        None, description="A larger corpus to search for neighbours: text, or an embeddings or index directory."
    )
    background_target: Path | None = Field(None, description="The same for the other side.")

    def backgrounds(self) -> dict[str, str]:
        """Return the backgrounds by side."""
        backgrounds = {"source": self.background_source, "target": self.background_target}
        return {side: path for side, path in backgrounds.items() if path is not None}
