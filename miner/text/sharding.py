"""Shard sentences by id range: text of any size becomes unique sentences, in memory bounded by one range.

`group_inputs` decides which inputs are read together. `scatter_inputs` writes the sentences of some inputs grouped by id range;
`gather_range` reads one range of all inputs, removes duplicates and sorts. Shard i of n holds the i-th of n equal ranges of the signed
64-bit ids, so the shards in order are sorted by id. The result does not depend on the order of inputs, the workers or the runner.
"""

import contextlib
import logging
import math
import posixpath
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
MAX_SINGLE_INPUTS = 64  # up to which each input is read on its own
GROUPED_BYTES = 64 << 10  # of an input that is read together with others, which is in memory before its sentences count
MAX_GROUP_INPUTS, MAX_GROUP_BYTES = 1000, 1 << 20  # of inputs that are read together
ARROW_SUFFIX = ".arrow"
SCHEMA = clean_blocks.SCHEMA.append(SENTENCES.field("source"))  # of scattered files

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


def group_inputs(files: Sequence[InputFile]) -> dict[str, list[InputFile]]:
    """Return the inputs of each scattered file, by its name. If there are many, small ones are read together.

    A task for each of 100,000 inputs would take longer than all else.
    """
    groups: list[list[InputFile]] = []
    small: list[InputFile] = []
    num_bytes = 0
    for file in sorted(files, key=lambda file: file.source):
        size = GROUPED_BYTES + 1 if file.num_bytes is None else file.num_bytes
        if len(files) <= MAX_SINGLE_INPUTS or size > GROUPED_BYTES:
            groups.append([file])
            continue
        if not small or len(small) == MAX_GROUP_INPUTS or num_bytes + size > MAX_GROUP_BYTES:
            small, num_bytes = [], 0
            groups.append(small)
        small.append(file)
        num_bytes += size
    return {scattered_name(group): group for group in groups}


def scattered_name(files: Sequence[InputFile]) -> str:
    """Return the name of the file that `scatter_inputs` writes."""
    return storage.key([file.source for file in files]) + ARROW_SUFFIX


def read_blocks(
    file: InputFile, settings: TextSettings, sizes: IngestSizes = DEFAULT_SIZES, split_lang: str | None = None, num_processes: int = 1
) -> Iterator[CleanedBlock]:
    """Yield the cleaned text of an input. A long text is cleaned in up to `num_processes` processes."""
    values = read_values(file.uri, settings, file.source, sizes.block_bytes)
    return clean_blocks.clean_blocks(values, BlockCleaner(file.source, settings, split_lang), num_processes)


def scatter_inputs(
    files: Sequence[InputFile],
    folder: str,
    num_ranges: int,
    read: Callable[[InputFile], Iterable[CleanedBlock]],
    sizes: IngestSizes = DEFAULT_SIZES,
) -> dict[str, int]:
    """Read some inputs into one Arrow IPC file in `folder`, grouped by id range; return the counts of `readers.LINE_COUNTS`.

    Its batches are the ranges 0 to `num_ranges` - 1 of the first 32 MB of text, then those of the next 32 MB, and so on: the position
    of a batch determines its range.
    """
    counts: Counter[str] = Counter(dict.fromkeys(readers.LINE_COUNTS, 0))
    sources = pa.array([file.source for file in files], pa.string())
    blocks = (_add_source(block, number, sources) for number, file in enumerate(files) for block in read(file))
    with (
        storage.atomic(storage.join(folder, scattered_name(files))) as handle,
        pa.ipc.new_file(handle, SCHEMA.with_metadata({"ranges": str(num_ranges)})) as writer,
        background_thread() as submit,
    ):
        for table in _collect_blocks(blocks, counts, sizes.range_bytes):
            submit(_write_by_range, writer, table, num_ranges)  # while the next text is read
    return dict(counts)


def _add_source(block: CleanedBlock, number: int, sources: pa.Array) -> CleanedBlock:
    """Return a block of one of several inputs with its source."""
    source = pa.DictionaryArray.from_arrays(np.full(len(block.sentences), number, dtype=np.int32), sources)
    return CleanedBlock(pa.record_batch([*block.sentences.columns, source], schema=SCHEMA), block.counts)


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
    batch = pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)
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
    parts = [_read_range(storage.join(folder, name), checksum, index, num_ranges) for name, checksum in checksums.items()]
    table = pa.concat_tables(parts or [SCHEMA.empty_table()]).unify_dictionaries().combine_chunks()
    if table.column("text").nbytes > sizes.column_bytes:
        raise ConfigError(f"range {index} of {num_ranges} holds more than 2 GB of text; choose more --shards")
    return deduplicate(_sort_by_source(table)).select(SENTENCES.names).cast(SENTENCES)


def _sort_by_source(table: pa.Table) -> pa.Table:
    """Return a table in the order of its sources, of which its dictionary then has no others."""
    if not len(table):
        return table
    column = table["source"].chunk(0)
    used, numbers = np.unique(column.indices.to_numpy(), return_inverse=True)
    names = column.dictionary.take(pa.array(used)).to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.argsort(order).astype(np.int32)[numbers]
    source = pa.DictionaryArray.from_arrays(ranks, pa.array([names[number] for number in order], pa.string()))
    sorted_table = table.set_column(table.num_columns - 1, "source", source)
    return sorted_table if np.all(ranks[1:] >= ranks[:-1]) else sorted_table.take(np.argsort(ranks, kind="stable"))


def _read_range(uri: str, checksum: str, index: int, num_ranges: int) -> pa.Table:
    """Return the sentences of one range of a scattered file."""
    with table_files.open_arrow(uri, checksum) as reader:
        metadata = reader.schema.metadata
        if int(metadata[b"ranges"]) != num_ranges:
            remedy = f"delete {posixpath.dirname(uri)} and run again"
            raise StorageError(f"{uri}: written for {int(metadata[b'ranges'])} shards, not {num_ranges}; {remedy}")
        batches = [reader.get_batch(number) for number in range(index, reader.num_record_batches, num_ranges)]
    return pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches], SCHEMA)
