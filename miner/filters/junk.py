"""The share of a text that is not prose: addresses, file names, figures, symbols, and lists of single words."""

import re
from collections.abc import Sequence

import numpy as np

from miner.arrays import Floats
from miner.filters.characters import LETTERS, CharacterTable, share
from miner.filters.length import letter_equivalents

ENDINGS = "com|org|net|info|html?|php|pdf|jpe?g|png"
# Each pattern starts only after a character that cannot be part of it; otherwise matching takes quadratic time on long runs.
LINK = r"(?:https?://|www\.)\S+"
MAIL = r"(?<![^\s@])[^\s@]+@[^\s@]+\.\w+"
HOST = rf"(?<![\w-])(?<![\w-]\.)[\w-]+(?:\.[\w-]+)*\.(?:{ENDINGS})\b(?:/\S*)?"
ADDRESS = re.compile(f"{LINK}|{MAIL}|{HOST}", re.IGNORECASE)
WORD = r"[\p{L}\p{M}\p{N}]"
ADDRESS_HINT = re.compile(r"[.@/]\w")  # a cheap test that rules out most sentences
SMOOTHING_WORDS = 2  # added to the word count, so that two commas do not make a list of a short sentence
SEPARATORS = r"[,;|/•·►▶→»›、،]"


def junk_share(texts: Sequence[str]) -> Floats:
    """Return (n,) the junk scores of n cleaned texts, at most 1.

    The score is the larger of two shares: characters that are in an address or are not letters, among those that are not spaces;
    and separators per word.
    """
    prose = CharacterTable([ADDRESS.sub(" ", text) if ADDRESS_HINT.search(text) else text for text in texts])
    visible = CharacterTable(texts).visible
    # Scripts without spaces: two ideographs count as one word.
    words = prose.count_runs(WORD) + SMOOTHING_WORDS + (letter_equivalents(prose) - prose.lengths) // 4
    return np.fmax(share(visible - prose.count(LETTERS), visible), np.minimum(share(prose.count(SEPARATORS), words), 1))
