"""Operations on arrays, against plain loops over lists, and scipy."""

import math
from itertools import groupby

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given
from scipy import sparse, stats

from miner import arrays

SMALL = st.lists(st.integers(-3, 3), max_size=20)
LENGTHS = st.lists(st.integers(0, 4), max_size=10)


@given(SMALL, st.sets(st.integers(-3, 3)).map(sorted))
def test_find_rows(values: list[int], ascending: list[int]) -> None:
    rows = arrays.find_rows(np.array(values, np.int64), np.array(ascending, np.int64))
    assert rows.tolist() == [ascending.index(value) if value in ascending else -1 for value in values]


def test_find_rows_of_a_matrix() -> None:
    assert arrays.find_rows(np.array([[7, 2], [3, -5]]), np.array([-5, 2, 7])).tolist() == [[2, 1], [-1, 0]]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), max_size=20))
def test_runs(rows: list[tuple[int, int]]) -> None:
    first, second = np.array(rows, np.int64).reshape(-1, 2).T
    for columns, keys in (((first,), [row[0] for row in rows]), ((first, second), rows)):
        bounds = [0]
        for _, run in groupby(keys):
            bounds.append(bounds[-1] + len(list(run)))
        assert arrays.run_bounds(*columns).tolist() == bounds
        assert np.flatnonzero(arrays.mark_run_starts(*columns)).tolist() == bounds[:-1]


def test_nan_is_a_run_of_its_own() -> None:
    assert arrays.run_bounds(np.array([1.0, np.nan, np.nan, 2.0, 2.0])).tolist() == [0, 1, 2, 3, 5]


@given(LENGTHS)
def test_bounds_of_lengths(lengths: list[int]) -> None:
    assert arrays.bounds_of(np.array(lengths, np.int64)).tolist() == [sum(lengths[:row]) for row in range(len(lengths) + 1)]


@given(st.lists(st.lists(st.integers(-3, 3), max_size=4), max_size=10))
def test_sum_rows(rows: list[list[int]]) -> None:
    values = np.array([value for row in rows for value in row], np.int32)
    assert arrays.sum_rows(values, arrays.bounds_of(list(map(len, rows)))).tolist() == list(map(sum, rows))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), max_size=10))
def test_concatenate_ranges(ranges: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(ranges, np.int64).reshape(-1, 2).T
    assert arrays.concatenate_ranges(starts, lengths).tolist() == [row for start, length in ranges for row in range(start, start + length)]


@pytest.mark.parametrize(
    ("num_rows", "max_rows", "expected"),
    [(0, 5, []), (1, 5, [0]), (3, 5, [0, 1, 2]), (11, 3, [0, 5, 10]), (8, 3, [0, 4, 7]), (7, 1, [0])],
)
def test_spaced_rows(num_rows: int, max_rows: int, expected: list[int]) -> None:
    assert arrays.spaced_rows(num_rows, max_rows).tolist() == expected


def assert_components(starts: np.ndarray, ends: np.ndarray, num_nodes: int) -> None:
    """Compare with scipy, which numbers components by their smallest nodes too."""
    graph = sparse.coo_array((np.ones(len(starts)), (starts, ends)), shape=(num_nodes, num_nodes))
    expected = sparse.csgraph.connected_components(graph, directed=False)[1]
    assert (arrays.connected_components(starts, ends, num_nodes) == expected).all()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_connected_components(edges: list[tuple[int, int]]) -> None:
    starts, ends = np.array(edges, np.int64).reshape(-1, 2).T
    assert_components(starts, ends, 10)


@pytest.mark.parametrize("shuffle", [False, True])
def test_components_of_long_paths_and_random_graphs(shuffle: bool) -> None:
    generator = np.random.default_rng(0)
    nodes = generator.permutation(100_000) if shuffle else np.arange(100_000)
    cut = np.arange(99_999) % 40_000 != 39_999  # paths of 40,000, 40,000 and 20,000 nodes
    assert_components(nodes[:-1][cut], nodes[1:][cut], 100_000)
    assert_components(*generator.integers(0, 100_000, (2, 60_000)), 100_000)


@pytest.mark.parametrize(
    ("x", "y", "pearson", "spearman"),
    [
        ([1, 2, 3], [10, 20, 30], 1, 1),
        ([1, 2, 3], [3, 2, 1], -1, -1),
        ([1, 2, 3, 4, 5], [1, 4, 9, 16, 25], 30 / math.sqrt(935), 1),
        ([1, 1, 2, 3], [5, 6, 6, 8], 3.25 / math.sqrt(2.75 * 4.75), 3.75 / 4.5),  # ranks 1.5 1.5 3 4 and 1 2.5 2.5 4
        ([0.1, 0.1, 0.1], [1, 2, 3], math.nan, math.nan),
    ],
)
def test_correlations(x: list[float], y: list[float], pearson: float, spearman: float) -> None:
    columns = np.array(x, np.float32), np.array(y, np.float64)
    assert arrays.pearson(*columns) == pytest.approx(pearson, abs=1e-15, nan_ok=True)
    assert arrays.spearman(*columns) == pytest.approx(spearman, abs=1e-15, nan_ok=True)


@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(-1e6, 1e6)), min_size=2, max_size=30))
def test_correlations_equal_those_of_scipy(rows: list[tuple[int, float]]) -> None:
    x, y = np.array(rows, np.float64).T
    assume(np.ptp(x) and np.ptp(y) > 1e-3)
    assert arrays.pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert arrays.spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
