"""Late interaction of candidates and of neighbours, and its means."""

from dataclasses import dataclass, replace

import numpy as np

from miner.arrays import Ids
from miner.encoders.token_vectors import TokenVectors
from miner.mining.candidates import Candidates, LateScores, NeighbourMeans, late_means
from miner.mining.late_interaction import DEFAULT_OPTIONS, LateOptions, late_similarities
from miner.search.neighbours import Neighbours


@dataclass(frozen=True)
class TokenSides:
    """The tokens of all sentences of both sides, and the neighbours of each sentence that are rescored by them."""

    source: TokenVectors
    target: TokenVectors
    candidates: int


def rescore(
    candidates: Candidates, source_ids: Ids, target_ids: Ids, tokens: TokenSides, k: int, options: LateOptions = DEFAULT_OPTIONS
) -> Candidates:
    """Return all candidates of sources (n,) and targets (m,), both ascending, with their late interaction. `tokens` has n and m texts."""
    sources, targets = candidates.source_ids, candidates.target_ids
    rows = np.searchsorted(source_ids, sources), np.searchsorted(target_ids, targets)
    similarities = late_similarities(tokens.source, tokens.target, *rows, options)
    source_means = late_means(sources, similarities, candidates.forward, k)
    target_means = late_means(targets, similarities, candidates.backward, k)
    return replace(candidates, late=LateScores(similarities, source_means, target_means))


@dataclass(frozen=True)
class TokensById:
    """The tokens of n sentences, by id."""

    ids: Ids  # (n,), ascending
    tokens: TokenVectors


def neighbour_means(sentences: TokensById, neighbours: Neighbours, others: TokensById, k: int, options: LateOptions) -> NeighbourMeans:
    """Sentences (n,) and their neighbours (n, c) among `others` -> the mean of the k largest late interactions; 0 without neighbours."""
    rows = np.nonzero(neighbours.is_neighbour)[0]
    columns = np.searchsorted(others.ids, neighbours.ids[neighbours.is_neighbour])
    similarities = late_similarities(sentences.tokens, others.tokens, rows, columns, options)
    means = np.zeros(len(sentences.ids))
    means[rows] = late_means(rows, similarities, np.ones(len(rows), dtype=bool), k)
    return NeighbourMeans(sentences.ids, means)
