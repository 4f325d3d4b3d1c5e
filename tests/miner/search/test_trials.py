"""Trials of both engines: what they measure, on vectors whose search is known."""

import time
from types import SimpleNamespace

import dense
import numpy as np
import psutil
import pytest

from miner.search import cost_model, trials
from miner.search.cost_model import SearchWorkload


@pytest.mark.parametrize(("others", "seconds"), [(0.0, 0.3), (0.1, 0.2), (9.0, 0.0)])
def test_the_time_of_other_programs_does_not_count(others: float, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others take this much time of every processor while this one waits."""
    busy = iter([0.0, others * psutil.cpu_count()])
    monkeypatch.setattr(psutil, "cpu_times", lambda: SimpleNamespace(user=next(busy)))
    assert trials.idle_seconds(lambda: time.sleep(0.3)) == pytest.approx(seconds, abs=0.05)


def test_exact_search_costs_time_per_pair_and_per_vector() -> None:
    source, target = dense.unit(2048, 64, 1), dense.unit(1024, 64, 2)
    costs = trials.measure_exact(source, target, 4, block_rows=1024)
    assert costs.block_rows == 1024
    assert 0 < costs.pair < 1e-5
    assert 0 <= costs.row < 1e-2


@pytest.mark.parametrize(("target_recall", "probes"), [(0.5, 1), (1.0, None)])
def test_neighbours_in_the_nearest_list_take_one_probe(target_recall: float, probes: int | None) -> None:
    """Queries that equal keys are their own nearest neighbours, in the list that is probed first; all neighbours are in more lists."""
    pytest.importorskip("faiss")
    keys = dense.unit(2048, 16, 3)
    workload = SearchWorkload((100_000, 100_000), 16, 1 if probes else 8, target_recall)
    costs = trials.measure_faiss(keys, keys[:256], workload)
    assert costs.rows == 2048
    assert min(costs.product, costs.candidate) > 0
    assert costs.probes == probes if probes else 1 < costs.probes <= cost_model.num_lists(2048)


def test_trials_give_the_estimate_of_a_search() -> None:
    pytest.importorskip("faiss")
    vectors, workload = dense.unit(1024, 16, 4), SearchWorkload((100_000, 300_000), 16, 4, 0.98)
    exact = trials.measure_exact(vectors, vectors, 4, 4096)
    costs = cost_model.SearchCosts(exact, trials.measure_faiss(vectors, vectors[:100], workload))
    seconds = cost_model.estimate_search(workload, costs)
    assert seconds.exact >= exact.pair * 100_000 * 300_000
    assert np.isfinite(seconds.faiss)
