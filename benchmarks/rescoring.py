"""Rescoring the candidates of an index, beside plain numpy, in turns; microseconds per query.

    miner index EMBEDDED --output INDEX
    OMP_NUM_THREADS=2 python benchmarks/rescoring.py INDEX [--queries 8192] [--candidates 64] [--rounds 3]

Queries and candidates are vectors of the index drawn at random, so each candidate is a random read in the files. Both implementations
use all threads, on chunks of the queries; their scores have to be equal to the last bit.
"""

import argparse
import math
import time

import numpy as np
import torch

from miner.io import stages
from miner.search.parallel import parallel_for
from miner.search.rescoring import score_candidates
from pipelines.search.build_index import indexed_corpus
from pipelines.search.index_files import IndexedSide
from pipelines.search.open_index import OpenIndex, draw_sample

CHUNK_QUERIES = 64  # in plain numpy


def score_with_numpy(queries: np.ndarray, candidate_ids: np.ndarray, index: OpenIndex) -> np.ndarray:
    """Score with the obvious numpy function for each step."""
    scores = np.empty(candidate_ids.shape)
    starts = np.cumsum([0, *map(len, index.stored_vectors)])

    def score_chunk(number: int) -> None:
        rows = slice(number * CHUNK_QUERIES, (number + 1) * CHUNK_QUERIES)
        positions = np.searchsorted(index.ids, candidate_ids[rows].ravel())
        positions = positions if index.id_order is None else index.id_order[positions]
        shards = np.searchsorted(starts, positions, side="right") - 1
        vectors = np.empty((len(positions), queries.shape[1]), dtype=np.float16)
        for shard in np.unique(shards):
            in_shard = shards == shard
            vectors[in_shard] = index.stored_vectors[shard][positions[in_shard] - starts[shard]]
        vectors64 = vectors.reshape(-1, candidate_ids.shape[1], queries.shape[1]).astype(np.float64)
        scores[rows] = np.matmul(vectors64, queries[rows].astype(np.float64)[:, :, None])[:, :, 0]

    parallel_for(math.ceil(len(queries) / CHUNK_QUERIES), score_chunk)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index")
    parser.add_argument("--queries", type=int, default=8192)
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    manifest, corpus = stages.read_manifest(arguments.index), indexed_corpus(arguments.index)
    index = OpenIndex(IndexedSide.describe(arguments.index, manifest, corpus))
    queries = draw_sample(index.corpus, arguments.queries, 0)[1]
    candidate_ids = np.random.default_rng(1).choice(index.ids, (len(queries), arguments.candidates))
    implementations = {
        "plain numpy": lambda: score_with_numpy(queries, candidate_ids, index),
        "miner": lambda: score_candidates(queries, candidate_ids, index.ids, index.gather),
    }
    for _ in range(arguments.rounds):
        scores = []
        for name, score in implementations.items():
            start = time.perf_counter()
            scores.append(score())
            print(f"{name}, {torch.get_num_threads()} threads: {(time.perf_counter() - start) / len(queries) * 1e6:.0f} us", flush=True)
        assert np.array_equal(*scores)


if __name__ == "__main__":
    main()
