"""Shard sentences by id range: text of any size becomes unique sentences, in memory bounded by one range.

`scatter_input` reads one input and writes its sentences grouped by id range; `gather_range` reads one range of all inputs, removes
duplicates and sorts. Shard i of n holds the i-th of n equal ranges of the signed 64-bit ids, so the shards in order are sorted by id.
The result does not depend on the order of inputs, the workers or the runner.
"""

import contextlib
import logging
import math
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner.arrays import Bools, Ids, Ints, mark_run_starts
from miner.config.commands import TextSettings
from miner.devices import background_thread
from miner.errors import ConfigError, DataError, StorageError
from miner.io import storage, table_files
from miner.io.tables import SENTENCES
from miner.text import clean_blocks, readers, streams
from miner.text.clean_blocks import BlockCleaner, CleanedBlock
from miner.text.formats import read_values
from miner.units import format_bytes

RANGE_BYTES = 32 << 20  # of text in one id range, and in memory before a scatter writes
MIN_RANGE_BYTES = 10_000  # of text, some hundred sentences: a range of less takes longer to write than to compute
FEW_RANGES = 16  # which need no minimum
MAX_RANGES = 99_999  # a shard name has five digits
EXPANSION_RATIOS = {"": 1.0, ".gz": 3.0, ".zst": 3.5, ".xz": 4.0, ".bz2": 4.0, ".parquet": 2.0}  # typical bytes of text per byte of file
MAX_SAMPLED_FILES = 8  # of one compression, whose heads are decompressed to estimate the ratio
ARROW_SUFFIX = ".arrow"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class IngestSizes:
    """The sizes that bound memory while text becomes shards."""

    block_bytes: int = streams.BLOCK_BYTES  # of an input, read at a time
    head_bytes: int = streams.HEAD_BYTES  # of a compressed input, from which its expansion ratio is estimated
    range_bytes: int = RANGE_BYTES  # of text in one id range, and in memory before a scatter writes
    column_bytes: int = 2**31 - 1  # greatest text of one range: the limit of an Arrow string column
    row_group_rows: int = 32768  # greatest row group of a shard, which is what readers hold,
    row_group_bytes: int = 16 << 20  # and its greatest text, with sentences of average length

    def group_rows(self, num_rows: int, text_bytes: int) -> int:
        """Return the number of rows in a row group, whose sentences are encoded together."""
        return max(1, min(self.row_group_rows, int(num_rows * self.row_group_bytes / max(1, text_bytes))))


DEFAULT_SIZES = IngestSizes()


@dataclass(frozen=True)
class InputFile:
    """An input: the name that its sentences record, and where it is read, which differs for standard input."""

    source: str
    uri: str
    num_bytes: int | None = None  # None if they were not asked for yet, or are not known

    def size(self, unknown_bytes: int) -> int:
        """Return the number of bytes; `unknown_bytes` if a web server does not report it."""
        return streams.file_bytes(self.uri, unknown_bytes) if self.num_bytes is None else self.num_bytes


def num_ranges_for(inputs: Sequence[InputFile], settings: TextSettings, sizes: IngestSizes = DEFAULT_SIZES) -> int:
    """Return the number of id ranges for the text of these inputs: `settings.shards`, or one per 32 MB of text.

    More than FEW_RANGES ranges of less than 10 kB become fewer, with a warning: a step has a task for each, with a piece for each other.
    """
    if settings.shards is None:
        return min(max(1, math.ceil(text_bytes(inputs, sizes) / sizes.range_bytes)), MAX_RANGES)
    if settings.shards <= FEW_RANGES:
        return settings.shards
    num_bytes = text_bytes(inputs, sizes)
    num_ranges = min(settings.shards, max(FEW_RANGES, math.ceil(num_bytes / MIN_RANGE_BYTES)))
    if num_ranges < settings.shards:
        size = format_bytes(num_bytes)
        logger.warning("%s of text has %d shards instead of %d, which would be too small", size, num_ranges, settings.shards)
    return num_ranges


def text_bytes(inputs: Sequence[InputFile], sizes: IngestSizes = DEFAULT_SIZES) -> float:
    """Estimate the bytes of the text of these inputs."""
    by_format: dict[str, list[InputFile]] = defaultdict(list)  # compression, else extension -> inputs
    for file in inputs:
        extension, compression = streams.split_extensions(file.uri)
        by_format[compression or extension].append(file)
    return sum(
        sum(file.size(sizes.range_bytes) for file in files) * _expansion_ratio(extension, [file.uri for file in files], sizes.head_bytes)
        for extension, files in by_format.items()
    )


def _expansion_ratio(extension: str, uris: Sequence[str], head_bytes: int) -> float:
    """Return bytes of text per byte of file, measured on the heads of some compressed inputs, or else a typical value."""
    if extension not in streams.COMPRESSIONS:
        return EXPANSION_RATIOS.get(extension, 1.0)
    compressed_bytes = expanded_bytes = 0
    num_samples = min(len(uris), MAX_SAMPLED_FILES)
    for number in range(num_samples):
        with contextlib.suppress(DataError):  # raised again when the input is read
            consumed, text = streams.read_head(uris[number * len(uris) // num_samples], extension, head_bytes)
            compressed_bytes, expanded_bytes = compressed_bytes + consumed, expanded_bytes + len(text)
    return expanded_bytes / compressed_bytes if compressed_bytes else EXPANSION_RATIOS[extension]


def scattered_name(source: str) -> str:
    """Return the name of the file that `scatter_input` writes for the input `source`."""
    return storage.key(source) + ARROW_SUFFIX


def scatter_input(
    file: InputFile,
    folder: str,
    num_ranges: int,
    settings: TextSettings,
    sizes: IngestSizes = DEFAULT_SIZES,
    split_lang: str | None = None,
    num_processes: int = 1,
) -> dict[str, int]:
    """Read one input into one Arrow IPC file in `folder`, grouped by id range; return the counts of `readers.LINE_COUNTS`.

    Its batches are the ranges 0 to `num_ranges` - 1 of the first 32 MB of text, then those of the next 32 MB, and so on: the position
    of a batch determines its range. A long text is cleaned in up to `num_processes` processes.
    """
    counts: Counter[str] = Counter(dict.fromkeys(readers.LINE_COUNTS, 0))
    schema = clean_blocks.SCHEMA.with_metadata({"source": file.source, "ranges": str(num_ranges)})
    values = read_values(file.uri, settings, file.source, sizes.block_bytes)
    blocks = clean_blocks.clean_blocks(values, BlockCleaner(file.source, settings, split_lang), num_processes)
    with (
        storage.atomic(storage.join(folder, scattered_name(file.source))) as handle,
        pa.ipc.new_file(handle, schema) as writer,
        background_thread() as submit,
    ):
        for table in _collect_blocks(blocks, counts, sizes.range_bytes):
            submit(_write_by_range, writer, table, num_ranges)  # while the next text is read
    return dict(counts)


def _collect_blocks(blocks: Iterable[CleanedBlock], counts: Counter[str], table_bytes: int) -> Iterator[pa.Table]:
    """Yield tables of about `table_bytes` with the sentences of the blocks, not deduplicated; add the blocks' counts to `counts`."""
    batches: list[pa.RecordBatch] = []
    pending_bytes = 0
    for block in blocks:
        counts.update(block.counts)
        batches.append(block.sentences)
        pending_bytes += block.sentences.nbytes
        if pending_bytes >= table_bytes:
            yield pa.Table.from_batches(batches)
            batches, pending_bytes = [], 0
    if batches:
        yield pa.Table.from_batches(batches)


def _write_by_range(writer: pa.RecordBatchFileWriter, table: pa.Table, num_ranges: int) -> None:
    table = deduplicate(table)
    write_range_batches(writer, table, range_of(_to_numpy(table, "id"), num_ranges), num_ranges)


def range_of(ids: Ids, num_ranges: int) -> Ints:
    """Return (n,) the range of each id, from 0, monotonic in the signed id. `num_ranges` must be below 2^31."""
    unsigned = ids.view(np.uint64) ^ np.uint64(1 << 63)
    return ((unsigned >> np.uint64(32)) * np.uint64(num_ranges) >> np.uint64(32)).astype(np.int64)


def write_range_batches(writer: pa.RecordBatchFileWriter, table: pa.Table, range_numbers: Ints, num_ranges: int) -> None:
    """Write rows sorted by range as one batch per range, empty ranges included."""
    batch = table.combine_chunks().to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], schema=table.schema)
    bounds = np.searchsorted(range_numbers, np.arange(num_ranges + 1))
    for start, end in pairwise(bounds):
        writer.write_batch(batch.slice(start, end - start))


def _to_numpy(table: pa.Table, name: str) -> Ints:
    values: Ints = table.column(name).to_numpy()
    return values


def deduplicate(table: pa.Table) -> pa.Table:
    """Merge the rows of each id, in a table ordered by (source, line), into the first of them with the sum of their counts; sort by id.

    Raises DataError if two different texts have one id: they are never merged.
    """
    order = np.argsort(_to_numpy(table, "id"), kind="stable")
    ids = _to_numpy(table, "id")[order]
    is_first = mark_run_starts(ids)
    if is_first.all():
        return table.take(order)
    starts = np.flatnonzero(is_first)
    _check_collisions(table, order, is_first)
    counts = np.add.reduceat(_to_numpy(table, "count")[order], starts)
    unique = table.take(order[starts])
    return unique.set_column(unique.schema.get_field_index("count"), unique.schema.field("count"), pa.array(counts, pa.int32()))


def _check_collisions(table: pa.Table, order: Ints, is_first: Bools) -> None:
    """Raise DataError if a row has the id of the first row of its group, but another text."""
    starts = np.flatnonzero(is_first)
    repeats = np.flatnonzero(~is_first)
    firsts = starts[np.cumsum(is_first)[repeats] - 1]
    texts = table.column("text")
    is_equal = pc.equal(texts.take(order[repeats]), texts.take(order[firsts])).to_numpy()
    if not is_equal.all():
        index = int(np.argmin(is_equal))
        first, repeat = (table.slice(int(order[row]), 1).to_pylist()[0] for row in (firsts[index], repeats[index]))
        raise DataError(f"{_describe(first)} and {_describe(repeat)} have the same id {first['id']}; remove one of them")


def _describe(row: dict[str, Any]) -> str:
    return f"{row['text'][:60]!r} ({row['source']}:{row['line']})" if "source" in row else f"{row['text'][:60]!r} (line {row['line']})"


def gather_range(folder: str, checksums: Mapping[str, str], index: int, num_ranges: int, sizes: IngestSizes = DEFAULT_SIZES) -> pa.Table:
    """Return the unique sentences of range `index` in the scattered files of `folder`, sorted by id.

    `checksums` are those of the files, by name.
    `count` is the number of occurrences of a sentence; `source` and `line` are those of the first in the order of (source, line).
    Raises ConfigError for a range with more text than an Arrow column can hold.
    """
    parts = dict(_read_range(storage.join(folder, name), checksum, index, num_ranges) for name, checksum in checksums.items())
    sources = sorted(source for source, part in parts.items() if len(part))
    if not sources:
        return SENTENCES.empty_table()
    source_numbers = np.repeat(np.arange(len(sources), dtype=np.int32), [len(parts[source]) for source in sources])
    source_column = pa.DictionaryArray.from_arrays(source_numbers, pa.array(sources, pa.string()))
    table = pa.concat_tables([parts[source] for source in sources]).append_column(SENTENCES.field("source"), source_column)
    if table.column("text").nbytes > sizes.column_bytes:
        raise ConfigError(f"range {index} of {num_ranges} holds more than 2 GB of text; choose more --shards")
    return deduplicate(table.combine_chunks()).select(SENTENCES.names).cast(SENTENCES)


def _read_range(uri: str, checksum: str, index: int, num_ranges: int) -> tuple[str, pa.Table]:
    """Return the source of a scattered file, and its sentences of one range."""
    with table_files.open_arrow(uri, checksum) as reader:
        metadata = reader.schema.metadata
        if int(metadata[b"ranges"]) != num_ranges:
            remedy = f"delete {posixpath.dirname(uri)} and run again"
            raise StorageError(f"{uri}: written for {int(metadata[b'ranges'])} shards, not {num_ranges}; {remedy}")
        batches = [reader.get_batch(number) for number in range(index, reader.num_record_batches, num_ranges)]
    return metadata[b"source"].decode(), pa.Table.from_batches(batches, clean_blocks.SCHEMA)
