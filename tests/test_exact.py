"""Exact search against the whole similarity matrix: ids, order of ties and similarities, to the last bit."""

import itertools

import dense
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from miner.search import exact, neighbours
from miner.search.exact import Block, search_block
from miner.search.neighbours import Neighbours

DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")])]


def assert_nearest(found: Neighbours, x: np.ndarray, y: np.ndarray, y_ids: np.ndarray) -> None:
    order, similarities = dense.neighbours(x, y, y_ids, found.k)
    there = order.shape[1]
    np.testing.assert_array_equal(found.ids[:, :there], y_ids[order])
    np.testing.assert_array_equal(found.similarities[:, :there], similarities)
    assert (found.ids[:, there:] == -1).all()
    assert np.isnan(found.similarities[:, there:]).all()


def assert_exact(x: np.ndarray, y: np.ndarray, k: int, device: str = "cpu") -> None:
    x_ids, y_ids = dense.ids(len(x), 10), dense.ids(len(y), 11)
    forward, backward = search_block(Block(x_ids, x), Block(y_ids, y), k, device)
    assert_nearest(forward, x, y, y_ids)
    assert_nearest(backward, y, x, x_ids)


def crowded() -> tuple[np.ndarray, np.ndarray]:
    """Vectors of which many are equal, and many zero."""
    x, y = dense.unit(700, 8, 0), dense.unit(1500, 8, 1)
    y[200:1200] = x[0]
    y[1200:1300] = 0
    x[100:400] = x[0]
    x[400:420] = 0
    x[420:430] = -x[0]
    return x, y


def nearly_equal() -> tuple[np.ndarray, np.ndarray]:
    """Similarities that differ by less than float32 can tell: by a few of the smallest float16 steps times 0.1."""
    x, y = dense.unit(50, 64, 2), dense.unit(400, 64, 3)
    y[:] = y[0]
    y[:, :32] = np.random.default_rng(4).integers(0, 8, size=(400, 32)) * np.float16(2**-24)
    return x, y


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("rows", "columns", "dim", "k"), [(700, 900, 16, 4), (40, 2100, 48, 16), (1, 1, 8, 4), (3, 500, 8, 5), (9, 2, 8, 40)]
)
def test_both_directions_equal_the_whole_matrix(rows: int, columns: int, dim: int, k: int, device: str) -> None:
    assert_exact(dense.unit(rows, dim, 0), dense.unit(columns, dim, 1), k, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", [crowded, nearly_equal])
@pytest.mark.parametrize("tile", [8192, 256])
def test_ties_and_near_ties_equal_the_whole_matrix(make, tile: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "TILE", tile)
    assert_exact(*make(), k=4, device=device)


def test_near_ties_are_beyond_float32() -> None:
    x, y = nearly_equal()
    rounded = x.astype(np.float32) @ y.astype(np.float32).T
    assert (np.argsort(-rounded, axis=1, kind="stable")[:, :4] != dense.neighbours(x, y, np.arange(len(y)), 4)[0]).any()


def test_the_proposals_hold_the_largest_of_rows_and_columns() -> None:
    scores = torch.from_numpy(np.random.default_rng(0).normal(size=(1000, 1700)).astype(np.float32))
    for dim in (0, 1):
        values, positions = exact._largest(scores, 5, dim)
        wanted = scores.sort(dim, descending=True)
        assert torch.equal(values, wanted.values.narrow(dim, 0, 5))
        assert torch.equal(positions, wanted.indices.narrow(dim, 0, 5))


def test_an_empty_block_has_no_neighbours() -> None:
    nothing = Block(np.zeros(0, dtype=np.int64), np.zeros((0, 8), dtype=np.float16))
    forward, backward = search_block(Block(dense.ids(3, 0), dense.unit(3, 8, 0)), nothing, 2)
    assert forward.ids.tolist() == [[-1, -1]] * 3
    assert np.isnan(forward.similarities).all()
    assert backward.ids.shape == (0, 2)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_cut_and_any_order_of_merging_give_the_same(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 30))
    k = data.draw(st.integers(1, 6))
    value = st.sampled_from([0.0, 0.25, 0.5, np.nan])
    similarities = np.array(data.draw(st.lists(st.lists(value, min_size=columns, max_size=columns), min_size=rows, max_size=rows)))
    ids = np.tile(dense.ids(columns, 0), (rows, 1))
    whole = neighbours.nearest(ids, similarities, k)
    cuts = sorted(data.draw(st.sets(st.integers(1, columns - 1)))) if columns > 1 else []
    parts = [neighbours.nearest(ids[:, start:end], similarities[:, start:end], k) for start, end in itertools.pairwise([0, *cuts, columns])]
    parts = data.draw(st.permutations(parts))
    while len(parts) > 1:  # merge two neighbours in the list at a time, anywhere
        at = data.draw(st.integers(0, len(parts) - 2))
        parts[at : at + 2] = [parts[at].merge(parts[at + 1])]
    np.testing.assert_array_equal(parts[0].ids, whole.ids)
    np.testing.assert_array_equal(parts[0].similarities, whole.similarities)


def test_the_result_does_not_depend_on_how_the_corpora_are_cut() -> None:
    x, y = crowded()
    x_ids, y_ids = dense.ids(len(x), 10), dense.ids(len(y), 11)
    columns = [slice(0, 1), slice(1, 640), slice(640, 1500)]
    parts = [search_block(Block(x_ids, x), Block(y_ids[part], y[part]), 4) for part in columns]
    assert_nearest(neighbours.merge_all(forward for forward, _ in reversed(parts)), x, y, y_ids)
    assert_nearest(neighbours.stack(backward for _, backward in parts), y, x, x_ids)
