"""How much of a text is letters, and how many of its letters are of the script its language is written in."""

import numpy as np

from miner.filters import Floats
from miner.filters.characters import LETTERS, CharacterTable, letters_of, share

OF_NO_SCRIPT = r"(?V1)[[\p{scx=Zyyy}\p{scx=Zinh}]&&[\p{L}\p{M}]]"  # letters and marks that all scripts share


def letter_share(texts: CharacterTable) -> Floats:
    """n cleaned texts -> (n,) letters and marks among all that is not a space; a text of spaces has none of either, NaN."""
    return share(texts.count(LETTERS), texts.visible)


def script_share(texts: CharacterTable, script: str | None) -> Floats:
    """n texts -> (n,) letters of the script with this ISO 15924 code among those of any; NaN without letters, or for no script."""
    pattern = None if script is None else letters_of(script)
    if pattern is None:
        return np.full(len(texts), np.nan)
    return share(texts.count(pattern), texts.count(LETTERS) - texts.count(OF_NO_SCRIPT))
