"""Search along principal axes: the bound of the tails in float64, the choice of the number of axes, and exact results."""

from collections.abc import Callable

import dense
import numpy as np
import pytest
import torch
from search_cases import USABLE_PRECISIONS, Sides, assert_exact, many_ties, mixed_scales, near_ties, no_ties

from miner.search import exact
from miner.search.blocks import BlockCache, ShardReader, search_shards
from miner.search.exact import SearchOptions
from miner.search.precision import PRECISIONS, build_tiles
from miner.search.principal_axes import AxesSettings, PrincipalAxes, choose_axes

CASES = [many_ties, mixed_scales, near_ties, no_ties]
IN_LEVELS = [name for name in USABLE_PRECISIONS if PRECISIONS[name].is_in_levels]
SETTINGS = AxesSettings(k=4, num_candidates=24, rounding_error=0.03, search_again_cost=2.0)


def random_axes(dim: int, num_axes: int) -> PrincipalAxes:
    matrix = np.linalg.qr(np.random.default_rng(dim).standard_normal((dim, num_axes)))[0]
    return PrincipalAxes.of(torch.from_numpy(matrix.astype(np.float32)))


def in_few_dimensions(rows: int, dim: int, energy: float, seed: int) -> np.ndarray:
    """Unit vectors with this share of their energy in 32 directions, which are the same for any seed and are not axes."""
    numbers, rotation = np.random.default_rng(seed), np.linalg.qr(np.random.default_rng(0).standard_normal((dim, dim)))[0]
    parts = [numbers.standard_normal((rows, size)) for size in (32, dim - 32)]
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts]
    return (np.hstack([unit[0] * energy**0.5, unit[1] * (1 - energy) ** 0.5]) @ rotation.T).astype(np.float16)


def test_error_of_a_matrix_is_measured() -> None:
    assert PrincipalAxes.of(torch.eye(8)[:, :3].contiguous()).error < 1e-6
    assert PrincipalAxes.of(1.01 * torch.eye(8)[:, :1].contiguous()).error == pytest.approx(0.0201, abs=1e-5)


@pytest.mark.parametrize("num_axes", [1, 7, 24])
@pytest.mark.parametrize("scale", [1.0, 1.01])  # axes of which the rounding is large too
def test_norms_bound_each_similarity(num_axes: int, scale: float) -> None:
    axes = PrincipalAxes.of(scale * random_axes(24, num_axes).matrix)
    x, y = (np.vstack([dense.unit(60, 24, seed), np.zeros((1, 24), np.float16)]) for seed in (1, 2))
    y[:20] = x[:20]
    one, other = (axes.project(torch.from_numpy(side)) for side in (x, y))
    similarities = x.astype(np.float64) @ y.astype(np.float64).T
    products = one.coordinates.double().numpy() @ other.coordinates.double().numpy().T
    errors, tails, lengths = ([getattr(side, name).double().numpy() for side in (one, other)] for name in ("errors", "tails", "lengths"))
    bound = np.outer(errors[0], lengths[1]) + np.outer(np.linalg.norm(one.coordinates, axis=1), errors[1]) + np.outer(*tails)
    assert (np.abs(similarities - products) <= bound).all()
    if scale == 1.0:  # the tails are those of the exact projection, nearly
        left = x.astype(np.float64) - x.astype(np.float64) @ axes.matrix.double().numpy() @ axes.matrix.double().numpy().T
        np.testing.assert_allclose(one.tails, np.linalg.norm(left, axis=1), atol=0.02)


@pytest.mark.parametrize("name", IN_LEVELS)
def test_tiles_along_axes_are_sorted_by_their_tails(name: str) -> None:
    tiles = build_tiles(torch.from_numpy(dense.unit(300, 64, 3)), PRECISIONS[name], 128, random_axes(64, 32))
    tails = torch.cat([tile.tail_norms[: len(tile.positions)] for tile in tiles])
    assert (tails.diff() >= 0).all()
    assert [tile.max_tail_norm for tile in tiles] == [float(tile.tail_norms.max()) for tile in tiles]
    assert sorted(torch.cat([tile.positions for tile in tiles]).tolist()) == list(range(300))
    assert {tile.operand.shape[1] for tile in tiles} == {32}


@pytest.mark.parametrize("name", IN_LEVELS)
@pytest.mark.parametrize("make_sides", CASES)
@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
def test_result_along_any_axes_equals_the_whole_matrix(make_sides: Callable[[], Sides], share: float, name: str) -> None:
    x, y = make_sides()
    axes = random_axes(x.shape[1], max(1, int(share * x.shape[1])))
    for k in (1, 5):
        assert_exact(x, y, k=k, precision=name, axes=axes, cpu_tile_rows=256)


def test_as_many_axes_are_chosen_as_hold_the_energy() -> None:
    x, y = (torch.from_numpy(in_few_dimensions(3000, 256, 0.98, seed)) for seed in (5, 6))
    axes = choose_axes(x, y, SETTINGS)
    assert axes is not None
    assert axes.matrix.shape == (256, 32)
    projected = axes.project(x)
    np.testing.assert_allclose(projected.tails, 0.02**0.5, atol=0.03)


def test_no_axes_are_chosen_where_all_directions_are_alike() -> None:
    x, y = (torch.from_numpy(dense.unit(3000, 256, seed)) for seed in (7, 8))
    assert choose_axes(x, y, SETTINGS) is None


@pytest.mark.parametrize("dim", [1, 16, 63])
def test_few_dimensions_are_kept(dim: int) -> None:
    x, y = (torch.from_numpy(dense.unit(3000, dim, seed)) for seed in (13, 14))
    assert choose_axes(x, y, SETTINGS) is None


@pytest.mark.parametrize(("dim", "num_axes"), [(100, 32), (300, 32), (545, 64)])
def test_dimensions_that_are_no_multiple_of_a_step(dim: int, num_axes: int) -> None:
    x, y = (torch.from_numpy(in_few_dimensions(3000, dim, 0.98, seed)) for seed in (15, 16))
    axes = choose_axes(x, y, SETTINGS)
    assert axes is not None
    assert axes.matrix.shape == (dim, num_axes)


def test_vectors_of_zeros_have_axes_too() -> None:
    zeros = torch.zeros((3000, 128), dtype=torch.float16)
    assert choose_axes(zeros, zeros, SETTINGS) is None  # every similarity is 0, which any number of dimensions leaves uncertain


@pytest.mark.skipif(not IN_LEVELS, reason="no precision in levels is supported here")
def test_chosen_axes_give_exact_neighbours_in_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "rank_precisions", lambda *_: {IN_LEVELS[-1]: 1.0, "float32": 2.0})  # not measured on a busy machine
    x, y = (in_few_dimensions(2000, 128, 0.97, seed) for seed in (9, 10))
    y[:300] = x[300:600]
    assert_exact(x, y, k=4, min_trial_multiplications=0, min_axes_multiplications=0)
    ids = [dense.ids(2000, seed) for seed in (11, 12)]
    readers = [
        ShardReader(
            name,
            128,
            lambda side=side, rows=rows: [(rows[start : start + 500], side[start : start + 500]) for start in range(0, 2000, 500)],
        )
        for name, side, rows in (("x", x, ids[0]), ("y", y, ids[1]))
    ]
    options = SearchOptions(min_trial_multiplications=0, min_axes_multiplications=0)
    cache = BlockCache(torch.device("cpu"), 500 * 256, resident_bytes=2000 * 256, options=options)
    (forward,), (backward,) = search_shards([readers[0]], [readers[1]], 4, cache, lambda _: None)
    assert cache.options is not None
    assert cache.options.axes is not None  # chosen with the first blocks, and kept for the others
    for found, query, keys, key_ids in ((forward, x, y, ids[1]), (backward, y, x, ids[0])):
        order, similarities = dense.neighbours(query, keys, key_ids, 4)
        np.testing.assert_array_equal(found.ids, key_ids[order])
        np.testing.assert_array_equal(found.similarities, similarities)
