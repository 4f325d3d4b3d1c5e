"""The filters of sentences, applied to one language before anything is embedded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from miner.filters import BLOCK, Filter, Verdicts, concat, judge
from miner.filters.characters import CharacterTable
from miner.filters.language import likelihood
from miner.filters.length import characters, words
from miner.filters.repeats import repeated_share
from miner.filters.scripts import letter_share, script_share


@dataclass(frozen=True)
class SentenceTexts:
    """n cleaned texts of one language, by its canonical code, such as `deu_Latn` or `und`."""

    texts: Sequence[str]
    lang: str

    @cached_property
    def characters(self) -> CharacterTable:
        return CharacterTable(self.texts)

    @property
    def script(self) -> str | None:
        return self.lang.partition("_")[2] or None


# In the order in which they are asked why a sentence is dropped: the cheapest and plainest first.
SENTENCE_FILTERS: dict[str, Filter[SentenceTexts]] = {
    "min_chars": Filter("too_short", lambda rows: characters(rows.characters), "least"),
    "min_words": Filter("few_words", lambda rows: words(rows.characters), "least"),
    "max_words": Filter("many_words", lambda rows: words(rows.characters), "most"),
    "letters": Filter("few_letters", lambda rows: letter_share(rows.characters), "least"),
    "script": Filter("other_script", lambda rows: script_share(rows.characters, rows.script), "least"),
    "repeats": Filter("repetitive", lambda rows: repeated_share(rows.characters), "most"),
    "language": Filter("other_language", lambda rows: likelihood(rows.texts, rows.lang), "least"),
}


def judge_sentences(texts: Sequence[str], lang: str, bounds: Mapping[str, float]) -> Verdicts:
    """Which of n cleaned texts are dropped, by the filters that have a bound."""
    starts = range(0, max(1, len(texts)), BLOCK)
    blocks = (SentenceTexts(texts[start : start + BLOCK], lang) for start in starts)
    return concat([judge(SENTENCE_FILTERS, block, len(block.texts), bounds) for block in blocks])
