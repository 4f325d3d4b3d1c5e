"""Candidates: the pairs of a sentence and one of its neighbours, from either side, with all that any margin needs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from miner.errors import DataError
from miner.mining.margin import Floats, margins, mean_similarities
from miner.search.neighbours import Neighbours

Ids = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Columns = TypeVar("Columns", "Candidates", "ScoredPairs", "Edges", "NeighbourMeans")


@dataclass(frozen=True)
class Candidates:
    """n different pairs. `forward` tells that the target is a neighbour of the source, `backward` the reverse; or both."""

    source_ids: Ids  # (n,)
    target_ids: Ids  # (n,)
    similarities: Floats  # (n,)
    source_means: Floats  # (n,), of the similarities of the source to its neighbours
    target_means: Floats  # (n,)
    forward: Bools  # (n,)
    backward: Bools  # (n,)

    def __len__(self) -> int:
        return len(self.source_ids)


@dataclass(frozen=True)
class ScoredPairs:
    """n different pairs with their margins, none of them NaN."""

    source_ids: Ids  # (n,)
    target_ids: Ids  # (n,)
    similarities: Floats  # (n,)
    margins: Floats  # (n,)
    forward: Bools  # (n,)
    backward: Bools  # (n,)

    def __len__(self) -> int:
        return len(self.source_ids)

    def take(self, rows: npt.NDArray[np.intp] | Bools) -> "ScoredPairs":
        """Some of the pairs, by row number or by a mask."""
        return ScoredPairs(**{column.name: getattr(self, column.name)[rows] for column in fields(self)})


def score(candidates: Candidates, margin: str, threshold: float = -np.inf) -> ScoredPairs:
    """The candidates whose margin is above the threshold; a pair without a margin is none. ConfigError for an unknown margin."""
    scores = margins(margin, candidates.similarities, candidates.source_means, candidates.target_means)
    columns = {name: getattr(candidates, name) for name in ("source_ids", "target_ids", "similarities", "forward", "backward")}
    above = scores > threshold  # false for NaN
    return ScoredPairs(margins=scores[above], **{name: column[above] for name, column in columns.items()})


def concat(parts: Sequence[Columns]) -> Columns:
    """The rows of one or more parts, which share no pair."""
    kind = type(parts[0])
    return kind(**{column.name: np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(kind)})


@dataclass(frozen=True)
class NeighbourMeans:
    """The mean similarity of each sentence of a side to its neighbours; `ids` (n,) ascending, `means` (n,)."""

    ids: Ids
    means: Floats

    def of(self, ids: Ids) -> Floats:
        """(m,) means of these sentences; DataError where one is not on this side."""
        rows = np.searchsorted(self.ids, ids).clip(max=max(0, len(self.ids) - 1))
        known = self.ids[rows] == ids if len(self.ids) else np.zeros(len(ids), dtype=bool)
        if not known.all():
            raise DataError(f"sentence {ids[~known][0]} has no neighbours; delete the neighbours and run the same command again")
        means: Floats = self.means[rows]
        return means


def means_of(ids: Ids, neighbours: Neighbours) -> NeighbourMeans:
    return NeighbourMeans(ids, mean_similarities(neighbours.similarities))


def all_means(parts: Sequence[NeighbourMeans]) -> NeighbourMeans:
    """Those of several shards, in any order."""
    found = concat([NeighbourMeans(np.zeros(0, np.int64), np.zeros(0)), *parts])
    order = np.argsort(found.ids, kind="stable")
    return NeighbourMeans(found.ids[order], found.means[order])


@dataclass(frozen=True)
class Edges:
    """n pairs as one direction of the search found them."""

    source_ids: Ids
    target_ids: Ids
    similarities: Floats


NO_EDGES = Edges(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def forward_edges(ids: Ids, neighbours: Neighbours) -> Edges:
    """Sources (n,) and their neighbours (n, k) -> one edge for each neighbour that was found."""
    found = neighbours.is_neighbour
    sources = np.broadcast_to(ids[:, None], found.shape)
    return Edges(sources[found], neighbours.ids[found], neighbours.similarities[found])


def backward_edges(ids: Ids, neighbours: Neighbours) -> Edges:
    """Targets (n,) and their neighbours (n, k) -> one edge for each neighbour that was found."""
    edges = forward_edges(ids, neighbours)
    return Edges(edges.target_ids, edges.source_ids, edges.similarities)


@dataclass(frozen=True)
class MergedEdges:
    """n different pairs by (source id, target id), and which directions found them."""

    source_ids: Ids  # (n,)
    target_ids: Ids  # (n,)
    similarities: Floats  # (n,)
    forward: Bools  # (n,)
    backward: Bools  # (n,)


def meet(forward: Edges, backward: Edges) -> MergedEdges:
    """The edges of both directions, each pair once.

    A pair found in both directions has the same similarity in both, because similarities are exact.
    """
    edges = concat([forward, backward])
    is_backward = np.arange(len(edges.source_ids)) >= len(forward.source_ids)
    order = np.lexsort((is_backward, edges.target_ids, edges.source_ids))
    source_ids, target_ids, is_backward = edges.source_ids[order], edges.target_ids[order], is_backward[order]
    again = np.zeros(len(order), dtype=bool)
    again[1:] = (source_ids[1:] == source_ids[:-1]) & (target_ids[1:] == target_ids[:-1])
    both = np.append(again[1:], False)
    pairs = ~again
    similarities = edges.similarities[order][pairs]
    return MergedEdges(source_ids[pairs], target_ids[pairs], similarities, ~is_backward[pairs], (is_backward | both)[pairs])


def join(forward: Edges, backward: Edges, sources: NeighbourMeans, targets: NeighbourMeans) -> Candidates:
    """All edges of some sources -> their candidates, by (source id, target id)."""
    met = meet(forward, backward)
    means = sources.of(met.source_ids), targets.of(met.target_ids)
    return Candidates(met.source_ids, met.target_ids, met.similarities, *means, met.forward, met.backward)
