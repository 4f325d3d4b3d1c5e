"""What an approximate index proposes, scored exactly."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from miner.search import neighbours
from miner.search.neighbours import Ids, Neighbours, Similarities
from miner.search.parallel import for_each

CPU = torch.device("cpu")
CHUNK = 1 << 20  # numbers of a temporary array: 8 MB of float64 for each core

Vectors = npt.NDArray[np.float16]
Gather = Callable[[Ids], Vectors]  # positions (n,) -> vectors (n, dim)


def places(ids: Ids, known: Ids) -> Ids:
    """Ids (...) -> where they are among the known ones, which ascend; -1 for those that are not."""
    if not len(known):
        return np.full(ids.shape, -1, dtype=np.int64)
    order = np.argsort(ids, axis=None)  # each is found near the one before, which saves most of the misses of the cache
    flat = np.empty(ids.size, dtype=np.int64)
    flat[order] = np.searchsorted(known, ids.ravel()[order]).clip(max=len(known) - 1)
    found = flat.reshape(ids.shape)
    return np.where((known[found] == ids) & (ids != -1), found, -1)  # -1 may be a hash, but here it says that there is none


def similarities(queries: Vectors, proposed: Ids, known: Ids, gather: Gather) -> Similarities:
    """Queries (n, dim) and proposed ids (n, c) -> their dot products (n, c) in float64, where they are exact; NaN for what is not known.

    `known` (m,) are all ids, ascending. Each core has its own queries.
    """
    scores = np.full(proposed.shape, np.nan)
    step = max(1, CHUNK // max(1, proposed.shape[1] * queries.shape[1]))

    def score(number: int) -> None:
        rows = slice(number * step, (number + 1) * step)
        positions = places(proposed[rows], known)
        vectors = _float64(gather(positions.clip(min=0).ravel())).reshape(*positions.shape, queries.shape[1])
        exact = np.matmul(vectors, queries[rows].astype(np.float64)[:, :, None])[:, :, 0]
        scores[rows] = np.where(positions >= 0, exact, np.nan)

    for_each(math.ceil(len(queries) / step), score, CPU)
    return scores


def _float64(vectors: Vectors) -> npt.NDArray[np.float64]:
    """By way of float32, and by torch: processors have an instruction for that, which numpy does not use."""
    return torch.from_numpy(vectors).float().double().numpy()


def nearest(ids: Ids, scores: Similarities, k: int) -> Neighbours:
    """Candidates (n, c) with their exact similarities -> the k nearest."""
    return neighbours.nearest(np.where(np.isnan(scores), -1, ids), scores, k)
