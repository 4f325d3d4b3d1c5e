"""Parquet and Arrow files: atomic writes, checked reads, and footers and single row groups by few requests to object stores."""

import contextlib
import io
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from miner.arrays import Ints
from miner.errors import StorageError, first_line, storage_errors
from miner.io import storage
from miner.io.checked_reads import WRITE_AGAIN, open_checked, open_unchecked

FOOTER_BYTES = 1 << 16  # fetched from the end of a file: the footer of some 100 row groups
SOURCE_BYTES = 1 << 62  # of a file whose size is not known: where a part of it is read, its size does not matter


@contextlib.contextmanager
def parquet_writer(uri: str, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Open a Parquet file for writing row groups, atomically.

    Embeddings do not compress, so they are stored uncompressed. Only dictionary columns are dictionary-encoded: for ids and sentences,
    which hardly repeat, encoding doubles the time to write and takes seven times as long to read.
    """
    has_embeddings = "embedding" in schema.names
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    compression = "none" if has_embeddings else "zstd"
    with (
        storage.atomic(uri) as handle,
        pq.ParquetWriter(
            handle,
            schema,
            compression=compression,
            use_dictionary=dictionaries,
            write_statistics=not has_embeddings,
            write_page_checksum=True,
        ) as writer,
    ):
        yield writer


def write_table(uri: str, table: pa.Table) -> None:
    with parquet_writer(uri, table.schema) as writer:
        writer.write_table(table)


@contextlib.contextmanager
def open_parquet(uri: str, is_whole: bool = True, expected: str | None = None) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for reading by row group. Raises StorageError if it is missing or damaged.

    Pages are compared with their CRC when they are read, and the file with the checksum `expected`, by default that of its manifest;
    without `is_whole`, for callers that read only the footer, not with the manifest.
    """
    storage.check_regular(uri)
    with (
        storage_errors(uri),
        open_checked(uri, expected) if is_whole else open_unchecked(uri) as handle,
        _parquet_errors(uri),
        pq.ParquetFile(handle, pre_buffer=False, page_checksum_verification=True) as file,
    ):
        yield file


@contextlib.contextmanager
def _parquet_errors(uri: str) -> Iterator[None]:
    """Raise StorageError for a damaged Parquet file."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise StorageError(f"{uri}: not a complete Parquet file ({first_line(error)}); {WRITE_AGAIN}") from error


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
def open_arrow(uri: str, expected: str | None = None) -> Iterator[pa.RecordBatchFileReader]:
    """Open an Arrow file for reading by batch.

    Raises StorageError if it is missing, damaged, or differs from the checksum `expected`, by default that of the manifest beside it.
    """
    try:
        with storage_errors(uri), open_checked(uri, expected) as handle, pa.ipc.open_file(handle) as reader:
            yield reader
    except pa.ArrowException as error:
        raise StorageError(f"{uri}: not a complete Arrow file ({first_line(error)}); {WRITE_AGAIN}") from error


def read_footers(uris: Sequence[str]) -> list[pq.FileMetaData]:
    """Return the footers of Parquet files; those of object stores are read side by side, by one request each."""
    if not uris or not storage.is_on_object_store(uris[0]):
        return [_open_footer(uri) for uri in uris]
    ends = storage.read_ends(uris, FOOTER_BYTES)
    return [_parse_footer(end) or _open_footer(uri) for uri, end in zip(uris, ends, strict=True)]


def _open_footer(uri: str) -> pq.FileMetaData:
    with open_parquet(uri, is_whole=False) as file:
        return file.metadata


def _parse_footer(end: bytes | None) -> pq.FileMetaData | None:
    """Return the footer in the end of a file; None if there is no file, or if the end is too short or damaged."""
    try:
        return None if end is None else pq.read_metadata(io.BytesIO(end))
    except (pa.ArrowException, OSError):
        return None


def read_row_group(uri: str, number: int) -> pa.Table:
    """Read a row group, whose pages have checksums. On an object store it takes one request for a small file, and two for another one."""
    if storage.is_on_object_store(uri):
        (end,) = storage.read_ends([uri], FOOTER_BYTES)
        metadata = _parse_footer(end)
        if end is not None and metadata is not None:
            start, stop = (0, len(end)) if len(end) < FOOTER_BYTES else _byte_range(metadata.row_group(number))
            part = _FilePart(end if len(end) < FOOTER_BYTES else storage.read_range(uri, start, stop), start)
            with _parquet_errors(uri), pq.ParquetFile(part, metadata=metadata, page_checksum_verification=True) as file:
                return file.read_row_group(number)
    with open_parquet(uri, is_whole=False) as file:
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
