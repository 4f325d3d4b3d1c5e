"""Exact search of two small sides: one product of all their vectors in float64, where dot products of float16 vectors are exact.

Its result is that of `miner.search.exact`, which is faster for larger sides. It needs no torch, which takes longer to import than such a
search takes.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from miner.search.neighbours import Ids, Neighbours, Similarities, VectorBlock, empty_neighbours
from miner.search.readers import ShardReader, concatenate_groups

MAX_MULTIPLICATIONS = 1 << 32  # 0.2 s of one core
MAX_SIMILARITIES = 1 << 24  # 128 MB; a search has them twice


def is_small(num_sources: int, num_targets: int, dim: int) -> bool:
    """Whether the sides of a search are small enough for a dense product on a CPU."""
    num_similarities = num_sources * num_targets
    return num_similarities <= MAX_SIMILARITIES and num_similarities * dim <= MAX_MULTIPLICATIONS


def search_shards(
    sources: Sequence[ShardReader], targets: Sequence[ShardReader], k: int, report: Callable[[int], object]
) -> tuple[list[Neighbours], list[Neighbours]]:
    """Return the k nearest among all targets of each source shard, and the reverse, in the order in which vectors are read.

    `report` is called with the number of pairs of vectors.
    """
    parts = [[concatenate_groups(shard.read(), shard.dim) for shard in side] for side in (sources, targets)]
    blocks = [concatenate_groups(((block.ids, block.vectors) for block in side), side[0].vectors.shape[1]) for side in parts]
    forward, backward = search_block(blocks[0], blocks[1], k)
    report(len(forward.ids) * len(backward.ids))
    return _split(forward, parts[0]), _split(backward, parts[1])


def _split(neighbours: Neighbours, parts: Sequence[VectorBlock]) -> list[Neighbours]:
    ends = np.cumsum([len(part.ids) for part in parts])
    return [neighbours.take(np.arange(end - len(part.ids), end)) for end, part in zip(ends, parts, strict=True)]


def search_block(source: VectorBlock, target: VectorBlock, k: int) -> tuple[Neighbours, Neighbours]:
    """Return the k nearest targets of every source and the k nearest sources of every target; ties by smaller id. Ids may be unsorted."""
    similarities = source.vectors.astype(np.float64) @ target.vectors.astype(np.float64).T
    with ThreadPoolExecutor(1) as pool:  # numpy releases Python's lock while it copies and selects
        backward = pool.submit(lambda: nearest(np.ascontiguousarray(similarities.T), source.ids, k))
        return nearest(similarities, target.ids, k), backward.result()


def nearest(similarities: Similarities, ids: Ids, k: int) -> Neighbours:
    """Similarities (n, m) and the ids (m,) of the columns -> the k nearest columns of every row; ties by smaller id."""
    num_rows, num_columns = similarities.shape
    count = min(k, num_columns)
    if not num_rows or not count:
        return empty_neighbours(num_rows, k)
    kth = np.partition(similarities, num_columns - count, axis=1)[:, num_columns - count, None]
    is_kept = similarities >= kth
    tied = np.flatnonzero(np.count_nonzero(is_kept, axis=1) > count)
    if len(tied):
        is_kept[tied] = _keep_smaller_ids(similarities[tied], kth[tied], ids, count)
    columns = np.nonzero(is_kept)[1].reshape(num_rows, count)
    values = np.take_along_axis(similarities, columns, axis=1)
    order = np.lexsort((ids[columns], -values))
    result = empty_neighbours(num_rows, k)
    result.ids[:, :count] = np.take_along_axis(ids[columns], order, axis=1)
    result.similarities[:, :count] = np.take_along_axis(values, order, axis=1)
    return result


def _keep_smaller_ids(similarities: Similarities, kth: Similarities, ids: Ids, count: int) -> npt.NDArray[np.bool_]:
    """Return which `count` columns of each row (n, m) are the nearest, where more of them tie with the last one, `kth` (n, 1)."""
    order = np.argsort(ids)
    is_kept, is_tied = similarities > kth, (similarities == kth)[:, order]
    num_kept = np.cumsum(is_tied, axis=1, dtype=np.int32)
    missing = count - np.count_nonzero(is_kept, axis=1, keepdims=True)
    is_kept[:, order] |= is_tied & (num_kept <= missing)
    return is_kept
