"""Matching against its definition, with margins that tie."""

from collections.abc import Callable

import dense
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miner.errors import ConfigError
from miner.mining import matching
from miner.mining.candidates import ScoredPairs, concat
from miner.mining.gold import are_right, scores
from miner.mining.matching import RETRIEVALS, match, rank

Edge = tuple[int, int]
Graph = dict[Edge, tuple[float, str]]  # (source, target) -> margin, direction

GRAPHS = st.dictionaries(
    st.tuples(st.integers(-4, 4), st.integers(-4, 4)),
    st.tuples(st.sampled_from([0.5, 1.0, 1.5]), st.sampled_from(["forward", "backward", "both"])),
    max_size=40,
)


def as_candidates(graph: Graph) -> ScoredPairs:
    pairs = np.array(list(graph), dtype=np.int64).reshape(-1, 2)
    margins = np.array([margin for margin, _ in graph.values()], dtype=float)
    directions = [direction for _, direction in graph.values()]
    forward, backward = (np.array([name in (own, "both") for name in directions], dtype=bool) for own in ("forward", "backward"))
    return ScoredPairs(pairs[:, 0], pairs[:, 1], margins / 2, margins, forward, backward)


def defined(graph: Graph, retrieval: str) -> list[Edge]:
    """What the retrieval means, by sorted lists alone."""
    order = sorted(graph, key=lambda pair: (-graph[pair][0], *pair))
    ahead = {min((order.index(pair), pair) for pair in order if pair[0] == one and graph[pair][1] != "backward") for one in sources(graph)}
    back = {min((order.index(pair), pair) for pair in order if pair[1] == one and graph[pair][1] != "forward") for one in targets(graph)}
    every = {(at, pair) for at, pair in enumerate(order)}
    found = {"forward": ahead, "backward": back, "intersection": ahead & back, "max": ahead | back, "all": every}[retrieval]
    ranked = sorted((rank, *pair) for rank, pair in found)
    return [(source, target) for _, source, target in (dense.one_to_one(ranked) if retrieval == "max" else ranked)]


def sources(graph: Graph) -> set[int]:
    return {pair[0] for pair, (_, direction) in graph.items() if direction != "backward"}


def targets(graph: Graph) -> set[int]:
    return {pair[1] for pair, (_, direction) in graph.items() if direction != "forward"}


def pairs_of(found: ScoredPairs) -> list[Edge]:
    return list(zip(found.source_ids.tolist(), found.target_ids.tolist(), strict=True))


@pytest.mark.parametrize("retrieval", RETRIEVALS)
@settings(max_examples=100, deadline=None)
@given(graph=GRAPHS)
def test_matching_is_what_its_definition_says(retrieval: str, graph: Graph) -> None:
    assert pairs_of(match(rank(as_candidates(graph)), retrieval)) == defined(graph, retrieval)


def in_rounds(ranked: ScoredPairs) -> ScoredPairs:
    """The contenders matched by rounds of pairs that are the best of both their sentences."""
    forward, backward = matching.best_of_sources(ranked), matching.best_of_targets(ranked)
    left = ranked.take(matching.listed(forward, backward, "max"))
    best, parts = matching.first(left.target_ids, np.ones(len(left), dtype=bool)), [left.take(np.zeros(len(left), dtype=bool))]
    while len(left):
        taken, rest = matching.take(left, best)
        parts.append(left.take(taken))
        left, taken = left.take(taken | rest), taken[taken | rest]
        rest, best = matching.leave(left, taken)
        left, best = left.take(rest), best[rest]
    return rank(concat(parts))


@settings(max_examples=100, deadline=None)
@given(graph=GRAPHS)
def test_rounds_of_locally_best_pairs_give_the_pairs_of_the_whole_list(graph: Graph) -> None:
    ranked = rank(as_candidates(graph))
    assert pairs_of(in_rounds(ranked)) == pairs_of(match(ranked, "max")) == defined(graph, "max")


@pytest.mark.parametrize("retrieval", RETRIEVALS)
@settings(max_examples=50, deadline=None)
@given(graph=GRAPHS, threshold=st.sampled_from([0.5, 0.7, 1.0, 1.5]))
def test_a_threshold_cuts_pairs_as_it_cuts_candidates(retrieval: str, graph: Graph, threshold: float) -> None:
    ranked = rank(as_candidates(graph))
    pairs = match(ranked, retrieval)
    above = match(ranked.take(ranked.margins > threshold), retrieval)
    assert pairs_of(above) == pairs_of(pairs.take(pairs.margins > threshold))


def test_the_best_neighbour_is_that_of_the_largest_margin() -> None:
    """The nearest neighbour of 1 is 7, which is near to everything; 8 has the larger margin."""
    found = ScoredPairs(
        np.array([1, 1]), np.array([7, 8]), np.array([0.9, 0.8]), np.array([1.0, 1.2]), np.array([True, True]), np.array([False, False])
    )
    assert pairs_of(match(rank(found), "forward")) == [(1, 8)]


def test_one_to_one_leaves_the_loser_without_a_partner() -> None:
    graph: Graph = {(1, 7): (1.5, "both"), (2, 7): (1.4, "forward"), (2, 8): (1.3, "both"), (3, 8): (1.2, "forward")}
    assert pairs_of(match(rank(as_candidates(graph)), "max")) == [(1, 7), (2, 8)]


STEPS = 20_000


def chain(margin: Callable[[int], float], directions: tuple[str, str]) -> Graph:
    """Pairs in a row, each sharing its source with the one before and its target with the one after."""
    return {(at // 2, at // 2 + at % 2): (margin(at), directions[at % 2]) for at in range(STEPS)}


def comb() -> Graph:
    """A chain with a mutually best pair on every tooth."""
    teeth: Graph = {(STEPS + at, at): (3.0 * at + 1, "both") for at in range(0, STEPS, 3)}
    return chain(lambda at: float(at), ("backward", "forward")) | teeth


def crowd() -> Graph:
    """Many pairs between few sentences, with few margins."""
    chance = np.random.default_rng(0)
    pairs = set(map(tuple, chance.integers(0, 600, size=(STEPS, 2)).tolist()))
    return {pair: (float(chance.integers(9)), str(chance.choice(["forward", "backward", "both"]))) for pair in sorted(pairs)}


WORST = {
    "equal margins": chain(lambda at: 0.0 * at, ("both", "both")),
    "descending margins": chain(lambda at: -float(at), ("both", "both")),
    "ascending margins": chain(lambda at: float(at), ("both", "both")),
    "descending margins, each found from one side": chain(lambda at: -float(at), ("forward", "backward")),
    "ascending margins, each found from one side": chain(lambda at: float(at), ("backward", "forward")),
    "a comb": comb(),
    "a crowd": crowd(),
}


@pytest.mark.parametrize("case", WORST)
def test_long_chains_are_matched_as_by_walking_down_the_list(case: str) -> None:
    ranked = rank(as_candidates(WORST[case]))
    listed = ranked.take(matching.listed(matching.best_of_sources(ranked), matching.best_of_targets(ranked), "max"))
    walked = dense.one_to_one([(0, *pair) for pair in pairs_of(listed)])
    assert pairs_of(match(ranked, "max")) == [(source, target) for _, source, target in walked]


def test_an_unknown_retrieval_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="unknown retrieval 'best'; one of max, forward, backward, intersection, all"):
        match(as_candidates({}), "best")


def test_scores_count_what_was_found_and_what_was_not() -> None:
    found = as_candidates({(1, 7): (1.0, "both"), (2, 8): (1.0, "both"), (3, 9): (1.0, "both")})
    gold = frozenset({(1, 7), (2, 8), (4, 4)})
    told = scores(int(are_right(found, gold).sum()), len(found), gold, missing=1)
    assert (told.precision, told.recall, told.f1) == (2 / 3, 2 / 4, 4 / 7)


def test_scores_of_nothing_are_zero() -> None:
    told = scores(0, 0, frozenset({(1, 7)}))
    assert (told.precision, told.recall, told.f1) == (0.0, 0.0, 0.0)
