"""A dataset in our columns as one file, and a summary of what a reader makes of it."""

import contextlib
import gzip
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import pyarrow as pa

from miner.errors import ConfigError
from miner.io import outputs, storage, table_files
from miner.research.datasets.layout import DatasetLayout
from miner.research.datasets.reading import RowBatch
from miner.research.datasets.release import MAX_LINE_BYTES
from miner.text import streams

EXAMPLES = 3  # rows that a summary shows

GroupKey = tuple[tuple[str, ...], str, tuple[str, ...]]  # files, split, languages
WriteRows = Callable[[dict[str, list[str]]], None]


@dataclass
class FileSummary:
    """What was read of a group of files."""

    files: list[str]
    split: str
    languages: list[str]
    rows: int = 0  # read
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass
class DatasetSummary:
    """What was read of a dataset: by group of files, and in all."""

    name: str
    kind: str
    files: dict[GroupKey, FileSummary] = field(default_factory=dict)
    languages: Counter[str] = field(default_factory=Counter)  # rows of each language, or of each pair of them
    columns: list[str] = field(default_factory=list)
    checksums: dict[str, str] = field(default_factory=dict)  # by file read, or by its archive
    examples: list[dict[str, str]] = field(default_factory=list)

    def add(self, batch: RowBatch) -> None:
        group = batch.group
        files = tuple(file.uri for _, file in sorted(group.files.items()))
        key = (files, group.split, group.languages)
        summary = self.files.setdefault(key, FileSummary(list(files), group.split, list(group.languages)))
        self.checksums.update({file.path: storage.checksum(file.path) for file in group.files.values() if file.path not in self.checksums})
        summary.rows += batch.num_read
        summary.kept += len(batch)
        summary.dropped += batch.dropped
        self.languages.update(_languages(batch))
        self.columns = self.columns or list(batch.columns)
        missing = max(0, EXAMPLES - len(self.examples))
        rows = itertools.islice(zip(*batch.columns.values(), strict=True), missing)
        self.examples += [dict(zip(batch.columns, row, strict=True)) for row in rows]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.files.values())

    @property
    def kept(self) -> int:
        return sum(part.kept for part in self.files.values())

    @property
    def dropped(self) -> Counter[str]:
        return sum((part.dropped for part in self.files.values()), Counter())

    def figures(self) -> dict[str, Any]:
        return {
            "dataset": self.name,
            "kind": self.kind,
            "columns": self.columns,
            "rows": self.rows,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "languages": dict(self.languages),
            "checksums": self.checksums,
            "files": [{**vars(part), "dropped": dict(part.dropped)} for part in self.files.values()],
            "examples": self.examples,
        }


def summarise(layout: DatasetLayout, batches: Iterable[RowBatch]) -> DatasetSummary:
    """Read all batches; memory does not grow with them."""
    summary = DatasetSummary(layout.name, layout.kind.name)
    for batch in batches:
        summary.add(batch)
    return summary


def convert_dataset(layout: DatasetLayout, batches: Iterable[RowBatch], output: str, inputs: Iterable[str]) -> DatasetSummary:
    """Write all rows to OUTPUT: TSV with a header, JSONL (both also as .gz) or Parquet by its extension, atomically.

    Scores are numbers in JSONL and Parquet. Raises ConfigError for another extension, and for one of the files that are read (`inputs`).
    """
    name = output.lower().removesuffix(".gz")
    writers = [write for extension, write in WRITERS.items() if name.endswith(extension)]
    if not writers or (name.endswith(".parquet") and output.lower().endswith(".gz")):
        raise ConfigError(f"{output}: unknown kind of file; name one that ends in .tsv, .jsonl (or these with .gz) or .parquet")
    summary = DatasetSummary(layout.name, layout.kind.name)
    batches = iter(batches)
    first = next(batches, None)
    columns = list(first.columns) if first else []
    outputs.claim_file(output, inputs, lambda uri: _read_columns(uri, name) == columns)
    with writers[0](output, columns) as write:
        for batch in itertools.chain([first] if first else [], batches):
            summary.add(batch)
            if len(batch):
                write(batch.columns)
    return summary


@contextlib.contextmanager
def _write_tsv(output: str, columns: list[str]) -> Iterator[WriteRows]:
    with _open(output) as handle:
        handle.write(("\t".join(columns) + "\n").encode())
        # Cells are cleaned, so none has a tab or a line end.
        yield lambda cells: _write(handle, ("\t".join(row) for row in zip(*cells.values(), strict=True)))


@contextlib.contextmanager
def _write_jsonl(output: str, columns: list[str]) -> Iterator[WriteRows]:
    def line(row: tuple[str, ...]) -> str:
        return json.dumps({name: _value(name, cell) for name, cell in zip(columns, row, strict=True)}, ensure_ascii=False)

    with _open(output) as handle:
        yield lambda cells: _write(handle, map(line, zip(*cells.values(), strict=True)))


@contextlib.contextmanager
def _write_parquet(output: str, columns: list[str]) -> Iterator[WriteRows]:
    schema = pa.schema([(name, pa.float64() if name == "score" else pa.string()) for name in columns])
    with table_files.parquet_writer(output, schema) as writer:

        def write(cells: dict[str, list[str]]) -> None:
            arrays = [[_value(name, cell) for cell in cells[name]] for name in columns]
            writer.write_batch(pa.record_batch(arrays, schema=schema))

        yield write


WRITERS: dict[str, Callable[[str, list[str]], contextlib.AbstractContextManager[WriteRows]]] = {
    ".tsv": _write_tsv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}


@contextlib.contextmanager
def _open(output: str) -> Iterator[BinaryIO]:
    with storage.atomic(output) as handle:
        if not output.lower().endswith(".gz"):
            yield handle
            return
        # Without name and time, so that the same rows give the same bytes.
        with gzip.GzipFile("", "wb", fileobj=handle, mtime=0) as packed:
            yield cast(BinaryIO, packed)


def _read_columns(uri: str, name: str) -> list[str]:
    """Return the columns of a file that has the extension of `name`."""
    if name.endswith(".parquet"):
        with table_files.open_parquet(uri) as parquet:
            return list(parquet.schema_arrow.names)
    with streams.open_bytes(uri, streams.split_extensions(uri)[1]) as handle:
        line = handle.readline(MAX_LINE_BYTES).decode().rstrip("\n")
    return line.split("\t") if name.endswith(".tsv") else list(storage.parse_json(line.encode(), uri))


def _write(handle: BinaryIO, lines: Iterable[str]) -> None:
    handle.write("".join(f"{line}\n" for line in lines).encode())


def _value(column: str, cell: str) -> str | float:
    return float(cell) if column == "score" else cell


def _languages(batch: RowBatch) -> Counter[str]:
    """Rows by language, or by pair of languages."""
    for names in (("lang",), ("source_lang", "target_lang"), ("lang1", "lang2")):
        if names[0] in batch.columns:
            return Counter("-".join(dict.fromkeys(codes)) for codes in zip(*(batch.columns[name] for name in names), strict=True))
    return Counter(dict.fromkeys(batch.group.languages, len(batch)))
