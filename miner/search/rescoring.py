"""Exact scores of the candidates that an approximate index proposes."""

import math
from collections.abc import Callable

import numpy as np

from miner.arrays import Floats, Ids, Vectors, find_rows
from miner.devices import has_torch
from miner.search.neighbours import Similarities
from miner.search.parallel import parallel_for

CHUNK_ELEMENTS = 1 << 20  # of a temporary array: 8 MB of float64 per core

GatherVectors = Callable[[Ids], Vectors]  # positions (n,) -> vectors (n, dim)


def score_candidates(queries: Vectors, candidate_ids: Ids, sorted_ids: Ids, gather: GatherVectors) -> Similarities:
    """Return the dot products (n, c) of queries (n, dim) and their candidates (n, c) in float64, where they are exact.

    `sorted_ids` (m,) are all ids of the corpus, ascending; an id that is not among them scores NaN. Queries are split over the cores.
    """
    scores = np.full(candidate_ids.shape, np.nan)
    step = max(1, CHUNK_ELEMENTS // max(1, candidate_ids.shape[1] * queries.shape[1]))

    def score_chunk(number: int) -> None:
        rows = slice(number * step, (number + 1) * step)
        ids = candidate_ids[rows]
        positions = np.where(ids == -1, -1, find_rows(ids, sorted_ids))  # -1 can be a hash, but here it marks padding
        vectors = _to_float64(gather(positions.clip(min=0).ravel())).reshape(*positions.shape, queries.shape[1])
        products = np.matmul(vectors, queries[rows].astype(np.float64)[:, :, None])[:, :, 0]
        scores[rows] = np.where(positions >= 0, products, np.nan)

    parallel_for(math.ceil(len(queries) / step), score_chunk)
    return scores


def _to_float64(vectors: Vectors) -> Floats:
    """Convert through torch, if installed, and float32: processors have an instruction for float16 to float32, which numpy does not use."""
    if not has_torch():
        return vectors.astype(np.float64)
    import torch

    result: Floats = torch.from_numpy(vectors).float().double().numpy()
    return result
