"""Parquet and Arrow files: atomic writes, checked reads, and footers and single row groups by few requests to object stores.

Parquet files check themselves: each page has a CRC, and the footer is preceded by its hash, which other readers ignore. Without it, a
flipped bit can change names, types or the values of a dictionary unnoticed. Arrow files have no checksums, so they are compared as a whole
with the one that whoever wrote them recorded.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from miner.arrays import Ints
from miner.errors import DamagedError, first_line
from miner.io import object_stores, storage
from miner.io.object_stores import is_object_store

FOOTER_BYTES = 1 << 16  # fetched from the end of a file: the footer of some 100 row groups
SOURCE_BYTES = 1 << 62  # of a file whose size is not known: where a part of it is read, its size does not matter
READ_AHEAD_BYTES = 1 << 20  # of tables on object storage, of which often a range is read; fsspec's 50 MB would fetch 50 times as much
WHOLE_BYTES = 1 << 24  # an object of up to this size is fetched by one request, and kept in memory while it is open
FOOTER_MARK = b"xxh3-128"  # precedes the hash of the footer
FOOTER_HASH_BYTES = len(FOOTER_MARK) + 16
FOOTER_END_BYTES = 8  # of a Parquet file: the length of the footer, and PAR1
CHANGED = "changed since it was written; run the command that made it again"


@contextlib.contextmanager
def parquet_writer(uri: str, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Open a Parquet file for writing row groups, atomically.

    Embeddings and tokens do not compress, so they are stored uncompressed. Only dictionary columns are dictionary-encoded: for ids and
    sentences, which hardly repeat, encoding doubles the time to write and takes seven times as long to read.
    """
    has_vectors = not {"embedding", "tokens"}.isdisjoint(schema.names)
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    compression = "none" if has_vectors else "zstd"
    with storage.atomic(uri) as handle:
        sink = _ParquetSink(handle)
        with pq.ParquetWriter(
            sink,
            schema,
            compression=compression,
            use_dictionary=dictionaries,
            write_statistics=not has_vectors,
            write_page_checksum=True,
        ) as writer:
            yield writer
            sink.file = io.BytesIO()
        handle.write(_with_footer_hash(sink.file.getvalue()))


def write_table(uri: str, table: pa.Table) -> None:
    with parquet_writer(uri, table.schema) as writer:
        writer.write_table(table)


class _ParquetSink:
    """A file to which a Parquet file is written; it is replaced before the footer is."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: Any) -> int:
        return int(self.file.write(data))


def _with_footer_hash(end: bytes) -> bytes:
    """Return the end of a Parquet file with the hash of its footer."""
    start = len(end) - FOOTER_END_BYTES - int.from_bytes(end[-FOOTER_END_BYTES:-4], "little")
    return end[:start] + FOOTER_MARK + xxhash.xxh3_128_digest(end[start:]) + end[start:]


def _has_intact_footer(end: bytes) -> bool:
    """Whether the footer in the end of a Parquet file has its hash, or none, like those of other programs."""
    start = len(end) - FOOTER_END_BYTES - int.from_bytes(end[-FOOTER_END_BYTES:-4], "little")
    recorded = end[max(0, start - FOOTER_HASH_BYTES) : max(0, start)]
    return not recorded.startswith(FOOTER_MARK) or recorded.removeprefix(FOOTER_MARK) == xxhash.xxh3_128_digest(end[start:])


class _CheckedParquetFile(pq.ParquetFile):  # type: ignore[misc]
    """A Parquet file whose pages are compared with their CRC, and whose footer with its hash."""

    def __init__(self, file: Any, metadata: pq.FileMetaData | None = None) -> None:
        if metadata is None:
            _check_footer(file)
        super().__init__(file, metadata=metadata, pre_buffer=False, page_checksum_verification=True)

    def read_row_group(self, i: int, columns: list[str] | None = None, **options: Any) -> pa.Table:
        return _check_dictionaries(super().read_row_group(i, columns, **options))

    def read(self, columns: list[str] | None = None, **options: Any) -> pa.Table:
        return _check_dictionaries(super().read(columns, **options))


def _check_footer(file: BinaryIO) -> None:
    """Raise ArrowInvalid if the footer of an open Parquet file has changed."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - FOOTER_END_BYTES))
    length = int.from_bytes(file.read(FOOTER_END_BYTES)[:4], "little") + FOOTER_HASH_BYTES + FOOTER_END_BYTES
    if length <= size:  # else pyarrow reports what is wrong
        file.seek(size - length)
        if not _has_intact_footer(file.read(length)):
            raise pa.ArrowInvalid("its footer has changed")
    file.seek(0)


def _check_dictionaries(table: pa.Table) -> pa.Table:
    """Return a table, or raise ArrowInvalid: a flipped bit in the header of a page, which has no CRC, can shorten its dictionary."""
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            column.validate(full=True)
    return table


@contextlib.contextmanager
def open_parquet(uri: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for reading by row group. Raises StorageError if it is missing or damaged."""
    storage.check_regular(uri)
    with storage.storage_errors(uri), _open_table(uri) as handle, _parquet_errors(uri), _CheckedParquetFile(handle) as file:
        yield file


@contextlib.contextmanager
def _open_table(uri: str, expected: str | None = None) -> Iterator[BinaryIO]:
    """Open a table for reading, after a comparison with its checksum, if that is given. An object of a few MB takes one request."""
    fs, path = storage.filesystem(uri)
    data = object_stores.read_range(fs, path, 0, WHOLE_BYTES + 1) if is_object_store(fs) else None
    is_whole = data is not None and len(data) <= WHOLE_BYTES
    if expected is not None and expected != (xxhash.xxh3_128_hexdigest(data or b"") if is_whole else storage.checksum(uri)):
        raise DamagedError(f"{uri}: {CHANGED}")
    with io.BytesIO(data or b"") if is_whole else storage.open_file(fs, path, block_size=READ_AHEAD_BYTES) as handle:
        yield handle


@contextlib.contextmanager
def _parquet_errors(uri: str) -> Iterator[None]:
    """Raise StorageError for a damaged Parquet file."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedError(f"{uri}: not a complete Parquet file ({first_line(error)}); {CHANGED.partition('; ')[2]}") from error


def read_table(uri: str, columns: Sequence[str] | None = None) -> pa.Table:
    with open_parquet(uri) as file:
        return file.read(columns=list(columns) if columns else None)


def read_row_groups(uri: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the row groups of a Parquet file."""
    with open_parquet(uri) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=list(columns) if columns else None)


def read_rows(uri: str, rows: Ints, columns: Sequence[str]) -> pa.Table:
    """Read rows (m,), ascending, of a Parquet file, with one row group in memory at a time."""
    with open_parquet(uri) as file:
        selected = [file.schema_arrow.empty_table().select(list(columns))]
    start = 0
    for group in read_row_groups(uri, columns):
        group_rows = rows[slice(*np.searchsorted(rows, [start, start + len(group)]))] - start
        selected.append(group.take(pa.array(group_rows)))
        start += len(group)
    return pa.concat_tables(selected)


@contextlib.contextmanager
def open_arrow(uri: str, expected: str | None) -> Iterator[pa.RecordBatchFileReader]:
    """Open an Arrow file for reading by batch.

    Raises StorageError if it is missing or damaged, or differs from the checksum `expected`; None if nobody recorded it.
    """
    try:
        with storage.storage_errors(uri), _open_table(uri, expected) as handle, pa.ipc.open_file(handle) as reader:
            yield reader
    except pa.ArrowException as error:
        raise DamagedError(f"{uri}: not a complete Arrow file ({first_line(error)}); {CHANGED.partition('; ')[2]}") from error


def read_footers(uris: Sequence[str]) -> list[pq.FileMetaData]:
    """Return the footers of Parquet files; those of object stores are read side by side, by one request each."""
    if not uris or not storage.is_on_object_store(uris[0]):
        return [_open_footer(uri) for uri in uris]
    ends = storage.read_parts(uris, -FOOTER_BYTES)
    return [_parse_footer(end) or _open_footer(uri) for uri, end in zip(uris, ends, strict=True)]


def _open_footer(uri: str) -> pq.FileMetaData:
    with open_parquet(uri) as file:
        return file.metadata


def _parse_footer(end: bytes | None) -> pq.FileMetaData | None:
    """Return the footer in the end of a file; None if there is no file, or if the end is too short or damaged."""
    try:
        return None if end is None or not _has_intact_footer(end) else pq.read_metadata(io.BytesIO(end))
    except (pa.ArrowException, OSError):
        return None


def read_row_group(uri: str, number: int) -> pa.Table:
    """Read a row group, whose pages have checksums. On an object store it takes one request for a small file, and two for another one."""
    if storage.is_on_object_store(uri):
        (end,) = storage.read_parts([uri], -FOOTER_BYTES)
        metadata = _parse_footer(end)
        if end is not None and metadata is not None:
            start, stop = (0, len(end)) if len(end) < FOOTER_BYTES else _byte_range(metadata.row_group(number))
            part = _FilePart(end if len(end) < FOOTER_BYTES else storage.read_range(uri, start, stop), start)
            with _parquet_errors(uri), _CheckedParquetFile(part, metadata) as file:
                return file.read_row_group(number)
    with open_parquet(uri) as file:
        return file.read_row_group(number)


def _byte_range(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """Return the first byte of a row group, and the one after its last."""
    columns = [group.column(number) for number in range(group.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return min(starts), max(start + column.total_compressed_size for start, column in zip(starts, columns, strict=True))


class _FilePart(io.RawIOBase):
    """A part of a file, read at the offsets of the whole file."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data, self.start, self.offset = memoryview(data), start, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.offset = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.offset, io.SEEK_END: SOURCE_BYTES}[whence]
        return self.offset

    def read(self, size: int = -1) -> bytes:
        first = max(0, self.offset - self.start)
        data = bytes(self.data[first : first + size if size >= 0 else None])
        self.offset += len(data)
        return data
