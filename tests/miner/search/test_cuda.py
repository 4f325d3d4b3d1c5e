"""Exact search on a CUDA device against the whole similarity matrix. Imports no more than search needs (`benchmarks/gpu.py` runs it)."""

from collections.abc import Callable

import dense
import numpy as np
import pytest
import torch
from search_cases import SHAPES, Sides, assert_exact, assert_nearest, many_ties, mixed_scales, near_ties

from miner.search.blocks import BlockCache, search_shards
from miner.search.exact import SearchOptions, search_forward
from miner.search.neighbours import VectorBlock, empty_neighbours
from miner.search.readers import ShardReader

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize(("rows", "columns", "dim", "k"), SHAPES)
def test_both_directions_equal_the_whole_matrix_on_cuda(rows: int, columns: int, dim: int, k: int) -> None:
    assert_exact(dense.unit(rows, dim, 0), dense.unit(columns, dim, 1), k, device="cuda")


@pytest.mark.parametrize("make_sides", [many_ties, near_ties, mixed_scales])
@pytest.mark.parametrize("tile_rows", [16384, 256])
def test_result_is_independent_of_tiles_on_cuda(make_sides: Callable[[], Sides], tile_rows: int) -> None:
    assert_exact(*make_sides(), k=4, device="cuda", gpu_tile_rows=tile_rows, min_trial_multiplications=0)


def test_tiles_are_halved_where_cuda_memory_runs_out() -> None:
    """Of this memory the driver knows nothing, so that tiles are chosen which do not fit."""
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((1 << 30) / torch.cuda.mem_get_info()[1])
    try:
        x, y, ids = dense.unit(20_000, 16, 0), dense.unit(20_000, 16, 1), dense.ids(20_000, 2)
        nothing = empty_neighbours(len(x), 4)
        neighbours = search_forward(VectorBlock(ids, x), VectorBlock(ids, y), nothing, SearchOptions("cuda", "float32"))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert_nearest(neighbours.take(np.arange(0, len(x), 100)), x[::100], y, ids)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 30])
def test_blocks_that_are_read_ahead_give_the_same_neighbours_on_cuda(cache_bytes: int) -> None:
    x, y = many_ties()
    ids = dense.ids(len(x), 1), dense.ids(len(y), 2)
    groups = [
        [(ids[side][start : start + 64], (x, y)[side][start : start + 64]) for start in range(0, len(ids[side]), 64)] for side in (0, 1)
    ]
    source, target = (ShardReader(side, x.shape[1], lambda side=side: groups[side]) for side in (0, 1))
    cache = BlockCache(torch.device("cuda"), 2000, cache_bytes)
    for _ in range(2):
        (forward,), (backward,) = search_shards([source], [target], 4, cache, lambda _: None)
        assert_nearest(forward, x, y, ids[1])
        assert_nearest(backward, y, x, ids[0])
