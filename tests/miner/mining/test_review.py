"""Precision from marks of a sample: by hand, beside other libraries, and on random pairs of known precision."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from miner.errors import NoThresholdError
from miner.mining.review import LevelCounts, MarkedRows, cohen_kappa, count_levels, find_marked, from_marks, plan_sample


def counts(pairs: list[int], marked: list[int], right: list[float]) -> LevelCounts:
    return LevelCounts(*(np.array([row], dtype=float) for row in (pairs, marked, right)))


def marked_rows(marks: dict[int, float]) -> MarkedRows:
    return find_marked({(row, row): share for row, share in marks.items()}, ((row, row) for row in range(max(marks) + 1)))


class TestPool:
    def test_levels_are_weighted_by_their_pairs(self) -> None:
        """Two levels of 300 and 100 pairs: 3/4 of 9/10 and 1/4 of 2/4. Shares for the variance: 9.5/11 and 2.5/5."""
        pooled = counts([300, 100], [10, 4], [9, 2]).pool()
        assert pooled.value[0] == pytest.approx(0.75 * 0.9 + 0.25 * 0.5)
        mean = 0.75 * 9.5 / 11 + 0.25 * 0.5
        variance = 0.75**2 * (9.5 / 11) * (1.5 / 11) / 10 + 0.25**2 * 0.25 / 4
        size = mean * (1 - mean) / variance
        z = stats.norm.ppf(0.975)
        centre = (0.8 + z**2 / (2 * size)) / (1 + z**2 / size)
        half = z / (1 + z**2 / size) * np.sqrt(0.8 * 0.2 / size + z**2 / (4 * size**2))
        assert (pooled.low[0], pooled.high[0]) == pytest.approx((centre - half, centre + half))
        assert pooled.support[0] == pytest.approx(1 / (0.75**2 / 10 + 0.25**2 / 4))

    def test_one_level_and_equal_levels_are_a_simple_random_sample(self) -> None:
        interval = stats.binomtest(18, 20).proportion_ci(method="wilson")
        for pooled in (counts([500], [20], [18]).pool(), counts([50, 50], [10, 10], [9, 9]).pool()):
            assert (pooled.low[0], pooled.high[0], pooled.support[0]) == pytest.approx((interval.low, interval.high, 20))

    def test_level_without_marks_leaves_the_precision_unknown(self) -> None:
        assert counts([10, 10], [5, 0], [5, 0]).pool().estimate(0) is None
        assert counts([10, 0], [5, 0], [5, 0]).pool().value[0] == 1  # without pairs it needs no marks

    def test_intervals_of_uneven_samples_cover_the_precision(self) -> None:
        """Precision falls from 1 to 0.5 over 10,000 pairs; the lower half has five times the marks of the upper."""
        chance = np.random.default_rng(0)
        right = chance.random(10_000) < np.linspace(1.2, 0.5, 10_000)
        estimates, is_within = [], []
        for _ in range(300):
            rows = np.sort(np.append(chance.choice(5000, 40, replace=False), 5000 + chance.choice(5000, 200, replace=False)))
            pooled = count_levels(MarkedRows(rows, right[rows].astype(float)), np.array([10_000])).pool()
            estimates.append(pooled.value[0])
            is_within.append(pooled.low[0] <= right.mean() <= pooled.high[0])
        assert np.mean(estimates) == pytest.approx(right.mean(), abs=0.004)
        assert 0.92 <= np.mean(is_within) <= 0.99


class TestFromMarks:
    MARGINS = np.linspace(2, 1, 1001)[:1000]

    def test_lowest_threshold_of_enough_precision_is_chosen(self) -> None:
        """Every fifth of 1,000 pairs is marked; the marks are right to row 500, then wrong: 101 of 106 is more than 0.95."""
        marked = marked_rows({row: float(row <= 500) for row in range(0, 1000, 5)})
        choice = from_marks(self.MARGINS, marked, 0.95)
        assert choice.recall is None
        assert choice.by == "marks"
        assert choice.precision.value == pytest.approx(101 / 106, abs=0.005)
        assert choice.threshold == self.MARGINS[526]
        assert choice.num_evidence == 106
        kept = count_levels(marked, np.array([526])).pool()
        assert choice.precision == kept.estimate(0)

    def test_pairs_below_the_last_mark_are_not_kept(self) -> None:
        marked = marked_rows(dict.fromkeys(range(0, 500, 5), 1.0))
        assert from_marks(self.MARGINS, marked, 0.95).threshold == self.MARGINS[496]

    def test_pairs_of_one_margin_are_kept_together(self) -> None:
        margins = np.repeat([3.0, 2.0, 1.0], 100)
        marked = marked_rows(dict.fromkeys(range(0, 200, 2), 1.0))
        assert from_marks(margins, marked, 0.9).threshold == 1.0

    def test_too_few_marks_are_an_error(self) -> None:
        marked = marked_rows(dict.fromkeys(range(0, 1000, 20), 1.0))
        with pytest.raises(
            NoThresholdError, match=r"50 marked pairs are worth 49 of a simple random sample, at least 73 are needed; give more"
        ):
            from_marks(self.MARGINS, marked, 0.95)

    def test_many_wrong_marks_are_an_error_with_the_best(self) -> None:
        marked = marked_rows({row: float(row % 2) for row in range(1000)})
        with pytest.raises(NoThresholdError, match=r"no threshold has a precision of 0\.95: .* the best has 0\.5"):
            from_marks(self.MARGINS, marked, 0.95)

    def test_threshold_has_its_precision_on_all_pairs(self) -> None:
        """Marks of a planned sample: many where pairs are uncertain, few elsewhere."""
        chance = np.random.default_rng(1)
        precisions = []
        for _ in range(60):
            margins = np.sort(chance.uniform(1, 2, 5000))[::-1]
            right = chance.random(5000) < np.clip((margins - 1) * 2.5, 0, 1)
            rows = np.sort(
                np.concatenate([start + chance.choice(500, 40 if start < 3000 else 120, False) for start in range(0, 5000, 500)])
            )
            choice = from_marks(margins, MarkedRows(rows, right[rows].astype(float)), 0.9)
            precisions.append(right[margins > choice.threshold].mean())
        assert np.mean(precisions) == pytest.approx(0.9, abs=0.01)


class TestPlan:
    def test_first_sample_is_spread_evenly(self) -> None:
        assert plan_sample(counts([9] * 3, [0] * 3, [0] * 3), np.array([9, 9, 9]), 8).tolist() == [3, 3, 2]

    def test_widest_interval_comes_first(self) -> None:
        """Levels with 10 of 10, 5 of 10 and 20 of 40 right marks: the second has the widest interval until it has about 40, too."""
        plan = plan_sample(counts([500] * 3, [10, 10, 40], [10, 5, 20]), np.array([490, 490, 460]), 60)
        assert plan.sum() == 60
        assert plan[1] == pytest.approx(plan[2] + 30, abs=1)
        assert plan[0] < 12

    def test_no_more_are_drawn_than_there_are(self) -> None:
        assert plan_sample(counts([5] * 2, [0] * 2, [0] * 2), np.array([1, 3]), 9).tolist() == [1, 3]


class TestKappa:
    def test_worked_example(self) -> None:
        """Of 50 applications both accept 20 and both reject 15; one accepts 5 more, the other 10: (0.7 - 0.5) / (1 - 0.5) = 0.4."""
        first = np.repeat([True, True, False, False], [20, 5, 10, 15])
        second = np.repeat([True, False, True, False], [20, 5, 10, 15])
        assert cohen_kappa(first, second) == pytest.approx(0.4)

    def test_equals_another_library(self) -> None:
        chance = np.random.default_rng(0)
        for share in (0.1, 0.5, 0.9):
            first = chance.random(80) < share
            second = np.where(chance.random(80) < 0.8, first, chance.random(80) < 0.5)
            assert cohen_kappa(first, second) == pytest.approx(metrics.cohen_kappa_score(first, second))

    def test_agreement_by_chance_alone_is_undefined(self) -> None:
        assert cohen_kappa(np.ones(9, dtype=bool), np.ones(9, dtype=bool)) is None
