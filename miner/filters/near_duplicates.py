"""Near-duplicates: sentences that differ in case, punctuation and spaces alone. One stands for all, with their counts."""

import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import regex
import xxhash

# Digits stay: `Page 2` and `Page 3` are two sentences, and each has a translation of its own.
NOT_SAID = regex.compile(r"[^\p{L}\p{M}\p{N}]+")


def skeleton(text: str) -> str:
    """What near-duplicates share: letters, marks and digits in NFKC and without case; the text itself where it has none."""
    return NOT_SAID.sub("", unicodedata.normalize("NFKC", text).casefold()) or text


def skeleton_keys(texts: Sequence[str]) -> npt.NDArray[np.int64]:
    """n texts -> (n,) the xxh3-64 of their skeletons."""
    digest = xxhash.xxh3_64_intdigest
    return np.fromiter((digest(skeleton(text).encode()) for text in texts), dtype=np.uint64, count=len(texts)).view(np.int64)
