"""Exact search of two small sides: one product of all their vectors in float64, where dot products of float16 vectors are exact.

Its result is that of `miner.search.exact`, which is faster for larger sides. It needs no torch, which takes longer to import than such a
search takes. Where torch is not installed, larger sides are searched by tiles.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from miner.arrays import Ids, Vectors, bounds_of
from miner.search.neighbours import Neighbours, Similarities, VectorBlock, empty_neighbours, stack_neighbours
from miner.search.readers import ShardReader, concatenate_groups

MAX_MULTIPLICATIONS = 1 << 32  # 0.2 s of one core
MAX_SIMILARITIES = 1 << 24  # 128 MB
PRODUCT_ROWS = 4096  # vectors that are float64 at a time
QUERIES = 512  # that are compared at a time, which bounds the memory where all similarities tie
GROUPS_PER_NEIGHBOUR = 8  # of similarities: with fewer, the largest share groups


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
    bounds = bounds_of([len(part.ids) for part in parts])
    return [neighbours.take(np.arange(start, end)) for start, end in pairwise(bounds)]


def search_block(
    source: VectorBlock, target: VectorBlock, k: int, max_similarities: int = MAX_SIMILARITIES
) -> tuple[Neighbours, Neighbours]:
    """Return the k nearest targets of every source and the k nearest sources of every target; ties by smaller id. Ids may be unsorted."""
    shape = len(source.ids), len(target.ids)
    if shape[0] * shape[1] > max_similarities:
        return _search_tiles(source, target, k, max_similarities)
    similarities = source.vectors.astype(np.float64) @ target.vectors.astype(np.float64).T
    with ThreadPoolExecutor(1) as pool:  # numpy releases Python's lock while it compares
        backward = pool.submit(nearest, similarities, source.ids, k, axis=0)
        return nearest(similarities, target.ids, k, axis=1), backward.result()


def _search_tiles(source: VectorBlock, target: VectorBlock, k: int, max_similarities: int) -> tuple[Neighbours, Neighbours]:
    """Search parts of both sides and merge their neighbours, as `search_block` does."""
    size = max(1, math.isqrt(max_similarities))
    parts = [[slice(start, start + size) for start in range(0, len(side.ids), size)] for side in (source, target)]
    forward, backward = (
        [empty_neighbours(len(side.ids[rows]), k) for rows in own] for side, own in zip((source, target), parts, strict=True)
    )
    for (i, rows), (j, columns) in itertools.product(enumerate(parts[0]), enumerate(parts[1])):
        tile = VectorBlock(source.ids[rows], source.vectors[rows]), VectorBlock(target.ids[columns], target.vectors[columns])
        both = search_block(*tile, k, max_similarities)
        forward[i], backward[j] = forward[i].merge(both[0]), backward[j].merge(both[1])
    return stack_neighbours(forward), stack_neighbours(backward)


def nearest(similarities: Similarities, ids: Ids, k: int, axis: int) -> Neighbours:
    """Return the k nearest of every row or column of similarities (n, m), along an axis with these ids; ties by smaller id."""
    num_queries, count = similarities.shape[1 - axis], min(k, similarities.shape[axis])
    result = empty_neighbours(num_queries, k)
    for start in range(0, num_queries if count else 0, QUERIES):
        queries = slice(start, start + QUERIES)
        part = similarities[queries] if axis == 1 else similarities[:, queries]
        result.ids[queries, :count], result.similarities[queries, :count] = _nearest_of_part(part, ids, count, axis)
    return result


def _nearest_of_part(similarities: Similarities, ids: Ids, count: int, axis: int) -> tuple[Ids, Similarities]:
    """Return the ids (q, count) and similarities (q, count) of the `count` nearest of q queries, as `nearest` does."""
    cells = np.flatnonzero(similarities >= np.expand_dims(_lower_bounds(similarities, count, axis), axis))
    positions = np.divmod(cells, similarities.shape[1])  # rows, columns
    queries, key_ids, values = positions[1 - axis], ids[positions[axis]], similarities[positions]
    order = np.lexsort((key_ids, -values, queries))
    starts = np.searchsorted(queries[order], np.arange(similarities.shape[1 - axis]))
    chosen = order[starts[:, None] + np.arange(count)]
    return key_ids[chosen], values[chosen]


def _lower_bounds(similarities: Similarities, count: int, axis: int) -> Similarities:
    """Return lower bounds of the count-th largest similarity along an axis: that of the maxima of groups, which few others exceed."""
    num_keys = similarities.shape[axis]
    num_groups = min(num_keys, GROUPS_PER_NEIGHBOUR * count)
    group_size = num_keys // num_groups
    if axis == 1:
        groups = similarities[:, : num_groups * group_size].reshape(-1, group_size, num_groups)
        maxima = groups.max(axis=1)
    else:
        groups = similarities[: num_groups * group_size].reshape(group_size, num_groups, -1)
        maxima = groups.max(axis=0).T
    return np.partition(maxima, num_groups - count, axis=1)[:, num_groups - count]


def pair_similarities(sources: Vectors, targets: Vectors) -> Similarities:
    """Return the similarities (n,) of vectors (n, dim) and (n, dim), exact as those of the search."""
    similarities = np.empty(len(sources))
    for start in range(0, len(sources), PRODUCT_ROWS):
        rows = slice(start, start + PRODUCT_ROWS)
        similarities[rows] = np.einsum("nd,nd->n", sources[rows].astype(np.float64), targets[rows].astype(np.float64))
    return similarities
