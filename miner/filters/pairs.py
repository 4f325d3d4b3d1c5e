"""The filters of pairs, applied to candidates before they are matched: a near copy that is dropped frees the translation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from miner.filters import BLOCK, Filter, Floats, Verdicts, concat, judge
from miner.filters.characters import CharacterTable
from miner.filters.junk import junk_share
from miner.filters.language import likelihood
from miner.filters.length import length_ratio
from miner.filters.numbers import disagreement
from miner.filters.overlap import likeness


@dataclass(frozen=True)
class PairTexts:
    """n pairs of cleaned texts; the languages by their canonical codes, such as `deu_Latn` or `und`."""

    sources: Sequence[str]
    targets: Sequence[str]
    languages: tuple[str, str]  # of the sources, of the targets
    crowds: Floats  # (n,) how many candidates the side is in that is in more of them, by k (`hubs.times`); NaN where nobody asks

    def __len__(self) -> int:
        return len(self.sources)

    def slice(self, start: int, end: int) -> "PairTexts":
        return PairTexts(self.sources[start:end], self.targets[start:end], self.languages, self.crowds[start:end])

    @cached_property
    def source_characters(self) -> CharacterTable:
        return CharacterTable(self.sources)

    @cached_property
    def target_characters(self) -> CharacterTable:
        return CharacterTable(self.targets)


def _junk(pairs: PairTexts) -> Floats:
    return np.fmax(junk_share(pairs.sources), junk_share(pairs.targets))


def _language(pairs: PairTexts) -> Floats:
    """Of the two sides, the one that is less likely to be in its language."""
    return np.fmin(likelihood(pairs.sources, pairs.languages[0]), likelihood(pairs.targets, pairs.languages[1]))


# In the order in which they are asked why a pair is dropped: what says most about it first.
PAIR_FILTERS: dict[str, Filter[PairTexts]] = {
    "copies": Filter("near_copy", lambda pairs: likeness(pairs.sources, pairs.targets), "most"),
    "junk": Filter("junk", _junk, "most"),
    "languages": Filter("other_language", _language, "least"),
    "numbers": Filter("numbers_disagree", lambda pairs: disagreement(pairs.sources, pairs.targets), "most"),
    "length_ratio": Filter("length_ratio", lambda pairs: length_ratio(pairs.source_characters, pairs.target_characters), "most"),
    "hubs": Filter("hub", lambda pairs: pairs.crowds, "most"),
}


def judge_pairs(pairs: PairTexts, bounds: Mapping[str, float]) -> Verdicts:
    """Which pairs are dropped, by the filters that have a bound."""
    blocks = (pairs.slice(start, start + BLOCK) for start in range(0, max(1, len(pairs)), BLOCK))
    return concat([judge(PAIR_FILTERS, block, len(block), bounds) for block in blocks])
