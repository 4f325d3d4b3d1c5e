"""Matching: which candidates become pairs. Candidates are ordered by margin, best first; ties by source id, then by target id.

One-to-one matching is greedy: down the list, a pair is taken when neither of its sentences is taken yet. `match` walks down a list
in memory. Where the candidates are too many, rounds shrink them first: a pair that is the best left of both its sentences is
taken whatever comes before it in the list, so all such pairs are taken at once and their sentences removed (Preis, "Linear time
1/2-approximation algorithm for maximum weighted matching in general graphs", STACS 1999; Hoepman, "Simple distributed weighted
matchings", 2004). A round sees the candidates of one sentence at a time, so it works range by range. Both give the same pairs, ties
included; only the walk is fast on a long chain of candidates, each better than the next.
"""

import numpy as np

from miner.arrays import Bools, Ids, Ints
from miner.config.choices import RETRIEVALS
from miner.errors import ConfigError
from miner.mining.candidates import ScoredPairs

WALK_BLOCK_ROWS = 1 << 16  # rows that are Python objects at a time


def rank(pairs: ScoredPairs) -> ScoredPairs:
    """Sort pairs, best first."""
    return pairs.take(np.lexsort((pairs.target_ids, pairs.source_ids, -pairs.margins)))


def match(ranked: ScoredPairs, retrieval: str) -> ScoredPairs:
    """Return the pairs among candidates, both best first. ConfigError for an unknown retrieval.

    Matching the candidates above a threshold gives the pairs above that threshold.
    """
    selected = ranked.take(select(best_of_sources(ranked), best_of_targets(ranked), retrieval))
    return selected.take(match_one_to_one(selected)) if RETRIEVALS[retrieval].one_to_one else selected


def best_of_sources(ranked: ScoredPairs) -> Bools:
    """Mark (n,) the neighbour of each source with the largest margin, which need not be the nearest."""
    return mark_first(ranked.source_ids, ranked.forward)


def best_of_targets(ranked: ScoredPairs) -> Bools:
    """Mark (n,) the neighbour of each target with the largest margin."""
    return mark_first(ranked.target_ids, ranked.backward)


def select(source_best: Bools, target_best: Bools, retrieval: str) -> Bools:
    """Mark (n,) the candidates that are pairs or, one-to-one, may become pairs, by which (n,) are the best of their sentences.

    ConfigError for an unknown retrieval.
    """
    if retrieval not in RETRIEVALS:
        raise ConfigError(f"unknown retrieval {retrieval!r}; one of {', '.join(RETRIEVALS)}")
    selected: Bools = RETRIEVALS[retrieval].select(source_best, target_best)
    return selected


def mark_first(ids: Ids, eligible: Bools | None = None) -> Bools:
    """Mark (n,) the first row of each id, among the eligible rows only where these are given."""
    rows = np.arange(len(ids)) if eligible is None else np.flatnonzero(eligible)
    is_first = np.zeros(len(ids), dtype=bool)
    is_first[rows[np.unique(ids[rows], return_index=True)[1]]] = True
    return is_first


def match_one_to_one(ranked: ScoredPairs) -> Ints:
    """Return the rows of the pairs that a greedy walk down the list takes."""
    matched_sources: set[int] = set()
    matched_targets: set[int] = set()
    rows: list[int] = []
    for start in range(0, len(ranked), WALK_BLOCK_ROWS):
        block = slice(start, start + WALK_BLOCK_ROWS)
        pairs = zip(ranked.source_ids[block].tolist(), ranked.target_ids[block].tolist(), strict=True)
        for row, (source, target) in enumerate(pairs, start):
            if source not in matched_sources and target not in matched_targets:
                matched_sources.add(source)
                matched_targets.add(target)
                rows.append(row)
    return np.array(rows, dtype=np.intp)


def take_mutual_best(ranked: ScoredPairs, target_best: Bools) -> tuple[Bools, Bools]:
    """First half of a round: all remaining candidates of some sources -> the pairs (n,), and the candidates (n,) that remain.

    `target_best` (n,) marks the best remaining candidate of each target.
    """
    matched = mark_first(ranked.source_ids) & target_best
    return matched, ~np.isin(ranked.source_ids, ranked.source_ids[matched])


def drop_matched_targets(ranked: ScoredPairs, matched: Bools) -> tuple[Bools, Bools]:
    """Second half of a round: all remaining candidates of some targets, and the new pairs (n,) -> the candidates (n,) that remain, and
    the best (n,) of each target among them."""
    remaining = ~matched & ~np.isin(ranked.target_ids, ranked.target_ids[matched])
    return remaining, mark_first(ranked.target_ids, remaining)
