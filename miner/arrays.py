"""Types of arrays, and operations that numpy lacks: on sorted arrays, runs of equal values, ragged arrays, graphs and ranks.

n rows of different lengths are one array of values and the bounds (n + 1,) of the rows: row i is `values[bounds[i] : bounds[i + 1]]`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]  # of sentences
Ints = npt.NDArray[np.int64]  # counts, positions, row numbers
Ints32 = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]
Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
AnyFloats = npt.NDArray[np.floating]  # of any precision
Vectors = npt.NDArray[np.float16]  # (n, dim), of unit length or zero, as they are stored
Bools = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]


def find_rows(values: npt.NDArray[Any], ascending: npt.NDArray[Any]) -> Ints:
    """Return the row of each value (...) in an ascending array (n,), -1 for a value that it lacks."""
    if not len(ascending):
        return np.full(values.shape, -1, dtype=np.int64)
    order = np.argsort(values, axis=None)  # sorted lookups touch neighbouring memory, which avoids most cache misses
    rows = np.empty(values.size, dtype=np.int64)
    rows[order] = np.searchsorted(ascending, values.ravel()[order]).clip(max=len(ascending) - 1)
    is_equal = ascending[rows] == values.ravel()
    return np.where(is_equal, rows, -1).reshape(values.shape)


def mark_run_starts(*columns: npt.NDArray[Any]) -> Bools:
    """Mark (n,) the first row of each run of rows that are equal in all columns (n,)."""
    is_start = np.zeros(len(columns[0]), dtype=bool)
    is_start[:1] = True
    for column in columns:
        is_start[1:] |= column[1:] != column[:-1]
    return is_start


def run_bounds(*columns: npt.NDArray[Any]) -> Ints:
    """Return the bounds (r + 1,) of the r runs of rows that are equal in all columns (n,)."""
    return np.append(np.flatnonzero(mark_run_starts(*columns)), len(columns[0]))


def bounds_of(lengths: npt.NDArray[np.integer] | Sequence[int]) -> Ints:
    """Return the bounds (n + 1,) of consecutive rows of these lengths (n,)."""
    return np.append(0, np.cumsum(lengths, dtype=np.int64))


def sum_rows(values: Bools | Ints | Ints32, bounds: npt.NDArray[np.integer]) -> Ints:
    """Return the sum (n,) of each row of values (m,) with these bounds (n + 1,); 0 for an empty row."""
    running = np.append(0, np.cumsum(values, dtype=np.int64))
    sums: Ints = np.diff(running[bounds])
    return sums


def concatenate_ranges(starts: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer]) -> Ints:
    """Return start, start + 1, ..., start + length - 1 of each of n ranges, one range after the other."""
    bounds = bounds_of(lengths)
    return np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)


def spaced_rows(num_rows: int, max_rows: int) -> Ints:
    """Return at most `max_rows` evenly spaced rows, the first and the last among them."""
    return np.unique(np.linspace(0, num_rows - 1, min(num_rows, max_rows)).round().astype(np.int64))


def connected_components(starts: Ints, ends: Ints, num_nodes: int) -> Ints:
    """Return the number (num_nodes,) of the connected component of each node in an undirected graph of edges (m,).

    Components are numbered by their smallest nodes. A node's root becomes the smallest one across its edges, until no edge joins two roots.
    """
    roots = np.arange(num_nodes, dtype=np.int64)
    while len(starts):
        np.minimum.at(roots, np.maximum(starts, ends), np.minimum(starts, ends))
        while not np.array_equal(roots, next_roots := roots[roots]):
            roots = next_roots
        starts, ends = roots[starts], roots[ends]
        is_open = starts != ends
        starts, ends = starts[is_open], ends[is_open]
    components: Ints = np.unique(roots, return_inverse=True)[1]
    return components


def pearson(x: AnyFloats, y: AnyFloats) -> float:
    """Return the correlation of x (n,) and y (n,); NaN if one of them is constant."""
    if (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    deviations = [column - column.mean() for column in (x.astype(np.float64), y.astype(np.float64))]
    units = [column / np.linalg.norm(column) for column in deviations]
    return float(np.clip(units[0] @ units[1], -1, 1))


def spearman(x: AnyFloats, y: AnyFloats) -> float:
    """Return the correlation of the ranks of x (n,) and y (n,), ties taking their mean rank; NaN if one of them is constant."""
    ranks = []
    for column in (x, y):
        _, values, counts = np.unique(column, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[values])
    return pearson(ranks[0], ranks[1])
