"""The choice of a threshold by expected precision: by hand, on random pairs of known precision, and through the command line."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import miner, output_of

from miner.errors import DataError, NoThresholdError
from miner.mining.thresholds import PlantedMargins, from_gold, from_planted, lowest_probability, wilson
from miner.text.normalise import clean

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_interval_equals_published_values() -> None:
    """Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17, 1998, table I."""
    low, high = wilson(np.array([81 / 263, 15 / 148, 0, 1 / 29]), np.array([263.0, 148, 20, 29]))
    np.testing.assert_allclose(low, [0.2553, 0.0624, 0, 0.0061], atol=5e-5)
    np.testing.assert_allclose(high, [0.3662, 0.1605, 0.1611, 0.1718], atol=5e-5)


class TestGold:
    MARGINS = np.linspace(2, 1, 201)[:200]

    def test_lowest_threshold_of_enough_precision_is_chosen(self) -> None:
        """All pairs are correct but 50, 90 and 101 to 200, counted from 1: 98 of 103 is more than 0.95, 98 of 104 less."""
        right = np.ones(200, dtype=bool)
        right[[49, 89, *range(100, 200)]] = False
        choice = from_gold(self.MARGINS, right, num_gold=140, min_precision=0.95)
        assert choice.threshold == self.MARGINS[103]
        assert choice.precision.value == 98 / 103
        assert (choice.precision.low, choice.precision.high) == pytest.approx((0.891, 0.979), abs=5e-4)
        assert choice.recall.value == 98 / 140
        assert choice.num_evidence == 103

    def test_pairs_of_one_margin_are_kept_together(self) -> None:
        margins = np.repeat([3.0, 2, 1], [90, 90, 20])
        right = np.repeat([True, True, False], [90, 87, 23])
        choice = from_gold(margins, right, num_gold=177, min_precision=0.95)
        assert (choice.threshold, choice.precision.value) == (1.0, 177 / 180)
        assert from_gold(margins, right, num_gold=177, min_precision=0.5).threshold < 1

    def test_precision_of_95_percent_needs_73_pairs(self) -> None:
        right = np.ones(73, dtype=bool)
        assert from_gold(self.MARGINS[:73], right, num_gold=73, min_precision=0.95).precision.value == 1
        with pytest.raises(DataError, match="72 judged pairs, at least 73 are needed; give more pairs, or a lower --precision"):
            from_gold(self.MARGINS[:72], right[:72], num_gold=73, min_precision=0.95)
        with pytest.raises(DataError, match="0 judged pairs"):
            from_gold(np.zeros(0), np.zeros(0, dtype=bool), num_gold=73, min_precision=0.95)

    def test_unreachable_precision_is_an_error_with_the_best(self) -> None:
        right = np.arange(200) % 10 != 0
        with pytest.raises(DataError, match=r"no threshold .* of 0\.95: .* the best has 0\.900 \(if gold is only a random"):
            from_gold(self.MARGINS, right, num_gold=180, min_precision=0.95)

    def test_gold_sample_estimates_the_precision_of_all_pairs(self) -> None:
        """Gold has only a third of the true pairs."""
        chance = np.random.default_rng(0)
        margins = np.sort(chance.uniform(1, 2, 30_000))[::-1]
        true = chance.random(30_000) < np.clip((margins - 1) * 2.5, 0, 1)
        is_sampled = true & (chance.random(30_000) < 1 / 3)
        choice = from_gold(margins, is_sampled, int(is_sampled.sum()), 0.95, sample=True)
        precision = true[margins > choice.threshold].mean()
        assert precision == pytest.approx(0.95, abs=0.02)
        assert choice.precision.low <= precision <= choice.precision.high
        assert choice.recall.value == pytest.approx(true[margins > choice.threshold].sum() / true.sum(), abs=0.01)

    def test_threshold_of_one_half_has_its_precision_on_the_other(self) -> None:
        chance = np.random.default_rng(1)
        precisions = []
        for _ in range(50):
            margins = np.sort(chance.uniform(1, 2, 4000))[::-1]
            right = chance.random(4000) < np.clip((margins - 1) * 2.5, 0, 1)
            half = chance.random(4000) < 0.5
            choice = from_gold(margins[half], right[half], int(right[half].sum()), 0.95)
            precisions.append(right[~half & (margins > choice.threshold)].mean())
        assert np.mean(precisions) == pytest.approx(0.95, abs=0.005)


class TestPlanted:
    def test_wrong_pairs_are_estimated_from_sentences_without_a_translation(self) -> None:
        """Of 400 planted sources 8 are paired at 1.2, none above: 0.02 (2000 - 500) / 0.98 of 500 pairs are wrong."""
        margins = np.repeat([2.0, 1.2], [400, 100])
        planted = PlantedMargins(np.array([2.0] * 90 + [-np.inf] * 10), np.array([1.2] * 8 + [-np.inf] * 392), np.full(7, 9.0))
        low = from_planted(margins, planted, (2000, 50), (1, 0), min_precision=0.93)
        assert low.precision.value == pytest.approx(1 - 0.02 * 1500 / 0.98 / 500)
        assert 1.1 < low.threshold < 1.2
        high = from_planted(margins, planted, (2000, 50), (1, 0), min_precision=0.95)
        assert (high.threshold, high.precision.value, high.recall.value, high.num_evidence) == (1.2, 1, 0.9, 400)
        assert high.precision.low == pytest.approx(1 - 3.8415 / 400 * 1600 / 400, abs=1e-3)

    def test_estimate_is_unbiased_on_random_corpora(self) -> None:
        """2,000 of 6,000 sources have a translation; the others, planted or not, are paired wrongly at random."""
        chance = np.random.default_rng(2)
        wrong = lambda count: np.where(chance.random(count) < 0.5, 1 + chance.exponential(0.06, count), -np.inf)  # noqa: E731
        true, within = [], []
        for _ in range(60):
            drawn = np.concatenate([chance.normal(1.5, 0.15, 2000), wrong(4000)])
            order = np.argsort(-drawn)[: np.isfinite(drawn).sum()]
            planted = PlantedMargins(chance.normal(1.5, 0.15, 900), wrong(900), wrong(900))
            choice = from_planted(drawn[order], planted, (6000, 6000), (0.5, 0.5), min_precision=0.95)
            right = (drawn[:2000] > choice.threshold).sum()
            true.append(right / (right + 4000 * 0.5 * np.exp(-(choice.threshold - 1) / 0.06)))
            within.append(choice.precision.low <= true[-1] <= choice.precision.high)
        assert np.mean(true) == pytest.approx(0.95, abs=0.005)
        assert np.mean(within) >= 0.9

    def test_estimate_holds_where_every_sentence_is_paired(self) -> None:
        """500 of 1,000 sources have a translation, the others are all paired wrongly below: half of the whole list is right, not all."""
        margins, lone = np.linspace(2, 0, 1000), np.linspace(0.95, 0, 500)
        planted = PlantedMargins(np.full(100, 1.5), lone, np.zeros(0))
        choice = from_planted(margins, planted, (1000, 1000), (1, 0), min_precision=0.9)
        assert choice.precision.value == pytest.approx(500 / (margins > choice.threshold).sum(), abs=0.05)

    def test_too_few_planted_pairs_are_an_error(self) -> None:
        planted = PlantedMargins(np.ones(5), np.full(5, -np.inf), np.full(5, -np.inf))
        with pytest.raises(DataError, match="10 planted sentences without a translation are too few for 50 pairs"):
            from_planted(np.linspace(2, 1, 50), planted, (1000, 1000), (0.5, 0.5), min_precision=0.95)


def test_the_lowest_probability_by_hand() -> None:
    probabilities = np.repeat([0.2, 0.95, 0.7], [50, 100, 50])  # means: 0.95, then 0.8667, then 0.7
    for precision, expected in ((0.95, 0.701), (0.87, 0.701), (0.866, 0.201), (0.71, 0.201), (0.69, 0.001), (0.5, 0.001)):
        assert lowest_probability(probabilities, precision) == expected
    with pytest.raises(NoThresholdError, match=r"no 100 pairs have a mean probability of 0\.96; give a lower --precision"):
        lowest_probability(probabilities, 0.96)


def test_the_lowest_probability_equals_a_loop() -> None:
    probabilities = np.random.default_rng(0).beta(0.4, 0.3, 700).astype(np.float32)
    for precision in (0.6, 0.75, 0.9, 0.97):
        bounds = [number / 1000 for number in range(1, 1000)]
        kept = {bound: [value for value in probabilities.tolist() if value >= bound] for bound in bounds}
        expected = next(bound for bound in bounds if len(kept[bound]) >= 100 and sum(kept[bound]) / len(kept[bound]) >= precision)
        assert lowest_probability(probabilities, precision) == expected


@pytest.fixture(scope="module")
def mined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mine the demo corpora without the pairs that are planted later."""
    folder = tmp_path_factory.mktemp("mined")
    gold = [line.split("\t") for line in (EXAMPLES / "gold.en-de.tsv").read_text().splitlines()]
    random.Random(1).shuffle(gold)
    texts = [(EXAMPLES / f"{name}.txt").read_text().splitlines() for name in ("en", "de")]
    kept, taken = gold[300:], gold[:300]
    (folder / "planted.tsv").write_text("".join(f"{texts[0][int(one) - 1]}\t{texts[1][int(other) - 1]}\n" for one, other in taken))
    for side, name in enumerate(("en", "de")):
        out = {int(pair[side]) - 1 for pair in taken}
        (folder / f"{name}.txt").write_text("".join("\n" if at in out else f"{line}\n" for at, line in enumerate(texts[side])))
    (folder / "gold.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in kept))
    output_of("mine", folder / "en.txt", folder / "de.txt", "--output", folder / "out")
    return folder


def select(mined: Path, output: Path, *options: object) -> dict[str, Any]:
    figures = output.with_suffix(".json")
    stdout = output_of("mine", "--from-candidates", mined / "out", "--output", output, "--threshold", "auto", *options, "--json", figures)
    figures = json.loads(figures.read_text())
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["details"]["choice"] == figures["choice"]
    assert f"expected precision {figures['choice']['precision']['value']:.4f}" in stdout
    return figures


def test_gold_chooses_the_threshold_of_the_bitext(mined: Path, tmp_path: Path) -> None:
    figures = select(mined, tmp_path / "auto", "--precision", "0.9", "--gold", mined / "gold.tsv")
    assert figures["choice"]["by"] == "gold"
    assert figures["precision"] == figures["choice"]["precision"]["value"] >= 0.9
    options = ("--output", tmp_path / "given", "--threshold", repr(figures["threshold"]))
    assert miner("mine", "--from-candidates", mined / "out", *options).exit_code == 0
    for name in ("bitext.tsv.gz", "bitext.parquet"):
        assert (tmp_path / "auto" / name).read_bytes() == (tmp_path / "given" / name).read_bytes()


@pytest.mark.slow
def test_planted_pairs_choose_and_are_not_in_the_bitext(mined: Path, tmp_path: Path) -> None:
    evidence = ("--planted", mined / "planted.tsv", "--precision", "0.92", "--gold", mined / "gold.tsv", "--filter", "none")
    figures = select(mined, tmp_path / "auto", *evidence)
    choice = figures["choice"]
    assert (choice["by"], choice["num_evidence"]) == ("planted", 200)
    assert choice["precision"]["low"] <= figures["precision"] <= choice["precision"]["high"]
    assert choice["recall"]["low"] <= figures["recall"] <= choice["recall"]["high"]
    planted = set((mined / "planted.tsv").read_text().split("\n"))
    lines = gzip.decompress((tmp_path / "auto" / "bitext.tsv.gz").read_bytes()).decode().splitlines()
    assert not planted & {line.split("\t", 1)[1] for line in lines}
    again = select(mined, tmp_path / "auto", *evidence)
    assert again["choice"] == choice


@pytest.fixture(scope="module")
def marks(mined: Path) -> Path:
    """Mark every third of the mined pairs by gold, and some other pair."""
    gold = [[int(number) - 1 for number in line.split("\t")] for line in (mined / "gold.tsv").read_text().splitlines()]
    texts = [(mined / f"{name}.txt").read_text().splitlines() for name in ("en", "de")]
    right = {(clean(texts[0][one]), clean(texts[1][other])) for one, other in gold}
    lines = gzip.decompress((mined / "out" / "bitext.tsv.gz").read_bytes()).decode().splitlines()
    pairs = [tuple(line.split("\t")[1:]) for line in lines][::3]
    rows = [f"{'right' if pair in right else 'wrong'}\t{pair[0]}\t{pair[1]}\n" for pair in pairs]
    (mined / "marks.tsv").write_text("mark\tsource\ttarget\n" + "".join(rows))
    (mined / "other-marks.tsv").write_text("mark\tsource\ttarget\nright\ta\tb\n")
    return mined / "marks.tsv"


def test_marks_choose_a_threshold_and_score_the_bitext(mined: Path, marks: Path, tmp_path: Path) -> None:
    figures = select(mined, tmp_path / "auto", "--precision", "0.9", "--gold", marks)
    choice = figures["choice"]
    assert (choice["by"], "recall" in choice) == ("marks", False)
    assert figures["precision"] == choice["precision"]["value"]
    assert figures["interval"] == [choice["precision"]["low"], choice["precision"]["high"]]
    marked = {line.split("\t", 1)[1] for line in marks.read_text().splitlines()}
    lines = gzip.decompress((tmp_path / "auto" / "bitext.tsv.gz").read_bytes()).decode().splitlines()
    assert figures["marked"] == choice["num_evidence"] == len(marked & {line.split("\t", 1)[1] for line in lines}) > 100
    options = ("--threshold", repr(figures["threshold"]), "--gold", mined / "gold.tsv", "--json", tmp_path / "gold.json")
    assert miner("mine", "--from-candidates", mined / "out", *options, "--output", tmp_path / "gold").exit_code == 0
    by_gold = json.loads((tmp_path / "gold.json").read_text())
    assert choice["precision"]["low"] <= by_gold["precision"] <= choice["precision"]["high"]
    result = miner(
        "mine", "--from-candidates", mined / "out", "--gold", marks, "--threshold", "1.3", "--output", tmp_path / "given", report=True
    )
    assert "by " in result.stdout
    assert " marked pairs, with 95 % confidence" in result.stdout
    assert ">Marks<" in (tmp_path / "given" / "report.html").read_text()
    result = miner(
        "mine", "--from-candidates", mined / "out", "--gold", marks, "--threshold", "9", "--output", tmp_path / "none", report=True
    )
    assert result.exit_code == 0
    assert "precision unknown by 0 marked pairs" in result.stdout


class TestErrors:
    @pytest.mark.usefixtures("marks")
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--threshold", "auto", "--retrieval", "all"), "give --gold FILE, or --planted FILE"),
            (("--planted", "planted.tsv"), "--planted is only for --threshold auto"),
            (("--gold-sample",), "--gold-sample describes --gold"),
            (
                ("--gold-sample", "--gold", "marks.tsv"),
                "--gold-sample describes gold pairs, and marks are a sample of the mined pairs anyway",
            ),
            (
                ("--gold", "marks.tsv", "--gold", "gold.tsv"),
                "gold.tsv: --gold takes one file of line pairs, or any number of tables of marks",
            ),
            (
                ("--threshold", "auto", "--gold", "other-marks.tsv"),
                "other-marks.tsv: 1 of 1 marks cannot be used: 1 of texts that are not in the corpora; give the marks of these corpora",
            ),
            (("--threshold", "auto", "--gold", "marks.tsv", "--precision", "0.999"), "of a simple random sample, at least 3838 are needed"),
            (("--threshold", "auto", "--planted", "planted.tsv", "--retrieval", "all"), "cannot estimate the precision of --retrieval all"),
            (("--threshold", "auto", "--planted", "missing.tsv"), "missing.tsv: no such file"),
            (("--threshold", "auto", "--planted", "known.tsv"), "known.tsv: 0 pairs whose sentences are in neither corpus"),
            (("--threshold", "auto", "--gold", "gold.tsv", "--precision", "0.9999"), "are needed; give more pairs, or a lower --precision"),
            (("--threshold", "auto", "--gold", "gold.tsv", "--precision", "1"), "--precision: expected less than 1"),
        ],
    )
    def test_error_is_one_line(self, options: tuple[str, ...], message: str, mined: Path, tmp_path: Path) -> None:
        (mined / "known.tsv").write_text(
            "".join(f"{line}\tein Satz {at}\n" for at, line in enumerate((EXAMPLES / "en.txt").open()) if at < 9)
        )
        arguments = [mined / option if option.endswith(".tsv") else option for option in options]
        result = miner("mine", "--from-candidates", mined / "out", *arguments, "--output", tmp_path / "out")
        assert result.exit_code == 1, result.output
        assert message in result.stderr
        assert (result.stdout, result.stderr.count("\n")) == ("", 1)
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize(("name", "message"), [("missing.tsv", "no such file"), ("one-column.tsv", "no sentence in column 2")])
    def test_invalid_planted_pairs_fail_before_embedding(self, name: str, message: str, mined: Path, tmp_path: Path) -> None:
        (tmp_path / "one-column.tsv").write_text("one\ntwo\n")
        texts = (mined / "en.txt", mined / "de.txt")
        result = miner("mine", *texts, "--threshold", "auto", "--planted", tmp_path / name, "--output", tmp_path / "out")
        assert result.exit_code == 1, result.output
        assert message in result.stderr
        assert not (tmp_path / "out").exists()

    def test_threshold_that_is_no_number_is_wrong_usage(self, tmp_path: Path) -> None:
        result = miner("mine", "a", "b", "--threshold", "high", "--output", tmp_path / "out")
        assert result.exit_code == 2
        assert "--threshold: expected a number or 'auto', not 'high'" in result.stderr
