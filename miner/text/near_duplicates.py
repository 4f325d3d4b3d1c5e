"""Collapse near-duplicates: sentences that differ only in case, punctuation and spaces become the first of them.

Near-duplicates share a skeleton, whose hash is their key. Corpora are resolved by key range and changed by id range: memory is bounded by a
range, and the result does not depend on the number of ranges.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import regex
import xxhash

from miner.arrays import Ints, run_bounds
from miner.io.tables import SENTENCES
from miner.text.normalise import compose

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


def add_keys(table: pa.Table) -> pa.Table:
    """Return the id, count, source, line and key of sentences of the schema SENTENCES."""
    keys = skeleton_keys(table["text"].to_pylist())
    columns = [table["id"], table["count"], table["source"].cast(pa.string()), table["line"], pa.array(keys)]
    return pa.table(columns, names=["id", "count", "source", "line", "key"])


def find_changes(keyed: pa.Table) -> pa.Table:
    """Return what happens to the sentences of a key range, in any order: a table of CHANGES_SCHEMA, of the changed sentences only.

    Of the sentences with one key, the first in the order of (source, line) is kept.
    """
    table = keyed.sort_by([("key", "ascending"), ("source", "ascending"), ("line", "ascending")])
    ids, counts, keys = (_to_numpy(table, name) for name in ("id", "count", "key"))
    starts = run_bounds(keys)[:-1]
    added = np.full(len(ids), REMOVED)
    added[starts] = np.add.reduceat(counts, starts) - counts[starts]
    is_changed = added != 0
    return pa.table([ids[is_changed], added[is_changed]], schema=CHANGES_SCHEMA)


def apply_changes(table: pa.Table, changes: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Apply the changes of an id range to its sentences, which are of the schema SENTENCES and sorted by id.

    Returns the sentences that are kept and those that are removed.
    """
    added = np.zeros(len(table), dtype=np.int64)
    added[np.searchsorted(_to_numpy(table, "id"), _to_numpy(changes, "id"))] = _to_numpy(changes, "added")
    counts = pa.array(_to_numpy(table, "count") + np.maximum(added, 0), pa.int32())
    sources = table["source"].cast(pa.string())  # the dictionary of a shard lists its sources in the order of ids
    table = table.drop_columns(["count", "source"]).append_column("count", counts).append_column("source", sources)
    table = table.select(SENTENCES.names).cast(SENTENCES).combine_chunks()
    return table.filter(pa.array(added != REMOVED)), table.filter(pa.array(added == REMOVED))


def _to_numpy(table: pa.Table, name: str) -> Ints:
    values: Ints = table[name].to_numpy().astype(np.int64)
    return values
