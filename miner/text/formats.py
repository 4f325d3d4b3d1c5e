"""Read the columns of a file in any format: plain text, TSV, CSV, JSON lines, JSON, TMX and Parquet, compressed or not.

The one reader of users' texts and tables: docs/text.md describes the formats.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError
from miner.text import encodings, parquet, streams, subtitles
from miner.text.records import (
    BLANK,
    Fault,
    NumberedRecords,
    NumberedValues,
    Record,
    Rows,
    Value,
    checked,
    csv_rows,
    decode_lines,
    json_records,
    other_cells,
    other_keys,
    pick_key,
    read_records,
    refuse_utf16,
    require_column,
    select_cells,
    select_columns,
    split_cells,
)
from miner.text.tmx import select_segments, tmx_units

UNSUPPORTED = (".zip", ".tar", ".tgz")
JSON = (".jsonl", ".ndjson", ".json")
TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet")  # have columns, of which one has to be named

NOT_JSON = Fault("invalid", "not JSON; write one object per line")


@dataclass(frozen=True)
class ReadOptions:
    """Limits, and what is text."""

    max_line_bytes: int = streams.MAX_LINE_BYTES
    max_expansion: float | None = None  # see `streams.open_bytes`
    block_bytes: int = streams.BLOCK_BYTES
    encoding: str = encodings.UTF8  # of text, CSV, JSON and subtitles
    numbers: bool = False  # numbers of JSON and Parquet are text too, as labels and scores need it


TEXT, TABLE = ReadOptions(), ReadOptions(numbers=True)


def read_values(uri: str, settings: TextSettings, name: str, block_bytes: int = streams.BLOCK_BYTES) -> Iterator[NumberedValues]:
    """Yield the texts of one input, that are not cleaned yet, with the number of the first line. Raises as `read_rows` does."""
    for rows in read_rows(uri, [settings.text_column], read_options(settings, block_bytes), name):
        yield rows.first, rows.columns[0]


def read_options(settings: TextSettings, block_bytes: int = streams.BLOCK_BYTES) -> ReadOptions:
    """Return the limits of a text with these settings."""
    return ReadOptions(max(streams.MAX_LINE_BYTES, 4 * settings.max_chars), settings.max_expansion, block_bytes, settings.encoding)


def read_rows(uri: str, columns: Sequence[str | None], options: ReadOptions = TEXT, name: str | None = None) -> Iterator[Rows]:
    """Yield columns of a file, in the format of its extension, in bounded memory; errors call the file `name`, by default `uri`.

    A column is a name in the header, a key of JSON, a language of TMX, or a number from 1; None is the line, or the string in a JSON array.

    Raises ConfigError for an unsupported format, and for a table if no column is named; DataError for a file that cannot be read, and for
    a column that it does not have.
    """
    name = name or uri
    extension = _check_format(uri, name)
    if None in columns and extension in TABLES:
        require_column(name, None)
    if extension == ".parquet":
        yield from parquet.read_parquet(uri, [require_column(name, column) for column in columns], options.numbers, options.max_expansion)
        return
    is_record = partial(_is_record, columns, options)
    with _open_text(uri, name, options) as handle:
        if extension in subtitles.FORMATS:
            yield from subtitles.read_cues(handle, extension, columns, name)
        elif extension in JSON:
            takes_strings = extension == ".json" and len(columns) == 1
            picks = [_json_picker(column, name, options, takes_strings) for column in columns]
            yield from select_columns(_read_records(handle, extension, name, options, is_record), picks)
        elif list(columns) == [None] and extension != ".tmx":
            for first, values in decode_lines(handle, options.max_line_bytes, options.block_bytes):
                yield Rows(first, [values])
        else:
            names = [_require_lang(name, column) if extension == ".tmx" else require_column(name, column) for column in columns]
            select = select_segments if extension == ".tmx" else select_cells
            yield from select(_read_records(handle, extension, name, options, is_record), names, name)


def read_other_columns(uri: str, columns: Sequence[str], options: ReadOptions) -> Iterator[pa.Table]:
    """Yield the columns of a table that are not among `columns`, for the same rows as `read_rows`; an unreadable row has nulls.

    Cells of TSV and CSV are strings, of Parquet values of their type. Values of JSON are JSON, in columns with the metadata IS_JSON; they
    have the keys of the first records. Columns without a name are called by their number. Nothing is yielded for another format.
    """
    extension = _check_format(uri, uri)
    if extension == ".parquet":
        yield from parquet.read_other_columns(uri, columns, options.max_expansion)
    elif extension in JSON or extension in TABLES:
        with _open_text(uri, uri, options) as handle:
            batches = _read_records(handle, extension, uri, options, partial(_is_record, columns, options))
            yield from (other_keys if extension in JSON else other_cells)(batches, columns)


def read_strings(uri: str) -> Iterator[str]:
    """Yield every string of a file: cells and headers, strings within JSON and Parquet values, segments of TMX. Numbers are left out.

    Raises DataError for the first line that cannot be read, ConfigError for an unsupported format.
    """
    extension = _check_format(uri, uri)
    for first, records in parquet.read_nested(uri) if extension == ".parquet" else _open_records(uri, extension):
        for number, record in enumerate(records, first):
            for value in split_cells(record) if isinstance(record, str) and extension not in JSON else _strings_in(record):
                text = checked(value) if isinstance(value, str) else value
                if isinstance(text, str):
                    yield text
                elif text is not BLANK:
                    raise DataError(f"{uri}:{number}: {text.reason}")


def _open_records(uri: str, extension: str) -> Iterator[NumberedRecords]:
    with _open_text(uri, uri, TEXT) as handle:
        yield from _read_records(handle, extension, uri, TEXT, lambda _: True)


def _strings_in(value: object) -> Iterator[Value]:
    """Yield all strings of a nested value, and the Faults in place of one."""
    stack = [value]
    while stack:
        match stack.pop():
            case str() | Fault() as text:
                yield text
            case bytes() as data:
                yield data.decode(errors="replace")
            case dict() as parts:
                stack.extend(reversed(parts.values()))
            case list() as parts:
                stack.extend(reversed(parts))


def _check_format(uri: str, name: str) -> str:
    """Return the extension of a file. Raises ConfigError for a format that is not read."""
    extension, compression = streams.split_extensions(uri)
    if extension in UNSUPPORTED:
        raise ConfigError(f"{name}: {extension} files are not read; unpack it first")
    if extension == ".parquet" and compression:
        raise ConfigError(f"{name}: compressed Parquet is not read; decompress the file first")
    return extension


@contextlib.contextmanager
def _open_text(uri: str, name: str, options: ReadOptions) -> Iterator[BinaryIO]:
    extension, compression = streams.split_extensions(uri)
    with streams.open_bytes(uri, compression, options.max_expansion) as handle:
        if extension == ".tmx":  # XML declares its encoding
            yield handle
        else:
            yield refuse_utf16(encodings.transcode(handle, options.encoding), name, options.block_bytes)


def _read_records(
    handle: BinaryIO, extension: str, name: str, options: ReadOptions, is_record: Callable[[dict[str, Any]], bool]
) -> Iterator[NumberedRecords]:
    """Yield the records of a file that is not Parquet; `is_record` as of `json_records`."""
    if extension == ".csv":
        return read_records(csv_rows, handle, name)
    if extension == ".json":
        return read_records(partial(json_records, is_record=is_record), handle, name)
    if extension == ".tmx":
        return read_records(tmx_units, handle, name)
    parse = _parse_json if extension in JSON else _mark_blank
    lines = decode_lines(handle, options.max_line_bytes, options.block_bytes)
    return ((first, [parse(line) if isinstance(line, str) else line for line in values]) for first, values in lines)


def _mark_blank(line: str) -> Record:
    return line if line.strip() else BLANK


def _parse_json(line: str) -> Record:
    if not line.strip():
        return BLANK
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return NOT_JSON


def _json_picker(column: str | None, name: str, options: ReadOptions, takes_strings: bool) -> Callable[[Record], Value]:
    """Return a function that returns the text of a JSON object under a key; with `takes_strings`, a string in place of one is the text."""

    def pick(record: Record) -> Value:
        if takes_strings and isinstance(record, str):
            return checked(record)
        return pick_key(record, require_column(name, column) if column is None else column, options.numbers)

    return pick


def _is_record(columns: Sequence[str | None], options: ReadOptions, first: dict[str, Any]) -> bool:
    """Whether an object whose first value is an array is a record that has a list, such as of tags, and does not hold the records in it."""
    if any(column is not None and isinstance(pick_key(first, column, options.numbers), str) for column in columns):
        return True
    return len(first) > 1 and not all(isinstance(item, dict) for item in next(iter(first.values())))


def _require_lang(name: str, column: str | None) -> str:
    if column is None:
        raise ConfigError(f"{name}: has several languages; name one as the column, as in --text-column en")
    return column
