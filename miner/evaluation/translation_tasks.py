"""The evaluation tasks on translations: retrieval, mining, alignment and the comparison of languages."""

from typing import TYPE_CHECKING, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config.choices import MarginName
from miner.config.datasets import DatasetFiles, TableFile
from miner.evaluation.task_base import AlignedTask, BarChart, RescoredTask, TaskSettings, ValueTable

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
        description="The release of LASER or XTREME; or a directory of files tatoeba.xxx-eng.tsv.gz: xxx<TAB>English, no header."
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
        description="Directory of files, or of archives with files, such as de-en.dev.de, de-en.dev.en (id<TAB>sentence) and de-en.dev.gold"
        " (id<TAB>id), also for test."
    )
    protocol: Literal["test", "sample"] = pydantic.Field(
        "test", description="test: tune on dev, score test; sample: tune and score on dev, an oracle."
    )
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
    text_column: str | None = pydantic.Field(None, description="Column of both sides: a name, a number from 1, or a language of TMX.")
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
            raise PydanticCustomError("inputs", "give SOURCE and TARGET, or a table of scored pairs as --data")
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
