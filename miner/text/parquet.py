"""Columns of Parquet files as texts."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner.errors import DataError
from miner.text import streams
from miner.text.decoding import decode
from miner.text.values import NumberedRecords, Rows, Value, list_columns

BATCH_ROWS = 4096
IS_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def read_parquet(uri: str, columns: Sequence[str], numbers: bool = False, max_expansion: float | None = None) -> Iterator[Rows]:
    """Yield columns of a Parquet file, each given by its name, its number from 1, or as `struct.field`. A null is an empty text.

    With `numbers`, other types than strings and bytes are text too, if Arrow writes them as such. Raises DataError for a file that repeats
    its cells to more than `max_expansion` times its size, see `streams.read_batches`.
    """
    first = 1
    with streams.open_parquet(uri) as file:
        paths = [_find_path(uri, file.schema_arrow, column, numbers) for column in columns]
        names = list(dict.fromkeys(".".join(path) for path in paths))
        for batch in streams.read_batches(uri, file, names, BATCH_ROWS, max_expansion):
            yield Rows(first, [_parse_cells(_follow(batch, path)) for path in paths])
            first += len(batch)


def read_nested(uri: str) -> Iterator[NumberedRecords]:
    """Yield the rows of a Parquet file as dicts. Raises DataError where a string is not UTF-8."""
    first = 1
    with streams.open_parquet(uri) as file:
        for batch in streams.read_batches(uri, file, file.schema_arrow.names, BATCH_ROWS):
            try:
                yield first, batch.to_pylist()
            except UnicodeDecodeError as error:
                raise DataError(f"{uri}:{first}: not UTF-8 in this row or the next {len(batch) - 1}; convert the file") from error
            first += len(batch)


def _find_path(uri: str, schema: pa.Schema, column: str, numbers: bool) -> list[str]:
    """Return the name of a column, followed by those of the fields of structs that lead to its texts."""
    names: list[str] = schema.names
    if column not in names and column.isdecimal() and 0 < int(column) <= len(names):
        column = names[int(column) - 1]
    path = [column] if column in names else column.split(".")
    dtype: pa.DataType = pa.struct(list(schema))
    for name in path:
        field = dtype.get_field_index(name) if pa.types.is_struct(dtype) else -1
        if field < 0:
            raise DataError(f"{uri}: no column {column!r} ({list_columns(schema.names)}); name one of them")
        dtype = dtype.field(field).type
    if not _is_text(dtype, numbers):
        raise DataError(f"{uri}: column {column!r} holds {dtype}, not text; choose another column")
    return path


def _is_text(dtype: pa.DataType, numbers: bool) -> bool:
    dtype = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    if any(is_type(dtype) for is_type in IS_TEXT):
        return True
    try:
        return numbers and pa.array([], dtype).cast(pa.string()) is not None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False


def _follow(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """Return the cells (n,) at the end of a path; null where a struct on it is."""
    cells = batch.column(path[0])
    for name in path[1:]:
        cells = pc.struct_field(cells, name)
    return cells


def _parse_cells(cells: pa.Array) -> list[Value]:
    """Return the values of cells (n,). Repeated cells of a dictionary are one value, as a small file can repeat a long cell."""
    if not pa.types.is_dictionary(cells.type):
        return _decode_cells(cells)
    used, positions = np.unique(cells.indices.fill_null(len(cells.dictionary)).to_numpy(zero_copy_only=False), return_inverse=True)
    is_null = used == len(cells.dictionary)
    values = _decode_cells(cells.dictionary.take(pa.array(used, mask=is_null)))
    return [values[position] for position in positions.tolist()]


def _decode_cells(cells: pa.Array) -> list[Value]:
    is_text = any(is_type(cells.type) for is_type in IS_TEXT)
    # As bytes, because Arrow does not check that the strings of a file are UTF-8.
    return [decode(value) for value in (cells if is_text else cells.cast(pa.string())).cast(pa.large_binary()).to_pylist()]
