"""Exact search by one dense product against sorting the whole similarity matrix, and against the search in tiles."""

from collections.abc import Callable

import dense as reference
import numpy as np
import pytest
from search_cases import SHAPES, Sides, assert_nearest, many_ties, mixed_scales, near_ties, one_dimension

from miner.search import dense, exact
from miner.search.neighbours import Neighbours, VectorBlock
from miner.search.readers import RowGroup, ShardReader


def assert_equal(left: Neighbours, right: Neighbours) -> None:
    np.testing.assert_array_equal(left.ids, right.ids)
    np.testing.assert_array_equal(left.similarities, right.similarities)


def blocks(x: np.ndarray, y: np.ndarray) -> tuple[VectorBlock, VectorBlock]:
    return VectorBlock(reference.ids(len(x), 10), x), VectorBlock(reference.ids(len(y), 11), y)


def assert_exact(x: np.ndarray, y: np.ndarray, k: int) -> None:
    source, target = blocks(x, y)
    forward, backward = dense.search_block(source, target, k)
    assert_nearest(forward, x, y, target.ids)
    assert_nearest(backward, y, x, source.ids)
    for neighbours, tiled in zip((forward, backward), exact.search_block(source, target, k), strict=True):
        assert_equal(neighbours, tiled)


@pytest.mark.parametrize("k", [1, 4, 40, 2000])  # 2,000: more than there are
@pytest.mark.parametrize("make_sides", [many_ties, near_ties, mixed_scales, one_dimension])
def test_equals_the_reference_and_the_search_in_tiles(make_sides: Callable[[], Sides], k: int) -> None:
    assert_exact(*make_sides(), k)


@pytest.mark.parametrize("max_similarities", [1, 100, 2_000])  # tiles of a vector, of ten, and of 44
def test_large_sides_are_searched_in_tiles(max_similarities: int) -> None:
    x, y = many_ties()
    source, target = blocks(x[:60], y[:50])
    for tiled, whole in zip(dense.search_block(source, target, 4, max_similarities), dense.search_block(source, target, 4), strict=True):
        assert_equal(tiled, whole)


@pytest.mark.parametrize(("rows", "columns", "dim", "k"), SHAPES)
def test_shapes(rows: int, columns: int, dim: int, k: int) -> None:
    assert_exact(reference.unit(rows, dim, 1), reference.unit(columns, dim, 2), k)


def test_ties_by_hand() -> None:
    similarities = np.array([[1, 1, 1, 0.5], [0, 0.5, 1, 0.5]])
    for neighbours in (
        dense.nearest(similarities, np.array([7, -3, 5, 1]), 2, axis=1),
        dense.nearest(similarities.T.copy(), np.array([7, -3, 5, 1]), 2, axis=0),
    ):
        assert neighbours.ids.tolist() == [[-3, 5], [5, -3]]
        assert neighbours.similarities.tolist() == [[1, 1], [1, 0.5]]


@pytest.mark.parametrize("rows", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_side_has_no_neighbours(rows: tuple[int, int]) -> None:
    forward, backward = dense.search_block(*blocks(*(reference.unit(count, 8, 0) for count in rows)), 2)
    for neighbours, count in zip((forward, backward), rows, strict=True):
        assert neighbours.ids.tolist() == [[-1, -1]] * count
        assert np.isnan(neighbours.similarities).all()
        assert neighbours.similarities.shape == (count, 2)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])  # shards of later increments have smaller ids too
def test_shards_are_searched_as_one(order: tuple[int, ...]) -> None:
    x, y = (side[::4] for side in many_ties())
    source, target = blocks(x, y)

    def cut(block: VectorBlock) -> list[ShardReader]:
        bounds = [0, 5, 5, len(block.ids)]  # the second shard is empty

        def reader(number: int) -> ShardReader:
            def read() -> list[RowGroup]:
                rows = np.arange(bounds[number], bounds[number + 1])
                return [(block.ids[part], block.vectors[part]) for part in np.array_split(rows, 2)]

            return ShardReader(number, block.vectors.shape[1], read)

        return [reader(number) for number in order]

    pairs = list[int]()
    forward, backward = dense.search_shards(cut(source), cut(target), 4, pairs.append)
    assert sum(pairs) == len(x) * len(y)
    for parts, expected in zip((forward, backward), dense.search_block(source, target, 4), strict=True):
        sizes = (5, 0, len(expected.ids) - 5)
        assert [len(part.ids) for part in parts] == [sizes[number] for number in order]
        rows = np.split(np.arange(len(expected.ids)), [5, 5])
        for part, number in zip(parts, order, strict=True):
            assert_equal(part, expected.take(rows[number]))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4096, 4096, 256), True),
        ((4097, 4096, 256), False),  # too many multiplications
        ((1 << 24, 1, 1), True),
        ((1 << 24, 2, 1), False),  # too much memory
        ((0, 0, 0), True),
    ],
)
def test_small_sides_are_bounded_in_time_and_memory(shape: tuple[int, int, int], expected: bool) -> None:
    assert dense.is_small(*shape) == expected
