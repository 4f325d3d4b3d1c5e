"""The settings of `miner train`: encoder, optimisation, cleaning and evaluation. Sources and losses have modules of their own."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

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

    size: int = Field(32000, ge=2, description="Number of pieces.")
    sentences: int = Field(700_000, ge=1, description="Maximum number of training texts.")
    language_smoothing: float = Field(
        0.5, ge=0, le=1, description="Exponent: a language is sampled in proportion to count ** language_smoothing."
    )
    character_coverage: float = Field(0.9995, gt=0, le=1, description="Share of characters that get a piece; the rest become unknown.")
    normalisation: Literal["nmt_nfkc_cf", "nmt_nfkc", "nfkc_cf", "nfkc", "identity"] = Field(
        "nmt_nfkc_cf", description="Normalisation of texts; the _cf variants fold case."
    )


class StaticSettings(TrainSettings):
    """A static encoder, which is one vector per SentencePiece piece: trained from scratch, or continued from `model`."""

    kind: Literal["static"]
    model: str | None = Field(None, description="`builtin` or the directory of a static encoder to continue from.")
    initial: str | None = Field(
        None,
        description="Static encoder, as for `model`, whose vectors start those of a new vocabulary; by default, they are random.",
    )
    rates: str | None = Field(
        None, description="`.npy` file with a factor of the learning rate of each piece of `model`; with 0, a piece keeps its vector."
    )
    dim: int = Field(256, ge=1, description="Dimensions of an embedding.")
    eight_bit_dims: int | None = Field(
        None, ge=1, description="Dimensions that are saved with 8 bits; the others, whose number is even, with 4. By default, all have 8."
    )
    spelling_buckets: int = Field(
        131072, ge=0, description="Hash buckets of the character n-grams that pieces share in training; 0 disables sharing."
    )
    piece_dropout: float = Field(0.1, ge=0, lt=1, description="Probability that a piece is dropped from a training sentence.")
    max_pieces: int = Field(100, ge=1, description="Longer sentences are truncated in training.")
    vocabulary: VocabularySettings = VocabularySettings()

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.model is not None and (self.dim, self.vocabulary, self.initial) != (256, VocabularySettings(), None):
            raise PydanticCustomError("model", "encoder.model has its own vectors and pieces; remove dim, initial and vocabulary")
        return self


class TransformerSettings(TrainSettings):
    """A transformer to fine-tune."""

    kind: Literal["transformer"]
    model: str = Field(description="Directory or Hugging Face hub id.")
    pooling: str | None = Field(
        None, description="cls, mean, max, first_last_avg or layer:N; by default, the pooling of the model, or cls."
    )
    inference_pooling: str | None = Field(None, description="Pooling of the saved encoder and of dev scores; by default, `pooling`.")
    head: Literal["none", "mlp"] = Field("none", description="mlp: a linear layer and tanh after pooling.")
    keep_head: bool = Field(False, description="Save the head with the encoder.")
    max_tokens: int = Field(32, ge=2, description="Longer texts are truncated in training.")
    inference_max_tokens: int | None = Field(
        None, ge=2, description="Limit of the saved encoder and of dev scores; by default, the limit of the model."
    )
    towers: Literal["shared", "pair"] = Field("shared", description="pair: a second encoder for the positives.")
    positive_model: str | None = Field(None, description="Model of the second encoder, which implies `towers: pair`; by default, `model`.")
    languages: Strings | None = Field(None, description="Languages of the anchors, recorded with two encoders.")
    positive_languages: Strings | None = Field(None, description="Languages of the positives.")

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


class TrainingSettings(TrainSettings):
    """Optimisation: batches, steps, learning rate, precision."""

    lr: float = Field(1e-5, gt=0, description="Peak learning rate of AdamW.")
    batch_size: int = Field(128, ge=1, le=1 << 24, description="Examples per batch, over all processes.")
    mix: Literal["examples", "batches"] = Field(
        "examples", description="Whether a batch holds examples of all sources of its losses, or of one source."
    )
    epochs: float | None = Field(None, gt=0, description="Alternative to steps; an epoch draws as many examples as the sources have.")
    steps: int | None = Field(None, ge=1, description="Optimiser steps.")
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = Field(0, ge=0, description="Steps of linear warm-up; below 1: a share of all steps.")
    floor: float = Field(0, ge=0, le=1, description="Minimum of the schedule, as a share of lr.")
    weight_decay: float = Field(0, ge=0, description="Applies to matrices, not to biases and norms.")
    betas: tuple[Share, Share] = Field((0.9, 0.999), description="The betas of AdamW.")
    clip: float | None = Field(None, gt=0, description="Maximum gradient norm.")
    accumulation: int = Field(1, ge=1, le=1 << 20, description="Batches per optimiser step; negatives are not shared between them.")
    gradient_cache: int | None = Field(None, ge=1, description="Texts encoded at once (GradCache); by default, the whole batch.")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32", description="Precision of a transformer's forward pass; weights stay float32."
    )
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = Field(0, ge=0, lt=1 << 63)
    checkpoint_every: int = Field(500, ge=1, description="Steps between checkpoints.")
    log_every: int = Field(20, ge=1, description="Steps between log lines.")

    @pydantic.model_validator(mode="after")
    def _check_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise PydanticCustomError("length", "give either epochs or steps")
        return self


class CleaningSettings(TrainSettings):
    """Rows that are dropped from the sources before training."""

    decontaminate: TableFiles = Field((), description="Evaluation files; rows with one of their sentences, exactly or nearly, are dropped.")
    near: float = Field(0.7, gt=0, le=1, description="Jaccard similarity of character 5-grams from which a sentence is a near match.")
    deduplicate: bool = Field(True, description="Keep only the first of equal rows of a source.")


class DevSetSettings(TrainSettings):
    """Held-out data and the score of an encoder on it."""

    metric: Literal["retrieval", "bucc", "sts", "accuracy", "probe"] = "retrieval"
    files: TableFiles = Field(min_length=1)
    train: TableFiles = Field((), description="Training rows of the metric probe.")
    columns: Mapping[str, str] = Field(
        default_factory=dict,
        description="Columns of a file. retrieval: source, target; bucc: none; sts: first, second, score; accuracy: first, second, label;"
        " probe: text, label. Optional: group; the score is the mean over the groups.",
    )

    @pydantic.model_validator(mode="after")
    def _check_train(self) -> Self:
        if bool(self.train) != (self.metric == "probe"):
            raise PydanticCustomError("train", "the metric probe, and no other, needs the files of its training rows in train")
        return self


class EvaluationSettings(DevSetSettings):
    """Evaluation on held-out data during training; the checkpoint with the best score becomes the encoder."""

    best_by: Mapping[Annotated[str, Field(pattern=r"^\w+$")], DevSetSettings] = Field(
        default_factory=dict, description="More held-out data by name; the checkpoint with the best score on NAME is kept as encoder-NAME."
    )
    every: int = Field(125, ge=1, description="Steps between evaluations.")
    patience: int | None = Field(None, ge=1, description="Stop after this number of evaluations without improvement.")

    @property
    def dev_sets(self) -> dict[str, DevSetSettings]:
        """The held-out data of the encoder, under an empty name, and those of `best_by`."""
        return {"": self, **self.best_by}

    @property
    def all_files(self) -> TableFiles:
        """The files of all held-out data."""
        return tuple(file for dev_set in self.dev_sets.values() for file in (*dev_set.files, *dev_set.train))
