"""What every evaluation task has: settings, which measure an encoder, and a chart of the figures."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pydantic
from pydantic_core import PydanticCustomError

from miner.config.base import Settings
from miner.config.choices import RescoreName
from miner.config.commands import check_token_layer
from miner.config.datasets import DatasetFiles, TableFile
from miner.io import storage

if TYPE_CHECKING:
    from miner.encoders import Encoder
    from miner.evaluation.scores import EvaluationResult


@dataclass(frozen=True, kw_only=True)
class BarChart:
    """One bar for each group of a task's figures, such as a language."""

    groups: str  # the key that maps each group to its figures
    value: str  # the figure that the bars show
    caption: str
    axis: str | None = None  # label of the axis; None: `value`
    is_share: bool = False  # a share of `n` items, drawn with its confidence interval
    details: Literal["language_map", "threshold_curves"] | None = None  # further sections


@dataclass(frozen=True, kw_only=True)
class ValueTable:
    """A table of single figures, for a task without groups."""

    values: Mapping[str, tuple[str, ...]]  # label -> the keys that lead to the figure
    caption: str  # may name figures: "{n} lines"


Chart = BarChart | ValueTable


class TaskSettings(Settings):
    """The settings of one task. Its docstring is the help of its command, the description of a field that of its option."""

    CHART: ClassVar[Chart]
    PATHS: ClassVar[tuple[str, ...]] = ("data",)  # the settings that name files or folders
    ARGUMENTS: ClassVar[tuple[str, ...]] = ()  # the settings that its command takes as arguments; the others are options

    name: str | None = pydantic.Field(None, description="Title in a suite; by default, the task's own name.")
    side: Literal["source", "target"] | None = pydantic.Field(
        None, description="Side of an encoder with two sides that encodes all texts; by default, that of their language or role."
    )

    @classmethod
    def task_name(cls) -> str:
        """Return the name of the task: that of its command, and `task` in a suite and in its figures."""
        return str(cls.model_fields["task"].default)

    def evaluate(self, encoder: "Encoder") -> "EvaluationResult":
        """Measure an encoder. Raise DataError if the files are missing or malformed."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        return self.name or self.task_name()

    def paths(self) -> list[str | DatasetFiles]:
        """Return the files, folders and public datasets that the task reads."""
        return [path for name in self.PATHS if (path := getattr(self, name)) is not None]

    def figures(self) -> dict[str, Any]:
        """Return what stands above the figures of a result: the task, and the checksums of the files or archives of public datasets."""
        files = [path.path for path in self.paths() if isinstance(path, DatasetFiles) and storage.is_file(path.path)]
        checksums = {file: storage.checksum(file) for file in files}
        return {"task": self.task_name(), **({"checksums": checksums} if checksums else {})}

    def in_folder(self, folder: str) -> Self:
        """Return the same settings with paths relative to a folder."""
        paths = {name: path for name in self.PATHS if (path := getattr(self, name)) is not None}
        below = {
            name: path.below(folder) if isinstance(path, DatasetFiles) else posixpath.join(folder, path) for name, path in paths.items()
        }
        return self.model_copy(update=below)


class AlignedTask(TaskSettings):
    """A task on two files, or two columns of one file, where line i of the target translates line i of the source.

    Of a public dataset, source and target are columns: by default those of that name. Then `target` is left out.
    """

    PATHS = ARGUMENTS = ("source", "target")

    source: TableFile
    target: TableFile = pydantic.Field("", description="The other side; by default, a column of the source.")
    text_column: str | None = pydantic.Field(None, description="Column of both sides: a name, a number from 1, or a language of TMX.")
    source_column: str | None = pydantic.Field(None, description="Column of the source, if it has another name.")
    target_column: str | None = pydantic.Field(None, description="Column of the target, which may be in the same file: leave TARGET out.")

    @pydantic.model_validator(mode="before")
    @classmethod
    def _complete_target(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or "source" not in values or "target" in values:
            return values
        has_both_columns = values.get("source_column") is not None and values.get("target_column") is not None
        if not has_both_columns and not isinstance(values["source"], Mapping | DatasetFiles):
            raise PydanticCustomError("target", "give TARGET too, or one file or public dataset with --source-column and --target-column")
        return {**values, "target": values["source"]}

    @pydantic.model_validator(mode="after")
    def _check_dataset(self) -> Self:
        if self.source != self.target and any(isinstance(side, DatasetFiles) for side in (self.source, self.target)):
            raise PydanticCustomError("target", "source and target must be columns of one dataset; leave target out")
        return self


class RescoredTask(TaskSettings):
    """A task that searches, and can rescore the neighbours by late interaction."""

    k: int = pydantic.Field(4, ge=1, le=1024, description="Neighbours on each side, for the margin; all of a side that has fewer.")
    rescore: RescoreName = pydantic.Field(
        "auto", description="Also rescore candidates by late interaction of tokens; auto: with a static encoder."
    )
    rescore_candidates: int | None = pydantic.Field(
        None, ge=1, le=1024, description="Candidates per sentence that are rescored; by default, 16, or 8 with more than 20,000 sentences."
    )
    token_layer: int | None = pydantic.Field(
        None, ge=0, description="Layer of a transformer whose tokens rescore; by default, two thirds of its depth."
    )

    @pydantic.model_validator(mode="after")
    def _check_layer(self) -> Self:
        check_token_layer(self.token_layer, self.rescore)
        return self
