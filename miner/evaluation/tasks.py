"""The evaluation tasks, and the settings of a suite of them.

This is the registry that `miner eval`, suites and the report read. The command line imports it before a command is chosen, so it imports
nothing heavy: a task imports its function when it runs.
"""

from typing import TYPE_CHECKING, Annotated, Literal, Self, get_args

import pydantic
from pydantic_core import PydanticCustomError

from miner.choices import MarginName
from miner.config.base import OneOrMore, Settings, Strings
from miner.config.datasets import DatasetFiles, TableFile
from miner.evaluation.task_base import AlignedTask, BarChart, Chart, ProbeTask, RescoredTask, TaskSettings, ValueTable

if TYPE_CHECKING:
    from miner.encoders import Encoder
    from miner.evaluation.scores import TaskResult


class RetrievalTask(AlignedTask, RescoredTask):
    """Measure how often line i of TARGET is retrieved for line i of SOURCE, and vice versa.

    By cosine, by ratio margin among the k nearest neighbours, which is xSIM, and by that margin blended with late interaction, as
    `miner mine` does with a static encoder. SOURCE and TARGET are text with one sentence per line.

    \b
    Example:
      miner eval retrieval news.de.txt.gz news.en.txt.gz --encoder sentence-transformers/LaBSE
    """

    CHART = BarChart(
        groups="accuracy",
        value="mean",
        caption="Accuracy, the mean of both directions",
        axis="accuracy",
        is_share=True,
    )

    task: Literal["retrieval"] = "retrieval"
    k: int = pydantic.Field(4, ge=1, le=1024, description="Neighbours on each side, for the margin; all of a side that has fewer.")

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import retrieval

        return retrieval.evaluate(encoder, self)


class TatoebaTask(TaskSettings):
    """Measure retrieval by cosine between English and each language of Tatoeba, with XTREME's averages.

    Forward is from the language to English, backward from English to the language.

    \b
    Example:
      miner eval tatoeba --data LASER/data/tatoeba/v1 --encoder builtin --json tatoeba.json
    """

    CHART = BarChart(
        groups="languages",
        value="mean",
        caption="Accuracy, the mean of both directions",
        axis="accuracy",
        is_share=True,
    )

    task: Literal["tatoeba"] = "tatoeba"
    data: TableFile = pydantic.Field(
        description="The release of LASER or XTREME; or a folder of files tatoeba.xxx-eng.tsv.gz: xxx<TAB>English, no header."
    )

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import tatoeba

        return tatoeba.evaluate(encoder, self)


class BuccTask(RescoredTask):
    """Measure F1 of mined pairs on the test split, above the threshold tuned on the dev split; oracle F1 is reported separately.

    With --protocol sample, the threshold is tuned and scored on the dev split, the sample of BUCC 2018, as in the code of mSimCSE. With a
    static encoder, also with the margin blended with late interaction.

    \b
    Example:
      miner eval bucc --data bucc2018 --encoder sentence-transformers/LaBSE
      miner eval bucc --data '{dataset: bucc, path: bucc2018, languages: [zh]}' --margin distance --k 3
    """

    CHART = BarChart(
        groups="pairs",
        value="f1",
        caption="F1 above the threshold of the protocol",
        axis="F1",
        details="threshold_curves",
    )

    task: Literal["bucc"] = "bucc"
    data: TableFile = pydantic.Field(
        description="Folder, or archives in it, of files such as de-en.dev.de, de-en.dev.en (id<TAB>sentence) and de-en.dev.gold"
        " (id<TAB>id), also for test."
    )
    protocol: Literal["test", "sample"] = pydantic.Field(
        "test", description="test: tune on dev, score test; sample: tune and score on dev, an oracle."
    )
    k: int = pydantic.Field(4, ge=1, le=1024, description="Neighbours on each side, for the margin; all of a side that has fewer.")
    margin: MarginName = pydantic.Field("ratio", description="Margin function that scores pairs.")

    @pydantic.field_validator("data")
    @classmethod
    def _check_dataset(cls, data: str | DatasetFiles) -> str | DatasetFiles:
        """Read all splits: the protocol chooses those of a dataset."""
        if isinstance(data, str):
            return data
        if data.dataset != "bucc" or data.split is not None:
            raise PydanticCustomError("data", "name the dataset bucc, and no split: the protocol chooses the splits")
        return data.model_copy(update={"split": "all"})

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import bucc

        return bucc.evaluate(encoder, self)


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
            raise PydanticCustomError("train", "fine_tune and train_langs require training rows; give train")
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


class AlignmentTask(TaskSettings):
    """Measure alignment and uniformity: how close translations or paraphrases are, and how evenly all sentences are spread.

    Line i of TARGET translates line i of SOURCE. With --data instead, the pairs of an STS table with a score above --min-score are
    the paraphrases.

    \b
    Example:
      miner eval alignment news.de.txt.gz news.en.txt.gz
      miner eval alignment --data sts-dev.tsv
    """

    CHART = ValueTable(
        values={
            "alignment": ("alignment",),
            **{f"uniformity, {side}": ("uniformity", side) for side in ("source", "target", "sentences", "mean")},
        },
        caption="How close the sentences of {n:,} pairs are, and how evenly all sentences are spread. Lower is better.",
    )
    PATHS = ("source", "target", "data")
    ARGUMENTS = ("source", "target")

    task: Literal["alignment"] = "alignment"
    source: TableFile | None = None
    target: TableFile | None = None
    text_column: str | None = pydantic.Field(None, description="Column of both sides: a name, or a number from 1; of TMX: a language.")
    source_column: str | None = pydantic.Field(None, description="Column of the source, if it has another name.")
    target_column: str | None = pydantic.Field(None, description="Column of the target, which may be in the same file: leave TARGET out.")
    data: TableFile | None = pydantic.Field(
        None, description="Table with the columns sentence1, sentence2 and score, instead of SOURCE and TARGET."
    )
    min_score: float = pydantic.Field(4, description="Pairs of the table with a score above this are positives; for scores from 0 to 5.")

    @pydantic.model_validator(mode="after")
    def _check_inputs(self) -> Self:
        is_one_table = isinstance(self.source, DatasetFiles) or None not in (self.source_column, self.target_column)
        has_source, has_target = self.source is not None, self.target is not None or is_one_table
        if (has_source, has_target) != ((False, False) if self.data is not None else (True, True)):
            raise PydanticCustomError("inputs", "give the files source and target, or a table of scored pairs as data")
        return self

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import alignment

        return alignment.evaluate(encoder, self)


class MapTask(TaskSettings):
    """Compare languages by the same sentences in all of them: mean cosines, and a map that the report draws.

    With --pair-column, the map shows the two texts of each row, such as the pairs of an STS table in one language.

    \b
    Example:
      miner eval map --data udhr.tsv.gz --json map/udhr.json
      miner eval map --data klue-sts.tsv --text-column sentence1 --pair-column sentence2 --json map/klue.json
    """

    CHART = BarChart(
        groups="languages",
        value="cosine",
        caption="Mean cosine with the mean of the translations, or with the other text of the pair",
        details="language_map",
    )

    task: Literal["map"] = "map"
    data: TableFile = pydantic.Field(description="Table of texts, their languages, and ids that translations share.")
    text_column: str = pydantic.Field("text", description="Column of the text.")
    lang_column: str = pydantic.Field("lang", description="Column of the language.")
    id_column: str = pydantic.Field("id", description="Column of the id, which translations share.")
    pair_column: str | None = pydantic.Field(None, description="Column of the second text of a pair; languages and ids are not read.")
    sentences: int = pydantic.Field(1000, ge=3, description="Maximum number of sentences sampled from those in two languages or more.")
    seed: int = pydantic.Field(0, description="Seed of the sample and of t-SNE.")

    def evaluate(self, encoder: "Encoder") -> "TaskResult":
        from miner.evaluation import language_map

        return language_map.evaluate(encoder, self)


AnyTask = (
    RetrievalTask
    | TatoebaTask
    | BuccTask
    | StsTask
    | ClusteringTask
    | ClassificationTask
    | PairClassificationTask
    | LanguageProbeTask
    | AlignmentTask
    | MapTask
)
TASKS: dict[str, type[TaskSettings]] = {task.task_name(): task for task in get_args(AnyTask)}

BITEXT_CHART = BarChart(  # of `miner eval bitext`, which measures mined pairs and no encoder
    groups="suspects",
    value="share",
    caption="Share of the pairs that look wrong",
    is_share=True,
)
CHARTS: dict[str, Chart] = {**{name: task.CHART for name, task in TASKS.items()}, "bitext": BITEXT_CHART}


class SuiteConfig(Settings):
    """The settings of `miner eval suite`."""

    data: str = "."  # the folder that the paths of the tasks are relative to
    tasks: Annotated[tuple[Annotated[AnyTask, pydantic.Field(discriminator="task")], ...], OneOrMore()] = pydantic.Field(min_length=1)
    draws: int = pydantic.Field(1000, ge=100)  # bootstrap samples
    seed: int = 0
