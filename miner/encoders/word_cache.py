"""Split texts into SentencePiece pieces word by word: texts repeat words, so each word is split once for many texts.

Splitting dominates the time of a static encoder. Everything here works on whole Arrow and numpy columns, so that threads
release the GIL.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner.arrays import Ints32
from miner.encoders.unmarked_words import UnmarkedWords

Split = Callable[[list[str]], list[list[int]]]  # texts -> the ids of their pieces

# Letters of Thai, Lao, Khmer and Burmese, which write no space between words; segmenters insert some.
UNSPACED = "\u0e01-\u0e33\u0e40-\u0e46\u0e81-\u0eb3\u0ec0-\u0ec6\u1780-\u17b3\u1000-\u102a\u103f\u1050-\u1055"
MAX_CACHED_WORDS = 1 << 19  # 20 MB, and 80 ms per lookup; rescoring splits the texts of a corpus again
LOOKUP_RATIO = 8  # below 1/8 as many words as are cached, splitting takes less time than the lookup


def joins_unspaced(pieces: Any) -> bool:
    """Return whether the normalisation of a SentencePiece processor deletes the spaces before letters of UNSPACED."""
    return str(pieces.normalize("ก ก")).endswith("กก")


@dataclass(frozen=True)
class PieceIds:
    """The pieces of n texts, concatenated: those of text i are ids[bounds[i] : bounds[i + 1]]."""

    bounds: Ints32  # (n + 1,)
    ids: Ints32

    @classmethod
    def from_lists(cls, lists: list[list[int]]) -> "PieceIds":
        bounds = np.fromiter(accumulate(map(len, lists), initial=0), dtype=np.int32, count=len(lists) + 1)
        return cls(bounds, np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=int(bounds[-1])))

    def __add__(self, other: "PieceIds") -> "PieceIds":
        bounds = np.concatenate([self.bounds, self.bounds[-1] + other.bounds[1:]])
        return PieceIds(bounds, np.concatenate([self.ids, other.ids]))

    def take(self, rows: Ints32) -> "PieceIds":
        """Return the pieces of these texts (m,), in any order and with repetitions."""
        starts = self.bounds[rows]
        lengths = self.bounds[rows + 1] - starts
        bounds = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
        # Piece j of a text moves from starts + j to bounds + j.
        positions = np.repeat(starts - bounds[:-1], lengths) + np.arange(bounds[-1], dtype=np.int32)
        return PieceIds(bounds, self.ids[positions])


@dataclass(frozen=True)
class _WordTable:
    words: pa.LargeStringArray  # unique
    pieces: PieceIds

    def take(self, rows: pa.Int32Array) -> "_WordTable":
        return _WordTable(self.words.take(rows), self.pieces.take(rows.to_numpy()))


EMPTY_TABLE = _WordTable(pa.nulls(0, pa.large_string()), PieceIds.from_lists([]))  # `pa.array([])` would import pandas


class WordCache:
    """Split texts by their words, and keep the pieces of frequent words for later texts."""

    def __init__(self, split: Split, max_words: int = MAX_CACHED_WORDS, joins: bool = False, unmarked: UnmarkedWords | None = None) -> None:
        """`joins`: a space before a letter of UNSPACED separates no words, see `joins_unspaced`."""
        self.split, self.max_words, self.joins, self.unmarked = split, max_words, joins, unmarked
        self.table = EMPTY_TABLE

    def split_texts(self, texts: list[str]) -> PieceIds:
        """Split n texts into pieces; words are separated by spaces."""
        column = pa.array(texts, pa.large_string())
        if self.joins:
            column = pc.replace_substring_regex(column, f" ([{UNSPACED}])", r"\1")
        words_of_texts = pc.split_pattern(column, " ")
        words, bounds = words_of_texts.values.dictionary_encode(), words_of_texts.offsets.to_numpy()
        dictionary, word_rows = words.dictionary, words.indices.to_numpy()
        if self.unmarked is not None:
            dictionary, word_rows = self.unmarked.mark(dictionary, word_rows, bounds)
        table, rows = self._look_up(dictionary)
        pieces = table.pieces.take(rows[word_rows])
        return PieceIds(pieces.bounds[bounds], pieces.ids)

    def _look_up(self, words: pa.LargeStringArray) -> tuple[_WordTable, Ints32]:
        """Look up n unique words, splitting new ones -> a table that contains them, and their rows (n,) in it."""
        is_worthwhile = len(self.table.words) <= LOOKUP_RATIO * len(words)
        cached = self.table if is_worthwhile else EMPTY_TABLE
        cached_rows = pc.index_in(words, value_set=cached.words)
        new_words = words.filter(cached_rows.is_null())
        rows = cached_rows.fill_null(0).to_numpy().copy()
        rows[cached_rows.is_null().to_numpy(zero_copy_only=False)] = len(cached.words) + np.arange(len(new_words), dtype=np.int32)
        new_pieces = PieceIds.from_lists(self.split(new_words.to_pylist()))
        table = _WordTable(pa.concat_arrays([cached.words, new_words]), cached.pieces + new_pieces)
        if is_worthwhile:  # threads may overwrite each other's table; lost words are split again
            # A full cache keeps the words that occurred again, which are the frequent ones.
            self.table = table if len(table.words) <= self.max_words else cached.take(cached_rows.drop_null())
        return table, rows
