"""Margins worked out by hand, sentences without a margin, and candidates."""

import numpy as np
import pytest

from miner.errors import ConfigError, DataError
from miner.mining import candidates as scoring
from miner.mining.candidates import NeighbourMeans
from miner.mining.margin import margins, mean_similarities
from miner.search.neighbours import Neighbours

NAN = np.nan


@pytest.mark.parametrize(("name", "expected"), [("ratio", 0.8 / 0.5), ("distance", 0.8 - 0.5), ("absolute", 0.8)])
def test_margins_follow_the_paper(name: str, expected: float) -> None:
    scores = margins(name, np.array([0.8]), np.array([0.6]), np.array([0.4]))
    np.testing.assert_allclose(scores, [expected], rtol=1e-15)


def test_ratio_with_mean_zero_is_undefined() -> None:
    scores = margins("ratio", np.array([0.0, 0.5, 0.5, 0.0]), np.array([0.0, 0.3, 0.0, 0.0]), np.array([0.0, -0.3, NAN, 0.5]))
    np.testing.assert_array_equal(scores, [NAN, NAN, NAN, 0.0])


def test_ratio_with_a_mean_below_zero_is_undefined() -> None:
    """-0.16 / -0.0125 would be 12.8, the best margin of all, for a pair that is less similar than most."""
    similarities, means = np.array([-0.16, 0.3, 0.3]), np.array([-0.0125, -0.0125, 1e-9])
    np.testing.assert_array_equal(margins("ratio", similarities, means, means), [NAN, NAN, NAN])
    np.testing.assert_allclose(margins("distance", similarities, means, means), similarities - means)


def test_rescored_pair_with_a_late_mean_below_zero_is_undefined() -> None:
    ids, halves = np.array([1, 2]), np.array([0.5, 0.5])
    late = scoring.LateScores(np.array([-0.16, 0.5]), np.array([-0.0125, 0.5]), np.array([-0.0125, 0.5]))
    both = np.array([True, True])
    candidates = scoring.Candidates(ids, ids, halves, halves, halves, both, both, late)
    np.testing.assert_array_equal(scoring.pair_margins(candidates, "ratio"), [NAN, 1.0])


def test_unknown_margin_names_the_choices() -> None:
    with pytest.raises(ConfigError, match="unknown margin 'cosine'; one of ratio, distance, absolute"):
        margins("cosine", np.zeros(1), np.zeros(1), np.zeros(1))


def test_means_ignore_missing_neighbours() -> None:
    means = mean_similarities(np.array([[0.5, 0.25], [0.5, NAN], [NAN, NAN]]))
    np.testing.assert_array_equal(means, [0.375, 0.5, NAN])


def test_candidates_merge_both_directions() -> None:
    """Sources 1, 2 and targets 7, 8: 1-7 is in both directions, 2-7 only forward, 1-8 only backward."""
    forward = np.array([1, 2]), Neighbours(np.array([[7, -1], [7, -1]]), np.array([[0.9, NAN], [0.5, NAN]]))
    backward = np.array([7, 8]), Neighbours(np.array([[1, -1], [1, -1]]), np.array([[0.9, NAN], [0.3, NAN]]))
    sources, targets = scoring.means_of(*forward), scoring.means_of(*backward)
    pairs = scoring.score(scoring.join(scoring.forward_edges(*forward), scoring.backward_edges(*backward), sources, targets), "distance")
    assert list(zip(pairs.source_ids.tolist(), pairs.target_ids.tolist(), strict=True)) == [(1, 7), (1, 8), (2, 7)]
    assert pairs.forward.tolist() == [True, False, True]
    assert pairs.backward.tolist() == [True, True, False]
    np.testing.assert_allclose(pairs.margins, [0.9 - 0.9, 0.3 - 0.6, 0.5 - 0.7])


def test_id_minus_one_can_be_a_neighbour() -> None:
    ids, neighbours = np.array([5]), Neighbours(np.array([[-1, -1]]), np.array([[0.5, NAN]]))
    edges = scoring.forward_edges(ids, neighbours)
    assert edges.target_ids.tolist() == [-1]
    assert edges.similarities.tolist() == [0.5]


def test_pair_without_a_margin_is_dropped() -> None:
    forward = np.array([1, 2]), Neighbours(np.array([[7], [7]]), np.array([[0.0], [0.0]]))
    backward = np.array([7]), Neighbours(np.array([[1]]), np.array([[0.0]]))
    sources, targets = scoring.means_of(*forward), scoring.means_of(*backward)
    candidates = scoring.join(scoring.forward_edges(*forward), scoring.backward_edges(*backward), sources, targets)
    assert len(scoring.score(candidates, "ratio")) == 0
    assert len(scoring.score(candidates, "distance")) == 2


def test_missing_mean_is_an_error() -> None:
    with pytest.raises(DataError, match="sentence 4 has no neighbours"):
        NeighbourMeans(np.array([3, 5]), np.array([0.1, 0.2])).of(np.array([5, 4]))
    assert NeighbourMeans(np.array([3, 5]), np.array([0.1, 0.2])).of(np.array([5, 3])).tolist() == [0.2, 0.1]
