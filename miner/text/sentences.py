"""Sharding by id range: text of any size becomes unique sentences, in memory bounded by one range.

`scatter` reads one input and files its sentences by the range of their ids; `gather` takes one range of all inputs, drops
duplicates and sorts. Shard i of n holds the i-th of n equal ranges of the signed 64-bit ids, so the shards in order are sorted.
Which inputs, workers or runner did what, and in which order, does not show in the result.
"""

import contextlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from miner import storage
from miner.background import background_thread
from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError, StorageError
from miner.tables import SENTENCES
from miner.text import readers, streams
from miner.text.normalise import Ids, ids_of

RANGE_BYTES = 32 << 20  # of text in one id range, and in memory before a scatter writes
MAX_RANGES = 99_999  # what five digits of a shard's name can count
MAX_TEXT = 2**31 - 1  # bytes in one Arrow string column
EXPANSION = {"": 1.0, ".gz": 3.0, ".zst": 3.5, ".xz": 4.0, ".bz2": 4.0, ".parquet": 2.0}  # usual bytes of text for a byte of file
LOOKED_INTO = 8  # compressed inputs
SUFFIX = ".arrow"

# What is on its way: the sentences of one source, without its name.
SCATTERED = pa.schema([SENTENCES.field(name) for name in ("id", "text", "count", "line")])


def ranges_for(inputs: Sequence[str], settings: TextSettings) -> int:
    """How many id ranges the text of these inputs is cut into: one for about every 32 MB, or as many as the settings say."""
    if settings.shards is not None:
        return settings.shards
    alike: dict[str, list[str]] = defaultdict(list)  # extension -> inputs
    for uri in inputs:
        kind, compression = streams.extensions(uri)
        alike[compression or kind].append(uri)
    text = sum(sum(map(_bytes, uris)) * _expansion(packing, uris) for packing, uris in alike.items())
    return min(max(1, math.ceil(text / RANGE_BYTES)), MAX_RANGES)


def _bytes(uri: str) -> int:
    fs, path = storage.filesystem(uri)
    with streams.clear_errors(uri, ""):
        size = fs.size(path)
    return RANGE_BYTES if size is None else int(size)  # a web server may not tell


def _expansion(packing: str, uris: Sequence[str]) -> float:
    """Bytes of text for a byte of file: of the starts of some of these inputs, or what is usual where they do not tell."""
    usual = EXPANSION.get(packing, 1.0)
    if packing not in streams.COMPRESSIONS:
        return usual
    packed = text = 0
    for number in range(min(len(uris), LOOKED_INTO)):
        with contextlib.suppress(DataError):  # told when it is read
            seen, found = streams.head(uris[number * len(uris) // min(len(uris), LOOKED_INTO)], packing)
            packed, text = packed + seen, text + len(found)
    return text / packed if packed else usual


def signature(uri: str) -> str:
    """What changes when an input does: size and time of change of a local file, the file system's own checksum elsewhere."""
    fs, path = storage.filesystem(uri)
    with streams.clear_errors(uri, ""):
        info = fs.info(path)
        return f"{info['size']}-{info['mtime']}" if "mtime" in info else str(fs.checksum(path))


def scattered_name(source: str) -> str:
    """The name of the file that `scatter` makes of the input `source`."""
    return storage.key(source) + SUFFIX


def scatter(uri: str, folder: str, ranges: int, settings: TextSettings, source: str | None = None) -> dict[str, int]:
    """Read one input into one file of `folder`, ordered by id range; returns the counts of `readers.COUNTS`.

    `source` is the name the sentences carry where it is not `uri` itself. The file is an Arrow IPC file whose batches are
    the ranges 0 to `ranges` - 1 of the first 32 MB of text, then those of the next, so a range is found without an index.
    """
    name = source or uri
    place = storage.join(folder, scattered_name(name))
    counts: Counter[str] = Counter(dict.fromkeys(readers.COUNTS, 0))
    schema = SCATTERED.with_metadata({"source": name, "ranges": str(ranges)})
    with storage.atomic(place) as handle, _writer(handle, schema) as writer, background_thread() as submit:
        for table in _tables(readers.read(uri, settings, name), counts):
            submit(_file, writer, table, ranges)  # while the next text is read
    return dict(counts)


def _file(writer: pa.RecordBatchFileWriter, table: pa.Table, ranges: int) -> None:
    for batch in _by_range(unique(table), ranges):
        writer.write_batch(batch)


def _writer(handle: Any, schema: pa.Schema) -> pa.RecordBatchFileWriter:
    return pa.ipc.new_file(handle, schema)


def _tables(blocks: Iterable[readers.Block], counts: Counter[str]) -> Iterator[pa.Table]:
    """Sentences of about RANGE_BYTES of text at a time, not yet unique; adds up the counts of the blocks."""
    held: list[pa.RecordBatch] = []
    size = 0
    for block in blocks:
        counts.update(block.counts)
        batch = _batch(block)
        held.append(batch)
        size += batch.nbytes
        if size >= RANGE_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _batch(block: readers.Block) -> pa.RecordBatch:
    encoded = "\n".join(block.texts).encode().split(b"\n") if block.texts else []  # cleaned texts hold no line end
    ends = np.fromiter(accumulate(map(len, encoded), initial=0), dtype=np.int32, count=len(encoded) + 1)
    # Arrow's own conversion from Python strings takes four times as long.
    texts = pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
    ones = np.ones(len(encoded), dtype=np.int32)
    return pa.record_batch([ids_of(encoded), texts, ones, block.lines], schema=SCATTERED)


def range_of(ids: Ids, ranges: int) -> npt.NDArray[np.int64]:
    """(n,) ids -> (n,) numbers of their ranges, from 0 and rising with the signed id; `ranges` is below 2^31."""
    unsigned = ids.view(np.uint64) ^ np.uint64(1 << 63)
    return ((unsigned >> np.uint64(32)) * np.uint64(ranges) >> np.uint64(32)).astype(np.int64)


def _by_range(table: pa.Table, ranges: int) -> Iterator[pa.RecordBatch]:
    """A table sorted by id -> one batch for each range, empty ones included."""
    batch = table.combine_chunks().to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], schema=table.schema)
    bounds = np.searchsorted(range_of(_numpy(table, "id"), ranges), np.arange(ranges + 1))
    for start, end in pairwise(bounds):
        yield batch.slice(start, end - start)


def _numpy(table: pa.Table, name: str) -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = table.column(name).to_numpy()
    return values


def unique(table: pa.Table) -> pa.Table:
    """Sentences ordered by place -> one row for each id, sorted by id: the row of the first place, `count` summed up.

    Raises DataError where two different texts have one id: they are never merged.
    """
    order = np.argsort(_numpy(table, "id"), kind="stable")
    ids = _numpy(table, "id")[order]
    first = np.ones(len(ids), dtype=bool)
    first[1:] = ids[1:] != ids[:-1]
    if first.all():
        return table.take(order)
    starts = np.flatnonzero(first)
    _check_collisions(table, order, first)
    counts = np.add.reduceat(_numpy(table, "count")[order], starts)
    kept = table.take(order[starts])
    return kept.set_column(kept.schema.get_field_index("count"), kept.schema.field("count"), pa.array(counts, pa.int32()))


def _check_collisions(table: pa.Table, order: npt.NDArray[np.int64], first: npt.NDArray[np.bool_]) -> None:
    """Rows of one id must have one text: compare each later row with the first."""
    starts = np.flatnonzero(first)
    again = np.flatnonzero(~first)
    leaders = starts[np.cumsum(first)[again] - 1]
    texts = table.column("text")
    same = pc.equal(texts.take(order[again]), texts.take(order[leaders])).to_numpy()
    if not same.all():
        at = int(np.argmin(same))
        one, other = (table.slice(int(order[row]), 1).to_pylist()[0] for row in (leaders[at], again[at]))
        raise DataError(f"{_show(one)} and {_show(other)} have the same id {one['id']}; take one of them out")


def _show(row: dict[str, Any]) -> str:
    return f"{row['text'][:60]!r} ({row['source']}:{row['line']})" if "source" in row else f"{row['text'][:60]!r} (line {row['line']})"


def gather(folder: str, index: int, ranges: int) -> tuple[pa.Table, dict[str, int]]:
    """The unique sentences of range `index`, sorted by id, and their counts {unique, duplicate}.

    Takes every file `scatter` left in `folder`. `count` is how often a sentence was seen; `source` and `line` are the first
    of its places in the order of (source, line).
    """
    parts = dict(_part(folder, name, index, ranges) for name in _files(folder))
    sources = sorted(source for source, part in parts.items() if len(part))
    if not sources:
        return SENTENCES.empty_table(), {"unique": 0, "duplicate": 0}
    numbers = np.repeat(np.arange(len(sources), dtype=np.int32), [len(parts[source]) for source in sources])
    column = pa.DictionaryArray.from_arrays(numbers, pa.array(sources, pa.string()))
    together = pa.concat_tables([parts[source] for source in sources]).append_column(SENTENCES.field("source"), column)
    if together.column("text").nbytes > MAX_TEXT:
        raise ConfigError(f"range {index} of {ranges} holds more than 2 GB of text; choose more --shards")
    table = unique(together.combine_chunks()).select(SENTENCES.names)
    seen = int(np.sum(_numpy(table, "count"), dtype=np.int64))
    return table.cast(SENTENCES), {"unique": len(table), "duplicate": seen - len(table)}


def _files(folder: str) -> list[str]:
    fs, path = storage.filesystem(folder)
    names = [str(name).rpartition("/")[2] for name in fs.ls(path, detail=False)] if fs.exists(path) else []
    return sorted(name for name in names if name.endswith(SUFFIX))


def _part(folder: str, name: str, index: int, ranges: int) -> tuple[str, pa.Table]:
    uri = storage.join(folder, name)
    fs, path = storage.filesystem(uri)
    try:
        with fs.open(path, "rb") as handle, pa.ipc.open_file(handle) as reader:
            metadata = reader.schema.metadata
            if int(metadata[b"ranges"]) != ranges:
                raise StorageError(f"{uri}: made for {int(metadata[b'ranges'])} shards, not {ranges}; delete {folder} and run again")
            batches = [reader.get_batch(at) for at in range(index, reader.num_record_batches, ranges)]
    except (pa.ArrowInvalid, OSError) as error:
        raise StorageError(f"{uri}: not a whole Arrow file; delete {folder} and run again") from error
    return metadata[b"source"].decode(), pa.Table.from_batches(batches, SCATTERED)
