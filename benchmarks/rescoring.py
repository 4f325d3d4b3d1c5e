"""Scoring again what an index proposes: as it is done, beside plain numpy, in turn; microseconds for a query.

    miner index EMBEDDED --output INDEX
    OMP_NUM_THREADS=2 python benchmarks/rescoring.py INDEX [--queries 8192] [--candidates 64] [--rounds 3]

Queries and candidates are vectors of the index drawn at random, so each candidate is a read somewhere in the files. Both ways work
with all threads, on pieces of the queries; the scores have to be equal to the last bit.
"""

import argparse
import math
import time

import numpy as np
import torch

from miner.search import rescoring
from miner.search.parallel import for_each
from pipelines.search.build_index import FILE, indexed_corpus
from pipelines.search.open_index import OpenIndex, draw

STEP = 64  # queries of a piece, in plain numpy


def plain(queries: np.ndarray, proposed: np.ndarray, indexed: OpenIndex) -> np.ndarray:
    """Each step by the first function of numpy that does it."""
    scores = np.empty(proposed.shape)
    starts = np.cumsum([0, *map(len, indexed.stored)])

    def score(number: int) -> None:
        rows = slice(number * STEP, (number + 1) * STEP)
        places = np.searchsorted(indexed.ids, proposed[rows].ravel())
        places = places if indexed.order is None else indexed.order[places]
        shards = np.searchsorted(starts, places, side="right") - 1
        vectors = np.empty((len(places), queries.shape[1]), dtype=np.float16)
        for shard in np.unique(shards):
            here = shards == shard
            vectors[here] = indexed.stored[shard][places[here] - starts[shard]]
        wide = vectors.reshape(-1, proposed.shape[1], queries.shape[1]).astype(np.float64)
        scores[rows] = np.matmul(wide, queries[rows].astype(np.float64)[:, :, None])[:, :, 0]

    for_each(math.ceil(len(queries) / STEP), score, rescoring.CPU)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index")
    parser.add_argument("--queries", type=int, default=8192)
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    indexed = OpenIndex(given.index, FILE, indexed_corpus(given.index))
    queries = draw(indexed.corpus, given.queries, 0)[1]
    proposed = np.random.default_rng(1).choice(indexed.ids, (len(queries), given.candidates))
    ways = {
        "plain numpy": lambda: plain(queries, proposed, indexed),
        "miner": lambda: rescoring.similarities(queries, proposed, indexed.ids, indexed.gather),
    }
    for _ in range(given.rounds):
        found = []
        for name, way in ways.items():
            start = time.perf_counter()
            found.append(way())
            print(f"{name}, {torch.get_num_threads()} threads: {(time.perf_counter() - start) / len(queries) * 1e6:.0f} us", flush=True)
        assert np.array_equal(*found)


if __name__ == "__main__":
    main()
