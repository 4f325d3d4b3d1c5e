"""Parts of Parquet files by few requests to object stores: their footers, and single row groups."""

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from miner import storage

FOOTER_BYTES = 1 << 16  # fetched from the end of a file: the footer of some 100 row groups
SOURCE_BYTES = 1 << 62  # of a file whose size is not known: where a part of it is read, its size does not matter


def read_footers(uris: Sequence[str]) -> list[pq.FileMetaData]:
    """Return the footers of Parquet files; those of object stores are read side by side, by one request each."""
    if not uris or not storage.is_on_object_store(uris[0]):
        return [_open_footer(uri) for uri in uris]
    ends = storage.read_ends(uris, FOOTER_BYTES)
    return [_parse_footer(end) or _open_footer(uri) for uri, end in zip(uris, ends, strict=True)]


def _open_footer(uri: str) -> pq.FileMetaData:
    with storage.open_parquet(uri, is_whole=False) as file:
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
            with storage.parquet_errors(uri), pq.ParquetFile(part, metadata=metadata, page_checksum_verification=True) as file:
                return file.read_row_group(number)
    with storage.open_parquet(uri, is_whole=False) as file:
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
