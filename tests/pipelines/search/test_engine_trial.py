"""The choice of the engine: from expected costs, from a trial, and from the first pairs of groups."""

import sys
from pathlib import Path

import dense
import pytest

from miner.io.corpus import open_corpus
from miner.search.cost_model import SearchEstimate
from pipelines.search.engine_trial import EngineTrial
from pipelines.search.exact import FirstPairs, SearchRequest


@pytest.fixture
def trial(tmp_path: Path) -> EngineTrial:
    sides = [dense.write_corpus(tmp_path / str(seed), dense.text_ids(60, seed), dense.unit(60, 16, seed), 3) for seed in (1, 2)]
    source, target = (open_corpus(str(side)) for side in sides)
    return EngineTrial(SearchRequest(source, target, 4), 0.98, (False, False), cores=2)


@pytest.mark.parametrize(
    ("first", "exact"),
    [
        (None, 100.0),
        (FirstPairs(seconds=6.0, share=0.05), 100.0),  # a fifth more than expected
        (FirstPairs(seconds=8.0, share=0.05), 8.0 / 0.05 * 0.95),  # three fifths more: the time of the other pairs
    ],
)
def test_an_estimate_that_the_first_pairs_exceed_by_a_quarter_is_corrected(
    first: FirstPairs | None, exact: float, trial: EngineTrial
) -> None:
    corrected = trial.correct(SearchEstimate(exact=100.0, faiss=130.0), first)
    assert (corrected.exact, corrected.faiss) == (pytest.approx(exact), 130.0)
    assert corrected.engine == ("faiss" if exact > 140 else "exact")


def test_a_small_search_is_estimated_without_a_trial(trial: EngineTrial) -> None:
    seconds = trial.estimate()
    assert (seconds.engine, seconds.exact < 0.1) == ("exact", True)
    assert trial.describe(seconds).startswith("60 x 60 vectors x 16 dimensions by exact search in about 0 s, by FAISS at recall 0.98 in")


def test_a_search_without_torch_is_estimated_by_what_a_dense_product_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    side = open_corpus(str(dense.write_corpus(tmp_path / "side", dense.text_ids(5000, 0), dense.unit(5000, 16, 0), 1)))
    seconds = EngineTrial(SearchRequest(side, side, 4), 0.98, (False, False), cores=2).estimate()
    measured = 5000 * 5000 * 1.8e-8 * 16 / 256 / 2  # 18 ns per pair of 256 dimensions on one core
    assert measured < seconds.exact < 4 * measured
