"""Vectors that are hard to search exactly, and the check of both directions against the whole similarity matrix."""

import dense
import numpy as np

from miner.search import precision as precision_module
from miner.search.exact import SearchOptions, search_block
from miner.search.neighbours import Neighbours, VectorBlock
from miner.search.precision import PRECISIONS

Sides = tuple[np.ndarray, np.ndarray]

# Without VNNI, sums of int8 products saturate, so int8-levels are never used there.
USABLE_PRECISIONS = [name for name, each in PRECISIONS.items() if precision_module._probe_seconds(each, (16, 128), 64) < np.inf]

SHAPES = [(700, 900, 16, 4), (40, 2100, 48, 16), (1, 1, 8, 4), (3, 500, 8, 5), (9, 2, 8, 40), (130, 700, 1024, 2)]  # rows, columns, dim, k


def assert_nearest(neighbours: Neighbours, x: np.ndarray, y: np.ndarray, y_ids: np.ndarray) -> None:
    order, similarities = dense.neighbours(x, y, y_ids, neighbours.k)
    count = order.shape[1]
    np.testing.assert_array_equal(neighbours.ids[:, :count], y_ids[order])
    np.testing.assert_array_equal(neighbours.similarities[:, :count], similarities)
    assert (neighbours.ids[:, count:] == -1).all()
    assert np.isnan(neighbours.similarities[:, count:]).all()


def assert_exact(x: np.ndarray, y: np.ndarray, k: int, **options: object) -> None:
    x_ids, y_ids = dense.ids(len(x), 10), dense.ids(len(y), 11)
    forward, backward = search_block(VectorBlock(x_ids, x), VectorBlock(y_ids, y), k, SearchOptions(**options))
    assert_nearest(forward, x, y, y_ids)
    assert_nearest(backward, y, x, x_ids)


def many_ties() -> Sides:
    """Vectors of which many are equal, and many zero."""
    x, y = dense.unit(700, 8, 0), dense.unit(1500, 8, 1)
    y[200:1200] = x[0]
    y[1200:1300] = 0
    x[100:400] = x[0]
    x[400:420] = 0
    x[420:430] = -x[0]
    return x, y


def near_ties() -> Sides:
    """Similarities that differ by less than float32 resolves: by a few of the smallest float16 steps times 0.1."""
    x, y = dense.unit(50, 64, 2), dense.unit(400, 64, 3)
    y[:] = y[0]
    y[:, :32] = np.random.default_rng(4).integers(0, 8, size=(400, 32)) * np.float16(2**-24)
    return x, y


def no_ties() -> Sides:
    return dense.unit(500, 32, 7), dense.unit(3000, 32, 8)


def mixed_scales() -> Sides:
    """Vectors with one dominant component, beside vectors without."""
    x, y = dense.unit(300, 48, 5), dense.unit(400, 48, 6)
    for vectors in (x, y):
        dominated = vectors[::3].astype(np.float32)
        dominated[:, 7] = 20
        vectors[::3] = dominated / np.linalg.norm(dominated, axis=1, keepdims=True)
    return x, y


def one_dimension() -> Sides:
    """Vectors of one dimension: each is 1, -1 or 0."""
    x, y = dense.unit(70, 1, 12), dense.unit(90, 1, 13)
    x[::7] = y[::5] = 0
    return x, y
