"""The evaluation tasks on texts with scores or labels: similarity, clustering, classification."""

from typing import TYPE_CHECKING, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config.base import Strings
from miner.config.datasets import TableFile
from miner.evaluation.task_base import BarChart, ProbeTask, TaskSettings

if TYPE_CHECKING:
    from miner.encoders import Encoder
    from miner.evaluation.scores import TaskResult


class StsTask(TaskSettings):
    """Measure the correlation of cosines with human similarity scores, by track and over all pairs.

    \b
    Example:
      miner eval sts --data sts17.tsv.gz --track-column track
      miner eval sts --data '{dataset: sts17, path: STS2017}' --track-column track
    """

    CHART = BarChart(
        groups="tracks",
        value="spearman",
        caption="Spearman's correlation with human scores",
        axis="Spearman's correlation",
    )

    task: Literal["sts"] = "sts"
    data: TableFile = pydantic.Field(description="Table with the columns sentence1, sentence2 and score.")
    track_columns: Strings = pydantic.Field((), description="Rows equal in this column form a track; may be repeated.")

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import sts

        return sts.evaluate(encoder, self)


class ClusteringTask(TaskSettings):
    """Measure how well k-means recovers the labels of texts: purity and V-measure.

    \b
    Example:
      miner eval clustering --data news.tsv.gz --text-column headline --label-column category
    """

    CHART = BarChart(groups="languages", value="purity", caption="Purity of the clusters")

    task: Literal["clustering"] = "clustering"
    data: TableFile = pydantic.Field(description="Table of texts and labels.")
    text_column: str = pydantic.Field("text", description="Column of the text.")
    label_column: str = pydantic.Field("label", description="Column of the label.")
    lang_column: str | None = pydantic.Field(None, description="Column of the language; each language is clustered by itself.")
    clusters: int | None = pydantic.Field(None, ge=2, description="Number of clusters; default: the number of labels.")
    seed: int = pydantic.Field(0, description="Seed of k-means.")

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import clustering

        return clustering.evaluate(encoder, self)


class ClassificationTask(ProbeTask):
    """Measure the accuracy of a linear classifier of texts on frozen embeddings.

    \b
    Example:
      miner eval classification --train news.tsv --test news.tsv --split-column split --lang-column lang --train-lang eng
    """

    task: Literal["classification"] = "classification"
    train: TableFile = pydantic.Field(description="Table of the training rows.")
    text_column: str = pydantic.Field("text", description="Column of the text.")

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import probe

        return probe.evaluate(encoder, self)


class PairClassificationTask(ProbeTask):
    """Measure the accuracy of a classifier of text pairs, such as those of PAWS-X and XNLI.

    By default a linear classifier on frozen embeddings; with --fine-tune the encoder is trained too; without --train it is the classifier
    that `miner train` saved beside the encoder. --train-lang en is zero-shot transfer from English; a table of translations without
    --train-lang is translate-train.

    \b
    Example:
      miner eval pair-classification --train pawsx.train.tsv --test pawsx.test.tsv.gz --lang-column lang --train-lang en --fine-tune \\
        --encoder FacebookAI/xlm-roberta-base --pooling cls
    """

    task: Literal["pair-classification"] = "pair-classification"
    train: TableFile | None = pydantic.Field(
        None, description="Table of the training rows; without it, the encoder's own classifier is tested."
    )
    first_column: str = pydantic.Field("sentence1", description="Column of the first text.")
    second_column: str = pydantic.Field("sentence2", description="Column of the second text.")
    fine_tune: bool = pydantic.Field(False, description="Fine-tune a copy of the encoder, a transformer, instead of training a probe.")
    epochs: float = pydantic.Field(5, gt=0, description="Epochs of fine-tuning.")
    lr: float = pydantic.Field(2e-5, gt=0, description="Peak learning rate of fine-tuning.")
    batch_size: int = pydantic.Field(32, ge=1, description="Pairs per step of fine-tuning.")
    seed: int = pydantic.Field(0, ge=0, description="Seed of fine-tuning.")
    pair_tokens: int | None = pydantic.Field(
        None, ge=2, description="Truncate longer pairs in fine-tuning; by default, at 512 tokens or what the model can read."
    )

    @pydantic.model_validator(mode="after")
    def _check_training(self) -> Self:
        if self.train is None and (self.fine_tune or self.train_langs):
            raise PydanticCustomError("train", "--fine-tune and --train-lang require training rows; give --train")
        return self

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import pair_classification

        return pair_classification.evaluate(encoder, self)


class LanguageProbeTask(TaskSettings):
    """Measure how well a linear classifier identifies the language from the embedding: the lower, the more language-neutral the encoder.

    \b
    Example:
      miner eval language-probe --data udhr.tsv.gz
    """

    CHART = BarChart(
        groups="languages",
        value="accuracy",
        caption="Share of the texts whose language is identified",
        is_share=True,
    )

    task: Literal["language-probe"] = "language-probe"
    data: TableFile = pydantic.Field(description="Table of texts and their languages.")
    text_column: str = pydantic.Field("text", description="Column of the text.")
    lang_column: str = pydantic.Field("lang", description="Column of the language.")
    per_language: int = pydantic.Field(200, ge=2, description="Maximum number of rows sampled per language, half of them for training.")
    seed: int = pydantic.Field(0, description="Seed of the sample.")

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import language_probe

        return language_probe.evaluate(encoder, self)
