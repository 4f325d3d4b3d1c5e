"""Matching: which of the candidates are pairs. Everything is ordered by margin, best first; ties by source id, then target id."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from miner.errors import ConfigError
from miner.mining.candidates import Bools, Candidates, Ids

Rows = npt.NDArray[np.intp]


def match(candidates: Candidates, retrieval: str) -> Candidates:
    """The pairs among the candidates, best first. ConfigError for an unknown retrieval."""
    if retrieval not in RETRIEVALS:
        raise ConfigError(f"unknown retrieval {retrieval!r}; one of {', '.join(RETRIEVALS)}")
    ordered = candidates.take(np.lexsort((candidates.target_ids, candidates.source_ids, -candidates.margins)))
    return ordered.take(RETRIEVALS[retrieval](ordered))


def contenders(candidates: Candidates) -> Candidates:
    """The candidates of some sources that can still be matched: the best of each source, and the best of each target so far.

    `match` gives the same for the contenders of all parts of a corpus as for all its candidates.
    """
    ordered = candidates.take(np.lexsort((candidates.target_ids, candidates.source_ids, -candidates.margins)))
    return ordered.take(_forward(ordered) | _backward(ordered))


def _forward(ordered: Candidates) -> Bools:
    """Of each source, the neighbour with the largest margin, which need not be the nearest."""
    return _first(ordered.source_ids, ordered.forward)


def _backward(ordered: Candidates) -> Bools:
    return _first(ordered.target_ids, ordered.backward)


def _intersection(ordered: Candidates) -> Bools:
    return _forward(ordered) & _backward(ordered)


def _first(ids: Ids, eligible: Bools) -> Bools:
    """(n,): where an id is for the first time among those that are eligible."""
    rows = np.flatnonzero(eligible)
    first = np.zeros(len(ids), dtype=bool)
    first[rows[np.unique(ids[rows], return_index=True)[1]]] = True
    return first


def _greedy(ordered: Candidates) -> Bools:
    """One to one: down the list of the best of both directions, a pair is taken when neither side is yet.

    A plain loop: rounds of mutually best pairs, which numpy could do, take one pair a round where many margins are equal.
    """
    rows = np.flatnonzero(_forward(ordered) | _backward(ordered))
    sources, targets = (np.unique(ids[rows], return_inverse=True)[1] for ids in (ordered.source_ids, ordered.target_ids))
    free_source, free_target = bytearray(b"\1") * len(rows), bytearray(b"\1") * len(rows)
    taken = np.zeros(len(ordered), dtype=bool)
    for row, source, target in zip(rows, sources.tolist(), targets.tolist(), strict=True):
        if free_source[source] and free_target[target]:
            free_source[source] = free_target[target] = 0
            taken[row] = True
    return taken


RETRIEVALS: dict[str, Callable[[Candidates], Bools]] = {
    "max": _greedy,
    "forward": _forward,
    "backward": _backward,
    "intersection": _intersection,
}
