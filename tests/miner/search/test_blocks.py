"""Search of shards that are read in blocks, and which shards are read again."""

from collections.abc import Iterator

import dense
import numpy as np
import pytest
import torch
from search_cases import assert_nearest, many_ties

from miner.search.blocks import BlockCache, search_shards
from miner.search.neighbours import stack_neighbours
from miner.search.readers import RowGroup, ShardReader, collect_blocks

CPU = torch.device("cpu")
ROWS, DIM = 10, 8
GROUP_BYTES = ROWS * DIM * 2
SHARD_BYTES = 2 * (GROUP_BYTES + ROWS * 8)  # with the ids


def shard(name: str, ids: np.ndarray, vectors: np.ndarray, reads: list[str], group_rows: int = ROWS) -> ShardReader:
    def read() -> Iterator[RowGroup]:
        reads.append(name)
        for start in range(0, len(ids), group_rows):
            yield ids[start : start + group_rows], vectors[start : start + group_rows]

    return ShardReader(name, vectors.shape[1], read)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 30])
@pytest.mark.parametrize("block_bytes", [1, 3000, 1 << 30])
def test_neighbours_are_independent_of_blocks_and_cache(block_bytes: int, cache_bytes: int) -> None:
    x, y = (side[::4] for side in many_ties())
    x_ids, y_ids = dense.ids(len(x), 1), dense.ids(len(y), 2)
    reads, pairs = list[str](), list[int]()
    source, target = shard("x", x_ids, x, reads, 90), shard("y", y_ids, y, reads, 100)
    cache = BlockCache(CPU, block_bytes, cache_bytes)
    for _ in range(2):
        (forward,), (backward,) = search_shards([source], [target], 4, cache, pairs.append)
        assert_nearest(forward, x, y, y_ids)
        assert_nearest(backward, y, x, x_ids)
    assert sum(pairs) == 2 * len(x) * len(y)
    if cache_bytes:
        assert reads == ["x", "y"]


@pytest.mark.parametrize(("resident_shards", "target_reads"), [(0, 12), (1, 6), (2, 3), (6, 1)])
def test_targets_are_read_once_for_what_is_resident_of_the_sources(resident_shards: int, target_reads: int) -> None:
    x, y = dense.unit(6 * 2 * ROWS, DIM, 1), dense.unit(3 * ROWS, DIM, 2)
    x_ids, y_ids = dense.ids(len(x), 1), dense.ids(len(y), 2)
    reads = list[str]()
    sources = [shard("x", ids, vectors, reads) for ids, vectors in zip(np.split(x_ids, 6), np.split(x, 6), strict=True)]
    targets = [shard(str(number), y_ids[number * ROWS :][:ROWS], y[number * ROWS :][:ROWS], reads) for number in range(3)]
    cache = BlockCache(CPU, GROUP_BYTES, resident_bytes=resident_shards * SHARD_BYTES)
    forward, backward = search_shards(sources, targets, 4, cache, lambda _: None)
    assert_nearest(stack_neighbours(forward), x, y, y_ids)
    assert_nearest(stack_neighbours(backward), y, x, x_ids)
    assert [reads.count(name) for name in ("x", "0", "1", "2")] == [6, target_reads, target_reads, target_reads]


def test_the_shards_that_were_read_last_are_kept_as_far_as_they_fit() -> None:
    reads = list[str]()
    shards = {name: shard(name, dense.ids(2 * ROWS, 3), dense.unit(2 * ROWS, DIM, 4), reads) for name in "abc"}
    cache = BlockCache(CPU, GROUP_BYTES, 2 * SHARD_BYTES)
    for name in "abab" + "c" + "b" + "c" + "a":  # c replaces a, and a replaces b
        blocks = list(cache.blocks(shards[name]))
        assert [len(block) for block in blocks] == [ROWS, ROWS]
    assert "".join(reads) == "abca"
    assert list(cache.shards) == ["c", "a"]


def test_a_shard_that_does_not_fit_is_read_every_time() -> None:
    reads = list[str]()
    large = shard("large", dense.ids(2 * ROWS, 3), dense.unit(2 * ROWS, DIM, 4), reads)
    cache = BlockCache(CPU, GROUP_BYTES, SHARD_BYTES - 1)
    for _ in range(2):
        assert sum(len(block) for block in cache.blocks(large)) == 2 * ROWS
    assert reads == ["large", "large"]
    assert not cache.shards


def test_an_empty_shard_is_one_empty_block() -> None:
    (block,) = collect_blocks([], DIM, 100)
    assert block.vectors.shape == (0, DIM)
    empty, full = (shard(name, dense.ids(rows, 1), dense.unit(rows, DIM, 2), []) for name, rows in (("empty", 0), ("full", 3)))
    (forward,), (backward,) = search_shards([full], [empty], 2, BlockCache(CPU, 100), lambda _: None)
    assert forward.ids.tolist() == [[-1, -1]] * 3
    assert stack_neighbours([backward]).ids.shape == (0, 2)
