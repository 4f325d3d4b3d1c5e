"""Training data on disk: every source is read once into Arrow files, which are then mapped into memory and read by row.

So the memory of a run does not grow with its texts, only by a few numbers for each example.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner import storage
from miner.errors import DataError
from miner.text.normalise import sentence_ids
from miner.training.columns import WHOLE_LINE, expand, fingerprints, read_columns
from miner.training.settings import MinedSettings, SourceSettings

Ints = npt.NDArray[np.int64]

TEXT_ROLES = {"text", "source", "target", "anchor", "positive", "negative", "premise", "hypothesis", "first", "second"}
MINED = {"source": "source_text", "target": "target_text", "margin": "margin"}


class TextColumn:
    """m texts and their ids, in a memory-mapped file."""

    def __init__(self, path: Path) -> None:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        self.chunks = table["text"].chunks
        self.ids: Ints = table["id"].to_numpy()
        self._ends = np.cumsum([len(chunk) for chunk in self.chunks])

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints) -> list[str]:
        """Rows (n,) -> their texts."""
        which = np.searchsorted(self._ends, rows, side="right")
        starts = np.concatenate([[0], self._ends])[which]
        return [self.chunks[chunk][int(at)].as_py() for chunk, at in zip(which, rows - starts, strict=True)]

    def parts(self) -> Iterator[list[str]]:
        """All of them, in order, a few thousand at a time."""
        for chunk in self.chunks:
            yield chunk.to_pylist()


@dataclass(frozen=True)
class Dataset:
    """What the files of one source hold: n rows of t texts each, text `role` of row i being `texts` row i * t + place of the role."""

    title: str
    texts: TextColumn
    roles: tuple[str, ...]  # t
    marks: pa.Table  # n rows: the other columns, as strings

    def __len__(self) -> int:
        return len(self.texts) // len(self.roles)

    def rows(self, role: str) -> Ints:
        """(n,) where the texts of a role stand."""
        return np.arange(len(self), dtype=np.int64) * len(self.roles) + self.roles.index(role)

    def codes(self, name: str) -> tuple[Ints, tuple[str, ...]]:
        """A column of marks as (n,) numbers into its values, which are sorted."""
        values, codes = np.unique(self.marks[name].to_numpy(), return_inverse=True)
        return codes.astype(np.int64), tuple(values.tolist())


def check_source(settings: SourceSettings) -> None:
    """Raise DataError where a file of a source is missing, lacks a column or begins with what cannot be read: before anything long."""
    for uri in expand(files_of(settings)):
        next(read_columns(uri, list(_columns(settings).values())), None)


def source_key(settings: SourceSettings) -> str:
    """A name for what the files of a source hold, and its lexicons: another one where they, or how they are read, changed."""
    lexicons = settings.code_switch.lexicons if settings.code_switch else ()
    return storage.key([settings.model_dump(mode="json"), fingerprints([*files_of(settings), *lexicons])])


def read_source(settings: SourceSettings, folder: Path) -> None:
    """Read the files of a source into FOLDER, a pair of Arrow files; DataError where one cannot be read or holds nothing."""
    columns = _columns(settings)
    texts = [role for role in columns if role in TEXT_ROLES]
    marks = [role for role in columns if role not in TEXT_ROLES]
    folder.mkdir(parents=True, exist_ok=True)
    schemas = pa.schema([("text", pa.string()), ("id", pa.int64())]), pa.schema([(role, pa.string()) for role in marks])
    count = 0
    with (
        pa.OSFile(str(folder / "texts.arrow"), "wb") as text_file,
        pa.OSFile(str(folder / "marks.arrow"), "wb") as mark_file,
        pa.ipc.new_file(text_file, schemas[0]) as text_writer,
        pa.ipc.new_file(mark_file, schemas[1]) as mark_writer,
    ):
        for uri in expand(files_of(settings)):
            for rows in read_columns(uri, list(columns.values())):
                cells = dict(zip(columns, rows, strict=True))
                together = list(chain.from_iterable(zip(*(cells[role] for role in texts), strict=True)))
                text_writer.write_batch(pa.record_batch([together, sentence_ids(together)], schema=schemas[0]))
                if marks:
                    mark_writer.write_batch(pa.record_batch([cells[role] for role in marks], schema=schemas[1]))
                count += len(together)
    if not count:
        raise DataError(f"{settings.files[0]}: not one example; check the files of source {settings.title!r}")


def open_corpus(settings: SourceSettings, folder: Path) -> Dataset:
    """What `read_source` wrote to FOLDER."""
    roles = tuple(role for role in _columns(settings) if role in TEXT_ROLES)
    marks = pa.ipc.open_file(pa.memory_map(str(folder / "marks.arrow"))).read_all()
    return Dataset(settings.title, TextColumn(folder / "texts.arrow"), roles, marks)


def files_of(settings: SourceSettings) -> Sequence[str]:
    """The files a source is read from."""
    return [storage.join(name, "bitext.parquet") for name in settings.files] if isinstance(settings, MinedSettings) else settings.files


def _columns(settings: SourceSettings) -> dict[str, str]:
    """Role -> column."""
    if isinstance(settings, MinedSettings):
        return MINED
    return dict(settings.columns) or {"text": WHOLE_LINE}
