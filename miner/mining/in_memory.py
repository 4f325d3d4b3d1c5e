"""Mine two sets of vectors that are in memory: exact search, margins and one-to-one matching. For test sets; corpora use the pipelines."""

import numpy as np

from miner.arrays import Ints, Vectors
from miner.devices import CPU, has_torch
from miner.mining.candidates import Candidates, ScoredPairs, join_neighbours, score
from miner.mining.late_scores import TokenSides, rescore
from miner.mining.matching import match, rank
from miner.search import dense
from miner.search.neighbours import Neighbours, VectorBlock


def search_vectors(source: Vectors, target: Vectors, k: int, device: str = "cpu") -> tuple[Neighbours, Neighbours]:
    """(n, dim), (m, dim) -> the k nearest neighbours of each row, as row numbers, exactly; zero rows have none and are none."""
    blocks = [VectorBlock(np.flatnonzero(vectors.any(axis=1)), vectors[vectors.any(axis=1)]) for vectors in (source, target)]
    forward, backward = _search_blocks(blocks[0], blocks[1], k, device)
    return _scatter(forward, blocks[0].ids, len(source)), _scatter(backward, blocks[1].ids, len(target))


def _search_blocks(source: VectorBlock, target: VectorBlock, k: int, device: str) -> tuple[Neighbours, Neighbours]:
    """Search both directions, without torch, which takes seconds to import, where the blocks are small or it is not installed."""
    if not has_torch() or (device == CPU and dense.is_small(len(source.ids), len(target.ids), source.vectors.shape[1])):
        return dense.search_block(source, target, k)
    from miner.search.exact import SearchOptions, search_block

    return search_block(source, target, k, SearchOptions(device))


def find_candidates(source: Vectors, target: Vectors, k: int, tokens: TokenSides | None = None, device: str = "cpu") -> Candidates:
    """Search (n, dim) and (m, dim) unit or zero rows -> candidates of row numbers, rescored if there are tokens."""
    rows = np.arange(len(source)), np.arange(len(target))
    neighbours = search_vectors(source, target, k if tokens is None else max(k, tokens.candidates), device)
    candidates = join_neighbours(*rows, *neighbours, k)
    return candidates if tokens is None else rescore(candidates, *rows, tokens, k, device)


def mine_vectors(
    source: Vectors, target: Vectors, k: int, margin: str, tokens: TokenSides | None = None, device: str = "cpu"
) -> ScoredPairs:
    """(n, dim), (m, dim) unit or zero rows -> one-to-one pairs of row numbers, best margin first, as retrieval `max` does.

    With `tokens` the margins are blended with those of late interaction.
    """
    return match(rank(score(find_candidates(source, target, k, tokens, device), margin)), "max")


def _scatter(neighbours: Neighbours, rows: Ints, num_rows: int) -> Neighbours:
    """Place neighbours at their rows; the other rows have none."""
    ids, similarities = np.full((num_rows, neighbours.k), -1, dtype=np.int64), np.full((num_rows, neighbours.k), np.nan)
    ids[rows], similarities[rows] = neighbours.ids, neighbours.similarities
    return Neighbours(ids, similarities)
