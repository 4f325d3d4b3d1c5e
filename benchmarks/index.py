"""Recall of FAISS against exact search, and the sizes from which it takes less time.

    python benchmarks/index.py KEYS QUERIES --sizes 100000 300000 1000000

KEYS and QUERIES are embeddings directories of real text that share no line. For each size an index is built over that number of KEYS, as
`miner index` builds it, and searched for a sample of QUERIES at the target recall. The table has the recall that the tool reports, and that
of an independent check: the whole row of similarities in numpy's float64. Times are processor seconds divided by the cores, which other
load on the machine affects less than wall time. Times of a sample are scaled to as many queries as keys, and to both directions, which is
what `miner mine` searches for two such sides.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from miner.config.commands import IndexSettings
from miner.devices import available_cores
from miner.io import stages, storage, table_files
from miner.io.corpus import Corpus, open_corpus
from miner.io.stages import EMBEDDINGS, Shard
from miner.io.tables import embeddings_schema, vectors_to_arrow
from miner.search import cost_model
from miner.search.exact import SearchOptions, search_block
from miner.search.neighbours import VectorBlock
from miner.search.precision import fastest_precision
from miner.search.tuning import SearchParameters
from pipelines.beam.runner import run_pipeline
from pipelines.search import build_index
from pipelines.search.index_files import IndexedSide
from pipelines.search.open_index import OpenIndex, draw_sample

K = 4
CHECKED_QUERIES = 1000
TUNING_QUERIES = cost_model.TUNING_QUERIES
BLOCK_ROWS = 131_072  # keys of one call of exact search, as in the pipeline


def write_subset(corpus: Corpus, rows: int, folder: str) -> Corpus:
    """Write `rows` vectors drawn from a corpus as a corpus of one shard."""
    ids, vectors = draw_sample(corpus, rows, seed=3)
    name = stages.shard_name(0, 1)
    uri = storage.join(folder, EMBEDDINGS, name)
    schema = embeddings_schema(corpus.dim, corpus.fingerprint)
    with table_files.parquet_writer(uri, schema) as writer:
        writer.write_table(pa.table([pa.array(ids), vectors_to_arrow(vectors)], schema=schema), row_group_size=32768)
    return replace(corpus, folder=folder, shards=(Shard(name, len(ids), storage.checksum(uri)),))


def independent_recall(keys: np.ndarray, queries: np.ndarray, similarities: np.ndarray) -> float:
    """Return the share of the K nearest of all keys that have these similarities; a tie with the K-th counts as a hit."""
    nearest = np.full((len(queries), K), -np.inf)
    for start in range(0, len(keys), BLOCK_ROWS):
        scores = queries.astype(np.float64) @ keys[start : start + BLOCK_ROWS].astype(np.float64).T
        nearest = np.sort(np.concatenate([nearest, -np.sort(-scores, axis=1)[:, :K]], axis=1), axis=1)[:, -K:]
    return float(np.mean(similarities >= nearest[:, :1]))


def exact_seconds(ids: np.ndarray, keys: np.ndarray, queries: np.ndarray, precision: str) -> float:
    """Return the seconds of one exact pass, both directions, scaled to as many queries as keys."""
    block = VectorBlock(np.arange(len(queries)), queries)
    start = core_seconds()
    for row in range(0, len(ids), BLOCK_ROWS):
        part = VectorBlock(ids[row : row + BLOCK_ROWS], keys[row : row + BLOCK_ROWS])
        search_block(block, part, K, SearchOptions(precision=precision))
    return (core_seconds() - start) * len(ids) / len(queries)


def core_seconds() -> float:
    """Return the processor seconds of this process divided by the cores."""
    return time.process_time() / available_cores()


def measure(keys: Corpus, queries: np.ndarray, target_recall: float, folder: str) -> str:
    """Return one line of the table."""
    start = core_seconds()
    manifest = run_pipeline(build_index.build(keys, folder, IndexSettings(target_recall=target_recall), K))
    build_seconds = core_seconds() - start
    index = OpenIndex(IndexedSide.describe(folder, manifest, keys))
    own = SearchParameters(**manifest.details["parameters"])
    parameters = index.tune(queries[-TUNING_QUERIES:], K, target_recall)
    queries = queries[:-TUNING_QUERIES]  # those that tuned are neither timed nor checked
    start = core_seconds()
    neighbours, searched_again = index.search(queries, K, parameters)
    search_seconds = (core_seconds() - start) * keys.rows / len(queries)
    ids, vectors = draw_sample(keys, keys.rows, 0)
    recall = independent_recall(vectors, queries[:CHECKED_QUERIES], neighbours.similarities[:CHECKED_QUERIES])
    precisions = sorted({fastest_precision(torch.device("cpu"), keys.dim), "float32"})
    measured = {precision: exact_seconds(ids, vectors, queries, precision) for precision in precisions}
    cells = (
        f"{keys.rows:,}",
        manifest.details["factory"],
        f"{own.effort} / {own.candidates}: {own.recall:.4f}",
        f"{parameters.effort} / {parameters.candidates}: {parameters.recall:.4f}",
        f"{recall:.4f}",
        str(searched_again),
        f"{build_seconds:.0f}",
        f"{search_seconds:.0f}",
        f"{2 * (build_seconds + search_seconds):.0f}",
        ", ".join(f"{precision} {seconds:.0f}" for precision, seconds in measured.items()),
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("keys")
    parser.add_argument("queries")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--sample", type=int, default=10_000, help="number of queries that are timed")
    parser.add_argument("--target-recall", type=float, default=0.98)
    arguments = parser.parse_args()
    keys = open_corpus(arguments.keys)
    queries = draw_sample(open_corpus(arguments.queries), arguments.sample + TUNING_QUERIES, seed=4)[1]
    queries = queries[np.random.default_rng(5).permutation(len(queries))]
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            subset = write_subset(keys, size, str(Path(folder) / "keys"))
            print(measure(subset, queries, arguments.target_recall, str(Path(folder) / "index")), flush=True)


if __name__ == "__main__":
    main()
