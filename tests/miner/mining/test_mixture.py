"""The log odds of two corpora, on margins that are drawn from known distributions, and the fit against a general optimiser."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import gumbel_r, lognorm
from scipy.stats.distributions import rv_frozen
from sklearn.linear_model import LogisticRegression

from miner.config.probability import ProbabilityWeights
from miner.filters.pairs import TEXT_LOG_ODDS, fit_to_corpora, probabilities
from miner.mining.margin_sample import MarginSample
from miner.mining.mixture import (
    BOUNDARIES,
    BOUNDARY_STEP,
    MAX_EVIDENCE,
    RIGHT_OFFSET,
    RIGHT_PRIOR,
    SHARE_PRIOR,
    SLOPE_STEP,
    WRONG_PRIOR,
    Mixture,
    RunnersUp,
    fit_mixture,
    gumbel_by_quartiles,
    log_density_of_wrong,
)

WEIGHTS = ProbabilityWeights(intercept=-20.0, margin=20.0, length_ratio=-6.0, numbers=-4.0)
TEXT = TEXT_LOG_ODDS[0] + 6 * TEXT_LOG_ODDS[1]  # what equal lengths and numbers add with these weights
WRONG = (-0.9, 1.0)  # location and scale of log odds
RUNNERS_UP = (-2.7, 0.8)  # that are usual beside WRONG
LOG_TAIL = 0.35


def right_distribution(median: float, log_deviation: float = 0.16) -> rv_frozen:
    """Return the distribution of the log odds of right pairs: the logarithms of log odds + RIGHT_OFFSET are normal."""
    return lognorm(log_deviation, loc=-RIGHT_OFFSET, scale=median + RIGHT_OFFSET)


def draw_wrong(random: np.random.Generator, num_pairs: int) -> np.ndarray:
    """Return log odds (n,) of wrong pairs, with a longer tail than a Gumbel distribution, by the inverse of the integral."""
    grid = np.linspace(-4, 40, 44_001)
    shares = np.cumsum(np.exp(log_density_of_wrong(grid, LOG_TAIL))) * 0.001
    return WRONG[0] + WRONG[1] * np.interp(random.random(num_pairs), shares, grid)


def draw(num_right: int, num_wrong: int, right_median: float = 5.5, seed: int = 0) -> np.ndarray:
    """Return the log odds of right and then of wrong pairs."""
    random = np.random.default_rng(seed)
    return np.concatenate([right_distribution(right_median).rvs(num_right, random_state=random), draw_wrong(random, num_wrong)])


def sample_of(num_right: int, num_wrong: int, right_median: float = 5.5, seed: int = 0) -> MarginSample:
    """Return a sample of corpora whose mutual best candidates are right and wrong pairs."""
    random = np.random.default_rng(seed + 1)
    sides = (random.gumbel(*RUNNERS_UP, num_right + num_wrong) for _ in range(2))
    logits = draw(num_right, num_wrong, right_median, seed)
    return MarginSample(*((values - WEIGHTS.intercept) / WEIGHTS.margin for values in (logits, *sides)))


def line_of(sample: MarginSample, margin: str = "ratio") -> tuple[float, float]:
    """Return the log odds by the weights at which a pair is as likely right as wrong, and the slope by them."""
    fitted = fit_to_corpora(WEIGHTS, margin, sample)
    changed = {"intercept": 0.0, "margin": 1.0, "has_few_right": False}
    assert fitted.model_copy(update=changed) == WEIGHTS.model_copy(update=changed)
    slope = fitted.margin / WEIGHTS.margin
    return WEIGHTS.intercept - fitted.intercept / slope, slope


def expected_line(num_right: int, num_wrong: int) -> tuple[float, float]:
    """Return the line by a regression on many labelled pairs in the same proportion."""
    logits = draw(100 * num_right, 100 * num_wrong, seed=5)
    fitted = LogisticRegression(C=1e9).fit(logits[:, None], np.arange(len(logits)) < 100 * num_right)
    slope = float(fitted.coef_[0, 0])
    return -(float(fitted.intercept_[0]) + TEXT) / slope, slope


@pytest.mark.parametrize(("num_right", "num_wrong"), [(1000, 1000), (600, 3000), (80, 4000), (2000, 400)])
def test_the_line_is_that_of_labelled_pairs(num_right: int, num_wrong: int) -> None:
    boundary, slope = line_of(sample_of(num_right, num_wrong))
    expected_boundary, expected_slope = expected_line(num_right, num_wrong)
    assert boundary == pytest.approx(expected_boundary, abs=0.6)
    assert slope == pytest.approx(expected_slope, abs=0.3)
    assert fit_to_corpora(WEIGHTS, "ratio", sample_of(num_right, num_wrong)).has_few_right == (num_right < 0.1 * num_wrong)


@pytest.mark.parametrize("num_wrong", [1000, 5000])
@pytest.mark.parametrize("seed", range(3))
def test_corpora_without_translations_have_hardly_a_probable_pair(num_wrong: int, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    sample = sample_of(0, num_wrong, seed=seed)
    fitted = fit_to_corpora(WEIGHTS, "ratio", sample)
    assert fitted.has_few_right
    assert "few or no translations" in caplog.text
    length_ratios = np.exp(np.random.default_rng(seed).exponential(0.7, num_wrong))
    counts = [
        (probabilities(weights, sample.mutual_bests, length_ratios, np.zeros(num_wrong)) >= 0.5).sum() for weights in (WEIGHTS, fitted)
    ]
    assert counts[1] <= 1 + num_wrong / 400 < counts[0]


def test_right_pairs_with_low_margins_are_not_taken_for_wrong_ones() -> None:
    boundary, _ = line_of(sample_of(1000, 30, right_median=2.5))
    assert boundary < 0
    boundary, _ = line_of(sample_of(30, 1000))
    assert boundary > 2


def test_more_pairs_than_the_evidence_weigh_no_more() -> None:
    sample = sample_of(800, 400, right_median=2.5)
    repeated = MarginSample(*(np.tile(values, 20) for values in vars(sample).values()))
    assert len(sample.mutual_bests) >= MAX_EVIDENCE
    assert line_of(repeated) == line_of(sample)


def test_the_line_moves_by_steps_and_not_too_far() -> None:
    boundary, _ = line_of(sample_of(5000, 0))
    assert BOUNDARIES[0] <= boundary < -2
    boundary, slope = line_of(sample_of(700, 1000))
    assert boundary / BOUNDARY_STEP == pytest.approx(round(boundary / BOUNDARY_STEP), abs=1e-6)
    assert slope / SLOPE_STEP == pytest.approx(round(slope / SLOPE_STEP), abs=1e-6)


def test_small_samples_and_the_absolute_margin_keep_the_weights() -> None:
    enough = sample_of(100, 400)
    assert fit_to_corpora(WEIGHTS, "ratio", enough) != WEIGHTS
    few_runners_up = MarginSample(enough.mutual_bests, enough.source_runners_up[:99], enough.target_runners_up)
    assert fit_to_corpora(WEIGHTS, "absolute", enough) == WEIGHTS
    for sample in (sample_of(9, 90), few_runners_up, MarginSample(*np.zeros((3, 0)))):
        assert fit_to_corpora(WEIGHTS, "ratio", sample) == WEIGHTS


def test_the_order_of_the_sample_does_not_matter() -> None:
    sample = sample_of(300, 2000)
    backwards = MarginSample(*(values[::-1] for values in vars(sample).values()))
    assert fit_to_corpora(WEIGHTS, "ratio", backwards) == fit_to_corpora(WEIGHTS, "ratio", sample)


def test_equal_margins_have_a_finite_line() -> None:
    assert np.isfinite(line_of(MarginSample(*np.full((3, 500), 1.05)))).all()


def test_a_gumbel_distribution_has_the_quartiles_of_its_values() -> None:
    values = gumbel_r(-1.5, 0.7).ppf((np.arange(20_000) + 0.5) / 20_000)
    np.testing.assert_allclose(gumbel_by_quartiles(values), [-1.5, np.log(0.7)], atol=1e-3)


def test_runners_up_are_those_of_the_side_where_they_are_higher() -> None:
    levels = (np.arange(20_000) + 0.5) / 20_000
    sides = [gumbel_r(location, 0.5).ppf(levels) for location in (-2.0, -1.0, -5.0)]
    for pair, higher in ((sides[:2], 2.0), (sides[1::-1], 2.0), (sides[1:], 3.0)):
        runners_up = RunnersUp.of(pair)
        assert (runners_up.location, runners_up.log_scale, runners_up.higher) == pytest.approx((-1, np.log(0.5), higher), abs=1e-2)


def test_wrong_pairs_have_a_gumbel_distribution_with_a_longer_tail() -> None:
    grid = np.linspace(-3, 20, 100)
    np.testing.assert_allclose(log_density_of_wrong(grid, 0.0), gumbel_r.logpdf(grid))
    for log_tail in (0.0, 0.35, 0.7):

        def share_above(value: float, log_tail: float = log_tail) -> float:
            return float(quad(lambda x: np.exp(log_density_of_wrong(np.array([x]), log_tail)[0]), value, 60)[0])

        assert share_above(-10) == pytest.approx(1)
        assert share_above(0) == pytest.approx(1 - np.exp(-1), abs=0.01)
        assert share_above(9) / share_above(8) == pytest.approx(np.exp(-np.exp(-log_tail)), abs=2e-3)


@pytest.mark.parametrize(("num_right", "num_wrong"), [(500, 1500), (900, 100)])
def test_the_mixture_has_the_largest_posterior(num_right: int, num_wrong: int) -> None:
    logits, runners_up = draw(num_right, num_wrong, seed=1), RunnersUp(-2.7, np.log(0.8), 0.0)
    means, deviations = np.concatenate([WRONG_PRIOR, RIGHT_PRIOR, SHARE_PRIOR]).T
    weight = min(1, MAX_EVIDENCE / len(logits))

    def loss(parameters: np.ndarray) -> float:
        log_likelihoods = np.logaddexp(*Mixture(parameters, runners_up).log_densities(logits))
        return float((((parameters - means) / deviations) ** 2).sum() / 2 - weight * log_likelihoods.sum())

    found = fit_mixture(logits, runners_up)
    best = minimize(loss, means, method="Nelder-Mead", options={"maxiter": 4000, "maxfev": 4000, "adaptive": True})
    assert loss(found.parameters) <= best.fun + 0.1
    assert found.share == pytest.approx(num_right / (num_right + num_wrong), abs=0.04)
