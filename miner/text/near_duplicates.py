"""Near-duplicates become one: of the sentences with one skeleton the first stays, and counts for all.

Sentences are sharded by id, and those of one skeleton lie anywhere, so they meet by their key in three steps: `write_keyed` files
the sentences of one id range by key range, `changes` takes one key range of all files and tells what becomes of the sentences in
it, and `apply` takes what all of those tell of one id range. Nothing holds more than a range, and how many there are, or who did
what, does not show in the result.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner import storage
from miner.errors import StorageError
from miner.filters.near_duplicates import skeleton_keys
from miner.tables import SENTENCES
from miner.text.sentences import range_of

KEYED = pa.schema([*SENTENCES.remove(3), pa.field("source", pa.string()), pa.field("key", pa.int64())])
# What becomes of a sentence: `added` to its count, or GONE where it lives on in another.
CHANGES = pa.schema([pa.field("id", pa.int64()), pa.field("added", pa.int64())])
GONE = -1

Numbers = npt.NDArray[np.int64]


def write_keyed(uri: str, table: pa.Table, ranges: int) -> None:
    """Sentences -> an Arrow file of the schema KEYED, whose batch i holds those whose key is in range i of `ranges`."""
    keys = skeleton_keys(table["text"].to_pylist())
    keyed = table.append_column("key", pa.array(keys)).select(KEYED.names).cast(KEYED)
    _write(uri, keyed, range_of(keys, ranges), ranges)


def changes(files: Sequence[str], index: int, uri: str, ranges: int) -> int:
    """What becomes of the sentences whose key is in range `index`, of all that `write_keyed` wrote; returns how many are gone.

    Written as an Arrow file of the schema CHANGES, whose batch i holds those whose id is in range i of `ranges`. The first of the
    places, in the order of (source, line), stays.
    """
    places = [("key", "ascending"), ("source", "ascending"), ("line", "ascending")]
    table = pa.concat_tables([_read(file, [index], ["id", "count", "line", "source", "key"]) for file in files]).sort_by(places)
    ids, counts, keys = (_numbers(table, name) for name in ("id", "count", "key"))
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    added = np.full(len(ids), GONE)
    added[starts] = (np.add.reduceat(counts, starts) if len(starts) else counts) - counts[starts]
    met = added != 0  # with sentences of the same skeleton
    found = pa.table([ids[met], added[met]], schema=CHANGES)
    _write(uri, found, range_of(ids[met], ranges), ranges)
    return int((added == GONE).sum())


def apply(keyed: str, told: Sequence[str], index: int, ranges: int) -> tuple[pa.Table, pa.Table]:
    """One id range of what `write_keyed` wrote, and all of what `changes` wrote -> the sentences that stay, and those that are gone;
    both of the schema SENTENCES and sorted by id."""
    table = _read(keyed, range(ranges), SENTENCES.names).sort_by("id")
    change = pa.concat_tables([_read(file, [index], CHANGES.names) for file in told])
    added = np.zeros(len(table), dtype=np.int64)
    added[np.searchsorted(_numbers(table, "id"), _numbers(change, "id"))] = _numbers(change, "added")
    counts = pa.array(_numbers(table, "count") + np.maximum(added, 0), pa.int32())
    table = table.set_column(table.schema.get_field_index("count"), "count", counts).cast(SENTENCES).combine_chunks()
    return table.filter(pa.array(added != GONE)), table.filter(pa.array(added == GONE))


def _numbers(table: pa.Table, name: str) -> Numbers:
    values: Numbers = table[name].to_numpy().astype(np.int64)
    return values


def _write(uri: str, table: pa.Table, ranges_of: Numbers, ranges: int) -> None:
    order = np.argsort(ranges_of, kind="stable")
    table = table.take(pa.array(order)).combine_chunks()
    bounds = np.searchsorted(ranges_of[order], np.arange(ranges + 1))
    with storage.atomic(uri) as handle, pa.ipc.new_file(handle, table.schema) as writer:
        batch = table.to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], schema=table.schema)
        for start, end in itertools.pairwise(bounds):
            writer.write_batch(batch.slice(start, end - start))


def _read(uri: str, batches: Sequence[int], columns: Sequence[str]) -> pa.Table:
    fs, path = storage.filesystem(uri)
    try:
        with fs.open(path, "rb") as handle, pa.ipc.open_file(handle) as reader:
            schema = pa.schema([reader.schema.field(name) for name in columns])
            return pa.Table.from_batches([reader.get_batch(at).select(columns) for at in batches], schema)
    except (pa.ArrowInvalid, OSError) as error:
        raise StorageError(f"{uri}: not a whole Arrow file; run the same command again") from error
