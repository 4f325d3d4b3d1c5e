"""Selection of training pairs from mined pairs: by margin, without boilerplate, and with a penalty for one-way pairs."""

from dataclasses import dataclass

import numpy as np
import regex
import xxhash

from miner.arrays import Bools, Floats, Ints, concatenate_ranges, run_bounds
from miner.loop.settings import SelectionSettings
from miner.text.near_duplicates import skeleton

NUMERALS = regex.compile(r"\p{N}+")


@dataclass(frozen=True)
class MinedPairs:
    """n mined pairs of one language pair."""

    margins: Floats  # (n,)
    is_mutual: Bools  # (n,) whether each sentence is the best candidate of the other
    source_keys: Ints  # (n,) `template_keys` of the sentences
    target_keys: Ints  # (n,)

    def __len__(self) -> int:
        return len(self.margins)


@dataclass(frozen=True)
class Selection:
    """The rows of the selected pairs, strongest first, and the number of dropped pairs by reason."""

    rows: Ints
    strengths: Floats  # (n,) margin, less the penalty of a one-way pair
    num_dropped: dict[str, int]


def template_keys(texts: list[str]) -> Ints:
    """Return keys (n,), equal for texts that differ in numerals, case, punctuation and spaces only: `Page 1 of 9` and `page 2 of 7`."""
    digest = xxhash.xxh3_64_intdigest
    keys = (digest((NUMERALS.sub("", skeleton(text)) or text).encode()) for text in texts)
    return np.fromiter(keys, dtype=np.uint64, count=len(texts)).view(np.int64)


def select_pairs(pairs: MinedPairs, threshold: float, settings: SelectionSettings) -> Selection:
    """Select the pairs above a threshold, at most `top`; if they are fewer than `min_count`, add the best of the others."""
    strengths = pairs.margins - settings.one_way * ~pairs.is_mutual
    ranked = np.lexsort((np.arange(len(pairs)), -strengths))
    is_new = _mask_repeats(pairs.source_keys[ranked], settings.repeats) & _mask_repeats(pairs.target_keys[ranked], settings.repeats)
    unrepeated = ranked[is_new]
    num_above = int((strengths[unrepeated] > threshold).sum())
    num_requested = max(num_above, min(settings.min_count, len(unrepeated)))
    num_skipped = round(settings.skip_top * num_requested)
    candidates = unrepeated[num_skipped:]
    num_selected = max(num_above - num_skipped, min(settings.min_count, len(candidates)))
    num_selected = num_selected if settings.top is None else min(num_selected, settings.top)
    rows = candidates[:num_selected]
    num_dropped = {
        "repeated": len(ranked) - len(unrepeated),
        "skipped_top": num_skipped,
        "too_weak": len(candidates) - num_selected,
    }
    return Selection(rows, strengths[rows], num_dropped)


def _mask_repeats(keys: Ints, max_count: int) -> Bools:
    """Return a mask (n,) that is True for the first `max_count` occurrences of each key."""
    order = np.argsort(keys, kind="stable")
    counts = np.diff(run_bounds(keys[order]))
    occurrence = concatenate_ranges(np.zeros_like(counts), counts)
    mask = np.empty(len(keys), dtype=bool)
    mask[order] = occurrence < max_count
    return mask
