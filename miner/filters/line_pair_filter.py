"""Which pairs of a scored bitext are kept, and why the others are dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from miner.arrays import Floats
from miner.config.commands import LineSelectionSettings
from miner.config.probability import NO_BOUND, ProbabilityBound
from miner.filters.pairs import PAIR_FILTERS, PairTexts, apply_pair_filters
from miner.filters.sentences import SENTENCE_FILTERS, apply_sentence_filters

Codes = npt.NDArray[np.int8]  # KEPT, or an index into REASONS
Texts = Sequence[str | None]

KEPT = -1
NO_SENTENCE, NO_MARGIN, LOW_MARGIN, NOT_IN_TOP = "no_sentence", "no_margin", "low_margin", "not_in_top"
REASONS = tuple(
    dict.fromkeys(
        [
            NO_SENTENCE,
            *(row_filter.reason for row_filter in SENTENCE_FILTERS.values()),
            NO_MARGIN,
            LOW_MARGIN,
            *(row_filter.reason for row_filter in PAIR_FILTERS.values()),
            NOT_IN_TOP,
        ]
    )
)


@dataclass(frozen=True)
class LinePairFilter:
    """The bounds that pairs of lines have to meet. A pair is dropped by the first it violates: of its sentences, its margin, its texts."""

    languages: tuple[str, str]  # canonical
    sentence_bounds: Mapping[str, float]  # of sentence filters
    pair_bounds: Mapping[str, float]  # of pair filters, except `hubs`
    threshold: float | None
    top: int | None
    lang_id_model: str | None  # file of a fastText model that identifies languages; None: py3langid
    probability: ProbabilityBound = NO_BOUND
    drops_pairs: bool = True  # otherwise, the codes only say which pairs have a margin

    @classmethod
    def of(cls, settings: LineSelectionSettings, languages: tuple[str, str], probability: ProbabilityBound) -> "LinePairFilter":
        """Return the filter of these settings."""
        bounds = settings.sentence_filters.bounds(), settings.pair_filters.bounds()
        return cls(languages, *bounds, settings.threshold, settings.top, settings.lang_id_model, probability, settings.drops_pairs)

    @property
    def _pair_bounds(self) -> dict[str, float]:
        return {**self.pair_bounds, **self.probability.bounds()}

    def check_sentences(self, sources: Texts, targets: Texts) -> Codes:
        """Return (n,) the codes of n pairs of cleaned texts, None or "" for a line without a sentence, by their sentences alone."""
        has_both = [bool(source and target) for source, target in zip(sources, targets, strict=True)]
        codes = np.where(has_both, KEPT, code_of(NO_SENTENCE)).astype(np.int8)
        if not self.sentence_bounds:
            return codes
        for texts, lang in zip((sources, targets), self.languages, strict=True):
            rows = np.flatnonzero(codes == KEPT)
            decisions = apply_sentence_filters([str(texts[row]) for row in rows.tolist()], lang, self.sentence_bounds, self.lang_id_model)
            codes[rows[~decisions.kept]] = [code_of(reason) for reason in decisions.drop_reasons()[0]]
        return codes

    def check_pairs(self, codes: Codes, margins: Floats, sources: Texts, targets: Texts) -> Codes:
        """Return (n,) the codes of n pairs that have the codes (n,) so far, by their margins (n,) and texts."""
        codes = codes.copy()
        codes[(codes == KEPT) & np.isnan(margins)] = code_of(NO_MARGIN)
        if self.threshold is not None:
            codes[(codes == KEPT) & ~(margins > self.threshold)] = code_of(LOW_MARGIN)
        rows = np.flatnonzero(codes == KEPT)
        if self._pair_bounds and len(rows):
            texts = [[str(side[row]) for row in rows.tolist()] for side in (sources, targets)]
            no_counts, weights = np.full(len(rows), np.nan), self.probability.weights
            pairs = PairTexts(texts[0], texts[1], self.languages, no_counts, self.lang_id_model, margins[rows], weights)
            decisions = apply_pair_filters(pairs, self._pair_bounds)
            codes[rows[~decisions.kept]] = [code_of(reason) for reason in decisions.drop_reasons()[0]]
        return codes

    def scores(self, sources: Texts, targets: Texts) -> dict[str, Floats]:
        """Return what each filter finds in n pairs of cleaned texts: scores (n,), of sentences the one nearer to the bound or beyond it.

        NaN where a filter does not apply to a pair.
        """
        texts = [[text or "" for text in side] for side in (sources, targets)]
        source, target = (
            apply_sentence_filters(side, lang, self.sentence_bounds, self.lang_id_model).scores
            for side, lang in zip(texts, self.languages, strict=True)
        )
        worse = {name: np.fmin if SENTENCE_FILTERS[name].bound == "least" else np.fmax for name in source}
        pairs = PairTexts(texts[0], texts[1], self.languages, np.full(len(sources), np.nan), self.lang_id_model)
        return {name: worse[name](source[name], target[name]) for name in source} | dict(apply_pair_filters(pairs, self.pair_bounds).scores)

    def check_top(self, codes: Codes, margins: Floats) -> Codes:
        """Return (n,) the codes of n pairs: of those kept so far, the `top` with the largest margins remain, of equal ones the first."""
        if self.top is None:
            return codes
        rows = np.flatnonzero(codes == KEPT)
        beyond = np.argsort(-margins[rows], kind="stable")[self.top :]
        codes = codes.copy()
        codes[rows[beyond]] = code_of(NOT_IN_TOP)
        return codes


def code_of(reason: str) -> int:
    """Return the code of a reason."""
    return REASONS.index(reason)


def count_reasons(codes: Codes) -> dict[str, int]:
    """Return how many of n pairs with the codes (n,) are dropped for each reason that occurs."""
    counts = np.bincount(codes[codes != KEPT], minlength=len(REASONS)).tolist()
    return {reason: count for reason, count in zip(REASONS, counts, strict=True) if count}
