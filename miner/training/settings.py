"""The sections of the config of `miner train`: encoder, data sources, losses, optimisation and evaluation."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config import base
from miner.config.base import Strings
from miner.config.datasets import TableFiles

Field = pydantic.Field
Share = Annotated[float, Field(ge=0, lt=1)]


class TrainSettings(base.Settings):
    """Base of all training settings: rejects infinities and NaN, and accepts numbers as names of columns and labels."""

    model_config = pydantic.ConfigDict(allow_inf_nan=False, coerce_numbers_to_str=True)


class VocabularySettings(TrainSettings):
    """The SentencePiece model of a static encoder."""

    size: int = Field(32000, ge=2)  # number of pieces
    sentences: int = Field(700_000, ge=1)  # maximum number of training texts
    language_smoothing: float = Field(0.5, ge=0, le=1)  # exponent: a language is sampled in proportion to count ** language_smoothing
    character_coverage: float = Field(0.9995, gt=0, le=1)  # share of characters that get a piece; the rest become unknown
    normalisation: Literal["nmt_nfkc_cf", "nmt_nfkc", "nfkc_cf", "nfkc", "identity"] = "nmt_nfkc_cf"  # _cf variants fold case


class StaticSettings(TrainSettings):
    """A static encoder, which is one vector per SentencePiece piece: trained from scratch, or continued from `model`."""

    kind: Literal["static"]
    model: str | None = None  # `builtin` or the directory of a static encoder to continue from
    initial: str | None = None  # the same, to start the vectors of a new vocabulary from, instead of random ones
    dim: int = Field(256, ge=1)  # dimensions of an embedding
    spelling_buckets: int = Field(131072, ge=0)  # hash buckets of the character n-grams that pieces share in training; 0 disables sharing
    piece_dropout: float = Field(0.1, ge=0, lt=1)  # probability that a piece is dropped from a training sentence
    max_pieces: int = Field(100, ge=1)  # longer sentences are truncated in training
    vocabulary: VocabularySettings = VocabularySettings()

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.model is not None and (self.dim, self.vocabulary, self.initial) != (256, VocabularySettings(), None):
            raise PydanticCustomError("model", "encoder.model has its own vectors and pieces; remove dim, initial and vocabulary")
        return self


class TransformerSettings(TrainSettings):
    """A transformer to fine-tune."""

    kind: Literal["transformer"]
    model: str  # directory or Hugging Face hub id
    pooling: str | None = None  # one of POOLINGS in miner/encoders/pooling.py; None: the pooling of the model, or cls
    inference_pooling: str | None = None  # pooling of the saved encoder and of dev scores; None: `pooling`
    head: Literal["none", "mlp"] = "none"  # mlp: a linear layer and tanh after pooling
    keep_head: bool = False  # save the head with the encoder
    max_tokens: int = Field(32, ge=2)  # longer texts are truncated in training
    inference_max_tokens: int | None = Field(None, ge=2)  # limit of the saved encoder and of dev scores; None: the limit of the model
    towers: Literal["shared", "pair"] = "shared"  # pair: a second encoder for the positives
    positive_model: str | None = None  # model of the second encoder, which implies `towers: pair`; None: `model`
    languages: Strings | None = None  # languages of the anchors, recorded with two encoders
    positive_languages: Strings | None = None  # languages of the positives

    @pydantic.model_validator(mode="before")
    @classmethod
    def _set_towers(cls, values: Any) -> Any:
        has_positive_model = isinstance(values, Mapping) and values.get("positive_model") is not None
        return {"towers": "pair", **values} if has_positive_model else values

    @pydantic.model_validator(mode="after")
    def _check_towers(self) -> Self:
        if self.towers == "shared" and (self.positive_model or self.languages or self.positive_languages):
            raise PydanticCustomError("towers", "positive_model and languages need two encoders; set towers to pair, or remove them")
        if both := set(self.languages or ()) & set(self.positive_languages or ()):
            raise PydanticCustomError("towers", f"{min(both)} is in languages and positive_languages; remove it from one of them")
        return self

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.keep_head and self.head == "none":
            raise PydanticCustomError("head", "keep_head needs a head; set encoder.head to mlp")
        if self.keep_head and self.inference_pooling is not None:
            raise PydanticCustomError(
                "head", "the head is trained on pooling, not on inference_pooling; remove one of keep_head and inference_pooling"
            )
        return self


class CodeSwitchSettings(TrainSettings):
    """Code switching: replace words of the positives by translations from lexicons."""

    lexicons: Strings = Field(min_length=1)  # files of `word translation` lines, one language pair per file
    ratio: float = Field(0.5, ge=0, le=1)  # probability of replacing a word that is in a lexicon


class SourceSettings(TrainSettings):
    """Settings of every data source. `columns` maps the roles of the strategy to columns of the files."""

    REQUIRED_ROLES: ClassVar[tuple[str, ...]] = ()  # required keys of `columns`
    OPTIONAL_ROLES: ClassVar[tuple[str, ...]] = ("lang",)  # optional keys of `columns`
    SUPPORTS_SMOOTHING: ClassVar[bool] = True  # whether the strategy supports language_smoothing

    name: str = ""  # name for `objective.data`; default: the strategy
    files: TableFiles = Field(min_length=1)  # .tsv, .jsonl or .parquet, optionally compressed; globs and URIs; or public datasets
    columns: Mapping[str, str] = Field(default_factory=dict)  # role -> column name, or column number from 1 in a file without header
    limit: int | None = Field(None, ge=0)  # number of examples, drawn at random from training.seed; 0: leave the source out; None: all
    weight: float = Field(1.0, gt=0)  # factor of its share, which is its number of examples; of its batches with training.mix batches
    batch_size: int | None = Field(None, ge=1)  # for batches of this source alone; None: training.batch_size
    language_smoothing: float = Field(1.0, ge=0, le=1)  # languages are sampled in proportion to count ** language_smoothing; 0: uniformly
    code_switch: CodeSwitchSettings | None = None  # augmentation of the positives

    @pydantic.model_validator(mode="after")
    def _check_columns(self) -> Self:
        roles = (*self.REQUIRED_ROLES, *self.OPTIONAL_ROLES)
        missing = [role for role in self.REQUIRED_ROLES if role not in self.columns]
        unknown = [role for role in self.columns if role not in roles]
        if missing or unknown:
            problem = f"no column for {missing[0]!r}" if missing else f"unknown role {unknown[0]!r}"
            raise PydanticCustomError("columns", f"{problem}; columns maps {', '.join(roles)} to columns of the files")
        if self.language_smoothing < 1 and not self.SUPPORTS_SMOOTHING:
            raise PydanticCustomError("smoothing", "language_smoothing is not supported by this strategy; remove it")
        if self.language_smoothing < 1 and "lang" not in self.columns:
            raise PydanticCustomError("columns", "language_smoothing needs a column for 'lang'")
        return self

    @property
    def title(self) -> str:
        """The name of the source in messages and in `objective.data`."""
        return self.name or str(getattr(self, "strategy", ""))


class UnsupervisedSettings(SourceSettings):
    """SimCSE: the positive of a text is the text itself under another dropout mask. Without `columns`, every line is a text."""

    OPTIONAL_ROLES = ("text", "lang")
    strategy: Literal["unsupervised"]

    @pydantic.model_validator(mode="after")
    def _check_text(self) -> Self:
        if self.columns and "text" not in self.columns:
            raise PydanticCustomError("columns", "no column for 'text'; add it, or remove columns if every line is a text")
        return self


class ParallelSettings(SourceSettings):
    """Translation pairs. `view` selects the positive: the translation, the text with a span translated, or the unchanged text.

    The unchanged text (`same`) is meant for code switching.
    """

    REQUIRED_ROLES = ("source", "target")
    strategy: Literal["parallel"]
    view: Literal["full_translation", "partial_translation", "same"] = "full_translation"
    swap: bool = False  # draw the anchor side at random for every example


class MinedSettings(SourceSettings):
    """Mined pairs; `files` are output directories of `miner mine`."""

    OPTIONAL_ROLES = ()
    SUPPORTS_SMOOTHING = False
    strategy: Literal["mined"]
    least_margin: float | None = None  # drop pairs below this margin
    weigh_by_margin: bool = False  # weight pairs by margin, normalised to a mean of 1
    swap: bool = False  # as for `parallel`
    view: Literal["full_translation", "partial_translation", "same"] = "full_translation"  # as for `parallel`

    @pydantic.model_validator(mode="after")
    def _check_files(self) -> Self:
        if not all(isinstance(name, str) for name in self.files):
            raise PydanticCustomError("files", "mined pairs are output directories of `miner mine`; read a dataset with strategy parallel")
        return self


class TripletSettings(SourceSettings):
    """Triplets of anchor, positive and hard negative, one per row."""

    REQUIRED_ROLES = ("anchor", "positive", "negative")
    strategy: Literal["triplets"]


class NliSettings(SourceSettings):
    """NLI: the premise is the anchor, an entailed hypothesis the positive, a contradicting one the hard negative."""

    REQUIRED_ROLES = ("premise", "hypothesis", "label")
    strategy: Literal["nli"]
    hard_negatives: bool = True  # use contradictions as hard negatives


class CrossLingualNliSettings(SourceSettings):
    """NLI in several languages with parallel rows; the language of each text of a triplet is drawn independently."""

    REQUIRED_ROLES = ("lang", "premise", "hypothesis", "label")
    OPTIONAL_ROLES = ()
    SUPPORTS_SMOOTHING = False
    strategy: Literal["cross_lingual_nli"]
    languages: Strings = ()  # languages to draw from, as spelled in the column; default: all
    anchors: Literal["random", "every_language"] = "random"  # an entailed row's anchors in an epoch: one, or one in every language
    hard_negatives: bool = True  # use contradictions as hard negatives
    positives: int = Field(1, ge=1)  # positives per anchor, each in another language


class GroupSettings(SourceSettings):
    """Base of both group strategies: the texts of a group are translations or paraphrases of each other."""

    REQUIRED_ROLES = ("group", "lang", "text")
    OPTIONAL_ROLES = ()


class MultiPositiveSettings(GroupSettings):
    """MPCL: one text of a group is the anchor, its language drawn uniformly; other texts of the group are positives."""

    SUPPORTS_SMOOTHING = False
    strategy: Literal["multi_positive"]
    positives: int | None = Field(None, ge=1)  # maximum number of positives per anchor, drawn at random; None: all
    pairs: bool = False  # divide each group into pairs at random, by the seed: each is an example with one positive

    @pydantic.model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.pairs and self.positives not in (None, 1):
            raise PydanticCustomError("pairs", "pairs have one positive; remove positives, or pairs")
        return self


class GroupedPairsSettings(GroupSettings):
    """Pairs drawn from groups, in blocks: the anchors of a block share one language, and negatives come from the same block."""

    strategy: Literal["grouped_pairs"]
    pivot: str = "eng_Latn"  # preferred language of the positives
    pivot_share: float = Field(0.75, ge=0, le=1)  # share of pairs with a pivot positive, where the group has one
    block_size: int = Field(1024, ge=2)  # pairs per block


class ParaphrasesSettings(SourceSettings):
    """Pairs labelled 1 (paraphrases) or 0, detached into sentences with their translations; rows of all languages must be parallel."""

    REQUIRED_ROLES = ("first", "second", "label", "lang")
    OPTIONAL_ROLES = ()
    SUPPORTS_SMOOTHING = False
    strategy: Literal["paraphrases"]
    languages: Strings = ()  # languages to draw from, as spelled in the column; default: all


class ViewMixSettings(TrainSettings):
    """Number of positives of each sample, by augmentation."""

    full_translation: int = Field(0, ge=0)  # both texts in another language
    partial_translation: int = Field(0, ge=0)  # one of the two texts in another language
    code_switch: int = Field(0, ge=0)  # words replaced by translations, with the lexicons of `code_switch`

    @property
    def total(self) -> int:
        return self.full_translation + self.partial_translation + self.code_switch


class LabelledPairsSettings(SourceSettings):
    """Labelled text pairs. With a `lang` column and translations among `views`, the rows of all languages must be parallel."""

    REQUIRED_ROLES = ("first", "second", "label")
    strategy: Literal["labelled_pairs"]
    labels: Strings = Field(min_length=2)  # all labels, in the order of the classes
    joint: bool = True  # encode both texts as one sequence; false: separately
    languages: Strings = ()  # training languages; default: all
    views: ViewMixSettings | None = None  # positives of each pair; None: one, the pair itself, code-switched if `code_switch` is given

    @pydantic.model_validator(mode="after")
    def _check_views(self) -> Self:
        has_translations = self.views is not None and self.views.full_translation + self.views.partial_translation > 0
        if "lang" not in self.columns and (self.languages or has_translations):
            raise PydanticCustomError("columns", "languages and views of translations need a column for 'lang'")
        if self.views is None:
            return self
        if not self.joint:
            raise PydanticCustomError("views", "views need texts that are encoded as one sequence; set joint to true, or remove views")
        if not self.views.total:
            raise PydanticCustomError("views", "views has no view; give a number of full_translation, partial_translation or code_switch")
        if (self.views.code_switch > 0) != (self.code_switch is not None):
            raise PydanticCustomError("views", "views.code_switch and code_switch need each other; give both, or neither")
        return self

    @property
    def num_views(self) -> int:
        """Number of positives per pair."""
        return 1 if self.views is None else self.views.total


DataSettings = Annotated[
    UnsupervisedSettings
    | ParallelSettings
    | MinedSettings
    | TripletSettings
    | NliSettings
    | CrossLingualNliSettings
    | MultiPositiveSettings
    | GroupedPairsSettings
    | LabelledPairsSettings
    | ParaphrasesSettings,
    Field(discriminator="strategy"),
]


class ObjectiveSettings(TrainSettings):
    """Settings of every loss; miner/training/loss_terms.py lists the losses."""

    weight: float = Field(1.0, gt=0)  # factor in the sum of losses
    data: Strings = ()  # names of its data sources; default: all
    loss: str


class InfoNceSettings(ObjectiveSettings):
    """InfoNCE with in-batch negatives."""

    loss: Literal["info_nce"]
    temperature: float = Field(0.05, gt=0)
    two_way: bool = False  # add the loss of the opposite direction, positives to anchors
    hard_negative_weight: float = 0.0  # added to the logit of an anchor's own hard negative (SimCSE)


class LateInteractionSettings(ObjectiveSettings):
    """Contrast by late interaction of piece vectors, among pairs that the mean vectors confuse."""

    loss: Literal["late_interaction"]
    temperature: float = Field(0.05, gt=0)
    candidates: int = Field(8, ge=2)  # of a text: its translation and those of the most similar texts of the batch
    max_pairs: int | None = Field(None, ge=2)  # of a batch that are contrasted, which bounds the time; None for all


class MultiPositiveLossSettings(ObjectiveSettings):
    """Contrastive loss with several positives per anchor (MPCL)."""

    loss: Literal["multi_positive"]
    temperature: float = Field(0.05, gt=0)
    form: Literal["out", "in"] = "out"  # mean over positives outside or inside the logarithm
    siblings: bool = True  # keep an anchor's other positives in the denominator
    rescale: bool = False  # min-max scale the similarities of a batch to 0..1


class LabelContrastSettings(ObjectiveSettings):
    """Contrastive loss whose negatives are the rows of other labels (SCL)."""

    loss: Literal["label_contrast"]
    temperature: float = Field(1.0, gt=0)


class AlignmentSettings(ObjectiveSettings):
    """Distance between the two views of a row, without negatives (MVA)."""

    loss: Literal["alignment"]
    distance: Literal["cosine", "mse", "kl", "symmetric_kl"] = "cosine"


class MomentumSettings(ObjectiveSettings):
    """Dual momentum contrast: keys come from momentum encoders, negatives from queues of keys."""

    loss: Literal["momentum"]
    temperature: float = Field(0.04, gt=0)
    momentum: float = Field(0.999, ge=0, lt=1)  # decay of the momentum encoders; 0: copy the encoder at every step
    queue: int = Field(409_600, ge=1)  # keys per side


class MlmSettings(ObjectiveSettings):
    """Masked language modelling."""

    loss: Literal["mlm"]
    weight: float = Field(0.1, gt=0)
    probability: float = Field(0.15, gt=0, lt=1)  # probability that a token is masked


class NliHeadSettings(ObjectiveSettings):
    """Classification of two separately encoded texts: [u, v, |u - v|], one hidden layer, cross-entropy."""

    loss: Literal["nli_head"]
    weight: float = Field(0.1, gt=0)
    hidden: int = Field(256, ge=1)  # units of the hidden layer
    dropout: float = Field(0.1, ge=0, lt=1)


class ClassificationSettings(ObjectiveSettings):
    """Classification of a joint sequence by a linear layer."""

    loss: Literal["classification"]


class TrainingSettings(TrainSettings):
    """Optimisation: batches, steps, learning rate, precision."""

    lr: float = Field(1e-5, gt=0)  # peak learning rate of AdamW
    batch_size: int = Field(128, ge=1, le=1 << 24)  # examples per batch, over all processes
    mix: Literal["examples", "batches"] = "examples"  # a batch holds examples of all sources of its losses, or of one source
    epochs: float | None = Field(None, gt=0)  # alternative to steps; an epoch draws as many examples as the sources have
    steps: int | None = Field(None, ge=1)  # optimiser steps
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = Field(0, ge=0)  # steps of linear warm-up; below 1: a share of all steps
    floor: float = Field(0, ge=0, le=1)  # minimum of the schedule, as a share of lr
    weight_decay: float = Field(0, ge=0)  # applies to matrices, not to biases and norms
    betas: tuple[Share, Share] = (0.9, 0.999)  # of AdamW
    clip: float | None = Field(None, gt=0)  # maximum gradient norm
    accumulation: int = Field(1, ge=1, le=1 << 20)  # batches per optimiser step; negatives are not shared between them
    gradient_cache: int | None = Field(None, ge=1)  # texts encoded at once (GradCache); None: the whole batch
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"  # precision of a transformer's forward pass; weights stay float32
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = Field(0, ge=0, lt=1 << 63)
    checkpoint_every: int = Field(500, ge=1)  # steps between checkpoints
    log_every: int = Field(20, ge=1)  # steps between log lines

    @pydantic.model_validator(mode="after")
    def _check_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise PydanticCustomError("length", "give either epochs or steps")
        return self


class CleaningSettings(TrainSettings):
    """Rows that are dropped from the sources before training."""

    decontaminate: TableFiles = ()  # evaluation files; rows with one of their sentences, exactly or nearly, are dropped
    near: float = Field(0.7, gt=0, le=1)  # Jaccard similarity of character 5-grams from which a sentence is a near match
    deduplicate: bool = True  # keep only the first of equal rows of a source


class EvaluationSettings(TrainSettings):
    """Evaluation on held-out data during training; the checkpoint with the best score becomes the encoder."""

    metric: Literal["retrieval", "bucc", "sts", "accuracy"] = "retrieval"
    files: TableFiles = Field(min_length=1)
    # retrieval: source, target; bucc: none; sts: first, second, score; accuracy: first, second, label
    columns: Mapping[str, str] = Field(default_factory=dict)
    every: int = Field(125, ge=1)  # steps between evaluations
    patience: int | None = Field(None, ge=1)  # stop after this number of evaluations without improvement
