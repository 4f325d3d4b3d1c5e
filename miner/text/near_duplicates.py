"""Collapse near-duplicates: sentences that differ only in case, punctuation and spaces become the first of them.

Near-duplicates share a skeleton, whose hash is their key. Sentences are sharded by id, so near-duplicates can be in any shard
and are joined by key in three steps: `write_keyed` groups the sentences of one id range by key range; `resolve_key_range` reads one
key range of all those files and decides what happens to each sentence; `apply_changes` applies all decisions about one id range.
Memory is bounded by a range, and the result does not depend on the number of ranges or on the workers.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import regex
import xxhash

from miner import storage, table_files
from miner.arrays import Ints, run_bounds
from miner.tables import SENTENCES
from miner.text.normalise import compose
from miner.text.sharding import range_of, write_range_batches

KEYED_SCHEMA = pa.schema([*SENTENCES.remove(3), pa.field("source", pa.string()), pa.field("key", pa.int64())])
# `added` is what the count of a sentence grows by, or REMOVED if the sentence is merged into another.
CHANGES_SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("added", pa.int64())])
REMOVED = -1

# Digits are compared, because `Page 2` and `Page 3` have different translations.
NOT_COMPARED = regex.compile(r"[^\p{L}\p{M}\p{N}]+")


def skeleton(text: str) -> str:
    """Return what near-duplicates share: letters, marks and digits of the casefolded NFKC form, or the text if it has none."""
    return NOT_COMPARED.sub("", compose(text, "NFKC").casefold()) or text


def skeleton_keys(texts: Sequence[str]) -> Ints:
    """Return (n,) the xxh3-64 hashes of the skeletons of n texts."""
    digest = xxhash.xxh3_64_intdigest
    return np.fromiter((digest(skeleton(text).encode()) for text in texts), dtype=np.uint64, count=len(texts)).view(np.int64)


def write_keyed(uri: str, table: pa.Table, num_ranges: int) -> None:
    """Write sentences to an Arrow file of KEYED_SCHEMA, whose batch i holds those with a key in range i."""
    keys = skeleton_keys(table["text"].to_pylist())
    keyed = table.append_column("key", pa.array(keys)).select(KEYED_SCHEMA.names).cast(KEYED_SCHEMA)
    _write_grouped(uri, keyed, range_of(keys, num_ranges), num_ranges)


def resolve_key_range(keyed_files: Sequence[str], index: int, uri: str, num_ranges: int) -> int:
    """Decide what happens to the sentences of key range `index` in all files of `write_keyed`; return how many are removed.

    Writes an Arrow file of CHANGES_SCHEMA to `uri`, whose batch i holds the changes of ids in range i. Of the sentences with one key,
    the first in the order of (source, line) is kept.
    """
    order = [("key", "ascending"), ("source", "ascending"), ("line", "ascending")]
    columns = ["id", "count", "line", "source", "key"]
    table = pa.concat_tables([_read_batches(file, [index], columns) for file in keyed_files]).sort_by(order)
    ids, counts, keys = (_to_numpy(table, name) for name in ("id", "count", "key"))
    starts = run_bounds(keys)[:-1]
    added = np.full(len(ids), REMOVED)
    added[starts] = np.add.reduceat(counts, starts) - counts[starts]
    is_changed = added != 0
    changes = pa.table([ids[is_changed], added[is_changed]], schema=CHANGES_SCHEMA)
    _write_grouped(uri, changes, range_of(ids[is_changed], num_ranges), num_ranges)
    return int((added == REMOVED).sum())


def apply_changes(keyed_file: str, change_files: Sequence[str], index: int, num_ranges: int) -> tuple[pa.Table, pa.Table]:
    """Apply the changes in all files of `resolve_key_range` to id range `index`, whose sentences are in `keyed_file`.

    Returns the sentences that are kept and those that are removed, both of the schema SENTENCES and sorted by id.
    """
    table = _read_batches(keyed_file, range(num_ranges), SENTENCES.names).sort_by("id")
    changes = pa.concat_tables([_read_batches(file, [index], CHANGES_SCHEMA.names) for file in change_files])
    added = np.zeros(len(table), dtype=np.int64)
    added[np.searchsorted(_to_numpy(table, "id"), _to_numpy(changes, "id"))] = _to_numpy(changes, "added")
    counts = pa.array(_to_numpy(table, "count") + np.maximum(added, 0), pa.int32())
    table = table.set_column(table.schema.get_field_index("count"), "count", counts).cast(SENTENCES).combine_chunks()
    return table.filter(pa.array(added != REMOVED)), table.filter(pa.array(added == REMOVED))


def _to_numpy(table: pa.Table, name: str) -> Ints:
    values: Ints = table[name].to_numpy().astype(np.int64)
    return values


def _write_grouped(uri: str, table: pa.Table, range_numbers: Ints, num_ranges: int) -> None:
    """Sort rows by range and write one batch per range."""
    order = np.argsort(range_numbers, kind="stable")
    with storage.atomic(uri) as handle, pa.ipc.new_file(handle, table.schema) as writer:
        write_range_batches(writer, table.take(pa.array(order)), range_numbers[order], num_ranges)


def _read_batches(uri: str, batches: Sequence[int], columns: Sequence[str]) -> pa.Table:
    with table_files.open_arrow(uri) as reader:
        schema = pa.schema([reader.schema.field(name) for name in columns])
        return pa.Table.from_batches([reader.get_batch(number).select(columns) for number in batches], schema)
