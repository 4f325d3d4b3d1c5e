"""Suites, and the comparison of two encoders: against scipy's bootstrap, and where the answer is plain."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from command import miner
from scipy import stats

from miner.encoders import load_encoder, static
from miner.evaluation import clustering, scores, suite
from miner.evaluation.scores import Score
from miner.evaluation.significance import compare
from miner.evaluation.tasks import SuiteConfig

ROOT = Path(__file__).parents[3]


def of_groups(statistic: scores.Statistic, *groups: object) -> Score:
    return Score({str(number): np.asarray(items, dtype=float) for number, items in enumerate(groups)}, statistic)


def test_groups_count_the_same() -> None:
    score = of_groups(scores.mean, [[1], [1], [1], [0]], [[0]])
    assert score.by_group == {"0": 0.75, "1": 0.0}
    assert score.value == 0.375


def test_intervals_are_scipys() -> None:
    chance = np.random.default_rng(0)
    one, other = chance.random(300) < 0.6, chance.random(300) < 0.7
    found = compare(of_groups(scores.mean, one[:, None]), of_groups(scores.mean, other[:, None]), draws=4000, seed=1)
    for ours, function, data in (
        (found.one, lambda x, axis: x.mean(axis=axis), (one.astype(float),)),
        (found.other, lambda x, axis: x.mean(axis=axis), (other.astype(float),)),
        (found.difference, lambda x, y, axis: (y - x).mean(axis=axis), (one.astype(float), other.astype(float))),
    ):
        theirs = stats.bootstrap(data, function, paired=True, method="percentile", n_resamples=4000, rng=2).confidence_interval
        assert [ours.low, ours.high] == pytest.approx([theirs.low, theirs.high], abs=0.01)
    assert found.difference.value == pytest.approx(other.mean() - one.mean())


def test_p_is_near_that_of_the_exact_test() -> None:
    # 30 items where only the second is right, 15 where only the first is: the sign test says 0.036.
    one, other = np.repeat([1, 0, 1], [40, 30, 15])[:, None], np.repeat([1, 1, 0], [40, 30, 15])[:, None]
    found = compare(of_groups(scores.mean, one), of_groups(scores.mean, other), draws=4000, seed=0)
    assert found.p == pytest.approx(stats.binomtest(15, 45).pvalue, abs=0.02)
    assert found.difference.low > 0


def test_the_same_results_differ_by_nothing_and_all_against_none_as_surely_as_draws_can_say() -> None:
    items = np.random.default_rng(0).integers(0, 2, size=(50, 2))
    same = compare(of_groups(scores.mean, items), of_groups(scores.mean, items), draws=500, seed=0)
    assert (same.p, same.difference.value) == (1.0, 0.0)
    assert (same.difference.low, same.difference.high) == pytest.approx((0, 0), abs=1e-12)
    assert same.one.low < same.one.value < same.one.high
    sure = compare(of_groups(scores.mean, np.zeros((50, 1))), of_groups(scores.mean, np.ones((50, 1))), draws=499, seed=0)
    assert sure.p == 2 / 500


def test_scores_that_samples_overrate_lie_within_their_interval() -> None:
    # Labels and clusters by chance: in every sample, which holds pairs of the same item, they agree more than they do.
    items = np.random.default_rng(0).integers(0, 12, size=(150, 2))
    drawn = [clustering.v_measure(items[np.random.default_rng(seed).integers(0, 150, size=150)]) for seed in range(50)]
    score = of_groups(clustering.v_measure, items)
    assert min(drawn) > score.value
    found = compare(score, score, draws=100, seed=0).one
    assert found.low < found.value < found.high


def test_items_are_drawn_within_their_groups() -> None:
    # Each group is all of one kind: whatever is drawn, the mean over groups stays.
    score = of_groups(scores.mean, np.ones((5, 1)), np.zeros((50, 1)))
    found = compare(score, of_groups(scores.mean, np.ones((5, 1)), np.ones((50, 1))), draws=100, seed=0)
    assert (found.one.low, found.one.high) == pytest.approx((0.5, 0.5))


def test_a_pair_counts_as_one_item() -> None:
    # Ranks by the first encoder are right, by the second exchanged within pairs that are drawn together with what people said.
    told = np.arange(40.0)
    one, other = np.stack([told, told], axis=1), np.stack([told, told + np.tile([1.5, -1.5], 20)], axis=1)
    found = compare(of_groups(scores.spearman, one), of_groups(scores.spearman, other), draws=200, seed=0)
    assert (found.one.low, found.one.high) == (pytest.approx(1), pytest.approx(1))
    assert found.other.high < 1


def write(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files for two tasks, and a suite of them."""
    words, others = ["one", "two", "three", "four", "five"], ["un", "deux", "trois", "quatre", "cinq"]
    write(tmp_path / "en.txt", [[word] for word in words])
    write(tmp_path / "fr.txt", [[word] for word in others])
    pairs = [(one, other, int(i == j)) for i, one in enumerate(words) for j, other in enumerate(others)]
    write(tmp_path / "sts.tsv", [("sentence1", "sentence2", "score"), *pairs])
    (tmp_path / "suite.yaml").write_text(
        f"data: {tmp_path}\ndraws: 200\ntasks:\n"
        "  - {task: retrieval, source: en.txt, target: fr.txt}\n"
        "  - {task: sts, name: numbers, data: sts.tsv}\n"
        "  - {task: alignment, source: en.txt, target: fr.txt}\n"
    )
    return tmp_path


def run(*arguments: object) -> tuple[int, str, str]:
    result = miner("eval", "suite", *arguments)
    return result.exit_code, result.stdout, result.stderr


def test_a_suite_is_one_table(toy_encoder: Path, data: Path) -> None:
    status, output, errors = run("--config", data / "suite.yaml", "--encoder", toy_encoder, "--json", data / "f.json")
    assert (status, errors) == (0, "")
    assert [line.rsplit(maxsplit=1) for line in output.splitlines()[1:]] == [
        ["retrieval: accuracy, cosine", "1.0000"],
        ["retrieval: accuracy, ratio", "1.0000"],
        ["numbers: Spearman, mean", output.splitlines()[3].split()[-1]],
        ["alignment: alignment", "0.0000"],
    ]
    figures = json.loads((data / "f.json").read_text())
    assert figures["encoders"][str(toy_encoder)]["numbers"]["mean"]["pearson"] > 0.8
    assert figures["scores"][str(toy_encoder)]["retrieval: accuracy, cosine"] == 1.0
    assert "compared" not in figures


def test_two_encoders_side_by_side(toy_encoder: Path, data: Path, tmp_path: Path) -> None:
    encoder = load_encoder(str(toy_encoder))
    assert isinstance(encoder, static.StaticEncoder)
    # The second is the first with all vectors turned around in part: French no longer meets English.
    worse = tmp_path / "worse"
    vectors = np.random.default_rng(5).normal(size=(encoder.pieces.get_piece_size(), encoder.dim)).astype(np.float32)
    static.save(worse, vectors, (toy_encoder / "sentencepiece.model").read_bytes())
    status, output, errors = run("--config", data / "suite.yaml", "--encoder", toy_encoder, "--against", worse, "--json", data / "f.json")
    assert (status, errors) == (0, "")
    figures = json.loads((data / "f.json").read_text())
    assert figures["names"] == [str(toy_encoder), str(worse)]
    compared = figures["compared"]
    found = compared["alignment: alignment"]
    assert found["one"]["value"] == pytest.approx(0, abs=1e-12)
    assert found["difference"]["low"] > 0
    assert found["p"] < 0.05
    assert output.splitlines()[4].startswith("alignment: alignment")
    assert output.splitlines()[4].endswith("*")
    assert "95 % confidence" in output


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("[]", "tasks: tuple should have at least 1 item"),
        ("[{task: sts, data: nowhere}]", "sts: no such file or folder as "),
        ("[{task: sts, data: sts.tsv}, {task: sts, data: sts.tsv}]", "two tasks are called 'sts'"),
        ("[{task: stss, data: sts.tsv}]", "tasks.0: input tag 'stss' found using 'task' does not match any of the expected tags"),
        ("[{task: sts}]", "tasks.0.sts.data: field required"),
        ("[{task: sts, data: sts.tsv, k: 4}]", "unknown setting 'tasks.0.sts.k'"),
    ],
)
def test_bad_suites(toy_encoder: Path, data: Path, tasks: str, message: str) -> None:
    (data / "bad.yaml").write_text(f"data: {data}\ntasks: {tasks}\n")
    status, output, errors = run("--config", data / "bad.yaml", "--encoder", toy_encoder, "--json", data / "f.json")
    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert message in errors
    assert not (data / "f.json").exists()


def test_an_encoder_is_not_compared_with_itself(toy_encoder: Path, data: Path) -> None:
    status, _, errors = run("--config", data / "suite.yaml", "--encoder", toy_encoder, "--against", toy_encoder)
    assert status == 1
    assert "the same encoder as the first" in errors


def test_every_task_has_an_evaluation_and_the_recipe_names_them() -> None:
    from miner.config.base import load_yaml

    recipe = load_yaml(SuiteConfig, str(ROOT / "configs" / "eval.yaml"))
    assert {task.kind for task in recipe.tasks} | {"bucc"} == set(suite.TASKS)
    assert len({task.title for task in recipe.tasks}) == len(recipe.tasks)
