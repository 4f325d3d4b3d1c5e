"""Exact search against the whole similarity matrix: ids, order of ties and similarities, to the last bit."""

import itertools
import threading
import time
from collections.abc import Iterator

import dense
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from miner.search import exact, neighbours
from miner.search.exact import VectorBlock, search_block, search_for, search_self
from miner.search.neighbours import Neighbours
from miner.search.parallel import for_each
from miner.search.precision import PRECISIONS, fastest, tiles
from miner.search.prefilter import Best, Wanted, scan

DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")])]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """These matrices are small, and threads of several test processes would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def assert_nearest(found: Neighbours, x: np.ndarray, y: np.ndarray, y_ids: np.ndarray) -> None:
    order, similarities = dense.neighbours(x, y, y_ids, found.k)
    there = order.shape[1]
    np.testing.assert_array_equal(found.ids[:, :there], y_ids[order])
    np.testing.assert_array_equal(found.similarities[:, :there], similarities)
    assert (found.ids[:, there:] == -1).all()
    assert np.isnan(found.similarities[:, there:]).all()


def assert_exact(x: np.ndarray, y: np.ndarray, k: int, device: str = "cpu", precision: str | None = None) -> None:
    x_ids, y_ids = dense.ids(len(x), 10), dense.ids(len(y), 11)
    forward, backward = search_block(VectorBlock(x_ids, x), VectorBlock(y_ids, y), k, device, precision)
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


def far_apart() -> tuple[np.ndarray, np.ndarray]:
    return dense.unit(500, 32, 7), dense.unit(3000, 32, 8)


def lopsided() -> tuple[np.ndarray, np.ndarray]:
    """Vectors with one number that is far larger than the others, beside some without."""
    x, y = dense.unit(300, 48, 5), dense.unit(400, 48, 6)
    for vectors in (x, y):
        wide = vectors[::3].astype(np.float32)
        wide[:, 7] = 20
        vectors[::3] = wide / np.linalg.norm(wide, axis=1, keepdims=True)
    return x, y


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("rows", "columns", "dim", "k"),
    [(700, 900, 16, 4), (40, 2100, 48, 16), (1, 1, 8, 4), (3, 500, 8, 5), (9, 2, 8, 40), (130, 700, 1024, 2)],
)
def test_both_directions_equal_the_whole_matrix(rows: int, columns: int, dim: int, k: int, device: str) -> None:
    assert_exact(dense.unit(rows, dim, 0), dense.unit(columns, dim, 1), k, device)


def one_number() -> tuple[np.ndarray, np.ndarray]:
    """Vectors of one dimension: each is 1, -1 or 0."""
    x, y = dense.unit(70, 1, 12), dense.unit(90, 1, 13)
    x[::7] = y[::5] = 0
    return x, y


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("make", [crowded, nearly_equal, lopsided, one_number])
@pytest.mark.parametrize("tile", [2048, 256])
def test_no_precision_and_no_tiles_show(make, tile: int, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "TILE", tile)
    assert_exact(*make(), k=4, precision=precision)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
@pytest.mark.parametrize("make", [crowded, nearly_equal, lopsided])
@pytest.mark.parametrize("tile", [16384, 256])
def test_no_precision_and_no_tiles_show_on_cuda(make, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "DEVICE_TILE", tile)
    monkeypatch.setattr(exact, "SMALL", 0)
    assert_exact(*make(), k=4, device="cuda")


@pytest.mark.parametrize("make", [crowded, lopsided])
def test_the_precision_chosen_here_does_not_show(make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "SMALL", 0)
    assert_exact(*make(), k=4)


def test_near_ties_are_beyond_float32() -> None:
    x, y = nearly_equal()
    rounded = x.astype(np.float32) @ y.astype(np.float32).T
    assert (np.argsort(-rounded, axis=1, kind="stable")[:, :4] != dense.neighbours(x, y, np.arange(len(y)), 4)[0]).any()


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("make", [lopsided, far_apart])
def test_bounds_hold_for_what_is_kept_and_for_what_is_let_go(make, name: str) -> None:
    """The promise that everything else rests on, against the similarities themselves."""
    precision, (x, y) = PRECISIONS[name], make()
    rows, columns = (tiles(torch.from_numpy(side), precision, 256) for side in (x, y))
    wanted = Wanted(3, 12, precision)
    best = [Best(tile, columns, wanted, torch.full((len(tile.positions),), -torch.inf)) for tile in rows]
    scan(best, columns, precision)
    exactly = torch.from_numpy(x.astype(np.float64) @ y.astype(np.float64).T)
    for one in best:
        at = one.tile.positions
        upper, places, dropped = one.upper[: len(at)], one.positions[: len(at)].long(), one.dropped[: len(at)]
        there = ~upper.isinf()
        assert there[:, :3].all()
        assert (exactly[at].gather(1, places)[there] <= upper[there]).all()
        gone = exactly[at].clone()
        for row in range(len(at)):
            assert len(places[row, there[row]].unique()) == there[row].sum()
            gone[row, places[row, there[row]]] = -np.inf
        assert (gone <= dropped[:, None]).all()
        if make is far_apart:  # else the bounds would be of no use
            assert (exactly[at].topk(3).values[:, -1] > dropped).double().mean() > 0.9


def test_a_processor_is_asked_for_what_it_does_fastest() -> None:
    found = fastest(torch.device("cpu"), 64)
    assert list(found)[-1] == "float32"
    assert list(found.values()) == sorted(found.values())


def test_what_is_known_is_merged() -> None:
    x, y = crowded()
    x_ids, y_ids = dense.ids(len(x), 10), dense.ids(len(y), 11)
    for precision in ("int8", "float32"):
        forward, _ = search_block(VectorBlock(x_ids, x), VectorBlock(y_ids[:900], y[:900]), 4)
        known = forward, neighbours.none(600, 4)
        forward, backward = search_block(VectorBlock(x_ids, x), VectorBlock(y_ids[900:], y[900:]), 4, precision=precision, known=known)
        assert_nearest(forward, x, y, y_ids)
        assert_nearest(backward, y[900:], x, x_ids)


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize("make", [crowded, nearly_equal, lopsided])
def test_one_direction_alone_equals_the_whole_matrix_stretch_by_stretch(make, precision: str) -> None:
    x, y = make()
    y_ids = dense.ids(len(y), 11)
    found = neighbours.none(len(x), 5)
    for stretch in (slice(0, 150), slice(150, 150), slice(150, len(y))):
        found = search_for(VectorBlock(dense.ids(len(x), 10), x), VectorBlock(y_ids[stretch], y[stretch]), found, precision=precision)
    assert_nearest(found, x, y, y_ids)


@pytest.mark.parametrize("precision", ["int8", "float32"])
@pytest.mark.parametrize(
    "make", [crowded, nearly_equal, lambda: (dense.unit(3, 8, 0), dense.unit(1, 8, 1))], ids=["crowded", "near", "few"]
)
def test_self_search_equals_the_whole_matrix_without_its_diagonal(make, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "TILE", 256)
    for x in make():
        ids = dense.ids(len(x), 12)
        found = search_self(VectorBlock(ids, x), 4, precision=precision)
        similarities = x.astype(np.float64) @ x.astype(np.float64).T
        np.fill_diagonal(similarities, np.nan)
        wanted = neighbours.nearest(np.tile(ids, (len(x), 1)), similarities, 4)
        np.testing.assert_array_equal(found.ids, wanted.ids)
        np.testing.assert_array_equal(found.similarities, wanted.similarities)


def test_an_empty_block_has_no_neighbours() -> None:
    nothing = VectorBlock(np.zeros(0, dtype=np.int64), np.zeros((0, 8), dtype=np.float16))
    forward, backward = search_block(VectorBlock(dense.ids(3, 0), dense.unit(3, 8, 0)), nothing, 2)
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


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_the_result_does_not_depend_on_how_the_corpora_are_cut(data: st.DataObject) -> None:
    """Any shards of both sides, any precision, blocks merged in any order."""
    numbers = np.random.default_rng(data.draw(st.integers(0, 9)))
    x, y = (numbers.choice([-1, 0, 1], size=(rows, 4), p=[0.25, 0.5, 0.25]) for rows in data.draw(st.tuples(*[st.integers(1, 90)] * 2)))
    x, y = ((side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1)).astype(np.float16) for side in (x, y))
    x_ids, y_ids, k = dense.ids(len(x), 10), dense.ids(len(y), 11), data.draw(st.integers(1, 5))
    cuts = [[0, *sorted(data.draw(st.sets(st.integers(0, len(side)), max_size=3))), len(side)] for side in (x, y)]
    forward, backward = neighbours.none(len(x), k), neighbours.none(len(y), k)
    blocks = itertools.product(*([slice(*ends) for ends in itertools.pairwise(cut)] for cut in cuts))
    for rows, columns in data.draw(st.permutations(list(blocks))):
        sides, precision = (
            (VectorBlock(x_ids[rows], x[rows]), VectorBlock(y_ids[columns], y[columns])),
            data.draw(st.sampled_from(list(PRECISIONS))),
        )
        for whole, part, at in zip((forward, backward), search_block(*sides, k, precision=precision), (rows, columns), strict=True):
            merged = Neighbours(whole.ids[at], whole.similarities[at]).merge(part)
            whole.ids[at], whole.similarities[at] = merged.ids, merged.similarities
    assert_nearest(forward, x, y, y_ids)
    assert_nearest(backward, y, x, x_ids)


def test_work_is_shared_among_threads_that_compute_alone() -> None:
    torch.set_num_threads(3)
    seen: dict[int, tuple[int, str]] = {}

    def work(number: int) -> None:
        seen[number] = (torch.get_num_threads(), threading.current_thread().name)

    for_each(20, work, torch.device("cpu"))
    assert sorted(seen) == list(range(20))
    assert {threads for threads, _ in seen.values()} == {1}
    assert threading.current_thread().name not in {name for _, name in seen.values()}
    assert torch.get_num_threads() == 3


def test_a_failure_in_a_thread_is_raised_and_ends_the_rest() -> None:
    torch.set_num_threads(2)
    done: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            raise ValueError("the first")
        time.sleep(0.01)
        done.append(number)

    with pytest.raises(ValueError, match="the first"):
        for_each(200, work, torch.device("cpu"))
    assert len(done) < 100
    assert torch.get_num_threads() == 2
