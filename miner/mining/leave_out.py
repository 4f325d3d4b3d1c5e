"""Choose a threshold without known pairs: leave the partner of a sentence out, and see whether another sentence takes its place.

A sentence and its best candidate, where each is the best of the other, are taken for translations. Without the partner the sentence has
no translation, so any pair of it is wrong: it is what a planted sentence without a translation is (`miner.mining.thresholds`). Its
margins are computed again without the partner among its neighbours, and it is paired if one of them is at least the best margin of that
candidate. As with planted pairs, if a share p of the sentences is paired above a threshold, F = p (S - N) / (1 - p) of the N pairs of S
sentences are wrong.

It takes wrong pairs for translations too, and sentences with a translation for typical of those without: an estimate, without an interval.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from miner.arrays import Bools, Floats, Ids, Ints, find_rows
from miner.config.choices import FALLBACK_RATIO, MARGINS, PrecisionEstimate, ThresholdChoice
from miner.mining.candidates import Candidates, LateScores, concat, late_means, pair_margins, sample_step
from miner.mining.margin import blend
from miner.mining.thresholds import num_required, num_wrong

MAX_SAMPLED_SOURCES = 50_000
NUM_THRESHOLDS = 400  # of the grid, at evenly spaced ranks of the margins


@dataclass(frozen=True)
class SampledSources:
    """The number of all sources, and the number of neighbours that a mean is of."""

    total: int
    k: int


@dataclass(frozen=True)
class BestMargins:
    """The best margin of each of n targets, among all candidates."""

    ids: Ids  # (n,), ascending
    margins: Floats  # (n,)

    @classmethod
    def of_none(cls, ids: Ids) -> "BestMargins":
        """Return the targets (m,) of pairs before any candidate is seen."""
        unique = np.unique(ids)
        return cls(unique, np.full(len(unique), -np.inf))

    def update(self, candidates: Candidates, margin: str) -> None:
        """Include the margins of candidates (m,); those of other targets are ignored."""
        margins = pair_margins(candidates, margin)
        rows = find_rows(candidates.target_ids, self.ids)
        counts = (rows >= 0) & ~np.isnan(margins)
        np.maximum.at(self.margins, rows[counts], margins[counts])

    def of(self, ids: Ids) -> Floats:
        """Return the best margins (m,) of targets (m,), all of which are among the n."""
        best: Floats = self.margins[np.searchsorted(self.ids, ids)]
        return best


@dataclass(frozen=True)
class LeftOut:
    """n sources and their partners: the margin of each pair, and the largest at which the source is paired without the partner."""

    pair_margins: Floats  # (n,)
    next_margins: Floats  # (n,), -inf where no candidate is left


def leave_out(candidates: Candidates, margin: str, best: BestMargins, k: int) -> LeftOut:
    """Leave out the partner of each source whose best candidate is also the best of that target.

    `candidates` (m,) are all of some sources, sorted by source; `best` has all of their targets, `k` is the number of neighbours of a mean.
    """
    margins = pair_margins(candidates, margin)
    margins[np.isnan(margins)] = -np.inf
    of_targets = best.of(candidates.target_ids) if len(candidates) else np.zeros(0)
    partners = _best_rows(candidates.source_ids, margins)
    is_partner = np.zeros(len(candidates), dtype=bool)
    is_partner[partners] = True
    next_margins = pair_margins(_without(candidates, is_partner, k), margin)
    is_taken = ~is_partner & (next_margins >= of_targets)  # false for NaN
    next_margins = np.where(is_taken, next_margins, -np.inf)
    is_mutual = (margins[partners] == of_targets[partners]) & np.isfinite(margins[partners])
    return LeftOut(margins[partners][is_mutual], next_margins[_best_rows(candidates.source_ids, next_margins)][is_mutual])


def _best_rows(ids: Ids, margins: Floats) -> Ints:
    """Return the row of the largest margin (n,) of each id (n,), by ascending id."""
    order = np.lexsort((-margins, ids))
    rows: Ints = order[np.unique(ids[order], return_index=True)[1]]
    return rows


def _without(candidates: Candidates, is_partner: Bools, k: int) -> Candidates:
    """Return the candidates with the means of the sources without the partners among their neighbours."""
    is_neighbour = candidates.forward & ~is_partner
    changed = replace(candidates, source_means=late_means(candidates.source_ids, candidates.similarities, is_neighbour, k))
    if candidates.late is None:
        return changed
    means = late_means(candidates.source_ids, candidates.late.similarities, is_neighbour, k)
    return replace(changed, late=replace(candidates.late, source_means=means))


def estimate_precision(left_out: LeftOut, thresholds: Floats, num_sources: int, sampled_share: float) -> tuple[Floats, Floats]:
    """Return the estimated precision (m,) above thresholds (m,), descending, and the number (m,) of partners above each.

    `sampled_share` is the share of the `num_sources` sources that were sampled.
    """
    is_above = left_out.pair_margins > thresholds[:, None]
    counts = is_above.sum(axis=1).astype(np.float64)
    paired_again = (is_above & (left_out.next_margins > thresholds[:, None])).sum(axis=1)
    num_pairs = np.maximum(counts, 1) / sampled_share
    wrong = num_wrong(paired_again / np.maximum(counts, 1), np.maximum(num_sources - num_pairs, 0))
    # A pair that is wrong above one threshold is wrong above a lower one too.
    return np.clip(1 - np.maximum.accumulate(wrong) / num_pairs, 0, 1), counts


def calibrate(left_out: LeftOut, num_sources: int, sampled_share: float, min_precision: float) -> ThresholdChoice | None:
    """Choose the lowest threshold with the precision, or else that of the highest estimate. None if there are too few pairs.

    Too few: fewer than the judged pairs that `--threshold auto` needs, 73 for a precision of 0.95.
    """
    min_pairs = num_required(min_precision)
    ranked = np.sort(left_out.pair_margins)[::-1]
    if len(ranked) <= min_pairs:
        return None
    rows = np.linspace(min_pairs, len(ranked) - 1, NUM_THRESHOLDS).round().astype(np.intp)
    thresholds = np.unique(ranked[rows])[::-1]
    precision, counts = estimate_precision(left_out, thresholds, num_sources, sampled_share)
    supported = np.flatnonzero(counts >= min_pairs)
    if not len(supported):
        return None
    enough = supported[precision[supported] >= min_precision]
    row = int(enough[-1]) if len(enough) else int(supported[np.argmax(precision[supported])])
    estimate, num_pairs = PrecisionEstimate(float(precision[row])), int(counts[row])
    return ThresholdChoice(float(thresholds[row]), "calibrated", estimate, num_evidence=num_pairs, min_precision=min_precision)


def fallback(candidates: Candidates, margin: str) -> ThresholdChoice:
    """Return the margin of a pair that is FALLBACK_RATIO times as similar as the average neighbours of the candidates (n,)."""
    scores = [_fallback_margin(candidates, margin)]
    if candidates.late is not None:
        scores.append(_fallback_margin(candidates.late, margin))
    return ThresholdChoice(float(blend(*scores)) if len(scores) > 1 else float(scores[0]), "fallback")


def _fallback_margin(means: Candidates | LateScores, margin: str) -> Any:
    mean = float(np.mean((means.source_means + means.target_means) / 2)) if len(means.source_means) else 0.0
    return FALLBACK_RATIO if margin == "ratio" else MARGINS[margin].score(FALLBACK_RATIO * mean, mean)


def choose(candidates: Candidates, margin: str, best: BestMargins, sources: SampledSources, min_precision: float) -> ThresholdChoice:
    """Return the calibrated threshold, or the fallback where the pairs are too few.

    `candidates` (n,) are all of the sampled sources, sorted by source; `best` has all of their targets.
    """
    left_out = leave_out(candidates, margin, best, sources.k)
    share = 1 / sample_step(sources.total, MAX_SAMPLED_SOURCES)
    return calibrate(left_out, sources.total, share, min_precision) or fallback(candidates, margin)


def choose_by_sample(
    read_blocks: Callable[[], Iterable[Candidates]], margin: str, sources: SampledSources, min_precision: float
) -> ThresholdChoice:
    """Choose the threshold by all candidates, in blocks that each have all those of its sources, sorted by source.

    They are read twice: for the candidates of the sampled sources, then for the best margins of their targets. Only these are in memory.
    """
    step = sample_step(sources.total, MAX_SAMPLED_SOURCES)
    sampled = concat([block.take(block.source_ids % step == 0) for block in read_blocks()])
    best = BestMargins.of_none(sampled.target_ids)
    for block in read_blocks():
        best.update(block, margin)
    return choose(sampled, margin, best, sources, min_precision)
