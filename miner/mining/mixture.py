"""How common translations are among the best pairs of two corpora, and the line of log odds that follows from it.

The weights of a probability are fitted to some corpora. Where translations are rarer, or margins differ, the probability depends on the
margin in another way. It is estimated without known pairs. The margins of mutual best candidates, as log odds by the weights, come from
wrong pairs, whose margin is the largest of many, and from right ones (log-normal distribution: the lower their mean, the more they are
skewed). This is the two-groups model of Efron ("Microarrays, empirical Bayes and the two-groups model", Statistical Science 23, 2008). The
result is the logistic regression on these log odds that is nearest to the mixture.

- Wrong pairs have a Gumbel distribution with a longer upper tail, since corpora of one domain have sentences that are nearly translations.
  How long it is, is estimated too: in corpora that have nothing in common, not longer at all.
- Two languages that the encoder knows badly have right pairs with low margins, which look like wrong ones. Hence the distribution of wrong
  pairs has a narrow prior, by the runners-up: the second best candidates, which are wrong even where the best are right. Of many draws, the
  distribution of the second largest determines that of the largest.
- Where few pairs are right, nothing tells their distribution from the tail of the wrong ones. Then it is nearly that of other corpora.
- The evidence is that of MAX_EVIDENCE pairs at most: no margins have exactly these distributions, so more pairs would outweigh the prior
  with small differences of shape (Miller & Dunson, "Robust Bayesian inference via coarsening", JASA 114, 2019).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from miner.arrays import Floats
from miner.mining.logistic_regression import logistic_regression

MIN_PAIRS = 100  # mutual best candidates, and runners-up; with fewer, the weights stay as they are
FEW_RIGHT = 0.12  # share of mutual best candidates that are right, below which there are few or no translations

# In log odds; `benchmarks/probability.py` prints these for the corpora that weights are fitted to.
# Those of wrong pairs, relative to the runners-up of the side where these are higher: by 1, how much higher, and the share of right pairs.
LOCATION_BY = np.array([2.2, -0.31, -0.25])  # difference of locations, in units of the scale of the runners-up
LOG_SCALE_BY = np.array([0.27, -0.05, -0.26])  # difference of log scales
MAX_HIGHER = 3.0  # units of the scale
WRONG_PRIOR = np.array(
    [[0.0, 0.2], [0.0, 0.2], [0.35, 0.2]]
)  # mean and standard deviation: of the rests of both, of the log length of the tail
RIGHT_OFFSET = 12.0  # the logarithms of log odds plus this are normal
RIGHT_PRIOR = np.array([[2.85, 0.1], [-1.85, 0.15]])  # of these, mean and standard deviation of the mean and of the log standard deviation
FEW_RIGHT_PRIOR = np.array([[2.85, 0.03], [-1.85, 0.1]])  # where few are right
LOWEST_RIGHT = 2.6  # mean of these logarithms
SHARE_PRIOR = np.array([[0.0, 3.0]])  # of the log odds that a mutual best candidate is right

# A Gumbel distribution of location a and scale b has the median a + 0.37 b, and its quartiles are 1.57 b apart.
GUMBEL_MEDIAN, GUMBEL_QUARTILES = -np.log(np.log(2)), np.log(np.log(4) / np.log(4 / 3))
TAIL_START, TAIL_WIDTH = 2.0, 0.5  # in units of the scale: where the tail begins, and how gradually
MIN_SCALE = 0.3
LOWEST = -50.0  # in units of the scale; below it, exp(-z) grows too large

BIN_EDGES = np.linspace(-10.0, 40.0, 501)
BINS = (BIN_EDGES[:-1] + BIN_EDGES[1:]) / 2
STARTS = (-4.0, -1.0, 2.0)  # log odds that a pair is right
MAX_EVIDENCE = 1000  # pairs
MAX_STEPS, HALVINGS = 200, 10
MAX_STEP, TOLERANCE = 0.5, 1e-6  # of a parameter, and of the log posterior
DIFFERENCE = 1e-4  # of a parameter, by which derivatives are taken

BOUNDARIES = -4.0, 10.0  # between which the log odds of a pair of probability 0.5 are
SLOPES = 0.2, 3.0
BOUNDARY_STEP, SLOPE_STEP = 0.125, 0.1  # so that a small change of the corpora changes no probability

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogOddsLine:
    """The log odds of a pair in two corpora, by those of the weights: slope * (log odds - boundary)."""

    boundary: float = 0.0
    slope: float = 1.0
    share: float | None = None  # of mutual best candidates that are right, if it was estimated

    @property
    def has_few_right(self) -> bool:
        return self.share is not None and self.share < FEW_RIGHT


def fit_line(bests: Floats, runners_up: Sequence[Floats], text_log_odds: float) -> LogOddsLine:
    """Return the log odds of two corpora.

    `bests` (n,) are log odds of mutual best candidates by the weights, `runners_up` those of the second best ones of each side, and
    `text_log_odds` what equal lengths and numbers add to those of a pair. The line changes nothing if they are too few.
    """
    if min(len(bests), *map(len, runners_up)) < MIN_PAIRS:
        return LogOddsLine()
    mixture = fit_mixture(bests, RunnersUp.of(runners_up))
    line = _nearest_line(mixture, text_log_odds)
    if line.has_few_right:
        text = "few or no translations: about %.0f%% of the best candidates seem right, so most of the pairs may be wrong"
        logger.warning(text, 100 * mixture.share)
    return line


def gumbel_by_quartiles(values: Floats) -> Floats:
    """Return location and log scale (2,) of the Gumbel distribution with the quartiles of values (n,)."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    scale = max(float(high - low) / GUMBEL_QUARTILES, MIN_SCALE)
    return np.array([median - GUMBEL_MEDIAN * scale, np.log(scale)])


@dataclass(frozen=True)
class RunnersUp:
    """The distribution of the runners-up of the side where they are higher.

    Those of the larger side are lower: its sentences compete for the few of the other.
    """

    location: float
    log_scale: float
    higher: float  # than those of the other side, in units of the scale, at most MAX_HIGHER

    @classmethod
    def of(cls, sides: Sequence[Floats]) -> "RunnersUp":
        (other, _), (location, log_scale) = sorted(map(gumbel_by_quartiles, sides), key=lambda parameters: float(parameters[0]))
        return cls(location, log_scale, min((location - other) / np.exp(log_scale), MAX_HIGHER))


@dataclass(frozen=True)
class Mixture:
    """The distributions of the log odds of wrong and of right pairs.

    The parameters are by how much location and log scale of wrong pairs differ from what the runners-up predict, the log length of their
    tail, mean and log standard deviation of the logarithms of right ones, and the log odds that a pair is right.
    """

    parameters: Floats  # (6,)
    runners_up: RunnersUp

    @property
    def share(self) -> float:
        return float(1 / (1 + np.exp(-self.parameters[5])))

    def log_densities(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the log densities (n,) of wrong and of right pairs, each with its share, at values (n,)."""
        rest, rest_scale, tail, mean, log_deviation, odds = self.parameters
        predictors, base = np.array([1.0, self.runners_up.higher, self.share]), self.runners_up
        location = base.location + np.exp(base.log_scale) * (predictors @ LOCATION_BY + rest)
        log_scale = base.log_scale + predictors @ LOG_SCALE_BY + rest_scale
        wrong = log_density_of_wrong((values - location) / np.exp(log_scale), tail) - log_scale
        logarithms = np.log(values + RIGHT_OFFSET)
        squares = ((logarithms - mean) / np.exp(log_deviation)) ** 2
        right = -(squares + np.log(2 * np.pi)) / 2 - log_deviation - logarithms
        return wrong - np.logaddexp(0, odds), right - np.logaddexp(0, -odds)


def log_density_of_wrong(standard: Floats, log_tail: float) -> Floats:
    """Return the log density (n,) at log odds relative to location and scale (n,).

    The distribution function is exp(-exp(-h(z))). Below the tail h(z) is z, as in a Gumbel distribution; above, its slope is smaller by the
    factor exp(log_tail).
    """
    standard = np.maximum(standard, LOWEST)
    lost = -np.expm1(-log_tail)  # of the slope of h
    distances = (standard - TAIL_START) / TAIL_WIDTH
    heights = standard - lost * TAIL_WIDTH * np.logaddexp(0, distances)
    density: Floats = np.log1p(-lost / (1 + np.exp(-distances))) - heights - np.exp(-heights)
    return density


def fit_mixture(bests: Floats, runners_up: RunnersUp) -> Mixture:
    """Return the most probable mixture for log odds of mutual bests (n,), by the runners-up."""
    counts, _ = np.histogram(np.clip(bests, BIN_EDGES[0], BIN_EDGES[-1]), BIN_EDGES)
    evidence = _Evidence(min(1.0, MAX_EVIDENCE / len(bests)) * counts, runners_up, np.concatenate([WRONG_PRIOR, RIGHT_PRIOR, SHARE_PRIOR]))
    mixture = evidence.fit()
    if mixture.share >= FEW_RIGHT:
        return mixture
    return replace(evidence, prior=np.concatenate([WRONG_PRIOR, FEW_RIGHT_PRIOR, SHARE_PRIOR])).fit()


@dataclass(frozen=True)
class _Evidence:
    """A histogram of log odds, the distribution of runners-up, and the prior of the parameters."""

    counts: Floats  # of BINS
    runners_up: RunnersUp
    prior: Floats  # (6, 2), mean and standard deviation

    def fit(self) -> Mixture:
        """Return the mixture of the largest posterior."""
        return max((self._fit(start) for start in STARTS), key=lambda mixture: self._log_posterior(mixture.parameters))

    def _log_likelihoods(self, parameters: Floats) -> Floats:
        return np.logaddexp(*Mixture(parameters, self.runners_up).log_densities(BINS))

    def _log_posterior(self, parameters: Floats) -> float:
        means, deviations = self.prior.T
        return float(self.counts @ self._log_likelihoods(parameters) - (((parameters - means) / deviations) ** 2).sum() / 2)

    def _fit(self, start: float) -> Mixture:
        """Maximise the posterior by Fisher scoring, with half a step where a whole one is too long."""
        means, precisions = self.prior[:, 0], self.prior[:, 1] ** -2.0
        parameters = np.array([*means[:-1], start])
        best = self._log_posterior(parameters)
        for _ in range(MAX_STEPS):
            scores = _derivatives(self._log_likelihoods, parameters)
            gradient = self.counts @ scores - precisions * (parameters - means)
            information = (scores * self.counts[:, None]).T @ scores + np.diag(precisions)
            step = np.clip(np.linalg.solve(information, gradient), -MAX_STEP, MAX_STEP)
            candidates = (_bounded(parameters + step / 2**halving) for halving in range(HALVINGS))
            better = next((candidate for candidate in candidates if self._log_posterior(candidate) > best + TOLERANCE), None)
            if better is None:
                break
            parameters, best = better, self._log_posterior(better)
        return Mixture(parameters, self.runners_up)


def _bounded(parameters: Floats) -> Floats:
    bounded = parameters.copy()
    bounded[3] = max(bounded[3], LOWEST_RIGHT)
    return bounded


def _derivatives(function: Callable[[Floats], Floats], parameters: Floats) -> Floats:
    """Return the derivatives (n, p) of a function with n values by parameters (p,), by central differences."""
    steps = DIFFERENCE * np.eye(len(parameters))
    return np.stack([(function(parameters + step) - function(parameters - step)) / (2 * DIFFERENCE) for step in steps], axis=1)


def _nearest_line(mixture: Mixture, text_log_odds: float) -> LogOddsLine:
    """Return the logistic regression that is nearest to a mixture, for pairs with equal lengths and numbers."""
    wrong, right = mixture.log_densities(BINS)
    probabilities = 1 / (1 + np.exp(wrong - right))
    middle = int(np.searchsorted(BINS, np.exp(mixture.parameters[3]) - RIGHT_OFFSET))  # the tails of both cross again, far from it
    rising = np.minimum.accumulate(probabilities[:middle][::-1])[::-1], np.maximum.accumulate(probabilities[middle:])
    inputs, density = np.stack([np.ones_like(BINS), BINS], axis=1), np.exp(np.logaddexp(wrong, right))
    intercept, slope = logistic_regression(inputs, np.concatenate(rising), density, np.full(2, 1e-6))
    slope = float(np.clip(round(slope / SLOPE_STEP) * SLOPE_STEP, *SLOPES))
    boundary = float(np.clip(-(intercept + text_log_odds) / slope, *BOUNDARIES))
    return LogOddsLine(round(boundary / BOUNDARY_STEP) * BOUNDARY_STEP, slope, mixture.share)
