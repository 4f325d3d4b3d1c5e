"""The choice of index and engine, and the tuning of search effort."""

import numpy as np
import pytest

from miner.errors import ConfigError
from miner.search import cost_model, tuning
from miner.search.cost_model import ExactCosts, FaissCosts, SearchCosts, SearchEstimate, SearchWorkload
from miner.search.neighbours import Neighbours, empty_neighbours, select_nearest

GB = 10**9


@pytest.mark.parametrize(
    ("rows", "dim", "memory", "gpu", "factory"),
    [
        (1, 256, 8 * GB, False, "Flat"),
        (20_000, 256, 8 * GB, False, "Flat"),
        (100_000, 256, 8 * GB, False, "IVF1024,PQ128x4"),
        (1_000_000, 256, 8 * GB, False, "IVF4096,PQ128x4"),
        (1_000_000, 1024, 8 * GB, False, "IVF4096,PQ512x4"),
        (100_000_000, 1024, 8 * GB, False, "IVF32768,PQ128x4"),  # 64 bytes of code and 8 of the id: 7.3 GB with the lists
        (1_000_000_000, 1024, 8 * GB, False, None),
        (1_000_000, 255, 8 * GB, False, "IVF4096,SQ8"),  # 255 dimensions do not divide into pairs
        (100_000_000, 256, 8 * GB, False, "IVF32768,PQ128x4"),
        (150_000_000, 256, 8 * GB, False, "IVF65536,PQ64x4"),
        (1_000_000, 256, 8 * GB, True, "IVF4096,SQfp16"),
        (20_000_000, 256, 8 * GB, True, "IVF16384,SQ8"),
        (50_000_000, 768, 8 * GB, True, "IVF32768,PQ96"),
        (50_000_000, 1024, 8 * GB, True, "IVF32768,PQ64"),  # 1024 dimensions do not divide into 96 codes
    ],
)
def test_factory_fits_the_memory_and_the_codes_of_faiss_gpu(rows: int, dim: int, memory: int, gpu: bool, factory: str | None) -> None:
    if factory is None:
        with pytest.raises(ConfigError, match="--memory: 1,000,000,000 vectors x 1024 dimensions take"):
            cost_model.choose_factory(rows, dim, memory, gpu)
    else:
        assert cost_model.choose_factory(rows, dim, memory, gpu) == factory


BUILT = ((True, True), (False, False))  # which sides have an index


def workload(rows: int, k: int = 4, target_recall: float = 0.98) -> SearchWorkload:
    return SearchWorkload((rows, rows), 256, k, target_recall)


def estimate(rows: int, k: int = 4, target_recall: float = 0.98, cores: int = 2) -> SearchEstimate:
    expected = workload(rows, k, target_recall)
    return cost_model.estimate_search(expected, cost_model.expected_costs(expected, cores, block_rows=65_536))


def test_exact_search_is_chosen_until_faiss_is_faster() -> None:
    assert [estimate(rows).engine for rows in (1000, 10**5, 10**7, 10**8)] == ["exact", "exact", "faiss", "faiss"]
    assert estimate(10**7, target_recall=1.0).engine == "exact", "all lists are probed to find all"
    assert SearchEstimate(exact=100.0, faiss=96.0).engine == "exact", "which misses no neighbours"
    assert SearchEstimate(exact=100.0, faiss=94.0).engine == "faiss"


def test_an_estimate_equals_a_hand_count() -> None:
    exact = ExactCosts(pair=2.0, row=3.0, block_rows=10)
    # Each of 5 vectors meets three blocks of 25, of which the first counts twice and the others half; each of 25 meets one block of 5.
    assert exact.seconds((5, 25)) == 2 * 5 * 25 + 3 * (5 * 3 + 25 * 2) / 2
    costs = FaissCosts(
        product=1.0, add=2.0, codes=3.0, query=4.0, probe=5.0, list_rows=100, candidate=6.0, probes=3.5, rows=6400, growth=0.5
    )
    keys, lists, k = 25_600, 512, 2  # lists of 50 vectors, which take three quarters of the time of those of 100
    query = 4 + 1 * lists + 7 * 5 * 0.75 + 6 * 12 * k
    tuning = 2000 * (keys + 12 * query)
    build = 3 + 2 * keys + lists * (10 * 40 * lists + keys)
    built, unbuilt = (cost_model.estimate_search(workload(keys, k), SearchCosts(exact, costs), has_index) for has_index in BUILT)
    assert built.faiss == pytest.approx(2 * (keys * query + tuning))
    assert unbuilt.faiss - built.faiss == pytest.approx(2 * (build + tuning))


def test_more_cores_take_less_time() -> None:
    one, eight = (estimate(10**6, cores=cores) for cores in (1, 8))
    assert (eight.exact, eight.faiss) == (pytest.approx(one.exact / 8), pytest.approx(one.faiss / 8))


def true_neighbours(rows: int, k: int) -> Neighbours:
    """Similarities 1, 0.9, ... in every row."""
    return Neighbours(np.tile(np.arange(k), (rows, 1)), np.tile(1 - np.arange(k) / 10, (rows, 1)))


class TestTuning:
    def test_least_effort_and_then_fewest_candidates(self) -> None:
        """An index that finds the k nearest from an effort of 11 on, each after three other candidates."""
        similarities = true_neighbours(100, 4).similarities

        def search_sample(effort: int, count: int) -> np.ndarray:
            candidates = np.full((100, count), -1.0)
            if effort >= 11:
                candidates[:, 3:16:4] = similarities[:, : len(range(3, min(16, count), 4))]
            return candidates

        parameters = tuning.tune_search(search_sample, true_neighbours(100, 4), max_effort=64, target_recall=0.98)
        assert parameters == tuning.SearchParameters(effort=11, candidates=16, recall=1.0, low=1.0)

    def test_an_unreachable_target_gives_the_best_recall(self) -> None:
        def search_sample(_effort: int, count: int) -> np.ndarray:
            return np.where(np.arange(count) < 1, np.ones((100, count)), -1.0)

        parameters = tuning.tune_search(search_sample, true_neighbours(100, 4), max_effort=8, target_recall=0.5)
        assert (parameters.effort, parameters.recall) == (8, 0.25)
        assert parameters.low < 0.5

    def test_the_confidence_bound_has_to_reach_the_target(self) -> None:
        """Every other row is found completely, so a recall of 50 % is reached on average, but not with confidence."""
        similarities = np.where(np.arange(100)[:, None] % 2 == 0, true_neighbours(100, 4).similarities, -1.0)
        parameters = tuning.measure_recall(similarities, true_neighbours(100, 4), 1, 4)
        assert parameters.recall == 0.5
        assert parameters.low == pytest.approx(0.5 - 1.645 * 0.5 / 10)

    def test_a_tie_with_the_kth_neighbour_is_a_hit(self) -> None:
        assert tuning.recall_per_query(np.array([[0.7, 0.7, 0.9, 1.0, 0.8]]), true_neighbours(1, 4)) == [1.0]

    def test_a_corpus_of_fewer_than_k_sentences(self) -> None:
        two_of_four = select_nearest(np.array([[3, 5]]), np.array([[0.5, 0.4]]), 4)
        assert tuning.recall_per_query(np.array([[0.5, np.nan, np.nan]]), two_of_four) == [0.5]
        assert tuning.recall_per_query(np.full((1, 3), np.nan), empty_neighbours(1, 4)) == [1.0], "nothing to miss"
