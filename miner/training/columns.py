"""Several columns of TSV, JSONL and Parquet files at once, in batches of rows, so that memory does not grow with the file."""

import glob
import json
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from miner import storage
from miner.errors import DataError
from miner.text import streams
from miner.text.formats import refuse
from miner.text.normalise import clean_all

PARQUET_ROWS = 4096  # read at a time
WHOLE_LINE = ""  # the column of a plain text file

Rows = list[list[str]]  # column by column


def expand(files: Sequence[str]) -> list[str]:
    """Files, globs and URIs -> files; DataError for one that is not there."""
    found: list[str] = []
    for name in files:
        fs, path = storage.filesystem(name)
        matches = sorted(map(str, fs.glob(path))) if glob.has_magic(path) else [path] if fs.exists(path) else []
        if not matches:
            raise DataError(f"{name}: no such file; check the name")
        found += [fs.unstrip_protocol(match) if "://" in name else match for match in matches]
    return found


def fingerprints(files: Sequence[str]) -> list[tuple[str, int, str]]:
    """Of each file what changes with it: its name, its size and, where its file system tells, when it was last written."""
    found = []
    for uri in expand(files):
        fs, path = storage.filesystem(uri)
        told = fs.info(path)
        when = told.get("mtime") or told.get("LastModified") or told.get("ETag")
        found.append((uri, int(told.get("size") or 0), str(when)))
    return found


def read_columns(uri: str, columns: Sequence[str]) -> Iterator[Rows]:
    """Cleaned cells of the named columns, for runs of consecutive rows: `rows[c][i]` is column c of row i.

    A column is a name (of a header, a key, a Parquet column), a number from 1 (TSV without a header), or WHOLE_LINE. Lines that
    are empty are passed over. Raises DataError, with file and line, for a row that is broken or has no text in one of the columns.
    """
    kind, compression = streams.extensions(uri)
    refuse(uri, kind)
    read = _parquet(uri, columns) if kind == ".parquet" else _lines(uri, kind, compression, columns)
    for first, cells in read:
        rows = [clean_all(column) for column in cells]
        for name, column in zip(columns, rows, strict=True):
            if "" in column:
                where = first + column.index("")
                raise DataError(f"{uri}: row {where} has nothing in column {name or 1!r}; drop such rows, or fill them")
        yield rows


def _lines(uri: str, kind: str, compression: str, columns: Sequence[str]) -> Iterator[tuple[int, Rows]]:
    parse: Callable[[str], list[str]] | None = _json_cells(columns) if kind in (".jsonl", ".ndjson") else None
    number = 1
    with streams.open_bytes(uri, compression) as handle:
        for data in streams.line_blocks(handle, streams.MAX_LINE):
            lines = _decode(uri, number, data)
            start = 0
            if parse is None:
                parse, start = _tsv_cells(uri, lines[0], columns)
            cells = []
            for offset, line in enumerate(lines[start:], start):
                if line.strip():
                    try:
                        cells.append(parse(line))
                    except ValueError as error:
                        raise DataError(f"{uri}:{number + offset}: {error}; mend the line or drop it") from error
            if cells:
                yield number + start, [list(column) for column in zip(*cells, strict=True)]
            number += len(lines)


def _decode(uri: str, number: int, data: bytes | None) -> list[str]:
    if data is None:
        raise DataError(f"{uri}:{number}: longer than {streams.MAX_LINE} bytes; cut the line")
    try:
        return data.removesuffix(b"\n").decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{uri}:{number + data[: error.start].count(10)}: not UTF-8; convert the file") from error


def _tsv_cells(uri: str, header: str, columns: Sequence[str]) -> tuple[Callable[[str], list[str]], int]:
    """How a line is cut, and how many lines the header takes."""
    if list(columns) == [WHOLE_LINE]:
        return (lambda line: [line]), 0
    if all(column.isdecimal() and int(column) > 0 for column in columns):
        places, header_lines = [int(column) - 1 for column in columns], 0
    else:
        names = [name.strip() for name in header.split("\t")]
        for column in columns:
            if column not in names:
                known = ", ".join(names[:20])
                raise DataError(f"{uri}:1: no column {column!r} in the header ({known}); name one of them, or give numbers from 1")
        places, header_lines = [names.index(column) for column in columns], 1
    most = max(places)

    def cut(line: str) -> list[str]:
        cells = line.split("\t")
        if len(cells) <= most:
            raise ValueError(f"{len(cells)} columns where column {most + 1} is wanted")
        return [cells[place] for place in places]

    return cut, header_lines


def _json_cells(columns: Sequence[str]) -> Callable[[str], list[str]]:
    def cut(line: str) -> list[str]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError("not JSON") from None
        missing = [column for column in columns if not isinstance(record, dict) or record.get(column) is None]
        if missing:
            raise ValueError(f"no key {missing[0]!r}")
        nested = [column for column in columns if isinstance(record[column], list | dict)]
        if nested:
            raise ValueError(f"{nested[0]!r} is no text")
        cells = [str(record[column]) for column in columns]
        if any(0xD800 <= ord(character) < 0xE000 for cell in cells if not cell.isascii() for character in cell):
            raise ValueError("half a surrogate pair, which UTF-8 cannot spell")
        return cells

    return cut


def _parquet(uri: str, columns: Sequence[str]) -> Iterator[tuple[int, Rows]]:
    fs, path = storage.filesystem(uri)
    number = 1
    with streams.clear_errors(uri, "Parquet"), fs.open(path, "rb") as handle, pq.ParquetFile(handle, pre_buffer=False) as file:
        for column in columns:
            if column not in file.schema_arrow.names:
                known = ", ".join(file.schema_arrow.names[:20])
                raise DataError(f"{uri}: no column {column!r} ({known}); name one of them")
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=list(columns)):
            cells = [_strings(uri, name, batch.column(name)) for name in columns]
            if batch.num_rows:
                yield number, cells
            number += batch.num_rows


def _strings(uri: str, name: str, column: pa.Array) -> list[str]:
    """Text, numbers, categories as strings; Arrow does not check by itself that the text of a file is UTF-8."""
    try:
        text = column.cast(pa.string())
        text.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{uri}: column {name!r} holds {column.type}, not all of it text ({reason}); convert it") from error
    strings: list[str] = text.fill_null("").to_pylist()
    return strings
