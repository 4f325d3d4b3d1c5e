"""Texts without the diacritics of their language, such as Vietnamese from a keyboard that lacks them.

Without diacritics, most Vietnamese syllables are words of other languages too, and have the vectors of those. Where most words of a text
are such syllables, they get pieces of their own, which start with a mark.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner.arrays import Ints32

MARK = "\ue000"  # of Unicode's private use area
MIN_LETTERS = 3  # of the words that are counted: shorter ones are words of many languages
MIN_WORDS = 4  # of a text that have a marked piece
MIN_SHARE = 0.75  # of all counted words
ENDS = ".,;:!?…)]}»”’\"'"  # of words, apart from the word


class UnmarkedWords:
    """The words that have a piece of their own in a text without diacritics."""

    def __init__(self, words: pa.LargeStringArray) -> None:
        self.words = words  # in lower case

    def mark(self, words: pa.LargeStringArray, rows: Ints32, bounds: Ints32) -> tuple[pa.LargeStringArray, Ints32]:
        """Unique words (n,), and the rows of the words of texts between their bounds (m + 1,) -> words and rows, with marked words.

        Words of texts with diacritics, or in other languages, do not change.
        """
        plain = pc.utf8_lower(pc.utf8_rtrim(words, characters=ENDS))
        is_plain = pc.is_in(plain, self.words).to_numpy(zero_copy_only=False)
        if not is_plain.any():
            return words, rows
        is_long = pc.match_substring_regex(plain, rf"\pL{{{MIN_LETTERS}}}").to_numpy(zero_copy_only=False)
        num_plain, num_long = (np.diff(np.r_[0, np.cumsum(flags[rows])][bounds]) for flags in (is_plain & is_long, is_long))
        is_unmarked = (num_plain >= MIN_WORDS) & (num_plain >= MIN_SHARE * num_long)
        if not is_unmarked.any():
            return words, rows
        marked_rows = len(words) - 1 + np.cumsum(is_plain)
        marked = pc.replace_substring_regex(words.filter(pa.array(is_plain)), "^", MARK)
        is_marked = np.repeat(is_unmarked, np.diff(bounds)) & is_plain[rows]
        return pa.concat_arrays([words, marked]), np.where(is_marked, marked_rows[rows], rows).astype(np.int32)
