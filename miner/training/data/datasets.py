"""Training data on disk: each source is converted once into memory-mapped Arrow files and read by row.

Memory therefore does not grow with the texts, only by a few numbers per example.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pydantic
from pydantic_core import PydanticCustomError

from miner.config.datasets import DatasetFiles, TableFiles
from miner.errors import DataError
from miner.io import records, storage
from miner.research.datasets.columns import expand_files, file_fingerprints, read_columns
from miner.text.normalise import sentence_ids
from miner.training.data.augment import CodeSwitchSettings
from miner.training.data.cleaning import Cleaning, RowFilter
from miner.training.settings import TrainSettings
from miner.units import list_counts

Ints = npt.NDArray[np.int64]

TEXT_ROLES = {"text", "source", "target", "anchor", "positive", "negative", "premise", "hypothesis", "first", "second"}
TEXT_FILE, METADATA_FILE, DROPPED_FILE = "texts.arrow", "marks.arrow", "dropped.json"

Field = pydantic.Field

logger = logging.getLogger(__name__)


class SourceSettings(TrainSettings):
    """Settings of every data source. `columns` maps the roles of the strategy to columns of the files."""

    REQUIRED_ROLES: ClassVar[tuple[str, ...]] = ()  # required keys of `columns`
    OPTIONAL_ROLES: ClassVar[tuple[str, ...]] = ("lang",)  # optional keys of `columns`
    SUPPORTS_SMOOTHING: ClassVar[bool] = True  # whether the strategy supports language_smoothing

    strategy: str
    name: str = Field("", description="Name for `objective.data`; by default, the strategy.")
    files: TableFiles = Field(min_length=1, description="Files in any format of docs/text.md, globs and URIs; or public datasets.")
    columns: Mapping[str, str] = Field(
        default_factory=dict, description="Role -> column name, or column number from 1 in a table without header."
    )
    limit: int | None = Field(
        None, ge=0, description="Number of examples, drawn at random from training.seed; 0: leave the source out; by default, all."
    )
    weight: float = Field(
        1.0, gt=0, description="Factor of its share, which is its number of examples; with training.mix batches, of its batches."
    )
    batch_size: int | None = Field(None, ge=1, description="Examples per batch of this source alone; by default, training.batch_size.")
    language_smoothing: float = Field(
        1.0, ge=0, le=1, description="Languages are sampled in proportion to count ** language_smoothing; 0: uniformly."
    )
    code_switch: CodeSwitchSettings | None = Field(None, description="Augmentation of the positives.")

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
        return self.name or self.strategy

    @property
    def role_columns(self) -> Mapping[str, str | None]:
        """The column of each role; None is the whole line."""
        return self.columns or {"text": None}

    @property
    def tables(self) -> Sequence[str | DatasetFiles]:
        """The files that are read."""
        return self.files


class TextColumn:
    """m texts and their ids in a memory-mapped Arrow file."""

    def __init__(self, path: Path) -> None:
        table = _open_arrow(path)
        self._chunks = table["text"].chunks
        self._chunk_ends = np.cumsum([len(chunk) for chunk in self._chunks])
        self.ids: Ints = table["id"].to_numpy()

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints) -> list[str]:
        """Return the texts of rows (n,)."""
        chunks = np.searchsorted(self._chunk_ends, rows, side="right")
        offsets = rows - np.concatenate([[0], self._chunk_ends])[chunks]
        return [self._chunks[chunk][int(offset)].as_py() for chunk, offset in zip(chunks, offsets, strict=True)]

    def iter_chunks(self) -> Iterator[list[str]]:
        """Yield all texts in order, a few thousand at a time."""
        for chunk in self._chunks:
            yield chunk.to_pylist()


@dataclass(frozen=True)
class Dataset:
    """The examples of one source: n rows of t texts. The text of row i in role number r is row i * t + r of `texts`."""

    title: str
    texts: TextColumn
    roles: tuple[str, ...]  # t
    metadata: pa.Table  # n rows: the columns that are not texts, as strings

    def __len__(self) -> int:
        return len(self.texts) // len(self.roles)

    def text_rows(self, role: str) -> Ints:
        """Return the rows (n,) of `texts` that hold a role."""
        return np.arange(len(self), dtype=np.int64) * len(self.roles) + self.roles.index(role)

    def encode_column(self, name: str) -> tuple[Ints, tuple[str, ...]]:
        """Return a metadata column as codes (n,) and the sorted values that they index."""
        values, codes = np.unique(self.metadata[name].to_numpy(), return_inverse=True)
        return codes.astype(np.int64), tuple(values.tolist())

    def languages(self) -> Ints:
        """Return the language code (n,) of each row: zeros if there is no column `lang`."""
        return self.encode_column("lang")[0] if "lang" in self.metadata.column_names else np.zeros(len(self), dtype=np.int64)


def check_source(settings: SourceSettings) -> None:
    """Raise DataError if a file of a source is missing, lacks a column or starts with invalid rows. Reads only the first rows."""
    for uri in expand_files(settings.tables):
        next(read_columns(uri, list(settings.role_columns.values())), None)


def source_key(settings: SourceSettings, cleaning: Cleaning | None = None) -> str:
    """Return a cache key that changes with the settings of a source, its files and lexicons, and the cleaning."""
    lexicons = settings.code_switch.lexicons if settings.code_switch else ()
    inputs = [settings.model_dump(mode="json", exclude={"limit"}), file_fingerprints([*settings.tables, *lexicons])]
    return storage.key(inputs if cleaning is None else [*inputs, cleaning.cache_key()])


def read_source(settings: SourceSettings, folder: Path, cleaning: Cleaning | None = None) -> None:
    """Convert the files of a source into two Arrow files in FOLDER; with `cleaning`, also write how many rows it dropped.

    Raises DataError if a file is invalid, or no row is left.
    """
    columns = settings.role_columns
    text_roles = [role for role in columns if role in TEXT_ROLES]
    metadata_roles = [role for role in columns if role not in TEXT_ROLES]
    folder.mkdir(parents=True, exist_ok=True)
    text_schema = pa.schema([("text", pa.string()), ("id", pa.int64())])
    metadata_schema = pa.schema([(role, pa.string()) for role in metadata_roles])
    row_filter = None if cleaning is None else RowFilter(cleaning, text_roles)
    num_texts = 0
    with (
        pa.OSFile(str(folder / TEXT_FILE), "wb") as text_file,
        pa.OSFile(str(folder / METADATA_FILE), "wb") as metadata_file,
        pa.ipc.new_file(text_file, text_schema) as text_writer,
        pa.ipc.new_file(metadata_file, metadata_schema) as metadata_writer,
    ):
        for uri in expand_files(settings.tables):
            for block in read_columns(uri, list(columns.values())):
                cells = dict(zip(columns, block, strict=True))
                if row_filter is not None:
                    cells = row_filter.select(cells)
                texts = list(chain.from_iterable(zip(*(cells[role] for role in text_roles), strict=True)))
                text_writer.write_batch(pa.record_batch([texts, sentence_ids(texts)], schema=text_schema))
                if metadata_roles:
                    metadata_writer.write_batch(pa.record_batch([cells[role] for role in metadata_roles], schema=metadata_schema))
                num_texts += len(texts)
    if not num_texts:
        reasons = f" left ({describe_dropped(row_filter.dropped)} dropped)" if row_filter is not None and row_filter.dropped else ""
        raise DataError(f"{settings.files[0]}: no examples{reasons}; check the files of source {settings.title!r}")
    if row_filter is not None:
        records.write(str(folder / DROPPED_FILE), row_filter.dropped)
        logger.info("source %s: %s dropped", settings.title, describe_dropped(row_filter.dropped))


def read_dropped(folder: Path) -> dict[str, int]:
    """Return the number of rows that cleaning dropped, by reason; empty without cleaning."""
    path = folder / DROPPED_FILE
    return records.read(str(path), dict[str, int]) if path.exists() else {}


def describe_dropped(dropped: Mapping[str, int]) -> str:
    return list_counts(dropped) or "no rows"


def open_dataset(settings: SourceSettings, folder: Path) -> Dataset:
    """Open what `read_source` wrote to FOLDER."""
    roles = tuple(role for role in settings.role_columns if role in TEXT_ROLES)
    return Dataset(settings.title, TextColumn(folder / TEXT_FILE), roles, _open_arrow(folder / METADATA_FILE))


def _open_arrow(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()
