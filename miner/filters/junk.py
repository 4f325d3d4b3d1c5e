"""How much of a text is no prose: addresses, file names, figures, symbols, and lists of single words."""

import re
from collections.abc import Sequence

import numpy as np

from miner.filters import Floats
from miner.filters.characters import LETTERS, CharacterTable, share
from miner.filters.length import weight

ENDINGS = "com|org|net|info|html?|php|pdf|jpe?g|png"
# Each begins where no character before it could: or the search would begin anew at every letter of a long run.
LINK = r"(?:https?://|www\.)\S+"
MAIL = r"(?<![^\s@])[^\s@]+@[^\s@]+\.\w+"
HOST = rf"(?<![\w-])(?<![\w-]\.)[\w-]+(?:\.[\w-]+)*\.(?:{ENDINGS})\b(?:/\S*)?"
ADDRESS = re.compile(f"{LINK}|{MAIL}|{HOST}", re.IGNORECASE)
WORD = r"[\p{L}\p{M}\p{N}]"
MAY_HOLD_ONE = re.compile(r"[.@/]\w")  # as few sentences do, and is seen at once
SLACK = 2  # words that are added, so that two commas do not make a list of a short sentence
SEPARATORS = r"[,;|/•·►▶→»›、،]"


def junk_share(texts: Sequence[str]) -> Floats:
    """n cleaned texts -> (n,) the larger of two, at most 1: what is no letter, or in an address, among all that is no space; and
    separators by words."""
    prose = CharacterTable([ADDRESS.sub(" ", text) if MAY_HOLD_ONE.search(text) else text for text in texts])
    whole = CharacterTable(texts).visible
    # Where words are not spaced, two ideographs are one.
    words = prose.runs(WORD) + SLACK + (weight(prose) - prose.lengths) // 4
    return np.fmax(share(whole - prose.count(LETTERS), whole), np.minimum(share(prose.count(SEPARATORS), words), 1))
