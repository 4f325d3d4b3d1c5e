"""A sample of the margins of two corpora: of the best pairs, and of the runners-up, which are wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miner.arrays import Bools, Floats, Ids, mark_run_starts, run_bounds
from miner.mining.candidates import Candidates, concat, pair_margins, sample_step

MAX_SAMPLED = 20_000  # sentences of a side


@dataclass(frozen=True)
class SampledCandidates:
    """n candidates of sampled sentences of one side."""

    ids: Ids  # (n,), of the sampled sentences
    margins: Floats  # (n,)
    is_source_best: Bools  # (n,), whether no other candidate of the same source has a larger margin

    def take(self, rows: Bools) -> "SampledCandidates":
        """Return the candidates of this mask (n,)."""
        return SampledCandidates(self.ids[rows], self.margins[rows], self.is_source_best[rows])

    def best_two(self) -> tuple["SampledCandidates", "SampledCandidates"]:
        """Return the candidate with the largest margin of each sentence, of equal ones the best of its source, and the second largest."""
        order = np.lexsort((~self.is_source_best, -self.margins, self.ids))
        ranked = SampledCandidates(self.ids[order], self.margins[order], self.is_source_best[order])
        is_first = mark_run_starts(ranked.ids)
        is_second = ~is_first
        is_second[1:] &= is_first[:-1]
        return ranked.take(is_first), ranked.take(is_second)


@dataclass(frozen=True)
class MarginSample:
    """The margins that describe two corpora."""

    mutual_bests: Floats  # (n,), of targets whose best candidate has the target as its best
    source_runners_up: Floats  # (m,), the second largest of a source
    target_runners_up: Floats  # (l,)

    @classmethod
    def of(cls, candidates: Candidates, margin: str, sizes: tuple[int, int]) -> "MarginSample":
        """Sample candidates that are all of two corpora of `sizes` sentences."""
        sources, targets = sample_candidates(candidates, margin, sizes)
        return cls.merge([sources], [targets])

    @classmethod
    def merge(cls, sources: Sequence[SampledCandidates], targets: Sequence[SampledCandidates]) -> "MarginSample":
        """Merge what `sample_candidates` returned for one range of sources or more, in any order."""
        best, second = concat(targets).best_two()
        is_mutual = best.is_source_best & np.isfinite(best.margins)
        return cls(best.margins[is_mutual], concat(sources).margins, _without_copied(best, second).margins)


def sample_candidates(
    candidates: Candidates, margin: str, sizes: tuple[int, int], *, drops_copies: bool = False
) -> tuple[SampledCandidates, SampledCandidates]:
    """Sample candidates (n,) that are all of their sources, sorted by source, of two corpora of `sizes` sentences.

    Returns the second best candidate of each sampled source, and the best two of each sampled target. With `drops_copies`, sentences with a
    copy on the other side, which has the same id, are in no pair of the sample: the margin of the copy is infinite.
    """
    margins = pair_margins(candidates, margin)
    if drops_copies:
        margins = np.where(candidates.source_ids == candidates.target_ids, np.inf, margins)
    rows = np.flatnonzero(~np.isnan(margins))
    sources, targets, margins = candidates.source_ids[rows], candidates.target_ids[rows], margins[rows]
    is_best = _is_largest_of_run(sources, margins)
    of_sources, of_targets = (
        SampledCandidates(ids, margins, is_best).take(ids % sample_step(size, MAX_SAMPLED) == 0).best_two()
        for ids, size in zip((sources, targets), sizes, strict=True)
    )
    return _without_copied(*of_sources), concat(of_targets)


def _without_copied(best: SampledCandidates, second: SampledCandidates) -> SampledCandidates:
    """Return the second best candidates of the sentences whose best is no copy: those of a copy may be in its language, so more similar."""
    return second.take(~np.isin(second.ids, best.ids[np.isinf(best.margins)]))


def _is_largest_of_run(ids: Ids, margins: Floats) -> Bools:
    """Mark (n,) the rows with the largest margin of their run of equal ids."""
    bounds = run_bounds(ids)
    is_largest: Bools = margins == np.repeat(np.maximum.reduceat(margins, bounds[:-1]), np.diff(bounds))
    return is_largest
