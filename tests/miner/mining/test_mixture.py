"""The intercept of two corpora, on margins that are drawn from known distributions, and the fit against a general optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import gumbel_r, lognorm
from scipy.stats.distributions import rv_frozen

from miner.config.probability import ProbabilityWeights
from miner.filters.pairs import fit_to_corpora
from miner.mining.margin_sample import MarginSample
from miner.mining.mixture import (
    BOUNDARY,
    MAX_EVIDENCE,
    MAX_SHIFT,
    RIGHT_OFFSET,
    RIGHT_PRIOR,
    SHARE_PRIOR,
    SHIFT_STEP,
    find_boundary,
    gumbel_by_quartiles,
)

WEIGHTS = ProbabilityWeights(intercept=-20.0, margin=20.0, length_ratio=-6.0, numbers=-4.0)
WRONG = (-0.9, 1.0)  # location and scale of log odds
RUNNERS_UP = (-1.8, 0.8)  # that are usual beside WRONG


def right_distribution(median: float, log_deviation: float = 0.17) -> rv_frozen:
    """Return the distribution of the log odds of right pairs: the logarithms of log odds + RIGHT_OFFSET are normal."""
    return lognorm(log_deviation, loc=-RIGHT_OFFSET, scale=median + RIGHT_OFFSET)


def sample_of(num_right: int, num_wrong: int, right_median: float = 6.0, seed: int = 0) -> MarginSample:
    """Return a sample of corpora whose mutual best candidates are right and wrong pairs."""
    random = np.random.default_rng(seed)
    logits = np.concatenate([right_distribution(right_median).rvs(num_right, random_state=random), random.gumbel(*WRONG, num_wrong)])
    sides = (random.gumbel(location, RUNNERS_UP[1], num_right + num_wrong) for location in (RUNNERS_UP[0] - 2, RUNNERS_UP[0]))
    return MarginSample(*((values - WEIGHTS.intercept) / WEIGHTS.margin for values in (logits, *sides)))


def shift_of(sample: MarginSample, margin: str = "ratio") -> float:
    fitted = fit_to_corpora(WEIGHTS, margin, sample)
    changed = {"intercept": 0.0, "has_few_right": False}
    assert fitted.model_copy(update=changed) == WEIGHTS.model_copy(update=changed)
    return fitted.intercept - WEIGHTS.intercept


@pytest.mark.parametrize(("num_right", "num_wrong"), [(1000, 1000), (300, 3000), (100, 4000), (2000, 400)])
def test_the_intercept_follows_the_share_of_right_pairs(num_right: int, num_wrong: int) -> None:
    grid = np.linspace(-3, 6, 9001)
    right, wrong = num_right * right_distribution(6.0).pdf(grid), num_wrong * gumbel_r(*WRONG).pdf(grid)
    expected = BOUNDARY - grid[np.flatnonzero(right < wrong)[-1]]
    assert shift_of(sample_of(num_right, num_wrong)) == pytest.approx(expected, abs=0.4)
    assert fit_to_corpora(WEIGHTS, "ratio", sample_of(num_right, num_wrong)).has_few_right == (num_right < 0.15 * num_wrong)


def test_right_pairs_with_low_margins_are_not_taken_for_wrong_ones() -> None:
    weak = sample_of(1000, 30, right_median=2.5)
    assert shift_of(weak) > 0
    assert shift_of(sample_of(30, 1000)) < -1.5


def test_more_pairs_than_the_evidence_weigh_no_more() -> None:
    sample = sample_of(800, 400, right_median=2.5)
    repeated = MarginSample(*(np.tile(values, 20) for values in vars(sample).values()))
    assert len(sample.mutual_bests) >= MAX_EVIDENCE
    assert shift_of(repeated) == shift_of(sample)


def test_the_intercept_moves_by_steps_and_not_too_far() -> None:
    assert shift_of(sample_of(5000, 0)) == MAX_SHIFT
    shift = shift_of(sample_of(700, 1000))
    assert shift / SHIFT_STEP == round(shift / SHIFT_STEP)
    assert shift != 0


def test_small_samples_and_the_absolute_margin_keep_the_weights() -> None:
    enough = sample_of(100, 400)
    assert shift_of(enough) < 0
    assert shift_of(enough, "absolute") == 0
    assert shift_of(sample_of(9, 90)) == 0
    few_runners_up = MarginSample(enough.mutual_bests, enough.source_runners_up[:99], enough.target_runners_up)
    assert shift_of(few_runners_up) == 0
    assert shift_of(MarginSample(*np.zeros((3, 0)))) == 0


def test_the_order_of_the_sample_does_not_matter() -> None:
    sample = sample_of(300, 2000)
    backwards = MarginSample(*(values[::-1] for values in vars(sample).values()))
    assert fit_to_corpora(WEIGHTS, "ratio", backwards) == fit_to_corpora(WEIGHTS, "ratio", sample)


def test_equal_margins_have_a_finite_intercept() -> None:
    assert abs(shift_of(MarginSample(*np.full((3, 500), 1.05)))) <= MAX_SHIFT


def test_a_gumbel_distribution_has_the_quartiles_of_its_values() -> None:
    values = gumbel_r(-1.5, 0.7).ppf((np.arange(20_000) + 0.5) / 20_000)
    np.testing.assert_allclose(gumbel_by_quartiles(values), [-1.5, np.log(0.7)], atol=1e-3)


@pytest.mark.parametrize(("num_right", "num_wrong"), [(500, 1500), (60, 900), (900, 20)])
def test_the_boundary_is_that_of_the_largest_posterior(num_right: int, num_wrong: int) -> None:
    sample = sample_of(num_right, num_wrong, seed=1)
    logits = WEIGHTS.intercept + WEIGHTS.margin * sample.mutual_bests
    wrong_prior = np.array([[-0.9, 0.18], [0.0, 0.1]])
    prior = np.concatenate([wrong_prior, RIGHT_PRIOR, SHARE_PRIOR])

    def densities(values: np.ndarray, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        location, log_scale, mean, log_deviation, odds = parameters
        share = 1 / (1 + np.exp(-odds))
        wrong = (1 - share) * gumbel_r(location, np.exp(log_scale)).pdf(values)
        return wrong, share * right_distribution(np.exp(mean) - RIGHT_OFFSET, np.exp(log_deviation)).pdf(values)

    def loss(parameters: np.ndarray) -> float:
        distances = (parameters - prior[:, 0]) / prior[:, 1]
        weight = min(1, MAX_EVIDENCE / len(logits))
        return float((distances**2).sum() / 2 - weight * np.log(sum(densities(logits, parameters))).sum())

    starts = ([*prior[:4, 0], odds] for odds in (-2.0, 0.0, 2.0))
    best = min((minimize(loss, start, method="Nelder-Mead", options={"maxiter": 4000}) for start in starts), key=lambda fit: fit.fun)
    grid = np.linspace(-9, np.exp(best.x[2]) - RIGHT_OFFSET, 5001)
    wrong, right = densities(grid, best.x)
    assert find_boundary(logits, wrong_prior)[0] == pytest.approx(grid[wrong > right].max(), abs=0.1)
