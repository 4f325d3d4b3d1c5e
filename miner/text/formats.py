"""Parse plain text, TSV, JSONL, Parquet and the formats of `miner.text.records` into numbered values.

Every reader yields `(first, values)`: the values of consecutive lines (rows of Parquet) from number `first`, counted from 1. A value
is a str that is not cleaned yet, or the Fault of a line without a valid value.
"""

import json
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError
from miner.text import records, streams
from miner.text.values import NOT_UTF8, Fault, NumberedValues, Value, column_number, find_in_header, require_column

PARQUET_BATCH_ROWS = 4096
SNIFFED_BYTES, MIN_SNIFFED_BYTES = 1000, 10
HIGH_BYTES = 9  # the high bytes of alphabets in UTF-16 are below, and no printed character is
MIN_CONTROLS, MAX_CONTROLS = 0.4, 0.2  # shares of such bytes among the high bytes, and among the low bytes, of UTF-16
UNSUPPORTED = {  # extension -> remedy
    ".zip": "unpack it first",
    ".tar": "unpack it first",
    ".tgz": "unpack it first",
}


RECORD_FORMATS = (".csv", ".json", ".tmx")


def check_lines(name: str, extension: str) -> None:
    """Raise ConfigError for an extension of files that are not read as lines."""
    check_supported(name, extension)
    if extension in (".csv", ".tmx"):
        raise ConfigError(f"{name}: {extension} files are read as text, not as tables; write TSV, JSONL or Parquet")


def check_supported(name: str, extension: str) -> None:
    """Raise ConfigError for an extension of files that are not read."""
    if extension in UNSUPPORTED:
        raise ConfigError(f"{name}: {extension} files are not read; {UNSUPPORTED[extension]}")


def read_values(uri: str, settings: TextSettings, name: str, block_bytes: int = streams.BLOCK_BYTES) -> Iterator[NumberedValues]:
    """Read the values of one input, in the format of its extension; errors call the input `name`.

    Raises ConfigError for an unsupported format, and for a format with columns if the settings name no text column.
    """
    extension, compression = streams.split_extensions(uri)
    column = settings.text_column
    if extension == ".parquet":
        if compression:
            raise ConfigError(f"{name}: compressed Parquet is not read; decompress the file first")
        return read_parquet(uri, require_column(name, column), settings.max_expansion)
    check_supported(name, extension)
    if extension in RECORD_FORMATS:
        return records.read_records(uri, extension, compression, settings, name)
    lines = _read_lines(uri, name, compression, settings, block_bytes)
    if extension in (".jsonl", ".ndjson"):
        return parse_jsonl(lines, require_column(name, column))
    if column is None and extension != ".tsv":
        return lines
    return parse_tsv(lines, require_column(name, column), name)


def _read_lines(uri: str, name: str, compression: str, settings: TextSettings, block_bytes: int) -> Iterator[NumberedValues]:
    """Yield the lines of a text file, decoded."""
    max_line_bytes = max(streams.MAX_LINE_BYTES, 4 * settings.max_chars)
    too_long = Fault("too_long", f"longer than {max_line_bytes} bytes; cut the line")
    first = 1
    with streams.open_bytes(uri, compression, settings.max_expansion) as handle:
        for block in streams.read_line_blocks(handle, max_line_bytes, block_bytes):
            if first == 1 and block is not None and _is_utf16(block[:SNIFFED_BYTES]):
                raise DataError(f"{name}: UTF-16 text; convert it, as in `iconv -f UTF-16LE -t UTF-8`")
            values: list[Value] = [too_long] if block is None else _decode_lines(block)
            yield first, values
            first += len(values)


def _is_utf16(head: bytes) -> bool:
    """Whether every other byte is a low control character, as in UTF-16 of an alphabet."""
    shares = [sum(byte < HIGH_BYTES for byte in half) / max(1, len(half)) for half in (head[::2], head[1::2])]
    return len(head) >= MIN_SNIFFED_BYTES and max(shares) > MIN_CONTROLS and min(shares) < MAX_CONTROLS


def _decode_lines(block: bytes) -> list[Value]:
    block = block.removesuffix(b"\n")
    try:
        return [*block.decode().split("\n")]
    except UnicodeDecodeError:
        return [_decode(line) for line in block.split(b"\n")]


def _decode(value: bytes | None) -> Value:
    try:
        return value.decode() if value is not None else ""
    except UnicodeDecodeError:
        return NOT_UTF8


def _parse_values(values: list[Value], parse: Callable[[str], Value]) -> list[Value]:
    return [parse(value) if isinstance(value, str) else value for value in values]


def parse_tsv(lines: Iterator[NumberedValues], column: str, name: str) -> Iterator[NumberedValues]:
    """Yield one column of tab-separated lines, given by its name in the header or its number from 1. Quotes have no meaning."""
    index = -1 if (number := column_number(column)) is None else number

    def parse_cell(line: str) -> Value:
        cells = line.split("\t", index + 1)
        if len(cells) > index:
            return cells[index]
        return Fault("invalid", f"{len(cells)} columns where the text is in column {index + 1}") if line.strip() else ""

    for first, values in lines:
        if index < 0:
            index = find_in_header(values[0].split("\t") if isinstance(values[0], str) else [], column, name)
            first, values = first + 1, values[1:]
        yield first, _parse_values(values, parse_cell)


def parse_jsonl(lines: Iterator[NumberedValues], key: str) -> Iterator[NumberedValues]:
    """Yield the value of one key of lines that are JSON objects."""

    def parse_line(line: str) -> Value:
        if not line.strip():
            return ""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return Fault("invalid", "not JSON; write one object per line")
        return records.record_value(record, key)

    for first, values in lines:
        yield first, _parse_values(values, parse_line)


def read_parquet(uri: str, column: str, max_expansion: float | None = None) -> Iterator[NumberedValues]:
    """Yield one column of a Parquet file, given by its name or its number from 1. A null is an empty value.

    Raises DataError for a file that repeats its cells to more than `max_expansion` times its size, see `streams.read_batches`.
    """
    first = 1
    with streams.open_parquet(uri) as file:
        name = _find_in_schema(uri, file.schema_arrow, column)
        for batch in streams.read_batches(uri, file, [name], PARQUET_BATCH_ROWS, max_expansion):
            values = _parse_cells(batch.column(0))
            yield first, values
            first += len(values)


def _parse_cells(cells: pa.Array) -> list[Value]:
    """Return the values of cells (n,). Repeated cells of a dictionary are one value, as a small file can repeat a long cell."""
    if not pa.types.is_dictionary(cells.type):
        return _decode_cells(cells)
    used, positions = np.unique(cells.indices.fill_null(len(cells.dictionary)).to_numpy(zero_copy_only=False), return_inverse=True)
    is_null = used == len(cells.dictionary)
    values = _decode_cells(cells.dictionary.take(pa.array(used, mask=is_null)))
    return [values[position] for position in positions.tolist()]


def _decode_cells(cells: pa.Array) -> list[Value]:
    # As bytes, because Arrow does not check that the strings of a file are UTF-8.
    return [_decode(value) for value in cells.cast(pa.large_binary()).to_pylist()]


def _find_in_schema(uri: str, schema: pa.Schema, column: str) -> str:
    names = list(schema.names)
    if column not in names and column.isdecimal() and 0 < int(column) <= len(names):
        column = names[int(column) - 1]
    if column not in names:
        raise DataError(f"{uri}: no column {column!r} ({', '.join(names[:20])}); name one of them by --text-column")
    dtype = schema.field(column).type
    dtype = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    if not any(is_type(dtype) for is_type in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)):
        raise DataError(f"{uri}: column {column!r} holds {dtype}, not text; choose another --text-column")
    return column
