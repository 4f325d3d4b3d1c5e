"""What is in the lines: plain text, TSV, JSONL and Parquet, all read into numbered values.

Every reader yields runs `(number, values)`: consecutive lines (rows of Parquet) from `number`, counted from 1, each value a
str that is not cleaned yet, or the Fault of a line that has none.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from miner import storage
from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError
from miner.text import streams


@dataclass(frozen=True)
class Fault:
    """Why a line is dropped: the count it goes into, and what is wrong in words."""

    kind: Literal["invalid", "too_long"]
    reason: str


Value = str | Fault
Run = tuple[int, list[Value]]

NOT_UTF8 = Fault("invalid", "not UTF-8; convert the file")
PARQUET_ROWS = 4096  # read at a time
REFUSED = {
    ".csv": "its quoting has no one meaning; write TSV, JSONL or Parquet",
    ".zip": "unpack it first",
    ".tar": "unpack it first",
    ".tgz": "unpack it first",
}


def refuse(name: str, kind: str) -> None:
    """ConfigError where files of a kind, told by the end of their name, are not read."""
    if kind in REFUSED:
        raise ConfigError(f"{name}: {kind} files are not read; {REFUSED[kind]}")


def read_values(uri: str, settings: TextSettings, name: str) -> Iterator[Run]:
    """The values of one input, by its extension; errors in what it says call it `name`.

    Raises ConfigError where its format needs a text column and none is given, and for a format that is not read.
    """
    kind, compression = streams.extensions(uri)
    column = settings.text_column
    if kind == ".parquet":
        if compression:
            raise ConfigError(f"{name}: Parquet is read as it is; decompress the file first")
        return parquet(uri, _needed(name, column))
    refuse(name, kind)
    if kind in (".jsonl", ".ndjson"):
        return jsonl(_lines(uri, compression, settings), _needed(name, column))
    if column is None and kind != ".tsv":
        return _lines(uri, compression, settings)
    return tsv(_lines(uri, compression, settings), _needed(name, column), name)


def _needed(name: str, column: str | None) -> str:
    if column is None:
        raise ConfigError(f"{name}: holds several columns; name the one with the text by --text-column")
    return column


def _lines(uri: str, compression: str, settings: TextSettings) -> Iterator[Run]:
    """The lines of a text file, as they are."""
    limit = max(streams.MAX_LINE, 4 * settings.max_chars)
    too_long = Fault("too_long", f"longer than {limit} bytes; cut the line")
    number = 1
    with streams.open_bytes(uri, compression) as handle:
        for data in streams.line_blocks(handle, limit):
            values: list[Value] = [too_long] if data is None else _decode(data)
            yield number, values
            number += len(values)


def _decode(data: bytes) -> list[Value]:
    data = data.removesuffix(b"\n")
    try:
        return [*data.decode().split("\n")]
    except UnicodeDecodeError:
        return [_decode_one(line) for line in data.split(b"\n")]


def _decode_one(value: bytes | None) -> Value:
    try:
        return value.decode() if value is not None else ""
    except UnicodeDecodeError:
        return NOT_UTF8


def _map(values: list[Value], parse: Callable[[str], Value]) -> list[Value]:
    return [parse(value) if isinstance(value, str) else value for value in values]


def tsv(lines: Iterator[Run], column: str, name: str) -> Iterator[Run]:
    """One column of lines cut at tabs; quotes mean nothing. A name is looked up in the first line, a number counts from 1."""
    by_number = column.isdecimal()
    if by_number and int(column) == 0:
        raise ConfigError("--text-column 0: columns count from 1")
    index = int(column) - 1 if by_number else -1

    def cell(line: str) -> Value:
        cells = line.split("\t", index + 1)
        if len(cells) > index:
            return cells[index]
        return Fault("invalid", f"{len(cells)} columns where the text is in column {index + 1}") if line.strip() else ""

    for number, values in lines:
        if index < 0:
            index = _header(values[0], column, name)
            number, values = number + 1, values[1:]
        yield number, _map(values, cell)


def _header(line: Value, column: str, name: str) -> int:
    names = [name.strip() for name in line.split("\t")] if isinstance(line, str) else []
    if column not in names:
        known = ", ".join(names[:20])
        raise DataError(
            f"{name}:1: no column {column!r} in the header ({known}); name one of them, give its number from 1, or embed a plain text alone"
        )
    return names.index(column)


def jsonl(lines: Iterator[Run], key: str) -> Iterator[Run]:
    """The value of one key of lines that are JSON objects."""

    def text(line: str) -> Value:
        if not line.strip():
            return ""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return Fault("invalid", "not JSON; write one object a line")
        if not isinstance(record, dict) or key not in record:
            return Fault("invalid", f"no key {key!r}; choose another --text-column")
        return _text(record[key], key)

    for number, values in lines:
        yield number, _map(values, text)


def _text(value: Any, key: str) -> Value:
    if value is None:
        return ""
    if not isinstance(value, str):
        return Fault("invalid", f"{key!r} is not text")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can spell half of a surrogate pair, UTF-8 cannot
        return NOT_UTF8
    return value


def parquet(uri: str, column: str) -> Iterator[Run]:
    """One column of a Parquet file, by name or by its number from 1; a null is an empty value."""
    fs, path = storage.filesystem(uri)
    number = 1
    with streams.clear_errors(uri, "Parquet"), fs.open(path, "rb") as handle, pq.ParquetFile(handle, pre_buffer=False) as file:
        name = _parquet_column(uri, file.schema_arrow, column)
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=[name]):
            # As bytes: Arrow does not check that the strings of a file are UTF-8.
            values = [_decode_one(value) for value in batch.column(0).cast(pa.large_binary()).to_pylist()]
            yield number, values
            number += len(values)


def _parquet_column(uri: str, schema: pa.Schema, column: str) -> str:
    names = list(schema.names)
    if column not in names and column.isdecimal() and 0 < int(column) <= len(names):
        column = names[int(column) - 1]
    if column not in names:
        raise DataError(f"{uri}: no column {column!r} ({', '.join(names[:20])}); name one of them by --text-column")
    kind = schema.field(column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)):
        raise DataError(f"{uri}: column {column!r} holds {kind}, not text; choose another --text-column")
    return column
