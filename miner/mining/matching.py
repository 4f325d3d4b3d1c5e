"""Matching: which of the candidates are pairs. Everything is ordered by margin, best first; ties by source id, then target id."""

from collections.abc import Callable

import numpy as np

from miner.errors import ConfigError
from miner.mining.candidates import Bools, Ids, Scored
from miner.mining.greedy import NOWHERE, greedy


def rank(pairs: Scored) -> Scored:
    """The pairs, best first."""
    return pairs.take(np.lexsort((pairs.target_ids, pairs.source_ids, -pairs.margins)))


def match(ranked: Scored, retrieval: str) -> Scored:
    """Candidates, best first -> the pairs among them, best first. ConfigError for an unknown retrieval.

    What a threshold leaves of the pairs is what is found among the candidates above it.
    """
    return ranked.take(_known(retrieval)[1](ranked))


def contending(ranked: Scored, retrieval: str) -> Bools:
    """(n,): the candidates that decide what `match` gives, which is the same without the others."""
    return _known(retrieval)[0](ranked)


def _known(retrieval: str) -> tuple[Callable[[Scored], Bools], Callable[[Scored], Bools]]:
    if retrieval not in RETRIEVALS:
        raise ConfigError(f"unknown retrieval {retrieval!r}; one of {', '.join(RETRIEVALS)}")
    return RETRIEVALS[retrieval]


def _forward(ranked: Scored) -> Bools:
    """Of each source, the neighbour with the largest margin, which need not be the nearest."""
    return _first(ranked.source_ids, ranked.forward)


def _backward(ranked: Scored) -> Bools:
    return _first(ranked.target_ids, ranked.backward)


def _either(ranked: Scored) -> Bools:
    return _forward(ranked) | _backward(ranked)


def _intersection(ranked: Scored) -> Bools:
    return _forward(ranked) & _backward(ranked)


def _all(ranked: Scored) -> Bools:
    return np.ones(len(ranked), dtype=bool)


def _first(ids: Ids, eligible: Bools) -> Bools:
    """(n,): where an id is for the first time among those that are eligible."""
    rows = np.flatnonzero(eligible)
    first = np.zeros(len(ids), dtype=bool)
    first[rows[np.unique(ids[rows], return_index=True)[1]]] = True
    return first


def _greedy(ranked: Scored) -> Bools:
    """One to one: down the list of the best of both directions, a pair is taken when neither side is yet."""
    forward, backward = _forward(ranked), _backward(ranked)
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


# What contends, and which of the contenders are pairs.
RETRIEVALS: dict[str, tuple[Callable[[Scored], Bools], Callable[[Scored], Bools]]] = {
    "max": (_either, _greedy),
    "forward": (_forward, _forward),
    "backward": (_backward, _backward),
    "intersection": (_either, _intersection),
    "all": (_all, _all),
}
