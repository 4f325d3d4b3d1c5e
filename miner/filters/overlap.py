"""Word overlap of the two sides of a pair, which is high if a line was not translated.

Words are compared rather than letters: in related languages a translation can differ from its source by a single letter
(`Tom is rational.`, `Tom ist rational.`).
"""

import re
from collections.abc import Sequence

import numpy as np

from miner.arrays import Floats

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
