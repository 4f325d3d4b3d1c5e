"""Releases of public datasets as tests write them, with invented sentences, and what a reader makes of them."""

import bz2
import gzip
import lzma
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from miner.errors import DataError
from miner.research.datasets.reading import read_dataset
from miner.research.datasets.registry import LAYOUTS

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}

Row = tuple[str, ...]


@dataclass(frozen=True)
class RowsCase:
    """A release, and the rows that must come of it, in the order of the columns of its kind."""

    layout: str
    files: dict[str, str | bytes]
    rows: list[Row]
    dropped: dict[str, int] = field(default_factory=dict)
    languages: tuple[str, ...] = ()
    split: str | None = None
    path: str = ""  # below the folder of the release
    columns: tuple[str, ...] = ()  # where they are languages
    title: str = ""

    def __str__(self) -> str:
        return f"{self.layout} {self.title}".strip()


@dataclass(frozen=True)
class WrongCase:
    """A release that is not in the layout, and the message that says so; {} in it is the folder."""

    layout: str
    files: dict[str, str | bytes]
    message: str
    split: str | None = None
    languages: tuple[str, ...] = ()
    path: str = ""

    def __str__(self) -> str:
        return self.layout


def write_release(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write files, compressed where their name says so."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(COMPRESS[path.suffix](data) if path.suffix in COMPRESS and isinstance(content, str) else data)
    return folder


def read_rows(
    layout: str, path: Path, languages: tuple[str, ...] = (), split: str | None = None
) -> tuple[tuple[str, ...], list[Row], dict[str, int]]:
    """Columns, rows, and dropped rows by reason."""
    columns: tuple[str, ...] = ()
    rows: list[Row] = []
    dropped: Counter[str] = Counter()
    num_read = 0
    for batch in read_dataset(LAYOUTS[layout], str(path), languages, split):
        columns = tuple(batch.columns)
        rows += zip(*batch.columns.values(), strict=True)
        dropped += batch.dropped
        num_read += batch.num_read
    assert num_read == len(rows) + dropped.total()
    return columns, rows, dict(dropped)


def check_rows(case: RowsCase, folder: Path) -> None:
    path = write_release(folder, case.files) / case.path
    columns, rows, dropped = read_rows(case.layout, path, case.languages, case.split)
    assert rows == case.rows
    assert dropped == case.dropped
    assert columns == (case.columns or LAYOUTS[case.layout].kind.columns)


def check_wrong(case: WrongCase, folder: Path) -> None:
    path = write_release(folder, case.files) / case.path
    with pytest.raises(DataError) as error:
        read_rows(case.layout, path, case.languages, case.split)
    message = str(error.value)
    assert message.startswith(case.message.replace("{}", str(folder))), message
    assert "\n" not in message
