"""Matching against its definition, with margins that tie."""

from collections.abc import Callable

import dense
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miner.config.choices import RETRIEVALS
from miner.errors import ConfigError
from miner.mining import matching
from miner.mining.candidates import ScoredPairs, concat
from miner.mining.gold import GoldPairs
from miner.mining.matching import match, rank

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


def expected_pairs(graph: Graph, retrieval: str) -> list[Edge]:
    """Return the pairs by the definition of the retrieval, with sorted lists only."""
    order = sorted(graph, key=lambda pair: (-graph[pair][0], *pair))
    forward = {pair for pair in order if graph[pair][1] != "backward"}
    backward = {pair for pair in order if graph[pair][1] != "forward"}
    source_best = {min((order.index(pair), pair) for pair in forward if pair[0] == source) for source, _ in forward}
    target_best = {min((order.index(pair), pair) for pair in backward if pair[1] == target) for _, target in backward}
    selected = {
        "forward": source_best,
        "backward": target_best,
        "intersection": source_best & target_best,
        "max": source_best | target_best,
        "all": set(enumerate(order)),
    }[retrieval]
    ranked = sorted((position, *pair) for position, pair in selected)
    return [(source, target) for _, source, target in (dense.one_to_one(ranked) if retrieval == "max" else ranked)]


def edges_of(pairs: ScoredPairs) -> list[Edge]:
    return list(zip(pairs.source_ids.tolist(), pairs.target_ids.tolist(), strict=True))


@pytest.mark.parametrize("retrieval", RETRIEVALS)
@settings(max_examples=100, deadline=None)
@given(graph=GRAPHS)
def test_matching_follows_its_definition(retrieval: str, graph: Graph) -> None:
    assert edges_of(match(rank(as_candidates(graph)), retrieval)) == expected_pairs(graph, retrieval)


def match_in_rounds(ranked: ScoredPairs) -> ScoredPairs:
    """Match one-to-one by rounds of pairs that are the best of both sentences."""
    rows = matching.select(matching.best_of_sources(ranked), matching.best_of_targets(ranked), "max")
    remaining = ranked.take(rows)
    target_best, rounds = matching.mark_first(remaining.target_ids), [remaining.take(np.zeros(len(remaining), dtype=bool))]
    while len(remaining):
        matched, others = matching.take_mutual_best(remaining, target_best)
        rounds.append(remaining.take(matched))
        remaining, matched = remaining.take(matched | others), matched[matched | others]
        others, target_best = matching.drop_matched_targets(remaining, matched)
        remaining, target_best = remaining.take(others), target_best[others]
    return rank(concat(rounds))


@settings(max_examples=100, deadline=None)
@given(graph=GRAPHS)
def test_rounds_give_the_pairs_of_the_greedy_walk(graph: Graph) -> None:
    ranked = rank(as_candidates(graph))
    assert edges_of(match_in_rounds(ranked)) == edges_of(match(ranked, "max")) == expected_pairs(graph, "max")


@pytest.mark.parametrize("retrieval", RETRIEVALS)
@settings(max_examples=50, deadline=None)
@given(graph=GRAPHS, threshold=st.sampled_from([0.5, 0.7, 1.0, 1.5]))
def test_threshold_before_and_after_matching_gives_the_same_pairs(retrieval: str, graph: Graph, threshold: float) -> None:
    ranked = rank(as_candidates(graph))
    pairs = match(ranked, retrieval)
    above = match(ranked.take(ranked.margins > threshold), retrieval)
    assert edges_of(above) == edges_of(pairs.take(pairs.margins > threshold))


def test_best_neighbour_has_the_largest_margin() -> None:
    """The nearest neighbour of 1 is 7, a hub; 8 has the larger margin."""
    candidates = ScoredPairs(
        np.array([1, 1]), np.array([7, 8]), np.array([0.9, 0.8]), np.array([1.0, 1.2]), np.array([True, True]), np.array([False, False])
    )
    assert edges_of(match(rank(candidates), "forward")) == [(1, 8)]


def test_one_to_one_leaves_a_sentence_unpaired_when_its_best_is_taken() -> None:
    graph: Graph = {(1, 7): (1.5, "both"), (2, 7): (1.4, "forward"), (2, 8): (1.3, "both"), (3, 8): (1.2, "forward")}
    assert edges_of(match(rank(as_candidates(graph)), "max")) == [(1, 7), (2, 8)]


CHAIN_PAIRS = 70_000  # more than are walked in one block


def chain(margin: Callable[[int], float], directions: tuple[str, str]) -> Graph:
    """Return pairs in a row, each sharing its source with the previous and its target with the next one."""
    return {(row // 2, row // 2 + row % 2): (margin(row), directions[row % 2]) for row in range(CHAIN_PAIRS)}


def comb() -> Graph:
    """Return a chain with a mutual best pair at every third sentence."""
    teeth: Graph = {(CHAIN_PAIRS + row, row): (3.0 * row + 1, "both") for row in range(0, CHAIN_PAIRS, 3)}
    return chain(lambda row: float(row), ("backward", "forward")) | teeth


def dense_graph() -> Graph:
    """Return many pairs between few sentences, with few different margins."""
    random = np.random.default_rng(0)
    pairs = set(map(tuple, random.integers(0, 600, size=(CHAIN_PAIRS // 10, 2)).tolist()))
    return {pair: (float(random.integers(9)), str(random.choice(["forward", "backward", "both"]))) for pair in sorted(pairs)}


ADVERSARIAL = {
    "equal margins": lambda: chain(lambda row: 0.0 * row, ("both", "both")),
    "descending margins": lambda: chain(lambda row: -float(row), ("both", "both")),
    "ascending margins": lambda: chain(lambda row: float(row), ("both", "both")),
    "descending margins, each in one direction": lambda: chain(lambda row: -float(row), ("forward", "backward")),
    "ascending margins, each in one direction": lambda: chain(lambda row: float(row), ("backward", "forward")),
    "comb": comb,
    "dense graph": dense_graph,
}


@pytest.mark.parametrize("case", ADVERSARIAL)
def test_adversarial_graphs_match_as_the_reference(case: str) -> None:
    ranked = rank(as_candidates(ADVERSARIAL[case]()))
    selected = ranked.take(matching.select(matching.best_of_sources(ranked), matching.best_of_targets(ranked), "max"))
    reference = dense.one_to_one([(0, *pair) for pair in edges_of(selected)])
    assert edges_of(match(ranked, "max")) == [(source, target) for _, source, target in reference]


def test_unknown_retrieval_names_the_choices() -> None:
    with pytest.raises(ConfigError, match="unknown retrieval 'best'; one of max, forward, backward, intersection, all"):
        match(as_candidates({}), "best")


def test_scores_count_correct_pairs_and_missing_gold() -> None:
    pairs = as_candidates({(1, 7): (1.0, "both"), (2, 8): (1.0, "both"), (3, 9): (1.0, "both")})
    gold = GoldPairs(frozenset({(1, 7), (2, 8), (4, 4)}), num_missing=1)
    assert gold.is_gold(pairs.source_ids, pairs.target_ids).tolist() == [True, True, False]
    scorer = gold.scorer()
    scorer.add([(1, 7), (2, 8)])
    scorer.add([(3, 9)])
    scores = scorer.scores()
    assert (scores.precision, scores.recall, scores.f1) == (2 / 3, 2 / 4, 4 / 7)


def test_a_sample_of_gold_shows_no_precision() -> None:
    """Two of the three pairs are in the sample; the third may be right as well."""
    scorer = GoldPairs(frozenset({(1, 7), (2, 8), (4, 4)}), num_missing=1, is_sample=True).scorer()
    scorer.add([(1, 7), (2, 8), (3, 9)])
    assert scorer.scores().figures() == {"recall": 2 / 4}
    assert scorer.scores().summary() == "recall 0.5000, by a sample of gold, which shows no precision"


def test_scores_of_no_pairs_are_zero() -> None:
    scores = GoldPairs(frozenset({(1, 7)})).scorer().scores()
    assert (scores.precision, scores.recall, scores.f1) == (0.0, 0.0, 0.0)
