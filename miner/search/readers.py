"""Shards of vectors that a search reads: as row groups, and these in blocks of bounded memory."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from miner.arrays import Ids, Vectors
from miner.search.neighbours import VectorBlock

RowGroup = tuple[Ids, Vectors]  # ids (n,) ascending, vectors (n, dim)
ReadGroups = Callable[[], Iterable[RowGroup]]


@dataclass(frozen=True)
class ShardReader:
    """A shard of vectors: a name of its own, and how its row groups are read."""

    name: Hashable
    dim: int
    read: ReadGroups


def collect_blocks(groups: Iterable[RowGroup], dim: int, block_bytes: int) -> Iterator[VectorBlock]:
    """Yield row groups in blocks of about `block_bytes` of vectors; one empty block where there are no rows."""
    pending = list[RowGroup]()
    is_empty = True
    for group in groups:
        pending.append(group)
        if sum(vectors.nbytes for _, vectors in pending) >= block_bytes:
            block, pending, is_empty = concatenate_groups(pending, dim), [], False
            yield block  # while the caller works on it, nothing else is in memory
    if pending or is_empty:
        block, pending = concatenate_groups(pending, dim), []
        yield block


def concatenate_groups(groups: Iterable[RowGroup], dim: int) -> VectorBlock:
    """Return row groups as one block, which is empty where there are none."""
    ids, vectors = [np.zeros(0, dtype=np.int64)], [np.zeros((0, dim), dtype=np.float16)]
    for group_ids, group_vectors in groups:
        ids.append(group_ids)
        vectors.append(group_vectors)
    return VectorBlock(np.concatenate(ids), np.concatenate(vectors))
