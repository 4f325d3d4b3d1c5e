"""Exact search on a CUDA device against the whole similarity matrix. Imports no more than search needs (`benchmarks/gpu.py` runs it)."""

from collections.abc import Callable

import dense
import pytest
import torch
from search_cases import SHAPES, Sides, assert_exact, many_ties, mixed_scales, near_ties

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize(("rows", "columns", "dim", "k"), SHAPES)
def test_both_directions_equal_the_whole_matrix_on_cuda(rows: int, columns: int, dim: int, k: int) -> None:
    assert_exact(dense.unit(rows, dim, 0), dense.unit(columns, dim, 1), k, device="cuda")


@pytest.mark.parametrize("make_sides", [many_ties, near_ties, mixed_scales])
@pytest.mark.parametrize("tile_rows", [16384, 256])
def test_result_is_independent_of_tiles_on_cuda(make_sides: Callable[[], Sides], tile_rows: int) -> None:
    assert_exact(*make_sides(), k=4, device="cuda", gpu_tile_rows=tile_rows, min_trial_multiplications=0)
