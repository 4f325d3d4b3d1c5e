"""Candidates: pairs of a sentence and one of its neighbours, from either direction, with everything that any margin needs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from miner.arrays import Bools, Floats, Ids, Ints, find_rows, mark_run_starts
from miner.errors import DataError
from miner.mining.margin import blend, margins, mean_similarities
from miner.search.neighbours import Neighbours

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Columns = TypeVar("Columns", bound="DataclassInstance")  # of arrays of equal length


@dataclass(frozen=True)
class LateScores:
    """The late interaction of n pairs, and the mean of each sentence with its own neighbours (see `miner.mining.late_interaction`)."""

    similarities: Floats  # (n,)
    source_means: Floats  # (n,), of the k largest among the neighbours of the source
    target_means: Floats  # (n,)


@dataclass(frozen=True)
class Candidates:
    """n different pairs. `forward`: the target is a neighbour of the source; `backward`: the source is one of the target."""

    source_ids: Ids  # (n,)
    target_ids: Ids  # (n,)
    similarities: Floats  # (n,)
    source_means: Floats  # (n,), mean similarity of the source to its neighbours
    target_means: Floats  # (n,)
    forward: Bools  # (n,)
    backward: Bools  # (n,)
    late: LateScores | None = None  # if they were rescored

    def __len__(self) -> int:
        return len(self.source_ids)

    def take(self, rows: Ints | Bools) -> "Candidates":
        """Return the candidates of these rows (m,) or of this mask (n,)."""
        columns = {column.name: getattr(self, column.name)[rows] for column in fields(self) if column.name != "late"}
        late = None if self.late is None else LateScores(**{name: values[rows] for name, values in vars(self.late).items()})
        return Candidates(**columns, late=late)


def without_copies(candidates: Candidates) -> Candidates:
    """Return the candidates whose texts differ: equal texts have equal ids."""
    return candidates.take(candidates.source_ids != candidates.target_ids)


@dataclass(frozen=True)
class ScoredPairs:
    """n different pairs with their margins, none of which is NaN."""

    source_ids: Ids  # (n,)
    target_ids: Ids  # (n,)
    similarities: Floats  # (n,)
    margins: Floats  # (n,)
    forward: Bools  # (n,)
    backward: Bools  # (n,)

    def __len__(self) -> int:
        return len(self.source_ids)

    def take(self, rows: Ints | Bools) -> "ScoredPairs":
        """Return the pairs of these rows (m,) or of this mask (n,)."""
        return ScoredPairs(**{column.name: getattr(self, column.name)[rows] for column in fields(self)})


def pair_margins(candidates: Candidates, margin: str) -> Floats:
    """Return the margins (n,) of candidates, blended if they were rescored, NaN where undefined. ConfigError for an unknown margin."""
    scores = margins(margin, candidates.similarities, candidates.source_means, candidates.target_means)
    if candidates.late is None:
        return scores
    late = candidates.late
    return blend(scores, margins(margin, late.similarities, late.source_means, late.target_means))


def score(candidates: Candidates, margin: str, threshold: float = -np.inf) -> ScoredPairs:
    """Return the candidates whose margin is defined and above the threshold: the blended margin of those that were rescored.

    ConfigError for an unknown margin.
    """
    scores = pair_margins(candidates, margin)
    columns = {name: getattr(candidates, name) for name in ("source_ids", "target_ids", "similarities", "forward", "backward")}
    is_above = scores > threshold  # false for NaN
    return ScoredPairs(margins=scores[is_above], **{name: column[is_above] for name, column in columns.items()})


def concat(parts: Sequence[Columns]) -> Columns:
    """Concatenate the rows of one or more parts that have no pair in common."""
    table_type = type(parts[0])
    return table_type(**{column.name: _concat_column([getattr(part, column.name) for part in parts]) for column in fields(table_type)})


def _concat_column(values: Sequence[Any]) -> Any:
    if values[0] is None:  # the late scores of candidates that were not rescored
        return None
    return concat(values) if isinstance(values[0], LateScores) else np.concatenate(values)


@dataclass(frozen=True)
class NeighbourMeans:
    """The mean similarity of each sentence of a side to its neighbours."""

    ids: Ids  # (n,), ascending
    means: Floats  # (n,)

    def of(self, ids: Ids) -> Floats:
        """Return the means (m,) of sentences (m,). DataError for a sentence that is not on this side."""
        rows = find_rows(ids, self.ids)
        if (rows < 0).any():
            raise DataError(f"sentence {ids[rows < 0][0]} has no neighbours; delete the neighbours and run the same command again")
        means: Floats = self.means[rows]
        return means


def means_of(ids: Ids, neighbours: Neighbours, k: int | None = None) -> NeighbourMeans:
    """Return the means of sentences (n,) in ascending order, from their neighbours (n, m): the k nearest, None for all."""
    return NeighbourMeans(ids, mean_similarities(neighbours.similarities[:, :k]))


def late_means(ids: Ids, similarities: Floats, is_neighbour: Bools, k: int) -> Floats:
    """Return for each of n pairs the mean of the k largest similarities of its sentence with its own neighbours.

    `ids` (n,) are the sentences of one side, each with all its pairs; `is_neighbour` (n,) marks the pairs with its own neighbours. 0 for
    a sentence without neighbours.
    """
    order = np.argsort(ids)
    is_first = mark_run_starts(ids[order])
    sentences = np.cumsum(is_first) - 1  # of the pairs in this order
    own = is_neighbour[order]
    counts = np.bincount(sentences[own], minlength=int(is_first.sum()))
    largest = _sort_groups(similarities[order][own], counts)
    num_largest = np.minimum(counts, k)
    sums = np.zeros(len(counts))
    for rank in range(int(num_largest.max(initial=0))):  # in this order on every machine
        has_rank = num_largest > rank
        sums[has_rank] += largest[has_rank, rank]
    means = np.empty(len(ids))
    means[order] = (sums / np.maximum(num_largest, 1))[sentences]
    return means


def _sort_groups(values: Floats, counts: Ints) -> Floats:
    """Values (m,), of which the first counts[0] are a group and so on -> (groups, largest count), each row descending, then -inf.

    numpy sorts short rows several times as fast as one column by group and value.
    """
    rows = np.full((len(counts), int(counts.max(initial=0))), np.inf)
    rows[np.arange(rows.shape[1]) < counts[:, None]] = -values
    rows.sort(axis=1)
    return -rows


def sample_step(num_sentences: int, max_sampled: int) -> int:
    """Return the step by which the ids of a side are sampled. They are hashes, so every n-th id is a random sample."""
    return max(1, -(-num_sentences // max_sampled))


def look_up(pairs: tuple[Ids, Ids], scored_pairs: tuple[Ids, Ids], scores: Floats) -> Floats:
    """Return the scores (n,) of pairs of ids (n,) among m scored pairs and their scores (m,); NaN for a pair that has none.

    No pair occurs twice on either side.
    """
    num_scored = len(scores)
    if not num_scored:
        return np.full(len(pairs[0]), np.nan)
    sources, targets = (np.concatenate(sides) for sides in zip(scored_pairs, pairs, strict=True))
    order = np.lexsort((np.arange(len(sources)), targets, sources))  # a scored pair precedes the same one without a score
    is_repeat = ~mark_run_starts(sources[order], targets[order])[1:]
    result = np.full(len(sources) - num_scored, np.nan)
    result[order[1:][is_repeat] - num_scored] = scores[order[:-1][is_repeat]]
    return result


def merge_means(parts: Sequence[NeighbourMeans]) -> NeighbourMeans:
    """Merge the means of several shards, in any order."""
    unsorted = concat([NeighbourMeans(np.zeros(0, np.int64), np.zeros(0)), *parts])
    order = np.argsort(unsorted.ids, kind="stable")
    return NeighbourMeans(unsorted.ids[order], unsorted.means[order])


@dataclass(frozen=True)
class Edges:
    """n pairs that one direction of the search returned."""

    source_ids: Ids
    target_ids: Ids
    similarities: Floats


NO_EDGES = Edges(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def forward_edges(ids: Ids, neighbours: Neighbours) -> Edges:
    """Return one edge per neighbour, from sources (n,) and their neighbours (n, k)."""
    is_neighbour = neighbours.is_neighbour
    sources = np.broadcast_to(ids[:, None], is_neighbour.shape)
    return Edges(sources[is_neighbour], neighbours.ids[is_neighbour], neighbours.similarities[is_neighbour])


def backward_edges(ids: Ids, neighbours: Neighbours) -> Edges:
    """Return one edge per neighbour, from targets (n,) and their neighbours (n, k)."""
    edges = forward_edges(ids, neighbours)
    return Edges(edges.target_ids, edges.source_ids, edges.similarities)


@dataclass(frozen=True)
class MergedEdges:
    """n different pairs, sorted by (source id, target id), with the directions that returned them."""

    source_ids: Ids  # (n,)
    target_ids: Ids  # (n,)
    similarities: Floats  # (n,)
    forward: Bools  # (n,)
    backward: Bools  # (n,)


def merge_edges(forward: Edges, backward: Edges) -> MergedEdges:
    """Merge the edges of both directions, each pair once.

    A pair of both directions has the same similarity in both, because similarities are exact.
    """
    edges = concat([forward, backward])
    is_backward = np.arange(len(edges.source_ids)) >= len(forward.source_ids)
    order = np.lexsort((edges.target_ids, edges.source_ids))  # stable: of a pair of both directions, the forward edge comes first
    source_ids, target_ids, is_backward = edges.source_ids[order], edges.target_ids[order], is_backward[order]
    pairs = mark_run_starts(source_ids, target_ids)
    is_in_both = np.append(~pairs[1:], False)
    similarities = edges.similarities[order][pairs]
    return MergedEdges(source_ids[pairs], target_ids[pairs], similarities, ~is_backward[pairs], (is_backward | is_in_both)[pairs])


def join_neighbours(source_ids: Ids, target_ids: Ids, forward: Neighbours, backward: Neighbours, k: int | None = None) -> Candidates:
    """Return the candidates of sources (n,) and targets (m,), both ascending, from their neighbours (n, c) and (m, c).

    The k nearest give the means, None for all.
    """
    means = means_of(source_ids, forward, k), means_of(target_ids, backward, k)
    return join(forward_edges(source_ids, forward), backward_edges(target_ids, backward), *means)


def join(forward: Edges, backward: Edges, sources: NeighbourMeans, targets: NeighbourMeans) -> Candidates:
    """Return the candidates of all edges, sorted by (source id, target id)."""
    edges = merge_edges(forward, backward)
    means = sources.of(edges.source_ids), targets.of(edges.target_ids)
    return Candidates(edges.source_ids, edges.target_ids, edges.similarities, *means, edges.forward, edges.backward)
