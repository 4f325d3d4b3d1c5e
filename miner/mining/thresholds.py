"""Choosing a threshold by the precision that is expected above it, with a 95 % confidence interval (Wilson's).

Pairs come best first, and a threshold cuts the list between two different margins. The lowest one is chosen whose *estimated* precision is
at least what is asked for: the estimate is the expectation, and the interval says how well it is known. A threshold is looked at only
where the evidence could show that precision at all: where the lower end of the interval would reach it, had not one error been seen.
So a precision of 0.95 asks for 73 judged pairs, one of 0.99 for 381, whatever they say.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
import numpy.typing as npt

from miner.errors import NoThresholdError
from miner.mining.margin import Floats

Bools = npt.NDArray[np.bool_]
Z = NormalDist().inv_cdf(0.975)
CERTAIN = 4.0  # standard errors


@dataclass(frozen=True)
class PrecisionEstimate:
    """A share of 1, and the ends of its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ThresholdChoice:
    """A threshold and what is expected above it."""

    by: Literal["gold", "gold sample", "planted"]
    asked: float  # precision
    threshold: float
    precision: PrecisionEstimate
    recall: PrecisionEstimate
    evidence: int  # pairs that gold judges, gold pairs of a sample that were found, or planted sentences without a translation


def wilson(share: Floats, count: Floats, z: float = Z) -> tuple[Floats, Floats]:
    """Shares (n,) of `count` (n,) trials -> the ends (n,) of their confidence intervals; 0 and 1 where there is no trial.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22, 1927.
    """
    count = np.maximum(count, 1e-9)
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def from_gold(margins: Floats, right: Bools, true: int, asked: float, sample: bool = False) -> ThresholdChoice:
    """Pairs (n,), best first, and whether gold has each of them; `true` is how many pairs gold has.

    Where gold is all the true pairs, the precision of some pairs is the share that gold has. Where it is a random `sample` of the true
    pairs, it has no more of any pairs than the sampled share, which is taken for the largest that it has above any threshold.
    NoThresholdError where none will do.
    """
    cuts = _cuts(margins)
    kept = cuts.astype(float)
    found = np.append(0, right.cumsum())[cuts].astype(float)
    seen = found if sample else kept
    supported = seen / (seen + Z**2) >= asked
    shares = found / kept
    low, high = wilson(shares, kept)
    known = float(shares[np.argmax(wilson(shares, kept, CERTAIN)[0])]) if sample and supported.any() else 1.0
    value, low, high = (np.minimum(1, ends / known) for ends in (shares, low, high))
    what = "gold pairs found" if sample else "pairs to judge"
    needed = int(np.ceil(Z**2 * asked / (1 - asked)))
    short = f"{int(seen.max(initial=0))} {what}, where {needed} are the least"
    hint = "" if sample else " (where gold is only a random part of the true pairs, say --gold-sample)"
    row = _lowest(value, supported, asked, short, hint)
    recall = wilson(found[row : row + 1] / true, np.array([float(true)]))
    return ThresholdChoice(
        "gold sample" if sample else "gold",
        asked,
        _threshold(margins, int(cuts[row])),
        PrecisionEstimate(float(value[row]), float(low[row]), float(high[row])),
        PrecisionEstimate(float(found[row] / true), float(recall[0][0]), float(recall[1][0])),
        int(seen[row]),
    )


@dataclass(frozen=True)
class Planted:
    """What became of planted pairs: the margins at which their sentences were paired, -inf where they were not.

    Of `whole` pairs (n,) both sentences were planted, and paired with each other. Of the others one, a source (m,) or a target (l,), which
    therefore has no translation: whatever it is paired with is wrong.
    """

    whole: Floats
    sources: Floats
    targets: Floats


def from_planted(
    margins: Floats, planted: Planted, sizes: tuple[float, float], weights: tuple[float, float], asked: float
) -> ThresholdChoice:
    """Pairs (n,), best first, that two corpora of `sizes` sentences gave -> the threshold. NoThresholdError where none will do.

    A share p of the sentences without a translation is paired above a threshold. Of N pairs F are wrong, so that all but N - F of the
    S sentences of a side can be paired wrongly: F = p (S - N + F), or F = p (S - N) / (1 - p). Each side gives such an F; `weights` (sum 1)
    says what it counts: half each where every pair takes up a sentence of either side.
    """
    cuts = _cuts(margins)
    bounds = np.array([_threshold(margins, int(cut)) for cut in cuts])
    kept = cuts.astype(float)
    free = [weight * np.maximum(size - kept, 0) for weight, size in zip(weights, sizes, strict=True)]
    hits = [_above(side, bounds) for side in (planted.sources, planted.targets)]
    counts = [max(len(side), 1e-9) for side in (planted.sources, planted.targets)]
    everyone = np.maximum(free[0] + free[1], 1e-9)
    share = (free[0] * hits[0] + free[1] * hits[1]) / everyone
    # Planted sentences stand for different numbers of real ones on either side: Kish's effective number of them.
    effective = everyone**2 / np.maximum(free[0] ** 2 / counts[0] + free[1] ** 2 / counts[1], 1e-9)
    low, high = wilson(share, effective)
    # No pair that is wrong above one threshold is right above a lower one, where p near 1 and N near S leave nothing to tell F by.
    value, low, high = (_precision(np.maximum.accumulate(_wrong(ends, everyone)), kept) for ends in (share, high, low))
    supported = _precision(_wrong(Z**2 / (effective + Z**2), everyone), kept) >= asked
    lone = len(planted.sources) * (weights[0] > 0) + len(planted.targets) * (weights[1] > 0)
    short = f"{lone} planted sentences without a translation among {len(margins)} pairs are too few to tell"
    row = _lowest(value, supported, asked, short)
    recall = _above(planted.whole, bounds[row : row + 1])
    ends = wilson(recall, np.array([float(len(planted.whole))]))
    return ThresholdChoice(
        "planted",
        asked,
        float(bounds[row]),
        PrecisionEstimate(float(value[row]), float(low[row]), float(high[row])),
        PrecisionEstimate(float(recall[0]), float(ends[0][0]), float(ends[1][0])),
        lone,
    )


def _wrong(share: Floats, free: Floats) -> Floats:
    """How many pairs are wrong."""
    return share * free / np.maximum(1 - share, 1e-9)


def _precision(wrong: Floats, kept: Floats) -> Floats:
    return np.clip(1 - wrong / kept, 0, 1)


def _above(margins: Floats, bounds: Floats) -> Floats:
    """The share of the margins that are above each bound (n,)."""
    ascending = np.sort(margins)
    return 1 - np.searchsorted(ascending, bounds, side="right") / max(len(margins), 1)


def _cuts(margins: Floats) -> npt.NDArray[np.intp]:
    """How many pairs each threshold keeps that keeps some: pairs of one margin stay together."""
    return np.flatnonzero(np.append(margins[1:] != margins[:-1], [True] * bool(len(margins)))) + 1


def _threshold(margins: Floats, kept: int) -> float:
    """The threshold that keeps just the first: a pair is above it when its margin is larger."""
    return float(margins[kept] if kept < len(margins) else np.nextafter(margins[-1], -np.inf))


def _lowest(value: Floats, supported: Bools, asked: float, short: str, hint: str = "") -> int:
    """The last row, which is the lowest threshold, of enough precision that is supported by evidence."""
    if not supported.any():
        raise NoThresholdError(f"no threshold can be chosen for a precision of {asked:g}: {short}; give more, or a lower --precision")
    rows = np.flatnonzero((value >= asked) & supported)
    if not len(rows):
        best = float(value[supported].max())
        enough = "of those that keep enough pairs to tell so high a one"
        said = f"no threshold has a precision of {asked:g}: {enough}, the best has {best:.3f}{hint}"
        raise NoThresholdError(f"{said}; give a lower --precision, or a --threshold")
    return int(rows[-1])
