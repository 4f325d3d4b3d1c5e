"""Suites, and the comparison of two encoders: against SciPy's bootstrap, and in cases with obvious answers."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command import outcome_of
from scipy import stats

from miner.encoders import load_encoder, static
from miner.evaluation import scores
from miner.evaluation.scores import Score
from miner.evaluation.significance import compare
from miner.evaluation.suite import SuiteConfig
from miner.evaluation.tasks import TASKS
from miner.research.tasks import clustering

ROOT = Path(__file__).parents[3]


def score_of(statistic: scores.Statistic, *groups: object) -> Score:
    return Score({str(number): np.asarray(items, dtype=float) for number, items in enumerate(groups)}, statistic)


def test_groups_have_equal_weight() -> None:
    score = score_of(scores.mean, [[1], [1], [1], [0]], [[0]])
    assert score.by_group == {"0": 0.75, "1": 0.0}
    assert score.value == 0.375


def test_intervals_equal_scipy() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.random(300) < 0.6, rng.random(300) < 0.7
    comparison = compare(score_of(scores.mean, first[:, None]), score_of(scores.mean, second[:, None]), num_samples=4000, seed=1)
    for ours, function, data in (
        (comparison.first, lambda x, axis: x.mean(axis=axis), (first.astype(float),)),
        (comparison.second, lambda x, axis: x.mean(axis=axis), (second.astype(float),)),
        (comparison.difference, lambda x, y, axis: (y - x).mean(axis=axis), (first.astype(float), second.astype(float))),
    ):
        theirs = stats.bootstrap(data, function, paired=True, method="percentile", n_resamples=4000, rng=2).confidence_interval
        assert [ours.low, ours.high] == pytest.approx([theirs.low, theirs.high], abs=0.01)
    assert comparison.difference.value == pytest.approx(second.mean() - first.mean())


def test_p_is_near_that_of_the_sign_test() -> None:
    # 30 items where only the second is right, 15 where only the first is: the sign test says 0.036.
    first, second = np.repeat([1, 0, 1], [40, 30, 15])[:, None], np.repeat([1, 1, 0], [40, 30, 15])[:, None]
    comparison = compare(score_of(scores.mean, first), score_of(scores.mean, second), num_samples=4000, seed=0)
    assert comparison.p == pytest.approx(stats.binomtest(15, 45).pvalue, abs=0.02)
    assert comparison.difference.low > 0


def test_p_of_equal_and_of_opposite_results() -> None:
    items = np.random.default_rng(0).integers(0, 2, size=(50, 2))
    same = compare(score_of(scores.mean, items), score_of(scores.mean, items), num_samples=500, seed=0)
    assert (same.p, same.difference.value) == (1.0, 0.0)
    assert (same.difference.low, same.difference.high) == pytest.approx((0, 0), abs=1e-12)
    assert same.first.low < same.first.value < same.first.high
    opposite = compare(score_of(scores.mean, np.zeros((50, 1))), score_of(scores.mean, np.ones((50, 1))), num_samples=499, seed=0)
    assert opposite.p == 2 / 500


def test_scores_biased_in_samples_are_within_their_interval() -> None:
    # Random labels and clusters: in a sample, which repeats items, they agree more than they do.
    items = np.random.default_rng(0).integers(0, 12, size=(150, 2))
    sampled = [clustering.v_measure(items[np.random.default_rng(seed).integers(0, 150, size=150)]) for seed in range(50)]
    score = score_of(clustering.v_measure, items)
    assert min(sampled) > score.value
    interval = compare(score, score, num_samples=100, seed=0).first
    assert interval.low < interval.value < interval.high


@pytest.mark.parametrize("statistic", [scores.mean, clustering.purity])
def test_intervals_of_shares_are_shares(statistic: scores.Statistic) -> None:
    """All but one of 100 items are right, so the upper end is at 1."""
    hits = np.ones((100, 1)) if statistic is scores.mean else np.zeros((100, 2), dtype=np.int64)
    hits[0, 0] = 1 - hits[0, 0]
    for seed in range(5):
        interval = compare(score_of(statistic, hits), score_of(statistic, hits), num_samples=200, seed=seed).first
        assert 0.9 < interval.low < interval.value <= interval.high <= 1


def test_items_are_sampled_within_their_groups() -> None:
    # All items of a group are equal, so the mean over groups is the same in every sample.
    score = score_of(scores.mean, np.ones((5, 1)), np.zeros((50, 1)))
    comparison = compare(score, score_of(scores.mean, np.ones((5, 1)), np.ones((50, 1))), num_samples=100, seed=0)
    assert (comparison.first.low, comparison.first.high) == pytest.approx((0.5, 0.5))


def test_pairs_of_columns_are_sampled_together() -> None:
    # The first encoder ranks all pairs as humans do, the second swaps neighbours; a pair's cosine is sampled with its human score.
    human = np.arange(40.0)
    first, second = np.stack([human, human], axis=1), np.stack([human, human + np.tile([1.5, -1.5], 20)], axis=1)
    comparison = compare(score_of(scores.spearman, first), score_of(scores.spearman, second), num_samples=200, seed=0)
    assert (comparison.first.low, comparison.first.high) == (pytest.approx(1), pytest.approx(1))
    assert comparison.second.high < 1


def write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write files for three tasks, and a suite of these."""
    english, french = ["one", "two", "three", "four", "five"], ["un", "deux", "trois", "quatre", "cinq"]
    write(tmp_path / "en.txt", [[word] for word in english])
    write(tmp_path / "fr.txt", [[word] for word in french])
    pairs = [(first, second, int(i == j)) for i, first in enumerate(english) for j, second in enumerate(french)]
    write(tmp_path / "sts.tsv", [("sentence1", "sentence2", "score"), *pairs])
    (tmp_path / "suite.yaml").write_text(
        f"data: {tmp_path}\ndraws: 200\ntasks:\n"
        "  - {task: retrieval, source: en.txt, target: fr.txt}\n"
        "  - {task: sts, name: numbers, data: sts.tsv}\n"
        "  - {task: alignment, source: en.txt, target: fr.txt}\n"
    )
    return tmp_path


run = partial(outcome_of, "eval", "suite")


def test_suite_prints_one_table_and_names_tasks_in_its_figures(toy_encoder: Path, data: Path) -> None:
    status, output, errors = run("--config", data / "suite.yaml", "--encoder", toy_encoder, "--json", data / "f.json")
    assert (status, errors) == (0, "")
    assert [line.rsplit(maxsplit=1) for line in output.splitlines()[1:]] == [
        ["retrieval: accuracy, cosine", "1.0000"],
        ["retrieval: accuracy, ratio", "1.0000"],
        ["retrieval: accuracy, late", "1.0000"],
        ["numbers: Spearman, mean", output.splitlines()[4].split()[-1]],
        ["alignment: alignment", "0.0000"],
    ]
    figures = json.loads((data / "f.json").read_text())
    tasks = figures["encoders"][str(toy_encoder)]
    assert figures["task"] == "suite"
    assert {title: task["task"] for title, task in tasks.items()} == {"retrieval": "retrieval", "numbers": "sts", "alignment": "alignment"}
    assert tasks["numbers"]["mean"]["pearson"] > 0.8
    assert figures["scores"][str(toy_encoder)]["retrieval: accuracy, cosine"] == 1.0
    assert "comparisons" not in figures


def test_two_encoders_are_compared(toy_encoder: Path, data: Path, tmp_path: Path) -> None:
    encoder = load_encoder(str(toy_encoder))
    assert isinstance(encoder, static.StaticEncoder)
    # The second encoder has random vectors, so French no longer meets English.
    worse = tmp_path / "worse"
    vectors = np.random.default_rng(5).normal(size=(encoder.pieces.get_piece_size(), encoder.dim)).astype(np.float32)
    static.save(worse, vectors, (toy_encoder / "sentencepiece.model").read_bytes())
    status, output, errors = run("--config", data / "suite.yaml", "--encoder", toy_encoder, "--against", worse, "--json", data / "f.json")
    assert (status, errors) == (0, "")
    figures = json.loads((data / "f.json").read_text())
    assert figures["order"] == [str(toy_encoder), str(worse)]
    compared = figures["comparisons"]
    alignment = compared["alignment: alignment"]
    assert alignment["first"]["value"] == pytest.approx(0, abs=1e-12)
    assert alignment["difference"]["low"] > 0
    assert alignment["p"] < 0.05
    assert output.splitlines()[5].startswith("alignment: alignment")
    assert output.splitlines()[5].endswith("*")
    assert "95 % confidence" in output


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("[]", "tasks: expected at least 1 item"),
        ("[{task: sts, data: nowhere}]", "nowhere: no such file or directory; correct the config"),
        ("[{task: sts, data: sts.tsv}, {task: sts, data: sts.tsv}]", "two tasks are called 'sts'"),
        ("[{task: stss, data: sts.tsv}]", "tasks.0.task: unknown 'stss'; did you mean 'sts'?"),
        ("[{task: sts}]", "tasks.0.data: missing, and required"),
        ("[{task: sts, data: sts.tsv, k: 4}]", "unknown setting 'tasks.0.k'"),
    ],
)
def test_invalid_suites_are_errors(toy_encoder: Path, data: Path, tasks: str, message: str) -> None:
    (data / "bad.yaml").write_text(f"data: {data}\ntasks: {tasks}\n")
    status, output, errors = run("--config", data / "bad.yaml", "--encoder", toy_encoder, "--json", data / "f.json")
    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert message in errors
    assert not (data / "f.json").exists()


def test_comparing_an_encoder_with_itself_is_an_error(toy_encoder: Path, data: Path) -> None:
    status, _, errors = run("--config", data / "suite.yaml", "--encoder", toy_encoder, "--against", toy_encoder)
    assert status == 1
    assert "the same encoder as the first" in errors


def test_recipe_has_every_task_but_bucc() -> None:
    from miner.config.base import load_yaml

    recipe = load_yaml(SuiteConfig, str(ROOT / "configs" / "eval.yaml"))
    assert {task.task_name() for task in recipe.tasks} | {"bucc"} == set(TASKS)
    assert len({task.title for task in recipe.tasks}) == len(recipe.tasks)
