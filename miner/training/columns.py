"""Read columns of TSV, JSONL and Parquet files in batches of rows, so that memory does not grow with the file."""

import glob
import json
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from miner import storage
from miner.config.datasets import DatasetFiles
from miner.datasets.columns import dataset_paths, read_dataset_columns
from miner.errors import DataError
from miner.text import streams
from miner.text.formats import check_lines
from miner.text.normalise import clean_all

PARQUET_BATCH_ROWS = 4096
WHOLE_LINE = ""  # column name that selects whole lines of a plain text file
MAX_LISTED_COLUMNS = 20  # in an error message

Cells = list[list[str]]  # column by column


def expand_globs(files: Sequence[str]) -> list[str]:
    """Expand globs among paths and URIs. Raises DataError for a name without a file."""
    uris: list[str] = []
    for name in files:
        fs, path = storage.filesystem(name)
        matches = sorted(map(str, fs.glob(path))) if glob.has_magic(path) else [path] if fs.exists(path) else []
        if not matches:
            raise DataError(f"{name}: no such file; check the name")
        uris += [fs.unstrip_protocol(match) if "://" in name else match for match in matches]
    return uris


def expand_files(files: Sequence[str | DatasetFiles]) -> list[str | DatasetFiles]:
    """Expand globs as `expand_globs` does; public datasets remain as they are."""
    expanded: list[str | DatasetFiles] = []
    for file in files:
        expanded += [file] if isinstance(file, DatasetFiles) else expand_globs([file])
    return expanded


def file_fingerprints(files: Sequence[str | DatasetFiles]) -> list[tuple[str, int, str]]:
    """Return (name, size, version) of each file; the version is a modification time or ETag, if the file system has one."""
    fingerprints = []
    for uri in [uri for file in expand_files(files) for uri in (dataset_paths(file) if isinstance(file, DatasetFiles) else [file])]:
        fs, path = storage.filesystem(uri)
        info = fs.info(path)
        version = info.get("mtime") or info.get("LastModified") or info.get("ETag")
        fingerprints.append((uri, int(info.get("size") or 0), str(version)))
    return fingerprints


def read_columns(uri: str | DatasetFiles, columns: Sequence[str]) -> Iterator[Cells]:
    """Yield the cleaned cells of columns for blocks of consecutive rows: `cells[c][i]` is column c of row i.

    A column is a name (TSV header, JSON key, Parquet column), a number from 1 (TSV without header), or WHOLE_LINE, which is the
    column `text` of a public dataset. Empty lines are skipped. Raises DataError with file and line for a malformed row or an empty cell.
    """
    if isinstance(uri, DatasetFiles):
        yield from read_dataset_columns(uri, [column if column != WHOLE_LINE else "text" for column in columns])
        return
    kind, compression = streams.split_extensions(uri)
    check_lines(uri, kind)
    blocks = _parquet(uri, columns) if kind == ".parquet" else _lines(uri, kind, compression, columns)
    for first_row, raw_cells in blocks:
        cells = [clean_all(column) for column in raw_cells]
        for name, column in zip(columns, cells, strict=True):
            if "" in column:
                row = first_row + column.index("")
                raise DataError(f"{uri}: row {row} has nothing in column {name or 1!r}; drop such rows, or fill them")
        yield cells


def _lines(uri: str, kind: str, compression: str, columns: Sequence[str]) -> Iterator[tuple[int, Cells]]:
    """Yield the number of the first row and the cells of each block of TSV, JSONL or plain text."""
    parse: Callable[[str], list[str]] | None = _json_parser(columns) if kind in (".jsonl", ".ndjson") else None
    number = 1
    with streams.open_bytes(uri, compression) as handle:
        for data in streams.read_line_blocks(handle, streams.MAX_LINE_BYTES):
            lines = _decode(uri, number, data)
            start = 0
            if parse is None:
                parse, start = _tsv_parser(uri, lines[0], columns)
            rows = []
            for offset, line in enumerate(lines[start:], start):
                if line.strip():
                    try:
                        rows.append(parse(line))
                    except ValueError as error:
                        raise DataError(f"{uri}:{number + offset}: {error}; fix the line or delete it") from error
            if rows:
                yield number + start, [list(column) for column in zip(*rows, strict=True)]
            number += len(lines)


def _decode(uri: str, number: int, data: bytes | None) -> list[str]:
    if data is None:
        raise DataError(f"{uri}:{number}: longer than {streams.MAX_LINE_BYTES} bytes; split the line")
    try:
        return data.removesuffix(b"\n").decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        line_number = number + data[: error.start].count(b"\n")
        raise DataError(f"{uri}:{line_number}: not UTF-8; convert the file") from error


def _tsv_parser(uri: str, first_line: str, columns: Sequence[str]) -> tuple[Callable[[str], list[str]], int]:
    """Return a function that splits a line into the cells of the columns, and the number of header lines."""
    if list(columns) == [WHOLE_LINE]:
        return (lambda line: [line]), 0
    if all(column.isdecimal() and int(column) > 0 for column in columns):
        indices, num_header_lines = [int(column) - 1 for column in columns], 0
    else:
        header = [name.strip() for name in first_line.split("\t")]
        for column in columns:
            if column not in header:
                listed = ", ".join(header[:MAX_LISTED_COLUMNS])
                raise DataError(f"{uri}:1: no column {column!r} in the header ({listed}); name one of them, or give numbers from 1")
        indices, num_header_lines = [header.index(column) for column in columns], 1
    last_index = max(indices)

    def parse(line: str) -> list[str]:
        cells = line.split("\t")
        if len(cells) <= last_index:
            raise ValueError(f"{len(cells)} columns, expected at least {last_index + 1}")
        return [cells[index] for index in indices]

    return parse, num_header_lines


def _json_parser(columns: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that takes the values of the columns from a JSON object."""

    def parse(line: str) -> list[str]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError("not JSON") from None
        missing = [column for column in columns if not isinstance(record, dict) or record.get(column) is None]
        if missing:
            raise ValueError(f"no key {missing[0]!r}")
        nested = [column for column in columns if isinstance(record[column], list | dict)]
        if nested:
            raise ValueError(f"{nested[0]!r} is not a string or number")
        cells = [str(record[column]) for column in columns]
        if any(0xD800 <= ord(character) < 0xE000 for cell in cells if not cell.isascii() for character in cell):
            raise ValueError("unpaired surrogate, which UTF-8 cannot encode")
        return cells

    return parse


def _parquet(uri: str, columns: Sequence[str]) -> Iterator[tuple[int, Cells]]:
    """Yield the number of the first row and the cells of each batch of a Parquet file."""
    number = 1
    with streams.open_parquet(uri) as file:
        for column in columns:
            if column not in file.schema_arrow.names:
                listed = ", ".join(file.schema_arrow.names[:MAX_LISTED_COLUMNS])
                raise DataError(f"{uri}: no column {column!r} ({listed}); name one of them")
        for batch in streams.read_batches(uri, file, columns, PARQUET_BATCH_ROWS):
            cells = [_strings(uri, name, batch.column(name)) for name in columns]
            if batch.num_rows:
                yield number, cells
            number += batch.num_rows


def _strings(uri: str, name: str, column: pa.Array) -> list[str]:
    """Convert text, numbers and categories to strings. Validates UTF-8, which Arrow does not do on reading."""
    try:
        text = column.cast(pa.string())
        text.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{uri}: column {name!r} of type {column.type} cannot be read as text ({reason}); convert it") from error
    strings: list[str] = text.fill_null("").to_pylist()
    return strings
