"""How common translations are among the best pairs of two corpora, and by how much that changes the log odds of a pair.

The weights are fitted to some corpora. Where translations are rarer, or margins lie elsewhere, the log odds of all pairs are shifted by a
constant. It is estimated without known pairs. The margins of mutual best candidates, as log odds by the weights, come from wrong pairs,
whose margin is the largest of many (Gumbel distribution), and from right ones (log-normal distribution: the lower their mean, the more they
are skewed). This is the two-groups model of Efron ("Microarrays, empirical Bayes and the two-groups model", Statistical Science 23, 2008).
Where both densities are equal, a pair with usual lengths and numbers has a probability of 0.5.

Two languages that the encoder knows badly have right pairs with low margins, which look like wrong ones. Hence the distribution of wrong
pairs has a narrow prior, by the runners-up: the second best candidates, which are wrong even where the best are right. The evidence is that
of MAX_EVIDENCE pairs at most: no margins have exactly these distributions, so more pairs would outweigh the prior with small differences of
shape (Miller & Dunson, "Robust Bayesian inference via coarsening", JASA 114, 2019).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miner.arrays import Floats

MIN_PAIRS = 100  # mutual best candidates, and runners-up; with fewer, the weights stay as they are
MAX_SHIFT = 4.0  # log odds of 0.98
SHIFT_STEP = 0.25  # so that a small change of the corpora changes no probability

# In log odds, over the corpora that weights are fitted to, by ratio and distance; `benchmarks/probability.py` prints them for each.
LOCATION_BY_RUNNERS_UP = (0.33, 0.70)  # intercept and slope
LOG_SCALE_OVER_RUNNERS_UP = 0.24
WRONG_DEVIATIONS = (0.10, 0.06)  # standard deviations of location and log scale; half of what is printed
RIGHT_OFFSET = 12.0  # the logarithms of log odds plus this are normal
RIGHT_PRIOR = np.array([[2.85, 0.11], [-1.74, 0.17]])  # of these, mean and standard deviation of the mean and of the log standard deviation
SHARE_PRIOR = np.array([[0.0, 3.0]])  # of the log odds that a mutual best candidate is right
FEW_RIGHT = 0.15  # share of mutual best candidates that are right, below which most of the probable pairs may be wrong
BOUNDARY = 1.3  # where pairs whose lengths and numbers are usual have a probability of 0.5: then as many are right as it says

# A Gumbel distribution of location a and scale b has the median a + 0.37 b, and its quartiles are 1.57 b apart.
GUMBEL_MEDIAN, GUMBEL_QUARTILES = -np.log(np.log(2)), np.log(np.log(4) / np.log(4 / 3))
MIN_SCALE = 0.3
LOWEST = -50.0  # in units of the scale; below it, exp(-z) grows too large

BIN_EDGES = np.linspace(-10.0, 40.0, 1001)
STARTS = (-2.0, 0.0, 2.0)  # log odds that a pair is right
MAX_EVIDENCE = 1000  # pairs
MAX_STEPS = 500
MAX_STEP, TOLERANCE = 0.5, 1e-5  # of a parameter

logger = logging.getLogger(__name__)


def estimate_shift(bests: Floats, runners_up: Sequence[Floats]) -> tuple[float, bool]:
    """Return by how much the log odds of the pairs of two corpora differ from those by the weights, and whether few pairs are right.

    `bests` (n,) are log odds of mutual best candidates, `runners_up` those of the second best ones of each side. The shift is a multiple of
    SHIFT_STEP, 0 if they are too few.
    """
    if min(len(bests), *map(len, runners_up)) < MIN_PAIRS:
        return 0.0, False
    boundary, share = find_boundary(bests, _wrong_prior(runners_up))
    shift = np.clip(BOUNDARY - boundary, -MAX_SHIFT, MAX_SHIFT)
    return round(float(shift) / SHIFT_STEP) * SHIFT_STEP, share < FEW_RIGHT


def gumbel_by_quartiles(values: Floats) -> Floats:
    """Return location and log scale (2,) of the Gumbel distribution with the quartiles of values (n,)."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
    scale = max(float(high - low) / GUMBEL_QUARTILES, MIN_SCALE)
    return np.array([median - GUMBEL_MEDIAN * scale, np.log(scale)])


def gumbel_of_runners_up(runners_up: Sequence[Floats]) -> Floats:
    """Return location and log scale (2,) of the side whose runners-up have the higher log odds.

    Those of the larger side are lower: its sentences compete for the few of the other.
    """
    return max(map(gumbel_by_quartiles, runners_up), key=lambda parameters: float(parameters[0]))


def _wrong_prior(runners_up: Sequence[Floats]) -> Floats:
    """Return means and standard deviations (2, 2) of location and log scale of wrong pairs, by the log odds of each side's runners-up."""
    location, log_scale = gumbel_of_runners_up(runners_up)
    intercept, slope = LOCATION_BY_RUNNERS_UP
    return np.stack([(intercept + slope * location, log_scale + LOG_SCALE_OVER_RUNNERS_UP), WRONG_DEVIATIONS], axis=1)


def find_boundary(logits: Floats, wrong_prior: Floats) -> tuple[float, float]:
    """Return where a pair is as likely right as wrong, and the share of right pairs, by the most probable mixture for log odds (n,)."""
    counts, _ = np.histogram(np.clip(logits, BIN_EDGES[0], BIN_EDGES[-1]), BIN_EDGES)
    weight = min(1.0, MAX_EVIDENCE / len(logits))
    evidence = _Evidence((BIN_EDGES[:-1] + BIN_EDGES[1:]) / 2, weight * counts, wrong_prior)
    mixture = max((evidence.fit(start) for start in STARTS), key=evidence.log_posterior)
    share = float(1 / (1 + np.exp(-mixture.share[0])))
    if share < FEW_RIGHT:
        text = "few or no translations: about %.0f%% of the best candidates are right, so pairs may be less precise than estimated"
        logger.warning(text, 100 * share)
    return mixture.boundary(evidence.values), share


@dataclass(frozen=True)
class _Mixture:
    """The distributions of the log odds of wrong and of right pairs."""

    wrong: Floats  # (2,), location and log scale
    right: Floats  # (2,), mean and log standard deviation of the logarithms
    share: Floats  # (1,), log odds that a pair is right

    def log_densities(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the log densities (n,) of wrong and of right pairs, each with its share."""
        standard = _standardise(values, self.wrong)
        wrong = -standard - np.exp(-standard) - self.wrong[1] - np.logaddexp(0, self.share)
        logarithms = np.log(values + RIGHT_OFFSET)
        squares = ((logarithms - self.right[0]) / np.exp(self.right[1])) ** 2
        return wrong, -(squares + np.log(2 * np.pi)) / 2 - self.right[1] - logarithms - np.logaddexp(0, -self.share)

    def boundary(self, values: Floats) -> float:
        """Return the largest value (of n, ascending) below the median of right pairs where a wrong one is likelier."""
        wrong, right = self.log_densities(values)
        median = np.exp(self.right[0]) - RIGHT_OFFSET
        return float(values[(wrong > right) & (values < median)].max(initial=values[0]))


@dataclass(frozen=True)
class _Evidence:
    """A histogram of log odds, and the prior of wrong pairs."""

    values: Floats  # (n,), the middles of the bins
    counts: Floats  # (n,)
    wrong_prior: Floats  # (2, 2)

    def log_posterior(self, mixture: _Mixture) -> float:
        """Return the logarithm of the probability of a mixture, up to a constant."""
        parameters = np.concatenate([mixture.wrong, mixture.right, mixture.share])
        means, deviations = np.concatenate([self.wrong_prior, RIGHT_PRIOR, SHARE_PRIOR]).T
        likelihood = self.counts @ np.logaddexp(*mixture.log_densities(self.values))
        return float(likelihood - (((parameters - means) / deviations) ** 2).sum() / 2)

    def fit(self, start: float) -> _Mixture:
        """Fit a mixture by expectation maximisation, whose maximisation is a step of Fisher scoring."""
        mixture = _Mixture(self.wrong_prior[:, 0], RIGHT_PRIOR[:, 0], np.array([start]))
        for _ in range(MAX_STEPS):
            wrong, right = mixture.log_densities(self.values)
            right_counts = self.counts * np.exp(right - np.logaddexp(wrong, right))
            steps = (
                self._gumbel_step(mixture.wrong, self.counts - right_counts),
                self._normal_step(mixture.right, right_counts),
                self._share_step(mixture.share, right_counts),
            )
            mixture = _Mixture(mixture.wrong + steps[0], mixture.right + steps[1], mixture.share + steps[2])
            if np.abs(np.concatenate(steps)).max() < TOLERANCE:
                break
        return mixture

    def _gumbel_step(self, parameters: Floats, counts: Floats) -> Floats:
        scale = np.exp(parameters[1])
        standard = _standardise(self.values, parameters)
        slope = -np.expm1(-standard)  # 1 - exp(-z)
        gradient = np.array([counts @ slope / scale, counts @ (standard * slope - 1)])
        mixed = (np.euler_gamma - 1) / scale
        information = np.array([[scale**-2, mixed], [mixed, np.pi**2 / 6 + (1 - np.euler_gamma) ** 2]])
        return _step(parameters, gradient, counts.sum() * information, self.wrong_prior)

    def _normal_step(self, parameters: Floats, counts: Floats) -> Floats:
        deviation = np.exp(parameters[1])
        standard = (np.log(self.values + RIGHT_OFFSET) - parameters[0]) / deviation
        gradient = np.array([counts @ standard / deviation, counts @ (standard**2 - 1)])
        return _step(parameters, gradient, counts.sum() * np.diag([deviation**-2, 2.0]), RIGHT_PRIOR)

    def _share_step(self, share: Floats, right_counts: Floats) -> Floats:
        expected = 1 / (1 + np.exp(-share))
        num_pairs = self.counts.sum()
        return _step(share, right_counts.sum() - num_pairs * expected, np.diag(num_pairs * expected * (1 - expected)), SHARE_PRIOR)


def _standardise(values: Floats, parameters: Floats) -> Floats:
    """Return values (n,) relative to location and log scale."""
    standard: Floats = np.maximum((values - parameters[0]) / np.exp(parameters[1]), LOWEST)
    return standard


def _step(parameters: Floats, gradient: Floats, information: Floats, prior: Floats) -> Floats:
    """Return the step (p,) of Fisher scoring to the largest posterior of parameters (p,) with a normal prior (p, 2)."""
    precision = prior[:, 1] ** -2.0
    step = np.linalg.solve(information + np.diag(precision), gradient - precision * (parameters - prior[:, 0]))
    return np.clip(step, -MAX_STEP, MAX_STEP)
