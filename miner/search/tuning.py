"""Tune the search effort of an approximate index: the least that reaches a target recall."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from miner.arrays import Floats
from miner.search.neighbours import Neighbours, Similarities

ONE_SIDED_95 = 1.645  # standard errors below the mean: the lower end of a one-sided 95 % confidence interval
CANDIDATE_FACTORS = (1, 2, 3, 4, 6, 8, 12, 16)  # candidates per neighbour
WIDE_FACTOR = 8  # times the largest factor, where no effort reaches the target with it
BISECTION_STEPS = 3  # between an effort that reaches the target and half of it


@dataclass(frozen=True)
class SearchParameters:
    """How an index is searched, and the recall of that. Written to manifests as it is."""

    effort: int  # nprobe or efSearch
    candidates: int  # taken from the index per query, to be rescored
    recall: float  # share of the true k nearest that are among the candidates, over a sample
    low: float  # lower bound of the recall, with 95 % confidence


# Effort and number of candidates -> exact similarities (n, candidates) of the sample, in the order of the index, NaN for none.
SearchSample = Callable[[int, int], Similarities]


def tune_search(search_sample: SearchSample, true_neighbours: Neighbours, max_effort: int, target_recall: float) -> SearchParameters:
    """Return the least effort, and then the fewest candidates, whose recall bound reaches the target; the best effort if none does.

    `true_neighbours` are the exact k nearest of the sample.
    """
    measured = None
    for factors in (CANDIDATE_FACTORS, (CANDIDATE_FACTORS[-1] * WIDE_FACTOR,)):
        num_candidates = true_neighbours.k * factors[-1]
        for effort in sorted({*(2**power for power in range(int(math.log2(max_effort)) + 1)), max_effort}):
            measured = measure_recall(search_sample(effort, num_candidates), true_neighbours, effort, num_candidates)
            if measured.low >= target_recall:
                return _reduce_effort(search_sample, true_neighbours, measured, factors, target_recall)
    assert measured is not None  # max_effort >= 1
    return measured


def _reduce_effort(
    search_sample: SearchSample, true_neighbours: Neighbours, sufficient: SearchParameters, factors: tuple[int, ...], target_recall: float
) -> SearchParameters:
    """Bisect between half of a sufficient effort and that effort; then reduce the candidates."""
    insufficient_effort = sufficient.effort // 2
    for _ in range(BISECTION_STEPS):
        effort = (insufficient_effort + sufficient.effort) // 2
        if effort in (insufficient_effort, sufficient.effort):
            break
        measured = measure_recall(search_sample(effort, sufficient.candidates), true_neighbours, effort, sufficient.candidates)
        if measured.low >= target_recall:
            sufficient = measured
        else:
            insufficient_effort = effort
    similarities, k = search_sample(sufficient.effort, sufficient.candidates), true_neighbours.k
    fewer = (measure_recall(similarities[:, : k * factor], true_neighbours, sufficient.effort, k * factor) for factor in factors)
    return next((parameters for parameters in fewer if parameters.low >= target_recall), sufficient)


def measure_recall(similarities: Similarities, true_neighbours: Neighbours, effort: int, candidates: int) -> SearchParameters:
    """Return these search parameters with the recall of candidates that have these similarities (n, c)."""
    recalls = recall_per_query(similarities, true_neighbours)
    recall = float(recalls.mean())
    return SearchParameters(effort, candidates, recall, recall - ONE_SIDED_95 * float(recalls.std()) / math.sqrt(len(recalls)))


def recall_per_query(similarities: Similarities, true_neighbours: Neighbours) -> Floats:
    """Return the share (n,) of the true nearest of each row that are among candidates with similarities (n, c).

    A candidate that ties with the k-th nearest counts as a hit. A row without neighbours has recall 1.
    """
    num_true = true_neighbours.is_neighbour.sum(axis=1)
    kth_similarity = np.where(true_neighbours.is_neighbour, true_neighbours.similarities, np.inf).min(axis=1)
    hits = np.nan_to_num(similarities, nan=-np.inf) >= kth_similarity[:, None]
    recalls: Floats = np.where(num_true > 0, np.minimum(hits.sum(axis=1), num_true) / np.maximum(num_true, 1), 1.0)
    return recalls
