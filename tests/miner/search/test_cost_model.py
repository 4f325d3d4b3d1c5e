"""Which index and which engine are chosen, and how hard an index is made to look."""

import numpy as np
import pytest

from miner.errors import ConfigError
from miner.search import cost_model, neighbours, tuning
from miner.search.neighbours import Neighbours

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
        (1_000_000, 255, 8 * GB, False, "IVF4096,SQ8"),  # no pairs of numbers
        (100_000_000, 256, 8 * GB, False, "IVF32768,PQ128x4"),
        (150_000_000, 256, 8 * GB, False, "IVF65536,PQ64x4"),
        (1_000_000, 256, 8 * GB, True, "IVF4096,SQfp16"),
        (20_000_000, 256, 8 * GB, True, "IVF16384,SQ8"),
        (50_000_000, 768, 8 * GB, True, "IVF32768,PQ96"),
        (50_000_000, 1024, 8 * GB, True, "IVF32768,PQ64"),  # 1024 numbers do not divide into 96 codes
    ],
)
def test_the_index_fits_the_memory_and_what_a_gpu_has(rows: int, dim: int, memory: int, gpu: bool, factory: str | None) -> None:
    if factory is None:
        with pytest.raises(ConfigError, match="--memory: 1,000,000,000 vectors x 1024 dimensions take"):
            cost_model.factory(rows, dim, memory, gpu)
    else:
        assert cost_model.factory(rows, dim, memory, gpu) == factory


def test_exact_search_until_it_takes_longer() -> None:
    engines = [cost_model.estimate((rows, rows), 256, 4, 0.98, "float32", cores=2).engine for rows in (1000, 10**5, 10**7, 10**8)]
    assert engines == ["exact", "exact", "faiss", "faiss"]
    assert cost_model.estimate((10**7, 10**7), 256, 4, 1.0, "float32", cores=2).engine == "exact", "all lists, to find all"


def test_faster_arithmetic_and_more_cores_take_less_time() -> None:
    slow, fast = (cost_model.estimate((10**6, 10**6), 256, 4, 0.98, name, cores=2) for name in ("float32", "int8"))
    assert fast.exact < slow.exact
    # Four comparisons of 2,000 vectors with a million, 1e-11 s less for each number, by two cores.
    assert slow.faiss - fast.faiss == pytest.approx(4 * 2000 * 10**6 * 256 * 1e-11 / 2)
    # 48 more candidates of each of the two million, scored again in 4e-9 s for each number, by two cores.
    wide = cost_model.estimate((10**6, 10**6), 256, 8, 0.98, "int8", cores=2)
    assert wide.faiss - fast.faiss == pytest.approx(2 * 10**6 * 48 * 256 * 4e-9 / 2)
    many = cost_model.estimate((10**6, 10**6), 256, 4, 0.98, "int8", cores=8)
    assert many.exact == pytest.approx(fast.exact / 4)
    assert many.faiss < fast.faiss


def truth(rows: int, k: int) -> Neighbours:
    """Similarities 1, 0.9, ... in every row."""
    return Neighbours(np.tile(np.arange(k), (rows, 1)), np.tile(1 - np.arange(k) / 10, (rows, 1)))


class TestTuning:
    def test_the_least_effort_and_then_the_fewest_candidates(self) -> None:
        """An index that finds the k nearest from an effort of 11 on, with three others before each of them."""
        real = truth(100, 4).similarities

        def look(effort: int, count: int) -> np.ndarray:
            proposed = np.full((100, count), -1.0)
            if effort >= 11:
                proposed[:, 3:16:4] = real[:, : len(range(3, min(16, count), 4))]
            return proposed

        setting = tuning.tune(look, truth(100, 4), most=64, target=0.98)
        assert setting == tuning.Setting(effort=11, candidates=16, recall=1.0, low=1.0)

    def test_a_target_out_of_reach_gives_the_best_and_says_so(self) -> None:
        def look(_effort: int, count: int) -> np.ndarray:
            return np.where(np.arange(count) < 1, np.ones((100, count)), -1.0)

        setting = tuning.tune(look, truth(100, 4), most=8, target=0.5)
        assert (setting.effort, setting.recall) == (8, 0.25)
        assert setting.low < 0.5

    def test_the_target_is_reached_surely_not_by_chance(self) -> None:
        """Every other row is found whole with 50 % recall on average: the target of 50 % is not surely reached."""
        similarities = np.where(np.arange(100)[:, None] % 2 == 0, truth(100, 4).similarities, -1.0)
        measured = tuning.measure(similarities, truth(100, 4), 1, 4)
        assert measured.recall == 0.5
        assert measured.low == pytest.approx(0.5 - 1.645 * 0.5 / 10)

    def test_what_ties_with_the_last_is_as_good(self) -> None:
        assert tuning.found_shares(np.array([[0.7, 0.7, 0.9, 1.0, 0.8]]), truth(1, 4)) == [1.0]

    def test_a_corpus_of_fewer_than_k(self) -> None:
        few = neighbours.nearest(np.array([[3, 5]]), np.array([[0.5, 0.4]]), 4)
        assert tuning.found_shares(np.array([[0.5, np.nan, np.nan]]), few) == [0.5]
        assert tuning.found_shares(np.full((1, 3), np.nan), neighbours.none(1, 4)) == [1.0], "nothing to find, and nothing missed"
