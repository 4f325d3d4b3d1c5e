"""Late interaction of candidates and of neighbours, and its means: with numpy for few pairs, without torch, which takes seconds to import.

The score is that of `miner.mining.late_interaction`: products, maxima and sums of integers, which are exact in float32 and float64.
"""

from dataclasses import dataclass, replace

import numpy as np
from threadpoolctl import threadpool_limits

from miner.arrays import Floats, Ids, Ints, run_bounds
from miner.devices import CPU, has_torch
from miner.encoders.token_vectors import SCALE, TokenVectors
from miner.mining.candidates import Candidates, LateScores, NeighbourMeans, late_means
from miner.search.neighbours import Neighbours

MAX_MULTIPLICATIONS = 1 << 33  # of few pairs: a second of one core
PRODUCT_MULTIPLICATIONS = 1 << 22  # of a sentence with some others, which bounds the memory of a product


def score_pairs(
    queries: TokenVectors, keys: TokenVectors, query_rows: Ints, key_rows: Ints, device: str, max_multiplications: int = MAX_MULTIPLICATIONS
) -> Floats:
    """Return L (p,) of pairs of a query and a key (p,), by their rows; 0 where a text has no tokens."""
    is_small = device == CPU and _multiplications(queries, keys, query_rows, key_rows).sum() <= max_multiplications
    if is_small or not has_torch():
        with threadpool_limits(1, user_api="blas"):  # products are so small that threads would wait longer than they compute
            return score_few(queries, keys, query_rows, key_rows)
    from miner.mining import late_interaction

    options = late_interaction.LateOptions(device)
    return late_interaction.late_similarities(queries, keys, query_rows, key_rows, options)


def _multiplications(queries: TokenVectors, keys: TokenVectors, query_rows: Ints, key_rows: Ints) -> Ints:
    """Return the number of multiplications (p,) of the tokens of each pair."""
    return queries.lengths[query_rows] * keys.lengths[key_rows] * np.int64(queries.table.shape[1])


def score_few(
    queries: TokenVectors, keys: TokenVectors, query_rows: Ints, key_rows: Ints, product_multiplications: int = PRODUCT_MULTIPLICATIONS
) -> Floats:
    """Return L (p,) of pairs (p,) as `score_pairs` does, by one product for a query and some of its keys."""
    result = np.zeros(len(query_rows))
    multiplications = _multiplications(queries, keys, query_rows, key_rows)
    order = np.argsort(query_rows, kind="stable")
    order = order[multiplications[order] > 0]
    if not len(order):
        return result
    queries_of, keys_of = query_rows[order], keys.take(key_rows[order])
    query_table, key_table = queries.table.astype(np.float32), keys.table.astype(np.float32)
    query_weights = queries.weights.astype(np.float64)
    query_sums, best = np.empty(len(order)), np.empty(len(keys_of.rows), dtype=np.float32)  # best: of each token of a key
    starts, ends = _products(queries_of, np.cumsum(multiplications[order]) // product_multiplications)
    query_bounds = queries.bounds[queries_of[starts]], queries.bounds[queries_of[starts] + 1]
    bounds = (starts, ends, *query_bounds, keys_of.bounds[starts], keys_of.bounds[ends])
    for start, end, *tokens in zip(*(column.tolist() for column in bounds), strict=True):  # numbers of numpy are slow
        query, key = slice(*tokens[:2]), slice(*tokens[2:])
        cells = query_table.take(queries.rows[query], axis=0) @ key_table.take(keys_of.rows[key], axis=0).T
        np.maximum.reduce(cells, axis=0, out=best[key])
        maxima = np.maximum.reduceat(cells, keys_of.bounds[start:end] - key.start, axis=1)
        np.matmul(query_weights[query], maxima, out=query_sums[start:end])
    key_sums = np.add.reduceat(best.astype(np.int64) * keys_of.weights, keys_of.bounds[:-1])
    similarities = query_sums / queries.total_weights()[queries_of] + key_sums / keys_of.total_weights()
    result[order] = similarities / (2 * SCALE**2)
    return result


def _products(queries: Ints, parts: Ints) -> tuple[Ints, Ints]:
    """Cut pairs (p,) into n products of one query in one part, by which they are sorted. Return the start (n,) and end (n,) of each."""
    bounds = run_bounds(queries, parts)
    return bounds[:-1], bounds[1:]


@dataclass(frozen=True)
class TokenSides:
    """The tokens of all sentences of both sides, and the neighbours of each sentence that are rescored by them."""

    source: TokenVectors
    target: TokenVectors
    candidates: int


def rescore(candidates: Candidates, source_ids: Ids, target_ids: Ids, tokens: TokenSides, k: int, device: str = CPU) -> Candidates:
    """Return all candidates of sources (n,) and targets (m,), both ascending, with their late interaction. `tokens` has n and m texts."""
    sources, targets = candidates.source_ids, candidates.target_ids
    rows = np.searchsorted(source_ids, sources), np.searchsorted(target_ids, targets)
    similarities = score_pairs(tokens.source, tokens.target, *rows, device)
    source_means = late_means(sources, similarities, candidates.forward, k)
    target_means = late_means(targets, similarities, candidates.backward, k)
    return replace(candidates, late=LateScores(similarities, source_means, target_means))


@dataclass(frozen=True)
class TokensById:
    """The tokens of n sentences, by id."""

    ids: Ids  # (n,), ascending
    tokens: TokenVectors


def neighbour_means(sentences: TokensById, neighbours: Neighbours, others: TokensById, k: int, device: str) -> NeighbourMeans:
    """Sentences (n,) and their neighbours (n, c) among `others` -> the mean of the k largest late interactions; 0 without neighbours."""
    rows = np.nonzero(neighbours.is_neighbour)[0]
    columns = np.searchsorted(others.ids, neighbours.ids[neighbours.is_neighbour])
    similarities = score_pairs(sentences.tokens, others.tokens, rows, columns, device)
    means = np.zeros(len(sentences.ids))
    means[rows] = late_means(rows, similarities, np.ones(len(rows), dtype=bool), k)
    return NeighbourMeans(sentences.ids, means)
