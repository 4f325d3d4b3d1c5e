"""Mining spelled out over the whole similarity matrix: what the tests of search and mining are compared with."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from miner import corpus, stages, storage
from miner.stages import Stage
from miner.tables import SENTENCES, embeddings_schema, vectors_to_arrow

ROW_GROUP = 32768  # rows that `write_corpus` puts together


def neighbours(x, y, ids, k):
    """Vectors (n, d), (m, d) and ids (m,) -> positions (n, min(k, m)) in y, nearest first and ties by id; similarities."""
    similarities = x.astype(np.float64) @ y.astype(np.float64).T
    order = np.array([np.lexsort((ids, -row)) for row in similarities])[:, :k]
    return order, np.take_along_axis(similarities, order, axis=1)


def mine(x, y, x_ids, y_ids, k=4, margin="ratio", retrieval="max", threshold=-np.inf):
    """[(margin, source id, target id)], best first."""
    (forward, near), (backward, near_back) = neighbours(x, y, y_ids, k), neighbours(y, x, x_ids, k)
    a = x.astype(np.float64) @ y.astype(np.float64).T
    b = (near.mean(axis=1)[:, None] + near_back.mean(axis=1)) / 2
    with np.errstate(all="ignore"):
        score = {"ratio": a / b, "distance": a - b, "absolute": a}[margin]
    pair = lambda i, j: (-score[i, j], x_ids[i], y_ids[j])  # noqa: E731
    ahead = {min(pair(i, j) for j in row if np.isfinite(score[i, j])) for i, row in enumerate(forward) if np.isfinite(score[i, row]).any()}
    back = {min(pair(i, j) for i in row if np.isfinite(score[i, j])) for j, row in enumerate(backward) if np.isfinite(score[row, j]).any()}
    near = {(i, j) for i, row in enumerate(forward) for j in row} | {(i, j) for j, row in enumerate(backward) for i in row}
    every = {pair(i, j) for i, j in near if np.isfinite(score[i, j])}
    chosen = {"forward": ahead, "backward": back, "intersection": ahead & back, "max": ahead | back, "all": every}
    pairs = sorted(chosen[retrieval])
    if retrieval == "max":
        pairs = one_to_one(pairs)
    return [(-score, source, target) for score, source, target in pairs if -score > threshold]


def one_to_one(pairs):
    taken, used = [], set()
    for score, source, target in pairs:
        if not {("source", source), ("target", target)} & used:
            used |= {("source", source), ("target", target)}
            taken.append((score, source, target))
    return taken


def laser(x, y, k=4):
    """What LASER's mine_bitexts prints for `--unify --mode mine --retrieval max --margin ratio -k K`, without its threshold.

    Vectors of different sentences (n, d), (m, d) -> [(score, row of x, row of y)], best first. Search in float32, scores in float64.
    """
    x, y = (side.astype(np.float32) / np.linalg.norm(side.astype(np.float32), axis=1, keepdims=True) for side in (x, y))
    ahead, back = (np.argsort(-(one @ other.T), axis=1)[:, : min(k, len(other))] for one, other in ((x, y), (y, x)))
    means = [np.take_along_axis(one @ other.T, near, axis=1).mean(axis=1) for one, other, near in ((x, y, ahead), (y, x, back))]

    def score(i, j):
        return float(x[i].astype(np.float64) @ y[j].astype(np.float64) / ((means[0][i] + means[1][j]) / 2))

    listed = [max((score(i, j), i, j) for j in row) for i, row in enumerate(ahead)]
    listed += [max((score(i, j), i, j) for i in row) for j, row in enumerate(back)]
    pairs = sorted({(-value, int(i), int(j)) for value, i, j in listed})
    return [(-value, i, j) for value, i, j in one_to_one(pairs)]


def unit(rows, dim, seed):
    """(rows, dim) random float16 vectors of length 1."""
    vectors = np.random.default_rng(seed).normal(size=(rows, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def ids(count, seed):
    """(count,) different ids from the whole range of int64, ascending."""
    limits = np.iinfo(np.int64)
    return np.unique(np.random.default_rng(seed).integers(limits.min, limits.max, size=count, endpoint=True))


def write_corpus(folder: Path, sentence_ids, vectors, shards=1, fingerprint="test-1", lang="und"):
    """A folder as `miner embed` leaves it: sentence i is called "s<i>", is line i + 1, and has ids[i] and vectors[i]."""
    rows = np.array_split(np.arange(len(sentence_ids)), shards)
    texts = Stage(str(folder / corpus.SENTENCES), corpus.SENTENCES, {}, {"test.txt": "0"})
    made_with = {"fingerprint": fingerprint, "dim": vectors.shape[1], "lang": lang}
    names = [stages.shard_name(index, shards) for index in range(shards)]
    for name, part in zip(names, rows, strict=True):
        columns = [sentence_ids[part], [f"s{i}" for i in part], np.ones(len(part), np.int32), ["test.txt"] * len(part), part + 1]
        storage.write_table(texts.path(name), pa.table(columns, names=SENTENCES.names).cast(SENTENCES))
        texts.done(name, len(part), "test")
    counts = {"lines": len(vectors), "kept": len(vectors), "empty": 0, "invalid": 0, "too_long": 0, "duplicate": 0}
    manifest = texts.finish(dict.fromkeys(names, "test"), lambda _: {"counts": counts})
    embeddings = Stage(
        str(folder / corpus.EMBEDDINGS), corpus.EMBEDDINGS, made_with, {shard.name: shard.checksum for shard in manifest.shards}
    )
    for name, part in zip(names, rows, strict=True):
        columns = [pa.array(sentence_ids[part]), vectors_to_arrow(vectors[part])]
        schema = embeddings_schema(vectors.shape[1], fingerprint)
        with storage.parquet_writer(embeddings.path(name), schema) as writer:
            writer.write_table(pa.table(columns, schema=schema), row_group_size=ROW_GROUP)
        embeddings.done(name, len(part), "test")
    embeddings.finish(dict.fromkeys(names, "test"))
    return folder
