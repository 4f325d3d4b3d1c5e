"""How much of a pair is the same words on both sides: a line that was not translated, or hardly.

Words are compared, not letters: in related languages `Tom is rational.` and `Tom ist rational.` are a letter apart.
"""

import re
from collections.abc import Sequence

import numpy as np
from rapidfuzz.distance import Indel

from miner.filters import Floats

# Scripts without spaces between words are taken by the character: Thai, Lao, Khmer, kana, ideographs.
WORD = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]+")


def likeness(sources: Sequence[str], targets: Sequence[str]) -> Floats:
    """n pairs -> (n,) twice the longest common subsequence of words, without case, by the words together; NaN where there is none.

    So 1 for a pair whose words are the same, 0 for one that shares none.
    """
    pairs = ((_words(source), _words(target)) for source, target in zip(sources, targets, strict=True))
    scores = (Indel.normalized_similarity(one, other) if one or other else np.nan for one, other in pairs)
    return np.fromiter(scores, dtype=np.float64, count=len(sources))


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())
