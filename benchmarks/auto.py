"""The engine that `--engine auto` chooses, beside the time of both.

    OMP_WAIT_POLICY=passive python benchmarks/auto.py SOURCE TARGET --sizes 100000 300000 --dims 256 1024
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 FAISS_OPT_LEVEL=AVX2 OMP_WAIT_POLICY=passive \
        python benchmarks/auto.py SOURCE TARGET    # as a processor without AVX-512

SOURCE and TARGET are embeddings directories of real text. With more dimensions than theirs, a vector is that of several sentences, one
after the other. Times are wall time, less the share of the processors that other programs took. Exact
search is timed on at most 5 x 5 blocks of the vectors, FAISS on one index and 4,096 queries, and both are scaled to both directions of all
vectors. The loss is that of the chosen engine with its trial, compared with the faster engine.
"""

import argparse
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pyarrow as pa
import torch

from miner.config.commands import IndexSettings
from miner.devices import CPU, available_cores
from miner.io import stages, storage, table_files
from miner.io.corpus import Corpus, open_corpus
from miner.io.stages import EMBEDDINGS, Shard
from miner.io.tables import embeddings_schema, vectors_to_arrow
from miner.search.blocks import BlockCache, search_shards
from miner.search.readers import ShardReader
from miner.search.trials import idle_seconds
from miner.search.tuning import SearchParameters
from pipelines.beam.runner import run_pipeline
from pipelines.search import build_index
from pipelines.search.engine_trial import EngineTrial
from pipelines.search.exact import SearchRequest
from pipelines.search.index_files import IndexedSide
from pipelines.search.open_index import OpenIndex, draw_sample

K, TARGET_RECALL = 8, 0.98
MAX_BLOCKS = 5
SAMPLE, TUNING_QUERIES = 4096, 2000

T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result, and the seconds without other load."""
    results = list[T]()
    seconds = idle_seconds(lambda: results.append(work()))
    return results[0], seconds


def write_subset(corpus: Corpus, rows: int, dim: int, folder: str) -> Corpus:
    """Write `rows` vectors of this dimension as a corpus of one shard."""
    ids, vectors = draw_sample(corpus, rows, seed=3)
    random, parts = np.random.default_rng(7), [vectors]
    while sum(part.shape[1] for part in parts) < dim:
        parts.append(vectors[random.permutation(len(vectors))])
    joined = np.concatenate(parts, axis=1)[:, :dim].astype(np.float32)
    joined /= np.linalg.norm(joined, axis=1, keepdims=True)
    uri = storage.join(folder, EMBEDDINGS, stages.shard_name(0, 1))
    schema = embeddings_schema(dim, corpus.fingerprint)
    with table_files.parquet_writer(uri, schema) as writer:
        table = pa.table([pa.array(ids), vectors_to_arrow(joined.astype(np.float16))], schema=schema)
        writer.write_table(table, row_group_size=32768)
    return replace(corpus, folder=folder, dim=dim, shards=(Shard(stages.shard_name(0, 1), len(ids), storage.checksum(uri)),))


def exact_seconds(source: Corpus, target: Corpus) -> float:
    """Return the seconds of exact search."""
    cache = BlockCache.of(torch.device(CPU))
    block_rows = cache.block_bytes // (2 * source.dim)
    sides = []
    for corpus in (source, target):
        ids, vectors = corpus.read_vectors(corpus.shards[0].name)
        part = ids[: MAX_BLOCKS * block_rows], vectors[: MAX_BLOCKS * block_rows]
        sides.append(ShardReader(corpus.folder, corpus.dim, lambda part=part: iter([part])))
    _, seconds = timed(lambda: search_shards(sides[:1], sides[1:], K, cache, lambda _: None))
    return seconds * math.prod(max(1.0, corpus.rows / block_rows / MAX_BLOCKS) for corpus in (source, target))


def faiss_seconds(queries: Corpus, keys: Corpus, folder: str) -> float:
    """Return the seconds to index and search both directions, from one of them."""
    manifest, build = timed(lambda: run_pipeline(build_index.build(keys, folder, IndexSettings(target_recall=TARGET_RECALL), K)))
    index = OpenIndex(IndexedSide.describe(folder, manifest, keys))
    sample = draw_sample(queries, SAMPLE + TUNING_QUERIES, seed=4)[1]
    sample = sample[np.random.default_rng(5).permutation(len(sample))]
    parameters, tuning = timed(lambda: index.tune(sample[-TUNING_QUERIES:], K, TARGET_RECALL))
    assert isinstance(parameters, SearchParameters)
    _, search = timed(lambda: index.search(sample[:SAMPLE], K, parameters))
    return 2 * (build + tuning + search * queries.rows / SAMPLE)


def measure(corpora: tuple[Corpus, Corpus], rows: int, dim: int, folder: str) -> str:
    """Return one line of the table."""
    source, target = (write_subset(corpus, rows, dim, f"{folder}/{side}") for side, corpus in enumerate(corpora))
    trial = EngineTrial(SearchRequest(source, target, K), TARGET_RECALL, (False, False), available_cores())
    estimate, trial_seconds = timed(trial.estimate)
    seconds = {"exact": exact_seconds(source, target), "faiss": faiss_seconds(source, target, f"{folder}/index")}
    auto = seconds[estimate.engine] + trial_seconds
    cells = (f"{rows:,}", str(dim), f"{seconds['exact']:.1f} ({estimate.exact:.1f})", f"{seconds['faiss']:.1f} ({estimate.faiss:.1f})")
    return f"| {' | '.join(cells)} | {estimate.engine} | {trial_seconds:.1f} | {100 * (auto / min(seconds.values()) - 1):+.0f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--dims", type=int, nargs="+", default=[256, 384, 768, 1024])
    arguments = parser.parse_args()
    corpora = open_corpus(arguments.source), open_corpus(arguments.target)
    torch.zeros(1)  # imports and threads are not part of the first trial
    for rows in arguments.sizes:
        for dim in arguments.dims:
            with tempfile.TemporaryDirectory() as folder:
                print(measure(corpora, rows, dim, folder), flush=True)


if __name__ == "__main__":
    main()
