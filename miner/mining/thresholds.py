"""Choose a threshold by the precision expected above it, with 95 % confidence intervals (Wilson's).

Pairs are sorted, best first, and a threshold is between two different margins. The lowest threshold is chosen whose *estimated*
precision is at least the requested one; the interval says how certain the estimate is. A threshold is considered only where there is
enough evidence for that precision: where the lower end of the interval would reach it if every judged pair were correct.
So a precision of 0.95 needs 73 judged pairs, and one of 0.99 needs 381.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from miner.arrays import Bools, Floats, Ints, run_bounds
from miner.config.choices import PrecisionEstimate, ThresholdChoice
from miner.errors import NoThresholdError

Z_95 = NormalDist().inv_cdf(0.975)  # standard errors of a 95 % interval
Z_SAMPLED_SHARE = 4.0  # standard errors below which the sampled share of gold pairs is taken
PROBABILITY_BOUNDS = np.arange(1, 1000) / 1000
MIN_PROBABLE_PAIRS = 100  # whose mean probability is taken for their precision
EPSILON = 1e-9  # instead of a denominator of 0


def wilson(share: Floats, count: Floats, z: float = Z_95) -> tuple[Floats, Floats]:
    """Return the confidence interval (n,), (n,) of shares (n,) of `count` (n,) trials; 0 and 1 where there is no trial.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927.
    """
    count = np.maximum(count, EPSILON)
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def from_gold(margins: Floats, is_gold: Bools, num_gold: int, min_precision: float, sample: bool = False) -> ThresholdChoice:
    """Choose by pairs (n,), best first, of which some are among the `num_gold` gold pairs.

    Where gold is complete, the precision of pairs is the share that is gold. Where it is a random `sample` of the true pairs, at most
    the sampled share of any pairs is gold; the largest share above a threshold is the estimate of the sampled share.
    NoThresholdError where no threshold reaches the precision.
    """
    cuts = find_cuts(margins)
    num_pairs = cuts.astype(float)
    num_correct = np.append(0, is_gold.cumsum())[cuts].astype(float)
    num_evidence = num_correct if sample else num_pairs
    is_supported = num_evidence / (num_evidence + Z_95**2) >= min_precision
    shares = num_correct / num_pairs
    low, high = wilson(shares, num_pairs)
    sampled_share = 1.0
    if sample and is_supported.any():
        sampled_share = float(shares[np.argmax(wilson(shares, num_pairs, Z_SAMPLED_SHARE)[0])])
    value, low, high = (np.minimum(1, bound / sampled_share) for bound in (shares, low, high))
    noun = "mined gold pairs" if sample else "judged pairs"
    shortage = f"{int(num_evidence.max(initial=0))} {noun}, at least {num_required(min_precision)} are needed"
    hint = "" if sample else " (if gold is only a random part of the true pairs, add --gold-sample)"
    row = lowest_threshold(value, is_supported, min_precision, shortage, hint)
    recall = num_correct[row : row + 1] / num_gold
    return ThresholdChoice(
        threshold_after(margins, int(cuts[row])),
        "gold sample" if sample else "gold",
        PrecisionEstimate(float(value[row]), float(low[row]), float(high[row])),
        _recall_estimate(recall, num_gold),
        int(num_evidence[row]),
        min_precision,
    )


@dataclass(frozen=True)
class PlantedMargins:
    """The margins at which planted sentences were paired, -inf where they were not.

    Of the `whole` pairs (n,) both sentences were planted, and are paired with each other. Of the others only the source (m,) or the
    target (l,) was planted. It has no translation, so any pair of it is wrong.
    """

    whole: Floats
    sources: Floats
    targets: Floats


def from_planted(
    margins: Floats, planted: PlantedMargins, sizes: tuple[float, float], weights: tuple[float, float], min_precision: float
) -> ThresholdChoice:
    """Choose by planted pairs, for pairs (n,), best first, of two corpora of `sizes` sentences.

    A share p of the sentences without a translation is paired above a threshold. If F of N pairs are wrong, all but N - F of the
    S sentences of a side can be paired wrongly: F = p (S - N + F), or F = p (S - N) / (1 - p). Each side gives one such F; `weights`
    (sum 1) combine them: one half each where every pair uses one sentence of each side.
    NoThresholdError where no threshold reaches the precision.
    """
    cuts = find_cuts(margins)
    thresholds = np.array([threshold_after(margins, int(cut)) for cut in cuts])
    num_pairs = cuts.astype(float)
    lone = (planted.sources, planted.targets)  # planted sentences without a translation
    free = [weight * np.maximum(size - num_pairs, 0) for weight, size in zip(weights, sizes, strict=True)]
    shares = [_share_above(side, thresholds) for side in lone]
    counts = [max(len(side), EPSILON) for side in lone]
    num_free = np.maximum(free[0] + free[1], EPSILON)
    share = (free[0] * shares[0] + free[1] * shares[1]) / num_free
    # A planted sentence represents a different number of real ones on each side: Kish's effective sample size.
    effective = num_free**2 / np.maximum(free[0] ** 2 / counts[0] + free[1] ** 2 / counts[1], EPSILON)
    low, high = wilson(share, effective)
    # A pair that is wrong above one threshold is wrong above a lower one too. Where p is near 1 and N near S, F is not well defined.
    wrong = (np.maximum.accumulate(num_wrong(bound, num_free)) for bound in (share, high, low))
    value, low, high = (_precision(count, num_pairs) for count in wrong)
    is_supported = _precision(num_wrong(Z_95**2 / (effective + Z_95**2), num_free), num_pairs) >= min_precision
    num_lone = sum(len(side) for side, weight in zip(lone, weights, strict=True) if weight > 0)
    shortage = f"{num_lone} planted sentences without a translation are too few for {len(margins)} pairs"
    row = lowest_threshold(value, is_supported, min_precision, shortage)
    recall = _share_above(planted.whole, thresholds[row : row + 1])
    return ThresholdChoice(
        float(thresholds[row]),
        "planted",
        PrecisionEstimate(float(value[row]), float(low[row]), float(high[row])),
        _recall_estimate(recall, len(planted.whole)),
        num_lone,
        min_precision,
    )


def num_required(min_precision: float) -> int:
    """Return the number of judged pairs, all of them correct, from which the lower end of the interval is at least `min_precision`."""
    return int(np.ceil(Z_95**2 * min_precision / (1 - min_precision)))


def _recall_estimate(recall: Floats, count: int) -> PrecisionEstimate:
    """Return the recall (1,) of `count` true pairs with its interval."""
    low, high = wilson(recall, np.array([float(count)]))
    return PrecisionEstimate(float(recall[0]), float(low[0]), float(high[0]))


def num_wrong(share: Floats, num_free: Floats) -> Floats:
    """Return the number (n,) of wrong pairs, by the share (n,) of the free sentences that are paired."""
    return share * num_free / np.maximum(1 - share, EPSILON)


def _precision(wrong_pairs: Floats, num_pairs: Floats) -> Floats:
    return np.clip(1 - wrong_pairs / num_pairs, 0, 1)


def _share_above(margins: Floats, thresholds: Floats) -> Floats:
    """Return the share (n,) of the margins (m,) above each threshold (n,)."""
    ascending = np.sort(margins)
    return 1 - np.searchsorted(ascending, thresholds, side="right") / max(len(margins), 1)


def find_cuts(margins: Floats) -> Ints:
    """Return the numbers of pairs that a threshold can keep, without 0: pairs of one margin are kept together."""
    return run_bounds(margins)[1:]


def threshold_after(margins: Floats, num_pairs: int) -> float:
    """Return the threshold that keeps the first pairs only: a pair is kept when its margin is larger."""
    return float(margins[num_pairs] if num_pairs < len(margins) else np.nextafter(margins[-1], -np.inf))


def lowest_probability(probabilities: Floats, min_precision: float) -> float:
    """Return the lowest of PROBABILITY_BOUNDS above which the mean of probabilities (n,), in any order, is at least the precision.

    NoThresholdError where no MIN_PROBABLE_PAIRS of them have that mean.
    """
    ascending = np.sort(probabilities.astype(np.float64))
    sums = np.append(np.cumsum(ascending[::-1])[::-1], 0)
    first = np.searchsorted(ascending, PROBABILITY_BOUNDS)
    counts = len(ascending) - first
    is_enough = (counts >= MIN_PROBABLE_PAIRS) & (sums[first] >= min_precision * counts)
    if not is_enough.any():
        raise NoThresholdError(
            f"no {MIN_PROBABLE_PAIRS} pairs have a mean probability of {min_precision:g}; give a lower --precision,"
            " known pairs as --gold FILE or --planted FILE, or a --threshold"
        )
    return float(PROBABILITY_BOUNDS[is_enough.argmax()])


def lowest_threshold(precision: Floats, is_supported: Bools, min_precision: float, shortage: str, hint: str = "") -> int:
    """Return the last row, that of the lowest threshold, with enough precision and enough evidence for it."""
    if not is_supported.any():
        raise NoThresholdError(
            f"no threshold can be chosen for a precision of {min_precision:g}: {shortage}; give more pairs, or a lower --precision"
        )
    rows = np.flatnonzero((precision >= min_precision) & is_supported)
    if not len(rows):
        best = float(precision[is_supported].max())
        raise NoThresholdError(
            f"no threshold has a precision of {min_precision:g}: of those with enough evidence, the best has {best:.3f}{hint};"
            " give a lower --precision, or a --threshold"
        )
    return int(rows[-1])
