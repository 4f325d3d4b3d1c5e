"""What an approximate index proposes, scored exactly."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from miner.search import neighbours
from miner.search.neighbours import Ids, Neighbours, Similarities

CHUNK = 1 << 21  # numbers of a temporary array: 16 MB of float64

Vectors = npt.NDArray[np.float16]
Gather = Callable[[Ids], Vectors]  # positions (n,) -> vectors (n, dim)


def places(ids: Ids, known: Ids) -> Ids:
    """Ids (...) -> where they are among the known ones, which ascend; -1 for those that are not."""
    if not len(known):
        return np.full(ids.shape, -1, dtype=np.int64)
    found = np.searchsorted(known, ids).clip(max=len(known) - 1)
    return np.where((known[found] == ids) & (ids != -1), found, -1)  # -1 may be a hash, but here it says that there is none


def similarities(queries: Vectors, positions: Ids, gather: Gather) -> Similarities:
    """Queries (n, dim) and positions (n, c) -> their dot products (n, c) in float64, where they are exact; NaN at position -1."""
    scores = np.full(positions.shape, np.nan)
    step = max(1, CHUNK // max(1, positions.shape[1] * queries.shape[1]))
    for start in range(0, len(queries), step):
        rows = slice(start, start + step)
        some = positions[rows]
        vectors = gather(some.clip(min=0).ravel()).reshape(*some.shape, queries.shape[1])
        exact = np.matmul(vectors.astype(np.float64), queries[rows].astype(np.float64)[:, :, None])[:, :, 0]
        scores[rows] = np.where(some >= 0, exact, np.nan)
    return scores


def nearest(ids: Ids, scores: Similarities, k: int) -> Neighbours:
    """Candidates (n, c) with their exact similarities -> the k nearest."""
    return neighbours.nearest(np.where(np.isnan(scores), -1, ids), scores, k)
