"""Coarse quantiser of an inverted file: k-means over the vectors, and the nearest centroids of a vector.

FAISS has both, by a search that keeps a heap per query. A matrix product followed by top-k takes a fraction of that time, which
dominates training, adding and the first step of a search.
"""

import numpy as np

from miner.arrays import AnyFloats, Floats32, Ids, run_bounds
from miner.devices import has_torch

KMEANS_ITERATIONS = 10  # FAISS's default for lists
POINTS_PER_LIST = 40  # training vectors; FAISS warns below 39
MAX_SIMILARITIES = 1 << 24  # in memory at a time: 64 MB
SUM_ROWS = 1 << 15  # vectors that are widened to float32 and summed at a time


def nearest_centroids(
    vectors: AnyFloats, centroids: Floats32, count: int, max_similarities: int = MAX_SIMILARITIES
) -> tuple[Floats32, Ids]:
    """Return similarities and list numbers (n, count) of the centroids (dim, lists) float32 nearest to vectors (n, dim), best first."""
    nearest = _nearest_by_torch if has_torch() else _nearest_by_numpy
    similarities = np.empty((len(vectors), count), dtype=np.float32)
    lists = np.empty((len(vectors), count), dtype=np.int64)
    step = max(1, max_similarities // centroids.shape[1])
    for start in range(0, len(vectors), step):
        rows = slice(start, start + step)
        similarities[rows], lists[rows] = nearest(vectors[rows], centroids, count)
    return similarities, lists


def _nearest_by_torch(vectors: AnyFloats, centroids: Floats32, count: int) -> tuple[Floats32, Ids]:
    import torch

    products = torch.from_numpy(vectors).float() @ torch.from_numpy(centroids)
    best = products.max(dim=1, keepdim=True) if count == 1 else products.topk(count, dim=1)
    return best.values.numpy(), best.indices.numpy()


def _nearest_by_numpy(vectors: AnyFloats, centroids: Floats32, count: int) -> tuple[Floats32, Ids]:
    products = vectors.astype(np.float32) @ centroids
    lists = np.argpartition(products, products.shape[1] - count, axis=1)[:, -count:]
    values = np.take_along_axis(products, lists, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(lists, order, axis=1)


def train_centroids(sample: AnyFloats, num_lists: int, seed: int) -> Floats32:
    """Return centroids (num_lists, dim) of unit length by spherical k-means over a sample (n, dim), n >= num_lists.

    An empty list restarts from one of the vectors that are furthest from their own centroid.
    """
    initial = np.random.default_rng(seed).choice(len(sample), num_lists, replace=False)
    centroids = _normalise(sample[initial].astype(np.float32))
    for _ in range(KMEANS_ITERATIONS):
        similarities, lists = nearest_centroids(sample, np.ascontiguousarray(centroids.T), 1)
        centroids = _sum_lists(sample, lists[:, 0], num_lists)
        empty = np.flatnonzero(np.bincount(lists[:, 0], minlength=num_lists) == 0)
        centroids[empty] = sample[np.argsort(similarities[:, 0], kind="stable")[: len(empty)]]
        centroids = _normalise(centroids)
    return centroids


def _sum_lists(sample: AnyFloats, lists: Ids, num_lists: int) -> Floats32:
    """Return the sum (num_lists, dim) of the vectors (n, dim) of each list, added in the order of the sample."""
    sums = np.zeros((num_lists, sample.shape[1]), dtype=np.float32)
    order = np.argsort(lists, kind="stable")
    for start in range(0, len(order), SUM_ROWS):
        rows = order[start : start + SUM_ROWS]
        starts = run_bounds(lists[rows])[:-1]
        sums[lists[rows][starts]] += np.add.reduceat(sample[rows].astype(np.float32), starts)
    return sums


def _normalise(vectors: Floats32) -> Floats32:
    """Scale rows to unit length in place; zero rows stay zero."""
    norms: Floats32 = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, norms, out=vectors, where=norms > 0)
    return vectors
