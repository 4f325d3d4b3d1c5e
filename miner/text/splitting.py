"""Split documents into sentences with sentencex, a maintained splitter by rules of about 300 languages that needs no model."""

import re
from collections.abc import Callable, Sequence

import numpy as np
from langcodes import Language

from miner.arrays import Ints
from miner.errors import ConfigError, require
from miner.text.normalise import clean_all

LIBRARY = "sentencex"
MIN_PARAGRAPH_BREAKS = 2  # ends of sentences inside a line that looks like a paragraph
MIN_PARAGRAPH_SHARE = 0.3  # of the lines of a text that looks like one of paragraphs

# The end of a sentence inside a line: a terminator, closing quotes or brackets, and more text.
_BREAK = re.compile(r"""[.!?…؟۔।።]["'”’»)\]]*\s+(?=[^\W_])|[。！？](?=[^\W_])""")

Splitter = Callable[[str], list[str]]  # cleaned text -> its sentences


def load_splitter(lang: str) -> Splitter:
    """Return the splitter of a canonical language code. A language without rules of its own takes those of a related one, or English.

    Raises ConfigError for `und`, and if the library is not installed.
    """
    if lang.startswith("und"):
        raise ConfigError("--split needs the language of the text; give it, such as --lang de or --source-lang de")
    segment, code = require(LIBRARY).segment, Language.get(lang.partition("_")[0]).language

    def split(text: str) -> list[str]:
        return [sentence for part in segment(code, text) if (sentence := part.strip())]

    return split


def split_texts(texts: Sequence[str], split: Splitter) -> tuple[list[str], Ints]:
    """Clean n texts and split them: a sentence ends at the end of a line, and where `split` says.

    Returns the cleaned sentences of all texts, and (n,) their numbers; a text without a sentence counts as one empty sentence.
    """
    sentences: list[str] = []
    counts = np.ones(len(texts), dtype=np.int64)
    for row, text in enumerate(texts):
        parts = [sentence for line in clean_all(text.split("\n")) for sentence in split(line)] or [""]
        sentences += parts
        counts[row] = len(parts)
    return sentences, counts


def paragraph_share(texts: Sequence[str]) -> float:
    """Return the share of cleaned texts that look like paragraphs: three sentences or more."""
    return sum(len(_BREAK.findall(text)) >= MIN_PARAGRAPH_BREAKS for text in texts) / max(1, len(texts))
