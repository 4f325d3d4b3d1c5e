"""The lists of an inverted file: where their centroids are to be, and which are the nearest to a vector.

FAISS has both, through a search that keeps a heap for each query. A product of matrices of which every row keeps its largest
numbers takes a fraction of that time, and it is what most of the time goes to: training, adding and the first step of a search.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from miner.search.neighbours import Ids

ROUNDS = 10  # of k-means, as FAISS has it for lists
POINTS = 40  # of the training sample for each list: where FAISS trains, it warns below 39
HELD = 1 << 24  # similarities that are held at a time: 64 MB
STRETCH = 1 << 15  # vectors that are summed at a time

Vectors = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float32]


def nearest(vectors: Vectors, centroids: Tensor, count: int) -> tuple[Floats, Ids]:
    """Vectors (n, dim) and centroids (dim, lists) float32 -> similarities and numbers (n, count) of the nearest, best first."""
    similarities = np.empty((len(vectors), count), dtype=np.float32)
    numbers = np.empty((len(vectors), count), dtype=np.int64)
    step = max(1, HELD // centroids.shape[1])
    for start in range(0, len(vectors), step):
        products = torch.from_numpy(vectors[start : start + step]).float() @ centroids
        best = products.max(dim=1, keepdim=True) if count == 1 else products.topk(count, dim=1)
        similarities[start : start + step], numbers[start : start + step] = best.values.numpy(), best.indices.numpy()
    return similarities, numbers


def train(sample: Vectors, lists: int, seed: int) -> Floats:
    """Spherical k-means: a sample (n, dim), of which there are at least as many as lists -> centroids (lists, dim) of length 1.

    A list that comes out empty begins anew with a vector that is among the furthest from its own centroid.
    """
    chosen = np.random.default_rng(seed).choice(len(sample), lists, replace=False)
    centroids = _of_length_one(sample[chosen].astype(np.float32))
    for _ in range(ROUNDS):
        similarities, numbers = nearest(sample, torch.from_numpy(centroids).T.contiguous(), 1)
        centroids = _sums(sample, numbers[:, 0], lists)
        empty = np.flatnonzero(np.bincount(numbers[:, 0], minlength=lists) == 0)
        centroids[empty] = sample[np.argsort(similarities[:, 0], kind="stable")[: len(empty)]]
        centroids = _of_length_one(centroids)
    return centroids


def _sums(sample: Vectors, numbers: Ids, lists: int) -> Floats:
    """The vectors (n, dim) of each list, added up in the order of the sample."""
    sums = np.zeros((lists, sample.shape[1]), dtype=np.float32)
    order = np.argsort(numbers, kind="stable")
    for start in range(0, len(order), STRETCH):
        part = order[start : start + STRETCH]
        starts = np.flatnonzero(np.diff(numbers[part], prepend=-1))
        sums[numbers[part][starts]] += np.add.reduceat(sample[part].astype(np.float32), starts)
    return sums


def _of_length_one(vectors: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return vectors
