"""Exact search against the whole similarity matrix: ids, order of ties and similarities, to the last bit."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import dense
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_cases import (
    SHAPES,
    USABLE_PRECISIONS,
    Sides,
    assert_exact,
    assert_nearest,
    many_ties,
    mixed_scales,
    near_ties,
    no_ties,
    one_dimension,
)

from miner.search import precision as precision_module
from miner.search.exact import SearchOptions, search_block, search_forward
from miner.search.neighbours import Neighbours, VectorBlock, empty_neighbours, select_nearest
from miner.search.parallel import parallel_for
from miner.search.precision import LEVELS, PRECISIONS, Precision, Tile, build_tiles, rank_by_probes, rank_precisions
from miner.search.prefilter import (
    NO_CANDIDATE,
    POSITION_MASK,
    PrefilterSettings,
    TileCandidates,
    pack_keys,
    scan_both,
    scan_rows,
    unpack_bounds,
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Run torch in one thread: the matrices are small, and threads of several test processes would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


MakeSides = Callable[[], Sides]
IN_LEVELS = [name for name in USABLE_PRECISIONS if PRECISIONS[name].is_in_levels]


@pytest.mark.parametrize(("rows", "columns", "dim", "k"), SHAPES)
def test_both_directions_equal_the_whole_matrix(rows: int, columns: int, dim: int, k: int) -> None:
    assert_exact(dense.unit(rows, dim, 0), dense.unit(columns, dim, 1), k)


@pytest.mark.parametrize("precision", USABLE_PRECISIONS)
@pytest.mark.parametrize("make_sides", [many_ties, near_ties, mixed_scales, one_dimension])
@pytest.mark.parametrize("tile_rows", [2048, 256])
def test_result_is_independent_of_precision_and_tiles(make_sides: MakeSides, tile_rows: int, precision: str) -> None:
    assert_exact(*make_sides(), k=4, precision=precision, cpu_tile_rows=tile_rows)


@pytest.mark.parametrize("make_sides", [many_ties, mixed_scales])
def test_result_is_independent_of_the_precision_that_trials_choose(make_sides: MakeSides) -> None:
    assert_exact(*make_sides(), k=4, min_trial_multiplications=0)


def test_near_ties_are_beyond_float32() -> None:
    x, y = near_ties()
    rounded = x.astype(np.float32) @ y.astype(np.float32).T
    assert (np.argsort(-rounded, axis=1, kind="stable")[:, :4] != dense.neighbours(x, y, np.arange(len(y)), 4)[0]).any()


@pytest.mark.parametrize("name", USABLE_PRECISIONS)
@pytest.mark.parametrize("make_sides", [mixed_scales, no_ties])
def test_bounds_hold_for_kept_and_for_dropped_candidates(make_sides: MakeSides, name: str) -> None:
    """The exactness of search rests on these bounds; they are checked against the true similarities."""
    precision, (x, y) = PRECISIONS[name], make_sides()
    rows, columns = (build_tiles(torch.from_numpy(side), precision, 256) for side in (x, y))
    prefilter = PrefilterSettings(3, 12, precision)
    tiles = [TileCandidates(tile, columns, prefilter, torch.full((len(tile.positions),), -torch.inf)) for tile in rows]
    scan_rows(tiles, columns, precision)
    similarities = torch.from_numpy(x.astype(np.float64) @ y.astype(np.float64).T)
    for candidates in tiles:
        row = candidates.tile.positions
        upper_bounds, positions = candidates.upper_bounds[: len(row)], candidates.positions[: len(row)].long()
        dropped_bounds = candidates.dropped_bounds[: len(row)]
        is_candidate = ~upper_bounds.isinf()
        assert is_candidate[:, :3].all()
        assert (similarities[row].gather(1, positions)[is_candidate] <= upper_bounds[is_candidate]).all()
        dropped = similarities[row].clone()
        for i in range(len(row)):
            assert len(positions[i, is_candidate[i]].unique()) == is_candidate[i].sum()
            dropped[i, positions[i, is_candidate[i]]] = -np.inf
        assert (dropped <= dropped_bounds[:, None]).all()
        if make_sides is no_ties:  # a bound that is always too high would be useless
            assert (similarities[row].topk(3).values[:, -1] > dropped_bounds).double().mean() > 0.9


def test_precisions_are_ranked_by_speed_and_end_with_float32() -> None:
    ranked = rank_precisions(torch.device("cpu"), 64)
    assert list(ranked)[-1] == "float32"
    assert list(ranked.values()) == sorted(ranked.values())


def test_a_format_without_fast_instructions_gets_short_products_only() -> None:
    seconds = {"float32": 1.0, "int8": 0.25, "float16": 100.0, "bfloat16": float("inf")}  # of a product of the longer shape
    elements: dict[str, int] = {}

    def probe(name: str, shape: tuple[int, int]) -> float:
        elements[name] = max(elements.get(name, 0), shape[0] * shape[1])
        return seconds[name] * shape[0] * shape[1]

    assert list(rank_by_probes(seconds, probe)) == ["int8", "float32"]
    assert elements["float16"] == elements["bfloat16"] == elements["float32"] / 64  # the shortest product instead of the longest
    assert elements["int8"] == elements["float32"]


def test_a_format_that_is_slow_in_longer_products_gets_two_of_them() -> None:
    probes: list[tuple[str, tuple[int, int]]] = []
    longest = precision_module.PROBES[-1][0]

    def probe(name: str, shape: tuple[int, int]) -> float:
        probes.append((name, shape))
        is_slow = name == "float16" and shape == longest
        return (100.0 if is_slow else 1.0 if name == "float32" else 0.5) * shape[0] * shape[1]

    assert rank_by_probes(["int8", "float16", "float32"], probe) == {"int8": 0.5, "float32": 1.0}
    numbers = [probes.count((name, longest)) for name in ("int8", "float16", "float32")]
    assert numbers == [precision_module.PROBE_REPEATS, 2, precision_module.PROBE_REPEATS]


def test_integer_products_that_saturate_are_never_used() -> None:
    class Saturating(Precision):
        def multiply(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            return out.copy_((left.float() @ right.float()).clamp(max=2**15 - 1))

    wrong, right = Saturating(torch.int8, torch.int32, 0), Precision(torch.float32, torch.float32, 0)
    assert precision_module._probe_seconds(wrong, (16, 128), 64) == float("inf")
    assert precision_module._probe_seconds(right, (16, 128), 64) < float("inf")


def test_products_in_levels_that_saturate_are_never_used() -> None:
    class Saturating(Precision):
        def multiplier(self, columns: Tile, max_rows: int) -> Callable[[Tile], torch.Tensor]:
            del max_rows
            return lambda rows: torch.full((len(rows.operand), len(columns.operand)), 200, dtype=torch.uint8)

    assert precision_module._probe_seconds(Saturating(torch.int8, torch.uint8, 0), (16, 128), 64) == float("inf")


@pytest.mark.parametrize("name", IN_LEVELS)
@pytest.mark.parametrize("dim", [1, 2, 3, 5, 64, 257])
def test_levels_are_products_within_their_error_and_negative_ones_are_zero(dim: int, name: str) -> None:
    precision = PRECISIONS[name]
    vectors = [dense.unit(70, dim, seed) for seed in (20, 21)]
    for side in vectors:
        side[:3] = [np.full(dim, 1 / np.sqrt(dim)), np.full(dim, -1 / np.sqrt(dim)), np.zeros(dim)]  # the largest and smallest product
    (x,), (y,) = (build_tiles(torch.from_numpy(side), precision, 128) for side in vectors)
    levels = precision.multiplier(y, 128)(x).double()
    products = x.scale * x.operand.double() @ y.operand.double().T * y.scale / precision.product_scale(x, y)
    assert ((levels - products.clamp(min=0)).abs() <= precision.level_error(dim)).all()
    assert (levels[products < 0] == 0).all()
    assert levels.max() <= LEVELS


@pytest.mark.parametrize("name", IN_LEVELS)
@pytest.mark.parametrize("make_sides", [many_ties, mixed_scales, no_ties])
def test_levels_of_both_directions_are_in_bounds(make_sides: MakeSides, name: str) -> None:
    """A tile of the first pass is dense, so that thresholds are raised by maxima; the later ones are sparse."""
    precision, (x, y) = PRECISIONS[name], make_sides()
    tiles = [build_tiles(torch.from_numpy(side), precision, 192) for side in (x, y)]
    prefilter = PrefilterSettings(2, 6, precision)
    rows, columns = (
        [TileCandidates(tile, other, prefilter, torch.full((len(tile.positions),), -torch.inf)) for tile in own]
        for own, other in (tiles, tiles[::-1])
    )
    scan_both(rows, columns, precision)
    similarities = torch.from_numpy(x.astype(np.float64) @ y.astype(np.float64).T)
    for side, matrix in ((rows, similarities), (columns, similarities.T)):
        for candidates in side:
            count = len(candidates.tile.positions)
            exact = matrix[candidates.tile.positions].clone()
            is_candidate = ~candidates.upper_bounds[:count].isinf()
            row, column = is_candidate.nonzero()[:, 0], candidates.positions[:count][is_candidate]
            assert len(torch.stack([row, column]).unique(dim=1).T) == len(row)
            assert (exact[row, column] <= candidates.upper_bounds[:count][is_candidate]).all()
            exact[row, column] = -torch.inf
            assert (exact <= candidates.dropped_bounds[:count, None]).all()


@given(st.lists(st.tuples(st.floats(width=32, allow_nan=False), st.integers(0, 2**31 - 1)), min_size=1))
def test_keys_of_candidates_sort_like_their_bounds(candidates: list[tuple[float, int]]) -> None:
    bounds, positions = torch.tensor([bound for bound, _ in candidates]), torch.tensor([position for _, position in candidates])
    keys = pack_keys(bounds, positions).sort().values
    assert (unpack_bounds(keys) == bounds.sort().values).all()
    assert sorted((keys & POSITION_MASK).tolist()) == sorted(positions.tolist())
    assert int(pack_keys(torch.tensor([-torch.inf]), torch.tensor([0]))) == NO_CANDIDATE


def test_rows_with_more_ties_than_candidates_are_searched_again_until_they_are_certain() -> None:
    """Pairs differ by less than the rounding of int8, and more of them than are kept in the first search or in the second."""
    x, y = dense.unit(40, 32, 30), dense.unit(900, 32, 31)
    y[:800] = x[0]
    y[:800, :8] += np.random.default_rng(32).integers(0, 4, size=(800, 8)).astype(np.float16) * np.float16(2**-12)
    for k in (1, 4):
        for name in IN_LEVELS:
            assert_exact(x, y, k=k, precision=name, cpu_tile_rows=256)


def test_a_single_interrupted_probe_does_not_hide_a_fast_format() -> None:
    calls: dict[str, int] = {}

    def probe(name: str, shape: tuple[int, int]) -> float:
        calls[name] = calls.get(name, 0) + 1
        return 1000.0 if calls[name] == 1 else (1.0 if name == "float32" else 0.5) * shape[0] * shape[1]

    assert list(rank_by_probes(["float32", "int8"], probe)) == ["int8", "float32"]


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_previous_neighbours_are_merged(precision: str) -> None:
    x, y = many_ties()
    x_ids, y_ids = dense.ids(len(x), 10), dense.ids(len(y), 11)
    forward, _ = search_block(VectorBlock(x_ids, x), VectorBlock(y_ids[:900], y[:900]), 4)
    previous = forward, empty_neighbours(600, 4)
    target = VectorBlock(y_ids[900:], y[900:])
    forward, backward = search_block(VectorBlock(x_ids, x), target, 4, SearchOptions(precision=precision), previous)
    assert_nearest(forward, x, y, y_ids)
    assert_nearest(backward, y[900:], x, x_ids)


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("make_sides", [many_ties, near_ties, mixed_scales])
def test_forward_search_block_by_block_equals_the_whole_matrix(make_sides: MakeSides, precision: str) -> None:
    x, y = make_sides()
    source, y_ids = VectorBlock(dense.ids(len(x), 10), x), dense.ids(len(y), 11)
    neighbours = empty_neighbours(len(x), 5)
    for rows in (slice(0, 150), slice(150, 150), slice(150, len(y))):
        neighbours = search_forward(source, VectorBlock(y_ids[rows], y[rows]), neighbours, SearchOptions(precision=precision))
    assert_nearest(neighbours, x, y, y_ids)


def test_an_empty_block_has_no_neighbours() -> None:
    empty = VectorBlock(np.zeros(0, dtype=np.int64), np.zeros((0, 8), dtype=np.float16))
    forward, backward = search_block(VectorBlock(dense.ids(3, 0), dense.unit(3, 8, 0)), empty, 2)
    assert forward.ids.tolist() == [[-1, -1]] * 3
    assert np.isnan(forward.similarities).all()
    assert backward.ids.shape == (0, 2)


@pytest.mark.parametrize("make_sides", [many_ties, near_ties, lambda: (dense.unit(3, 8, 0), dense.unit(1, 8, 1))])
def test_neighbours_without_self_equal_the_whole_matrix_without_its_diagonal(make_sides: MakeSides) -> None:
    for x in make_sides():
        ids = dense.ids(len(x), 12)
        block = VectorBlock(ids, x)
        neighbours = search_forward(block, block, empty_neighbours(len(x), 5)).without_self(ids)
        similarities = x.astype(np.float64) @ x.astype(np.float64).T
        np.fill_diagonal(similarities, np.nan)
        expected = select_nearest(np.tile(ids, (len(x), 1)), similarities, 4)
        np.testing.assert_array_equal(neighbours.ids, expected.ids)
        np.testing.assert_array_equal(neighbours.similarities, expected.similarities)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_merging_in_any_order_gives_the_same_neighbours(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 30))
    k = data.draw(st.integers(1, 6))
    value = st.sampled_from([0.0, 0.25, 0.5, np.nan])
    similarities = np.array(data.draw(st.lists(st.lists(value, min_size=columns, max_size=columns), min_size=rows, max_size=rows)))
    ids = np.tile(dense.ids(columns, 0), (rows, 1))
    expected = select_nearest(ids, similarities, k)
    cuts = sorted(data.draw(st.sets(st.integers(1, columns - 1)))) if columns > 1 else []
    ranges = itertools.pairwise([0, *cuts, columns])
    parts = [select_nearest(ids[:, start:end], similarities[:, start:end], k) for start, end in ranges]
    parts = data.draw(st.permutations(parts))
    while len(parts) > 1:  # merge any two adjacent parts
        first = data.draw(st.integers(0, len(parts) - 2))
        parts[first : first + 2] = [parts[first].merge(parts[first + 1])]
    np.testing.assert_array_equal(parts[0].ids, expected.ids)
    np.testing.assert_array_equal(parts[0].similarities, expected.similarities)


def random_side(random: np.random.Generator, rows: int) -> np.ndarray:
    """Unit vectors of four components with many ties."""
    vectors = random.choice([-1, 0, 1], size=(rows, 4), p=[0.25, 0.5, 0.25])
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)).astype(np.float16)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_result_is_independent_of_the_sharding(data: st.DataObject) -> None:
    """Any shards of both sides, any precision, blocks merged in any order."""
    random = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, y = (random_side(random, rows) for rows in data.draw(st.tuples(*[st.integers(1, 90)] * 2)))
    x_ids, y_ids, k = dense.ids(len(x), 10), dense.ids(len(y), 11), data.draw(st.integers(1, 5))
    cuts = [[0, *sorted(data.draw(st.sets(st.integers(0, len(side)), max_size=3))), len(side)] for side in (x, y)]
    forward, backward = empty_neighbours(len(x), k), empty_neighbours(len(y), k)
    shard_pairs = itertools.product(*([slice(*ends) for ends in itertools.pairwise(cut)] for cut in cuts))
    for rows, columns in data.draw(st.permutations(list(shard_pairs))):
        source, target = VectorBlock(x_ids[rows], x[rows]), VectorBlock(y_ids[columns], y[columns])
        options = SearchOptions(precision=data.draw(st.sampled_from(USABLE_PRECISIONS)))
        parts = search_block(source, target, k, options)
        for whole, part, shard in zip((forward, backward), parts, (rows, columns), strict=True):
            merged = Neighbours(whole.ids[shard], whole.similarities[shard]).merge(part)
            whole.ids[shard], whole.similarities[shard] = merged.ids, merged.similarities
    assert_nearest(forward, x, y, y_ids)
    assert_nearest(backward, y, x, x_ids)


def test_parallel_tasks_run_in_threads_with_one_torch_thread_each() -> None:
    torch.set_num_threads(3)
    threads: dict[int, tuple[int, str]] = {}

    def task(number: int) -> None:
        threads[number] = (torch.get_num_threads(), threading.current_thread().name)

    parallel_for(20, task)
    assert sorted(threads) == list(range(20))
    assert {torch_threads for torch_threads, _ in threads.values()} == {1}
    assert threading.current_thread().name not in {name for _, name in threads.values()}
    assert torch.get_num_threads() == 3


def test_a_failed_parallel_task_cancels_the_pending_ones() -> None:
    torch.set_num_threads(2)
    finished: list[int] = []

    def task(number: int) -> None:
        if number == 0:
            raise ValueError("the first")
        time.sleep(0.01)
        finished.append(number)

    with pytest.raises(ValueError, match="the first"):
        parallel_for(200, task)
    assert len(finished) < 100
    assert torch.get_num_threads() == 2
