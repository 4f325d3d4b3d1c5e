"""What can be chosen of each evaluation, with its default: the options of `miner eval`, and the keys of a suite's tasks."""

import posixpath
from typing import Annotated, ClassVar, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.choices import MarginName
from miner.config.base import Settings


class TaskSettings(Settings):
    """One evaluation of an encoder."""

    PLACES: ClassVar[tuple[str, ...]] = ("data",)  # the settings that name files or folders

    name: str | None = None  # what the table of a suite calls it; None: as the task

    @property
    def kind(self) -> str:
        return str(type(self).model_fields["task"].default)

    @property
    def title(self) -> str:
        return self.name or self.kind

    def places(self) -> list[str]:
        return [getattr(self, name) for name in self._places()]

    def below(self, folder: str) -> Self:
        """The same, with its files looked for below a folder."""
        return self.model_copy(update={place: posixpath.join(folder, getattr(self, place)) for place in self._places()})

    def _places(self) -> list[str]:
        return [name for name in self.PLACES if getattr(self, name) is not None]


class AlignedTask(TaskSettings):
    """Two files, or two columns of one, of which line i translates line i."""

    PLACES = ("source", "target")

    source: str
    target: str
    text_column: str | None = None
    target_column: str | None = None  # None: as `text_column`


class RetrievalTask(AlignedTask):
    task: Literal["retrieval"] = "retrieval"
    k: int = pydantic.Field(4, ge=1, le=1024)  # neighbours on each side, for the margin


class TatoebaTask(TaskSettings):
    task: Literal["tatoeba"] = "tatoeba"
    data: str  # folder of tatoeba.xxx-eng.tsv.gz


class BuccTask(TaskSettings):
    task: Literal["bucc"] = "bucc"
    data: str  # folder of xx-yy.dev.xx, xx-yy.dev.yy, xx-yy.dev.gold, and so on
    k: int = pydantic.Field(4, ge=1, le=1024)
    margin: MarginName = "ratio"


class StsTask(TaskSettings):
    task: Literal["sts"] = "sts"
    data: str  # table of sentence1, sentence2, score
    track_columns: tuple[str, ...] = ()  # rows with the same values in these are one track


class ClusteringTask(TaskSettings):
    task: Literal["clustering"] = "clustering"
    data: str
    text_column: str = "text"
    label_column: str = "label"
    lang_column: str | None = None  # each language is clustered by itself
    clusters: int | None = pydantic.Field(None, ge=2)  # None: as many as a language has labels
    seed: int = 0


class ProbeTask(TaskSettings):
    """A classifier trained on some rows, and tested on others."""

    PLACES = ("train", "test")

    train: str | None
    test: str
    label_column: str = "label"
    lang_column: str | None = None
    split_column: str | None = None  # rows to train on say `train` there, rows to test on `test`
    train_langs: tuple[str, ...] = ()  # languages to train on; empty: all

    @pydantic.model_validator(mode="after")
    def _check_langs(self) -> Self:
        if self.train_langs and self.lang_column is None:
            raise PydanticCustomError("lang_column", "train_langs wants a column of languages; give lang_column")
        return self


class ClassificationTask(ProbeTask):
    task: Literal["classification"] = "classification"
    train: str
    text_column: str = "text"


class PairClassificationTask(ProbeTask):
    task: Literal["pair-classification"] = "pair-classification"
    train: str | None = None  # None: the encoder comes with its classifier
    first_column: str = "sentence1"
    second_column: str = "sentence2"
    fine_tune: bool = False  # train the encoder itself, instead of a probe; the rest is of this
    epochs: float = pydantic.Field(5, gt=0)
    lr: float = pydantic.Field(2e-5, gt=0)  # the highest
    batch_size: int = pydantic.Field(32, ge=1)
    seed: int = pydantic.Field(0, ge=0)

    @pydantic.model_validator(mode="after")
    def _check_training(self) -> Self:
        if self.train is None and (self.fine_tune or self.train_langs):
            raise PydanticCustomError("train", "fine_tune and train_langs want rows to train on; give train")
        return self


class LanguageProbeTask(TaskSettings):
    task: Literal["language-probe"] = "language-probe"
    data: str
    text_column: str = "text"
    lang_column: str = "lang"
    per_language: int = pydantic.Field(200, ge=2)  # rows drawn of each language, at most: half to train on, half to test on
    seed: int = 0


class MapTask(TaskSettings):
    task: Literal["map"] = "map"
    data: str
    text_column: str = "text"
    lang_column: str = "lang"
    id_column: str = "id"  # the same for translations
    sentences: int = pydantic.Field(1000, ge=3)  # drawn of those that two languages have, at most
    seed: int = 0


class AlignmentTask(AlignedTask):
    task: Literal["alignment"] = "alignment"


AnyTask = Annotated[
    RetrievalTask
    | TatoebaTask
    | BuccTask
    | StsTask
    | ClusteringTask
    | ClassificationTask
    | PairClassificationTask
    | LanguageProbeTask
    | AlignmentTask
    | MapTask,
    pydantic.Field(discriminator="task"),
]


class SuiteConfig(Settings):
    """`miner eval suite`: many tasks, one table."""

    data: str = "."  # the folder that the files of the tasks are in
    tasks: tuple[AnyTask, ...] = pydantic.Field(min_length=1)
    draws: int = pydantic.Field(1000, ge=100)  # of the bootstrap
    seed: int = 0
