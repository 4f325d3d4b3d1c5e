"""Exact search of both directions beside approximate indexes at a recall of 0.98: the seconds to build two indexes, and to search both.

    python benchmarks/search_approximate.py [--rows 50000] [--dim 256] [--data made|near]

FAISS's HNSW and IVF, and hnswlib and usearch where they are installed. Each searches with the least effort, doubled from 16, that finds
98 % of the 4 nearest neighbours of a sample; the recall of the whole search is printed. Vectors are those of `search.py speed`.
"""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.util import find_spec

import faiss
import numpy as np
import torch
from search import synthetic_vectors
from search_baselines import seconds

from miner.search.exact import search_block
from miner.search.neighbours import VectorBlock

K = 4
MIN_RECALL = 0.98
SAMPLE = 1000  # queries by which the effort is chosen
NEIGHBOURS, BUILD_EFFORT = 32, 128  # of a vector in a graph, and while it is built
MAX_EFFORT = 4096


class ApproximateIndex(ABC):
    """An index of vectors (n, dim) by inner product."""

    @abstractmethod
    def __init__(self, vectors: np.ndarray) -> None: ...

    @abstractmethod
    def search(self, queries: np.ndarray, effort: int) -> np.ndarray:
        """Return the positions (m, K) of the neighbours of queries (m, dim)."""


class FaissHnsw(ApproximateIndex):
    def __init__(self, vectors: np.ndarray) -> None:
        self.index = faiss.IndexHNSWFlat(vectors.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        self.index.hnsw.efConstruction = BUILD_EFFORT
        self.index.add(vectors)

    def search(self, queries: np.ndarray, effort: int) -> np.ndarray:
        self.index.hnsw.efSearch = effort
        return self.index.search(queries, K)[1]


class FaissIvf(ApproximateIndex):
    def __init__(self, vectors: np.ndarray) -> None:
        self.index = faiss.index_factory(vectors.shape[1], f"IVF{round(4 * len(vectors) ** 0.5)},Flat", faiss.METRIC_INNER_PRODUCT)
        self.index.train(vectors)
        self.index.add(vectors)

    def search(self, queries: np.ndarray, effort: int) -> np.ndarray:
        self.index.nprobe = effort
        return self.index.search(queries, K)[1]


class Hnswlib(ApproximateIndex):
    def __init__(self, vectors: np.ndarray) -> None:
        import hnswlib

        self.index = hnswlib.Index("ip", vectors.shape[1])
        self.index.init_index(len(vectors), M=NEIGHBOURS, ef_construction=BUILD_EFFORT)
        self.index.add_items(vectors)

    def search(self, queries: np.ndarray, effort: int) -> np.ndarray:
        self.index.set_ef(effort)
        return self.index.knn_query(queries, K)[0].astype(np.int64)


class Usearch(ApproximateIndex):
    def __init__(self, vectors: np.ndarray) -> None:
        from usearch.index import Index

        self.index = Index(ndim=vectors.shape[1], metric="ip", dtype="f32", connectivity=NEIGHBOURS, expansion_add=BUILD_EFFORT)
        self.index.add(np.arange(len(vectors)), vectors, threads=torch.get_num_threads())

    def search(self, queries: np.ndarray, effort: int) -> np.ndarray:
        self.index.expansion_search = effort
        return self.index.search(queries, K, threads=torch.get_num_threads()).keys.astype(np.int64)


KINDS: dict[str, tuple[Callable[[np.ndarray], ApproximateIndex], str]] = {  # name -> index, and the module that it needs
    "faiss HNSW": (FaissHnsw, "faiss"),
    "hnswlib": (Hnswlib, "hnswlib"),
    "usearch": (Usearch, "usearch"),
    "faiss IVF": (FaissIvf, "faiss"),
}


def recall(found: np.ndarray, nearest: np.ndarray) -> float:
    return float((found[:, :, None] == nearest[:, None]).any(axis=1).mean())


def choose_effort(index: ApproximateIndex, queries: np.ndarray, nearest: np.ndarray) -> int:
    effort = 16
    while recall(index.search(queries[:SAMPLE], effort), nearest[:SAMPLE]) < MIN_RECALL and effort < MAX_EFFORT:
        effort *= 2
    return effort


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--data", choices=["made", "near"], default="made")
    arguments = parser.parse_args()
    sides = synthetic_vectors(arguments.rows, arguments.dim, arguments.data)
    blocks = [VectorBlock(np.arange(len(side)), side) for side in sides]
    faiss.omp_set_num_threads(torch.get_num_threads())
    print(f"{arguments.rows:,} x {arguments.rows:,} x {arguments.dim}, k {K}, {arguments.data}, {torch.get_num_threads()} threads")
    exact = []
    search_block(*(VectorBlock(block.ids[:SAMPLE], block.vectors[:SAMPLE]) for block in blocks), K)  # probes of the processor
    took = seconds(lambda: exact.extend(search_block(*blocks, K)))
    print(f"{'exact':>12}: {took:7.2f} s", flush=True)
    vectors, nearest = [side.astype(np.float32) for side in sides], [neighbours.ids for neighbours in exact]
    for name, (make, module) in KINDS.items():
        if find_spec(module) is None:
            print(f"{name:>12}: not installed")
            continue
        measure(name, make, vectors, nearest)


def measure(name: str, make: Callable[[np.ndarray], ApproximateIndex], vectors: list[np.ndarray], nearest: list[np.ndarray]) -> None:
    """Print the seconds of one kind of index, in both directions."""
    built, searched, recalls, efforts = 0.0, 0.0, [], []
    for queries, keys, expected in ((vectors[0], vectors[1], nearest[0]), (vectors[1], vectors[0], nearest[1])):
        indexes, found = [], []
        built += seconds(lambda keys=keys, indexes=indexes: indexes.append(make(keys)))
        effort = choose_effort(indexes[0], queries, expected)
        searched += seconds(
            lambda queries=queries, found=found, index=indexes[0], effort=effort: found.append(index.search(queries, effort))
        )
        recalls.append(recall(found[0], expected))
        efforts.append(effort)
    total = f"{built + searched:7.2f} s, of which {built:.2f} to build"
    print(f"{name:>12}: {total}; recall {np.mean(recalls):.3f}, effort {max(efforts)}", flush=True)


if __name__ == "__main__":
    main()
