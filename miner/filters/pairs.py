"""The filters of pairs, applied to candidates before matching: dropping a near copy leaves its sentences free for their translations.

`word_overlap` compares words rather than letters: in related languages a translation can differ from its source by a single letter
(`Tom is rational.`, `Tom ist rational.`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from miner.arrays import Floats
from miner.config.choices import MARGINS
from miner.config.probability import PROBABILITY, ProbabilityWeights
from miner.filters import BLOCK_ROWS, Filter, FilterDecisions, apply_filters, concat_decisions
from miner.filters.characters import CharacterTable, junk_share, length_ratio
from miner.filters.language import language_likelihood
from miner.filters.numbers import number_disagreement
from miner.mining.margin_sample import MarginSample
from miner.mining.mixture import fit_line

# What equal lengths and numbers add to the log odds of a pair: intercept, and slope by the weight of the length ratio. With these, the mean
# probability of the pairs of the built-in encoder and of E5-small is nearest to their precision.
TEXT_LOG_ODDS = 1.4, 0.09


@dataclass(frozen=True)
class PairTexts:
    """n pairs of cleaned texts; languages are canonical codes, such as `deu_Latn` or `und`."""

    sources: Sequence[str]
    targets: Sequence[str]
    languages: tuple[str, str]  # of the sources, of the targets
    hub_counts: Floats  # (n,) candidates of a sentence / `hubs.usual_counts`, the larger of both sides; NaN if not counted
    lang_id_model: str | None = None  # file of a fastText model that identifies languages; None: py3langid
    margins: Floats | None = None  # (n,)
    weights: ProbabilityWeights | None = None  # of the probability, which needs margins too

    def __len__(self) -> int:
        return len(self.sources)

    def slice(self, start: int, end: int) -> "PairTexts":
        """Return the rows from `start` to `end`, without `end`."""
        margins = None if self.margins is None else self.margins[start:end]
        return replace(
            self,
            sources=self.sources[start:end],
            targets=self.targets[start:end],
            hub_counts=self.hub_counts[start:end],
            margins=margins,
        )

    @cached_property
    def source_characters(self) -> CharacterTable:
        return CharacterTable(self.sources)

    @cached_property
    def target_characters(self) -> CharacterTable:
        return CharacterTable(self.targets)

    @cached_property
    def length_ratios(self) -> Floats:
        return length_ratio(self.source_characters, self.target_characters)

    @cached_property
    def number_disagreement(self) -> Floats:
        return number_disagreement(self.sources, self.targets)

    @cached_property
    def probabilities(self) -> Floats:
        """(n,) The probability that a pair is right."""
        assert self.weights is not None, "given with a bound"
        assert self.margins is not None, "given with a bound"
        return probabilities(self.weights, self.margins, self.length_ratios, self.number_disagreement)


def _junk(pairs: PairTexts) -> Floats:
    """Score the side with the larger share of junk."""
    return np.fmax(junk_share(pairs.sources), junk_share(pairs.targets))


def _language(pairs: PairTexts) -> Floats:
    """Score the side that is less likely to be in its language."""
    sides = zip((pairs.sources, pairs.targets), pairs.languages, strict=True)
    return np.fmin(*(language_likelihood(texts, lang, pairs.lang_id_model) for texts, lang in sides))


# A pair is dropped by the first filter in this order: the most informative reason first.
PAIR_FILTERS: dict[str, Filter[PairTexts]] = {
    "copies": Filter("near_copy", lambda pairs: word_overlap(pairs.sources, pairs.targets), "most"),
    "junk": Filter("junk", _junk, "most"),
    "languages": Filter("other_language", _language, "least"),
    "numbers": Filter("numbers_disagree", lambda pairs: pairs.number_disagreement, "most"),
    "length_ratio": Filter("length_ratio", lambda pairs: pairs.length_ratios, "most"),
    "hubs": Filter("hub", lambda pairs: pairs.hub_counts, "most"),
    PROBABILITY: Filter("improbable", lambda pairs: pairs.probabilities, "least"),
}


def probabilities_of(table: pa.Table, weights: ProbabilityWeights) -> Floats:
    """Return (n,) the probabilities of the pairs of a table with their margins and texts."""
    sources, targets = (table[f"{side}_text"].to_pylist() for side in ("source", "target"))
    margins, no_counts = table["margin"].to_numpy(), np.full(len(table), np.nan)
    return PairTexts(sources, targets, ("und", "und"), no_counts, margins=margins, weights=weights).probabilities


def apply_pair_filters(pairs: PairTexts, bounds: Mapping[str, float]) -> FilterDecisions:
    """Decide which pairs to drop, with the filters that have a bound."""
    blocks = (pairs.slice(start, start + BLOCK_ROWS) for start in range(0, max(1, len(pairs)), BLOCK_ROWS))
    return concat_decisions([apply_filters(PAIR_FILTERS, block, len(block), bounds) for block in blocks])


def probabilities(weights: ProbabilityWeights, margins: Floats, length_ratios: Floats, disagreement: Floats) -> Floats:
    """Return the probabilities (n,) of pairs by their margins, length ratios and shares of numbers that disagree (n,).

    A share of NaN, of a pair in which a side has no number, counts as 0; so does a margin of NaN as a margin below all others.
    """
    logits = weights.intercept + weights.margin * np.nan_to_num(margins, nan=-np.inf)
    logits += weights.length_ratio * np.log(length_ratios) + weights.numbers * np.nan_to_num(disagreement)
    return np.exp(-np.logaddexp(0.0, -logits))


def fit_to_corpora(weights: ProbabilityWeights, margin: str, sample: MarginSample) -> ProbabilityWeights:
    """Return the weights with the intercept and the slope of the corpora of a sample of margins (see `miner.mining.mixture`).

    The same weights for a margin that the neighbours do not correct, whose right and wrong pairs have other distributions.
    """
    if not MARGINS[margin].is_relative:
        return weights
    bests, *runners_up = (weights.intercept + weights.margin * margins for margins in vars(sample).values())
    line = fit_line(bests, runners_up, TEXT_LOG_ODDS[0] - TEXT_LOG_ODDS[1] * weights.length_ratio)
    fitted = {"intercept": line.slope * (weights.intercept - line.boundary), "margin": line.slope * weights.margin}
    return weights.model_copy(update={**fitted, "has_few_right": line.has_few_right})


# In scripts without spaces between words (Thai, Lao, Khmer, kana, ideographs) each character is a word.
WORD = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")


def word_overlap(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """Return (n,) 2 LCS / (words of both sides), where LCS is the longest common subsequence of casefolded words.

    1 if the words are the same, 0 if none is shared, NaN if there are no words.
    """
    from rapidfuzz.distance import Indel  # 50 modules, which other filters do not need

    pairs = ((_words(source), _words(target)) for source, target in zip(sources, targets, strict=True))
    scores = (Indel.normalized_similarity(source, target) if source or target else np.nan for source, target in pairs)
    return np.fromiter(scores, dtype=np.float64, count=len(sources))


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())
