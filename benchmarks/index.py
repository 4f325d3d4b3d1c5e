"""What FAISS finds of what exact search finds, and when it takes less time.

    python benchmarks/index.py KEYS QUERIES --sizes 100000 300000 1000000

KEYS and QUERIES are folders of `miner embed` of real text that share no line. For each size an index is built over as many of
KEYS as `miner index` builds it, and searched for a sample of QUERIES at the target recall. The recall is the tool's own, and that
of a check that shares nothing with it: the whole row of similarities in numpy's float64. Times are
seconds of the processor divided by the cores, which a machine that does other things as well changes less than the clock. Those of a
sample are scaled to as many queries as keys, and to both directions, which is what `miner mine` of two such sides searches.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from miner import stages, storage
from miner.config.commands import IndexSettings
from miner.corpus import EMBEDDINGS, Corpus, open_corpus, write_row_groups
from miner.search import cost_model
from miner.search.exact import VectorBlock, search_block
from miner.search.precision import fastest
from miner.search.tuning import Setting
from miner.stages import Shard
from miner.storage import available_cores
from miner.tables import embeddings_schema, vectors_to_arrow
from pipelines.search import build_index
from pipelines.search.open_index import OpenIndex, draw

K = 4
CHECKED = 1000  # queries of the independent check
STRETCH = 131_072  # keys that exact search is given at a time, as the pipeline does


def subset(corpus: Corpus, rows: int, folder: str) -> Corpus:
    """`rows` vectors drawn from a corpus, in one shard of a folder of their own."""
    ids, vectors = draw(corpus, rows, seed=3)
    name = stages.shard_name(0, 1)
    uri = storage.join(folder, EMBEDDINGS, name)
    schema = embeddings_schema(corpus.dim, corpus.fingerprint)
    with storage.parquet_writer(uri, schema) as writer:
        write_row_groups(writer, pa.table([pa.array(ids), vectors_to_arrow(vectors)], schema=schema))
    return Corpus(folder, corpus.lang, corpus.dim, corpus.fingerprint, (Shard(name, len(ids), storage.checksum(uri)),), {}, {})


def independent(keys: np.ndarray, queries: np.ndarray, similarities: np.ndarray) -> float:
    """The share of the K nearest of all keys that were found; what ties with the K-th is as good as it."""
    last = np.full((len(queries), K), -np.inf)
    for start in range(0, len(keys), STRETCH):
        scores = queries.astype(np.float64) @ keys[start : start + STRETCH].astype(np.float64).T
        last = np.sort(np.concatenate([last, -np.sort(-scores, axis=1)[:, :K]], axis=1), axis=1)[:, -K:]
    return float(np.mean(similarities >= last[:, :1]))


def seconds_exact(keys: tuple[np.ndarray, np.ndarray], queries: np.ndarray, precision: str) -> float:
    """Of one pass, both directions, with as many queries as keys."""
    block = VectorBlock(np.arange(len(queries)), queries)
    start = seconds()
    for row in range(0, len(keys[0]), STRETCH):
        search_block(block, VectorBlock(keys[0][row : row + STRETCH], keys[1][row : row + STRETCH]), K, precision=precision)
    return (seconds() - start) * len(keys[0]) / len(queries)


def seconds() -> float:
    """Of each core, if all have worked alike."""
    return time.process_time() / available_cores()


def measure(keys: Corpus, queries: np.ndarray, target: float, folder: str) -> str:
    """One line of the table."""
    start = seconds()
    manifest = build_index.build(keys, folder, IndexSettings(target_recall=target), K)
    built = seconds() - start
    indexed = OpenIndex(folder, build_index.FILE, keys)
    own = Setting(**manifest.details["setting"])
    setting = indexed.tune(queries[-2000:], K, target)  # others than those that are timed and checked
    start = seconds()
    found, again = indexed.search(queries[:-2000], K, setting)
    searched = (seconds() - start) * keys.rows / (len(queries) - 2000)
    every = draw(keys, keys.rows, 0)
    checked = independent(every[1], queries[:CHECKED], found.similarities[:CHECKED])
    precisions = {next(iter(fastest(torch.device("cpu"), keys.dim))), "float32"}
    times = {name: seconds_exact(every, queries[:-2000], name) for name in precisions}
    guesses = {name: cost_model.estimate((keys.rows, keys.rows), keys.dim, K, target, name, available_cores()) for name in times}
    cells = (
        f"{keys.rows:,}",
        manifest.details["factory"],
        f"{own.effort} / {own.candidates}: {own.recall:.4f}",
        f"{setting.effort} / {setting.candidates}: {setting.recall:.4f}",
        f"{checked:.4f}",
        str(again),
        f"{built:.0f}",
        f"{searched:.0f}",
        f"{2 * (built + searched):.0f} ({guesses['float32'].faiss:.0f})",
        ", ".join(f"{name} {took:.0f} ({guesses[name].exact:.0f})" for name, took in sorted(times.items())),
    )
    return "| " + " | ".join(cells) + " |"

    return torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("keys")
    parser.add_argument("queries")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--sample", type=int, default=10_000, help="queries that are timed")
    parser.add_argument("--target-recall", type=float, default=0.98)
    arguments = parser.parse_args()
    keys = open_corpus(arguments.keys)
    queries = draw(open_corpus(arguments.queries), arguments.sample + 2000, seed=4)[1]
    queries = queries[np.random.default_rng(5).permutation(len(queries))]
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            part = subset(keys, size, str(Path(folder) / "keys"))
            print(measure(part, queries, arguments.target_recall, str(Path(folder) / "index")), flush=True)


if __name__ == "__main__":
    main()
