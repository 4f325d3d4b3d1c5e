"""Which mined pairs are learnt from: the best, but neither boilerplate nor what only one direction of the search thinks."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import regex
import xxhash

from miner.filters.near_duplicates import skeleton
from miner.loop.settings import SelectionSettings

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

FIGURES = regex.compile(r"\p{N}+")


@dataclass(frozen=True)
class MinedPairs:
    """n pairs of one pair of languages, one sentence of each in a row."""

    margins: Floats  # (n,)
    mutual: Bools  # (n,): each sentence is the best of the other
    sources: Keys  # (n,) what sentences of one template share
    targets: Keys  # (n,)

    def __len__(self) -> int:
        return len(self.margins)


@dataclass(frozen=True)
class Selection:
    """Rows of what was mined, the strongest first, and how many were left out for which reason."""

    rows: Rows
    strengths: Floats  # of the rows: margins, less what a one-way pair loses
    left_out: dict[str, int]


def template_keys(texts: list[str]) -> Keys:
    """n texts -> (n,) keys, equal for those that differ in figures, case, punctuation and spaces alone: `Page 1 of 9` and `page 2 of 7`."""
    digest = xxhash.xxh3_64_intdigest
    keys = (digest((FIGURES.sub("", skeleton(text)) or text).encode()) for text in texts)
    return np.fromiter(keys, dtype=np.uint64, count=len(texts)).view(np.int64)


def choose(mined: MinedPairs, threshold: float, settings: SelectionSettings) -> Selection:
    """The pairs above a threshold, `top` of them at most; where they are fewer than `min_count`, more of those that were mined."""
    strengths = mined.margins - settings.one_way * ~mined.mutual
    ranked = np.lexsort((np.arange(len(mined)), -strengths))
    fresh = ranked[_first_times(mined.sources[ranked], settings.repeats) & _first_times(mined.targets[ranked], settings.repeats)]
    above = int((strengths[fresh] > threshold).sum())
    skipped = math.ceil(settings.skip_top * max(above, min(settings.min_count, len(fresh))))  # of what is wanted, not of the weak rest
    below = fresh[skipped:]
    count = max(above - skipped, min(settings.min_count, len(below)))
    count = count if settings.top is None else min(count, settings.top)
    rows = below[:count]
    left_out = {"repeated": len(ranked) - len(fresh), "at the top": len(fresh) - len(below), "too weak": len(below) - count}
    return Selection(rows, strengths[rows], left_out)


def _first_times(keys: Keys, times: int) -> Bools:
    """(n,): where a key stands for one of the first so many times."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(keys) else np.zeros(0, np.intp)
    place = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    first = np.empty(len(keys), dtype=bool)
    first[order] = place < times
    return first
