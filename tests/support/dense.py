"""Mining over the whole similarity matrix: the reference for the tests of search and mining."""

from pathlib import Path

import numpy as np
import pyarrow as pa


def neighbours(x, y, ids, k):
    """Vectors (n, d), (m, d) and ids (m,) -> positions (n, min(k, m)) in y, nearest first and ties by id; similarities."""
    similarities = x.astype(np.float64) @ y.astype(np.float64).T
    order = np.array([np.lexsort((ids, -row)) for row in similarities])[:, :k]
    return order, np.take_along_axis(similarities, order, axis=1)


def mine(x, y, x_ids, y_ids, k=4, margin="ratio", retrieval="max", threshold=-np.inf):
    """[(margin, source id, target id)], best first."""
    (forward, forward_similarities), (backward, backward_similarities) = neighbours(x, y, y_ids, k), neighbours(y, x, x_ids, k)
    a = x.astype(np.float64) @ y.astype(np.float64).T
    b = (forward_similarities.mean(axis=1)[:, None] + backward_similarities.mean(axis=1)) / 2
    with np.errstate(all="ignore"):
        score = {"ratio": np.where(b > 0, a / b, np.nan), "distance": a - b, "absolute": a}[margin]

    def pair(i, j):
        return -score[i, j], x_ids[i], y_ids[j]

    def best_pairs(cells_of_rows):
        scored = ([pair(i, j) for i, j in cells if np.isfinite(score[i, j])] for cells in cells_of_rows)
        return {min(pairs) for pairs in scored if pairs}

    forward_cells = [[(i, j) for j in row] for i, row in enumerate(forward)]
    backward_cells = [[(i, j) for i in row] for j, row in enumerate(backward)]
    best_forward, best_backward = best_pairs(forward_cells), best_pairs(backward_cells)
    candidates = {pair(i, j) for cells in (*forward_cells, *backward_cells) for i, j in cells if np.isfinite(score[i, j])}
    retrieved = {
        "forward": best_forward,
        "backward": best_backward,
        "intersection": best_forward & best_backward,
        "max": best_forward | best_backward,
        "all": candidates,
    }
    pairs = sorted(retrieved[retrieval])
    if retrieval == "max":
        pairs = one_to_one(pairs)
    return [(-score, source, target) for score, source, target in pairs if -score > threshold]


def one_to_one(pairs):
    """Of pairs [(score, source, target)] in this order, those whose source and target are in no pair before."""
    matches, used = [], set()
    for score, source, target in pairs:
        if not {("source", source), ("target", target)} & used:
            used |= {("source", source), ("target", target)}
            matches.append((score, source, target))
    return matches


def laser(x, y, k=4):
    """What LASER's mine_bitexts prints for `--unify --mode mine --retrieval max --margin ratio -k K`, without its threshold.

    Vectors of different sentences (n, d), (m, d) -> [(score, row of x, row of y)], best first. Search in float32, scores in float64.
    """
    x, y = (side.astype(np.float32) / np.linalg.norm(side.astype(np.float32), axis=1, keepdims=True) for side in (x, y))
    forward, backward = (np.argsort(-(queries @ keys.T), axis=1)[:, : min(k, len(keys))] for queries, keys in ((x, y), (y, x)))
    means = [
        np.take_along_axis(queries @ keys.T, nearest, axis=1).mean(axis=1) for queries, keys, nearest in ((x, y, forward), (y, x, backward))
    ]

    def score(i, j):
        return float(x[i].astype(np.float64) @ y[j].astype(np.float64) / ((means[0][i] + means[1][j]) / 2))

    best = [max((score(i, j), i, j) for j in row) for i, row in enumerate(forward)]
    best += [max((score(i, j), i, j) for i in row) for j, row in enumerate(backward)]
    pairs = sorted({(-value, int(i), int(j)) for value, i, j in best})
    return [(-value, i, j) for value, i, j in one_to_one(pairs)]


def unit(rows, dim, seed):
    """(rows, dim) random float16 vectors of length 1."""
    vectors = np.random.default_rng(seed).normal(size=(rows, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def ids(count, seed):
    """(count,) different ids from the whole range of int64, ascending."""
    limits = np.iinfo(np.int64)
    return np.unique(np.random.default_rng(seed).integers(limits.min, limits.max, size=count, endpoint=True))


TEXTS = {}  # id -> its text, of all ids that `text_ids` returned


def text_ids(count, seed):
    """(count,) ids of different sentences, ascending."""
    from miner.text.normalise import sentence_ids  # needs a package that search does not

    texts = [f"sentence {number} of {seed}" for number in range(count)]
    TEXTS.update(zip(sentence_ids(texts).tolist(), texts, strict=True))
    return np.sort(sentence_ids(texts))


def write_corpus(folder: Path, corpus_ids, vectors, shards=1, fingerprint="vectors", row_group_rows=32768):
    """Write an embeddings directory: sentence i has line i + 1, and the id, of `text_ids`, and the vector at i."""
    from miner.io import (
        stages,  # they need packages that search does not
        table_files,
    )
    from miner.io.stages import Stage
    from miner.io.tables import SENTENCES, embeddings_schema, vectors_to_arrow

    rows = np.array_split(np.arange(len(corpus_ids)), shards)
    sentences = Stage(str(folder / stages.SENTENCES), stages.SENTENCES, {}, {"test.txt": "0"})
    config = {"fingerprint": fingerprint, "dim": vectors.shape[1], "lang": "und"}
    names = [stages.shard_name(index, shards) for index in range(shards)]
    for name, part in zip(names, rows, strict=True):
        columns = [
            corpus_ids[part],
            [TEXTS[id] for id in corpus_ids[part].tolist()],
            np.ones(len(part), np.int32),
            ["test.txt"] * len(part),
            part + 1,
        ]
        table_files.write_table(sentences.path(name), pa.table(columns, names=SENTENCES.names).cast(SENTENCES))
        sentences.mark_done(name, len(part), "test")
    counts = {"lines": len(vectors), "kept": len(vectors), "empty": 0, "invalid": 0, "too_long": 0, "duplicate": 0}
    manifest = sentences.finish(dict.fromkeys(names, "test"), lambda _: {"counts": counts})
    inputs = {shard.name: shard.checksum for shard in manifest.shards}
    embeddings = Stage(str(folder / stages.EMBEDDINGS), stages.EMBEDDINGS, config, inputs)
    for name, part in zip(names, rows, strict=True):
        columns = [pa.array(corpus_ids[part]), vectors_to_arrow(vectors[part])]
        schema = embeddings_schema(vectors.shape[1], fingerprint)
        with table_files.parquet_writer(embeddings.path(name), schema) as writer:
            writer.write_table(pa.table(columns, schema=schema), row_group_size=row_group_rows)
        embeddings.mark_done(name, len(part), "test")
    embeddings.finish(dict.fromkeys(names, "test"))
    return folder
