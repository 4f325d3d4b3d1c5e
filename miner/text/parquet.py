"""Columns of Parquet files as texts."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from miner.arrays import Ints, run_bounds
from miner.errors import DataError
from miner.io import storage
from miner.text import streams
from miner.text.records import MAX_NAME_CHARS, NumberedRecords, Rows, Value, decode, list_columns

BATCH_ROWS = 4096
BATCH_BYTES = 64 << 20  # maximum bytes of the cells of a batch, unless one cell has more
MAX_BOMB_BYTES, MAX_EXPANSION = 256 << 20, 1000  # a column of a row group may exceed one of them: bytes, bytes per compressed byte
IS_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def read_parquet(uri: str, columns: Sequence[str], numbers: bool = False, max_expansion: float | None = None) -> Iterator[Rows]:
    """Yield columns of a Parquet file, each given by its name, its number from 1, or as `struct.field`. A null is an empty text.

    With `numbers`, other types than strings and bytes are text too, if Arrow writes them as such. Raises DataError for a file that repeats
    its cells to more than `max_expansion` times its size, see `read_batches`.
    """
    first = 1
    with open_parquet(uri) as file:
        paths = [_find_path(uri, file.schema_arrow, column, numbers) for column in columns]
        names = list(dict.fromkeys(".".join(path) for path in paths))
        for batch in read_batches(uri, file, names, BATCH_ROWS, max_expansion):
            yield Rows(first, [_parse_cells(_follow(batch, path)) for path in paths])
            first += len(batch)


def read_other_columns(uri: str, columns: Sequence[str], max_expansion: float | None) -> Iterator[pa.Table]:
    """Yield the columns of a Parquet file that contain none of `columns`, with their types."""
    with open_parquet(uri) as file:
        taken = {_find_path(uri, file.schema_arrow, column, numbers=True)[0] for column in columns}
        names = [name for name in file.schema_arrow.names if name not in taken]
        for batch in read_batches(uri, file, names, BATCH_ROWS, max_expansion) if names else ():
            cells = [batch.column(name) for name in names]
            yield pa.table([cell.cast(cell.type.value_type) if pa.types.is_dictionary(cell.type) else cell for cell in cells], names)


def read_nested(uri: str) -> Iterator[NumberedRecords]:
    """Yield the rows of a Parquet file as dicts. Raises DataError where a string is not UTF-8."""
    first = 1
    with open_parquet(uri) as file:
        for batch in read_batches(uri, file, file.schema_arrow.names, BATCH_ROWS):
            try:
                yield first, batch.to_pylist()
            except UnicodeDecodeError as error:
                raise DataError(f"{uri}:{first}: not UTF-8 in this row or the next {len(batch) - 1}; convert the file") from error
            first += len(batch)


def _find_path(uri: str, schema: pa.Schema, column: str, numbers: bool) -> list[str]:
    """Return the name of a column, followed by those of the fields of structs that lead to its texts."""
    names: list[str] = schema.names
    if column not in names and column in (numbered := [str(number) for number in range(1, len(names) + 1)]):
        column = names[numbered.index(column)]
    path = [column] if column in names else column.split(".")
    dtype: pa.DataType = pa.struct(list(schema))
    for name in path:
        field = dtype.get_field_index(name) if pa.types.is_struct(dtype) else -1
        if field < 0:
            raise DataError(f"{uri}: no column {column[:MAX_NAME_CHARS]!r} ({list_columns(schema.names)}); name one of them")
        dtype = dtype.field(field).type
    if not _is_text(dtype, numbers):
        raise DataError(f"{uri}: column {column[:MAX_NAME_CHARS]!r} holds {dtype}, not text; choose another column")
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


@contextlib.contextmanager
def open_parquet(uri: str, name: str | None = None) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of the user. Raises DataError, which calls the file `name`, if it is missing or corrupt, also while it is read.

    Strings are read as dictionaries: a file of a kilobyte can repeat a cell of a megabyte thousands of times.
    """
    fs, path = storage.filesystem(uri)
    with streams.convert_read_errors(name or uri, "Parquet"), fs.open(path, "rb") as opened:
        handle = streams.CountedFile(opened)
        with pq.ParquetFile(handle) as file:
            strings = list(_string_paths(file.schema_arrow))
        with pq.ParquetFile(handle, pre_buffer=False, page_checksum_verification=True, read_dictionary=strings) as file:
            yield file


def _string_paths(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[str]:
    """Yield the columns of strings or bytes, also within structs."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _string_paths(field.type, f"{prefix}{field.name}.")
        elif pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            yield prefix + field.name


def read_batches(
    uri: str, file: pq.ParquetFile, columns: Sequence[str], num_rows: int, max_expansion: float | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of `num_rows` rows, or fewer where their cells take more than BATCH_BYTES; `a.b` is the field `b` of the struct `a`.

    Raises DataError for a row group that expands so much that it was made to fill the memory, as Arrow decompresses a page as a whole, and
    for a file of more than MIN_BOMB_BYTES of cells that repeats them to more than `max_expansion` times its size.
    """
    limit = None if max_expansion is None else streams.max_text_bytes(uri, max_expansion)
    num_bytes = 0
    for group in range(file.num_row_groups):
        size, rows = _chunk_bytes(uri, file.metadata.row_group(group), columns), file.metadata.row_group(group).num_rows
        fitting_rows = max(1, min(num_rows, BATCH_BYTES * rows // max(1, size)))
        for batch in file.iter_batches(batch_size=fitting_rows, row_groups=[group], columns=list(columns)):
            sizes = sum((_cell_bytes(column) for column in batch.columns), np.zeros(len(batch), np.int64))
            num_bytes += int(sizes.sum())
            if limit is not None and num_bytes > limit:
                raise streams.expansion_error(uri, limit)
            for start, end in pairwise(run_bounds(np.cumsum(sizes) // BATCH_BYTES).tolist()):
                yield batch.slice(start, end - start)


def _chunk_bytes(uri: str, group: pq.RowGroupMetaData, columns: Sequence[str]) -> int:
    """Return the bytes of columns in a row group, or of all where that is little. Raises DataError for a column that fills memory."""
    if group.total_byte_size <= MAX_BOMB_BYTES:
        return int(group.total_byte_size)  # pyarrow ends the process where the metadata of a column is damaged
    chunks = [group.column(index) for index in range(group.num_columns)]
    prefixes = tuple(f"{column}." for column in columns)
    chunks = [chunk for chunk in chunks if f"{chunk.path_in_schema}.".startswith(prefixes)]
    for chunk in chunks:
        if chunk.total_uncompressed_size > max(MAX_BOMB_BYTES, MAX_EXPANSION * chunk.total_compressed_size):
            raise DataError(
                f"{uri}: column {chunk.path_in_schema!r} expands to {chunk.total_uncompressed_size:,} bytes; write it without compression"
            )
    return sum(chunk.total_uncompressed_size for chunk in chunks)


def _cell_bytes(column: pa.Array) -> Ints:
    """Return the number of bytes (n,) of each cell of a dictionary of strings, or of those of a struct; zeros for other columns."""
    if pa.types.is_struct(column.type):
        return sum((_cell_bytes(field) for field in column.flatten()), np.zeros(len(column), np.int64))
    if not pa.types.is_dictionary(column.type) or not len(column.dictionary) or not len(column):
        return np.zeros(len(column), np.int64)
    lengths = pc.binary_length(column.dictionary.cast(pa.large_binary())).fill_null(0).to_numpy(zero_copy_only=False)
    indices = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if not 0 <= indices.min() <= indices.max() < len(lengths):
        raise pa.ArrowInvalid("a cell is not in its dictionary")
    sizes: Ints = lengths.astype(np.int64)[indices]
    return sizes
