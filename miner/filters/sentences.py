"""The filters of sentences, applied to one language before embedding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from miner.filters import BLOCK_ROWS, Filter, FilterDecisions, apply_filters, concat_decisions
from miner.filters.characters import CharacterTable, letter_share, num_characters, num_words, repeated_share, script_share
from miner.filters.language import language_likelihood


@dataclass(frozen=True)
class SentenceTexts:
    """n cleaned texts of one language, given by its canonical code, such as `deu_Latn` or `und`."""

    texts: Sequence[str]
    lang: str
    lang_id_model: str | None = None  # file of a fastText model that identifies languages; None: py3langid

    @cached_property
    def characters(self) -> CharacterTable:
        return CharacterTable(self.texts)

    @property
    def script(self) -> str | None:
        return self.lang.partition("_")[2] or None


# A sentence is dropped by the first filter in this order: cheap and simple filters first.
SENTENCE_FILTERS: dict[str, Filter[SentenceTexts]] = {
    "min_chars": Filter("too_short", lambda rows: num_characters(rows.characters), "least"),
    "min_words": Filter("few_words", lambda rows: num_words(rows.characters), "least"),
    "max_words": Filter("many_words", lambda rows: num_words(rows.characters), "most"),
    "letters": Filter("few_letters", lambda rows: letter_share(rows.characters), "least"),
    "script": Filter("other_script", lambda rows: script_share(rows.characters, rows.script), "least"),
    "repeats": Filter("repetitive", lambda rows: repeated_share(rows.characters), "most"),
    "language": Filter("other_language", lambda rows: language_likelihood(rows.texts, rows.lang, rows.lang_id_model), "least"),
}


def apply_sentence_filters(
    texts: Sequence[str], lang: str, bounds: Mapping[str, float], lang_id_model: str | None = None
) -> FilterDecisions:
    """Decide which of n cleaned texts to drop, with the filters that have a bound."""
    starts = range(0, max(1, len(texts)), BLOCK_ROWS)
    blocks = (SentenceTexts(texts[start : start + BLOCK_ROWS], lang, lang_id_model) for start in starts)
    return concat_decisions([apply_filters(SENTENCE_FILTERS, block, len(block.texts), bounds) for block in blocks])
