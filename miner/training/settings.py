"""The config of `miner train`: which encoder, on which data, by which losses, in how many steps. docs/training.md explains it."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config import base

Field = pydantic.Field
Share = Annotated[float, Field(ge=0, lt=1)]


class TrainSettings(base.Settings):
    """Settings without infinite numbers; names, as those of columns and labels, may be written as numbers."""

    model_config = pydantic.ConfigDict(allow_inf_nan=False, coerce_numbers_to_str=True)


class VocabularySettings(TrainSettings):
    """The SentencePiece model of a static encoder."""

    size: int = Field(32000, ge=2)  # pieces
    sentences: int = Field(700_000, ge=1)  # how many texts it is trained on, at most
    language_smoothing: float = Field(0.5, ge=0, le=1)  # a language's share is its count to this power
    character_coverage: float = Field(0.9995, gt=0, le=1)
    normalisation: Literal["nmt_nfkc_cf", "nmt_nfkc", "nfkc_cf", "nfkc", "identity"] = "nmt_nfkc_cf"  # _cf folds case


class StaticSettings(TrainSettings):
    """A static encoder, pieces and a vector for each: made from nothing, or gone on from."""

    kind: Literal["static"]
    model: str | None = None  # `builtin` or the folder of a static encoder, whose pieces and vectors to begin with
    dim: int = Field(256, ge=1)
    spelling_buckets: int = Field(131072, ge=0)  # hashed n-grams that spellings share in training; 0 for none
    piece_dropout: float = Field(0.1, ge=0, lt=1)  # share of the pieces left out of a sentence, anew each time
    max_pieces: int = Field(100, ge=1)  # of a sentence, in training
    vocabulary: VocabularySettings = VocabularySettings()

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.model is not None and (self.dim, self.vocabulary) != (256, VocabularySettings()):
            raise PydanticCustomError("model", "encoder.model has a dim and a vocabulary of its own; leave these out")
        return self


class TransformerSettings(TrainSettings):
    """A transformer to go on from."""

    kind: Literal["transformer"]
    model: str  # a folder or a hub id
    pooling: str | None = None  # see POOLINGS in miner/training/transformer.py; None takes that of the model, or cls
    head: Literal["none", "mlp"] = "none"  # mlp: a Linear and a Tanh after the pooling
    keep_head: bool = False  # whether the encoder that comes out has the head, too
    max_tokens: int = Field(32, ge=2)  # longer texts are cut
    towers: Literal["shared", "pair"] = "shared"  # pair: an encoder of their own for the positives

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.keep_head and self.head == "none":
            raise PydanticCustomError("head", "keep_head wants a head; set encoder.head to mlp")
        return self


class CodeSwitchSettings(TrainSettings):
    """Words of the positives replaced by a translation."""

    lexicons: tuple[str, ...] = Field(min_length=1)  # files of `word translation` lines, each of one pair of languages
    ratio: float = Field(0.5, ge=0, le=1)  # probability for a word that a lexicon has


class SourceSettings(TrainSettings):
    """What every source of examples has. `columns` tells which column of the files plays which role."""

    ROLES: ClassVar[tuple[str, ...]] = ()  # that must be named
    MORE_ROLES: ClassVar[tuple[str, ...]] = ("lang",)  # that may be named
    SMOOTHED: ClassVar[bool] = True  # whether languages can be drawn by language_smoothing

    name: str = ""  # what objectives call it; without it, its strategy
    files: tuple[str, ...] = Field(min_length=1)  # .tsv, .jsonl, .parquet, also compressed; globs and URIs
    columns: Mapping[str, str] = Field(default_factory=dict)  # role -> a column's name, or its number from 1 in a file without a header
    weight: float = Field(1.0, gt=0)  # its share of the batches
    batch_size: int | None = Field(None, ge=1)  # None takes training.batch_size
    language_smoothing: float = Field(1.0, ge=0, le=1)  # languages are drawn by count ** this (1 / temperature): 0 draws all alike

    code_switch: CodeSwitchSettings | None = None

    @pydantic.model_validator(mode="after")
    def _check_columns(self) -> Self:
        known = (*self.ROLES, *self.MORE_ROLES)
        missing = [role for role in self.ROLES if role not in self.columns]
        strange = [role for role in self.columns if role not in known]
        if missing or strange:
            fault = f"no column for {missing[0]!r}" if missing else f"no use for {strange[0]!r}"
            raise PydanticCustomError("columns", f"{fault}; columns says which column holds {', '.join(known)}")
        if self.language_smoothing < 1 and not self.SMOOTHED:
            raise PydanticCustomError("smoothing", "language_smoothing is not for this strategy; leave it out")
        if self.language_smoothing < 1 and "lang" not in self.columns:
            raise PydanticCustomError("columns", "language_smoothing wants a column for 'lang'")
        return self

    @property
    def title(self) -> str:
        return self.name or str(getattr(self, "strategy", ""))


class UnsupervisedSettings(SourceSettings):
    """Every text is its own positive, under another dropout (SimCSE). Without columns, every line is a text."""

    MORE_ROLES = ("text", "lang")
    strategy: Literal["unsupervised"]

    @pydantic.model_validator(mode="after")
    def _check_text(self) -> Self:
        if self.columns and "text" not in self.columns:
            raise PydanticCustomError("columns", "no column for 'text'; name it, or leave columns out where every line is a text")
        return self


class ParallelSettings(SourceSettings):
    """A translation is the positive, or the text itself with a span of it translated, or as it is (for code switching)."""

    ROLES = ("source", "target")
    strategy: Literal["parallel"]
    view: Literal["full_translation", "partial_translation", "same"] = "full_translation"
    swap: bool = False  # either side may be the anchor, drawn anew each time


class MinedSettings(SourceSettings):
    """Pairs of `miner mine`; `files` are its output folders."""

    MORE_ROLES = ()
    SMOOTHED = False
    strategy: Literal["mined"]
    least_margin: float | None = None  # leave out pairs that score less
    weigh_by_margin: bool = False  # a pair counts by its margin, on average 1
    swap: bool = False
    view: Literal["full_translation", "partial_translation", "same"] = "full_translation"


class TripletSettings(SourceSettings):
    """Anchor, positive and hard negative, ready made."""

    ROLES = ("anchor", "positive", "negative")
    strategy: Literal["triplets"]


class NliSettings(SourceSettings):
    """A premise, a hypothesis it entails and, for a hard negative, one it contradicts."""

    ROLES = ("premise", "hypothesis", "label")
    strategy: Literal["nli"]
    hard_negatives: bool = True


class CrossLingualNliSettings(SourceSettings):
    """NLI in several languages, the rows of each in the same order; the language of every text of a triplet is drawn apart."""

    ROLES = ("lang", "premise", "hypothesis", "label")
    MORE_ROLES = ()
    SMOOTHED = False
    strategy: Literal["cross_lingual_nli"]
    languages: tuple[str, ...] = ()  # the pool, as the column has them; without it, all there are
    hard_negatives: bool = True
    positives: int = Field(1, ge=1)  # languages of the positive drawn for each anchor


class GroupSettings(SourceSettings):
    """What both strategies of groups have: the rows of a group say the same."""

    ROLES = ("group", "lang", "text")
    MORE_ROLES = ()


class MultiPositiveSettings(GroupSettings):
    """One text of a group is the anchor, every language equally likely, others are its positives (MPCL)."""

    SMOOTHED = False
    strategy: Literal["multi_positive"]
    positives: int | None = Field(None, ge=1)  # at most so many, drawn anew each time; None takes all


class GroupedPairsSettings(GroupSettings):
    """Pairs drawn from groups; the anchors of a block are of one language and negatives come from the block."""

    strategy: Literal["grouped_pairs"]
    pivot: str = "eng_Latn"  # the language most pairs have on one side
    pivot_share: float = Field(0.75, ge=0, le=1)  # of the pairs whose group holds the pivot
    block_size: int = Field(1024, ge=2)  # pairs contrasted with one another


class LabelledPairsSettings(SourceSettings):
    """Two texts and a label. With `languages`, rows of the languages are parallel, and a translation of a row is its other view."""

    ROLES = ("first", "second", "label")
    strategy: Literal["labelled_pairs"]
    labels: tuple[str, ...] = Field(min_length=2)  # all there may be, in the order of the classes
    joint: bool = True  # the two are read as one sequence; otherwise each has its vector
    languages: tuple[str, ...] = ()  # train on these; without it, on all rows
    view: Literal["same", "full_translation", "partial_translation"] = "same"  # the other view, before code switching

    @pydantic.model_validator(mode="after")
    def _check_view(self) -> Self:
        if "lang" not in self.columns and (self.languages or self.view != "same"):
            raise PydanticCustomError("columns", "languages, and views that are translations, want a column for 'lang'")
        if not self.joint and self.view != "same":
            raise PydanticCustomError("view", "view is of two texts that are read as one; set joint, or leave view out")
        return self


DataSettings = Annotated[
    UnsupervisedSettings
    | ParallelSettings
    | MinedSettings
    | TripletSettings
    | NliSettings
    | CrossLingualNliSettings
    | MultiPositiveSettings
    | GroupedPairsSettings
    | LabelledPairsSettings,
    Field(discriminator="strategy"),
]


class ObjectiveSettings(TrainSettings):
    """What every loss has."""

    weight: float = Field(1.0, gt=0)  # in the sum
    data: tuple[str, ...] = ()  # the sources it is for; without it, all


class InfoNceSettings(ObjectiveSettings):
    loss: Literal["info_nce"]
    temperature: float = Field(0.05, gt=0)
    two_way: bool = False  # positives look for their anchors, too
    hard_negative_weight: float = 0.0  # added to the logit of a row's own hard negative (SimCSE)


class MultiPositiveLossSettings(ObjectiveSettings):
    loss: Literal["multi_positive"]
    temperature: float = Field(0.05, gt=0)
    form: Literal["out", "in"] = "out"  # the mean over positives outside or inside the logarithm
    siblings: bool = True  # other positives of an anchor stand in the denominator of each
    rescale: bool = False  # similarities to 0..1 by the smallest and largest of the batch


class LabelContrastSettings(ObjectiveSettings):
    """Negatives are only rows of another label (SCL)."""

    loss: Literal["label_contrast"]
    temperature: float = Field(1.0, gt=0)


class AlignmentSettings(ObjectiveSettings):
    """The two views of a row come to agree, without negatives (MVA)."""

    loss: Literal["alignment"]
    distance: Literal["cosine", "mse", "kl", "symmetric_kl"] = "cosine"


class MomentumSettings(ObjectiveSettings):
    """Dual momentum contrast: keys from slow copies, negatives from queues of keys."""

    loss: Literal["momentum"]
    temperature: float = Field(0.04, gt=0)
    momentum: float = Field(0.999, ge=0, lt=1)  # of the slow copies; 0 copies the encoder at every step
    queue: int = Field(409_600, ge=1)  # keys on each side


class MlmSettings(ObjectiveSettings):
    loss: Literal["mlm"]
    weight: float = Field(0.1, gt=0)
    probability: float = Field(0.15, gt=0, lt=1)  # of a token to be masked


class NliHeadSettings(ObjectiveSettings):
    """Classes from the vectors of two texts: [u, v, |u - v|], a hidden layer, a label."""

    loss: Literal["nli_head"]
    weight: float = Field(0.1, gt=0)
    hidden: int = Field(256, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)


class ClassificationSettings(ObjectiveSettings):
    """Classes from the vector of a joint sequence, by a linear layer."""

    loss: Literal["classification"]


LossSettings = Annotated[
    InfoNceSettings
    | MultiPositiveLossSettings
    | LabelContrastSettings
    | AlignmentSettings
    | MomentumSettings
    | MlmSettings
    | NliHeadSettings
    | ClassificationSettings,
    Field(discriminator="loss"),
]


class TrainingSettings(TrainSettings):
    """How the steps are taken."""

    lr: float = Field(1e-5, gt=0)  # the highest learning rate, of AdamW
    batch_size: int = Field(128, ge=1)  # examples of a batch, over all processes
    epochs: float | None = Field(None, gt=0)  # either this or steps; one epoch draws as many examples as there are
    steps: int | None = Field(None, ge=1)
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = Field(0, ge=0)  # steps of a linear rise; below 1, a share of all steps
    floor: float = Field(0, ge=0, le=1)  # of the learning rate, that the schedule does not go below
    weight_decay: float = Field(0, ge=0)  # of matrices, not of biases and norms
    betas: tuple[Share, Share] = (0.9, 0.999)
    clip: float | None = Field(None, gt=0)  # of the norm of the gradient
    accumulation: int = Field(1, ge=1)  # batches of a step, each with negatives of its own
    gradient_cache: int | None = Field(None, ge=1)  # texts held in memory at once; None holds the whole batch
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"  # of a transformer's arithmetic; weights stay in float32
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = Field(0, ge=0, lt=1 << 63)
    checkpoint_every: int = Field(500, ge=1)  # steps
    log_every: int = Field(20, ge=1)  # steps

    @pydantic.model_validator(mode="after")
    def _check_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise PydanticCustomError("length", "give either epochs or steps")
        return self


class EvaluationSettings(TrainSettings):
    """How the best state is found: by a score on held-out data."""

    metric: Literal["retrieval", "sts", "accuracy"] = "retrieval"
    files: tuple[str, ...] = Field(min_length=1)
    columns: Mapping[str, str]  # retrieval: source, target; sts: first, second, score; accuracy: first, second, label
    every: int = Field(125, ge=1)  # steps
    patience: int | None = Field(None, ge=1)  # stop after so many scores without a better one


class TrainConfig(TrainSettings):
    """`miner train`: a config file -> an encoder."""

    encoder: Annotated[StaticSettings | TransformerSettings, Field(discriminator="kind")]
    data: tuple[DataSettings, ...] = Field(min_length=1)
    objective: tuple[LossSettings, ...] = Field(min_length=1)
    training: TrainingSettings
    evaluation: EvaluationSettings | None = None
