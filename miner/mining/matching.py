"""Matching: which of the candidates are pairs. Everything is ordered by margin, best first; ties by source id, then target id.

One to one can be had in rounds as well, for candidates that lie apart: a pair that is the best of both its sentences is taken down the
list whatever the others are, so these are taken at once and their sentences left out, until none is left (Preis, "Linear time
1/2-approximation algorithm for maximum weighted matching in general graphs", STACS 1999; Hoepman, "Simple distributed weighted
matchings", 2004). To see which they are takes the pairs of one sentence at a time. Nothing but the order counts, so the pairs are
those of `greedy`, ties included.
"""

from collections.abc import Callable

import numpy as np

from miner.errors import ConfigError
from miner.mining.candidates import Bools, Ids, ScoredPairs
from miner.mining.greedy import NOWHERE, greedy


def rank(pairs: ScoredPairs) -> ScoredPairs:
    """The pairs, best first."""
    return pairs.take(np.lexsort((pairs.target_ids, pairs.source_ids, -pairs.margins)))


def match(ranked: ScoredPairs, retrieval: str) -> ScoredPairs:
    """Candidates, best first -> the pairs among them, best first. ConfigError for an unknown retrieval.

    What a threshold leaves of the pairs is what is found among the candidates above it.
    """
    forward, backward = best_of_sources(ranked), best_of_targets(ranked)
    rows = listed(forward, backward, retrieval)
    if retrieval == "max":
        rows = _greedy(ranked, forward, backward)
    return ranked.take(rows)


def best_of_sources(ranked: ScoredPairs) -> Bools:
    """(n,): of each source, the neighbour with the largest margin, which need not be the nearest."""
    return first(ranked.source_ids, ranked.forward)


def best_of_targets(ranked: ScoredPairs) -> Bools:
    """(n,): of each target, the same."""
    return first(ranked.target_ids, ranked.backward)


def listed(forward: Bools, backward: Bools, retrieval: str) -> Bools:
    """Which are the best of their source (n,), and of their target (n,) -> (n,) which are pairs or, one to one, may be.

    ConfigError for an unknown retrieval.
    """
    if retrieval not in RETRIEVALS:
        raise ConfigError(f"unknown retrieval {retrieval!r}; one of {', '.join(RETRIEVALS)}")
    return RETRIEVALS[retrieval](forward, backward)


def first(ids: Ids, eligible: Bools) -> Bools:
    """(n,): where an id is for the first time among those that are eligible."""
    rows = np.flatnonzero(eligible)
    found = np.zeros(len(ids), dtype=bool)
    found[rows[np.unique(ids[rows], return_index=True)[1]]] = True
    return found


def take(ranked: ScoredPairs, best_of_target: Bools) -> tuple[Bools, Bools]:
    """All that is left of some sources, and which (n,) are the best that is left of their target -> pairs, and what is left then."""
    taken = first(ranked.source_ids, np.ones(len(ranked), dtype=bool)) & best_of_target
    return taken, ~np.isin(ranked.source_ids, ranked.source_ids[taken])


def leave(ranked: ScoredPairs, taken: Bools) -> tuple[Bools, Bools]:
    """All that is left of some targets, besides pairs that were taken (n,) -> what is left then, and the best of each target."""
    left = ~taken & ~np.isin(ranked.target_ids, ranked.target_ids[taken])
    return left, first(ranked.target_ids, left)


def _greedy(ranked: ScoredPairs, forward: Bools, backward: Bools) -> Bools:
    """One to one: down the list of the best of both directions, a pair is taken when neither side is yet."""
    rows = np.flatnonzero(forward | backward)
    (source_nodes, sources), (target_nodes, targets) = (
        np.unique(ids[rows], return_inverse=True) for ids in (ranked.source_ids, ranked.target_ids)
    )
    targets = targets + len(source_nodes)
    own = np.full(len(source_nodes) + len(target_nodes), NOWHERE)
    own[sources[forward[rows]]] = np.flatnonzero(forward[rows])
    own[targets[backward[rows]]] = np.flatnonzero(backward[rows])
    taken = np.zeros(len(ranked), dtype=bool)
    taken[rows] = greedy(np.stack([sources, targets], axis=1), own)
    return taken


RETRIEVALS: dict[str, Callable[[Bools, Bools], Bools]] = {
    "max": lambda forward, backward: forward | backward,
    "forward": lambda forward, _: forward,
    "backward": lambda _, backward: backward,
    "intersection": lambda forward, backward: forward & backward,
    "all": lambda forward, _: np.ones_like(forward),
}
