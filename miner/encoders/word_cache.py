"""Words and their pieces: text repeats its words, so each is cut once for many sentences.

Cutting is most of what a static encoder does. All here is Arrow's and numpy's work on whole columns, so threads do not wait
for each other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int32]
Cut = Callable[[list[str]], list[list[int]]]  # texts -> the ids of their pieces

KNOWN = 1 << 17  # words that may be kept: a few MB, and 20 ms to look words up in
SMALL = 8  # times fewer words than are kept are cut in less time than it takes to look them up


@dataclass(frozen=True)
class PieceIds:
    """The pieces of n texts, one after the other: those of text i are ids[bounds[i] : bounds[i + 1]]."""

    bounds: Ints  # (n + 1,)
    ids: Ints

    @classmethod
    def of(cls, cut: list[list[int]]) -> "PieceIds":
        bounds = np.fromiter(accumulate(map(len, cut), initial=0), dtype=np.int32, count=len(cut) + 1)
        return cls(bounds, np.fromiter(chain.from_iterable(cut), dtype=np.int32, count=int(bounds[-1])))

    def __add__(self, other: "PieceIds") -> "PieceIds":
        bounds = np.concatenate([self.bounds, self.bounds[-1] + other.bounds[1:]])
        return PieceIds(bounds, np.concatenate([self.ids, other.ids]))

    def take(self, which: Ints) -> "PieceIds":
        """(m,) texts of these, in any order and any number of times."""
        starts = self.bounds[which]
        lengths = self.bounds[which + 1] - starts
        bounds = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
        # A text that begins at `starts` here begins at `bounds` there: each of its pieces is as far from the one as from the other.
        moved = np.repeat(starts - bounds[:-1], lengths) + np.arange(bounds[-1], dtype=np.int32)
        return PieceIds(bounds, self.ids[moved])


@dataclass(frozen=True)
class _Table:
    words: pa.LargeStringArray  # different ones
    pieces: PieceIds


NOTHING = _Table(pa.array([], pa.large_string()), PieceIds.of([]))


class WordCache:
    """Cuts texts by their words, and keeps the pieces of some words for the next texts."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        self.known = NOTHING

    def pieces_of(self, texts: list[str]) -> PieceIds:
        """The pieces of n texts; a word is what spaces part."""
        split = pc.split_pattern(pa.array(texts, pa.large_string()), " ")
        words = split.values.dictionary_encode()
        table, places = self._looked_up(words.dictionary)
        pieces = table.pieces.take(places[words.indices.to_numpy()])
        return PieceIds(pieces.bounds[split.offsets.to_numpy()], pieces.ids)

    def _looked_up(self, words: pa.LargeStringArray) -> tuple[_Table, Ints]:
        """n different words -> a table that has them, and the (n,) places where."""
        lasting = len(self.known.words) <= SMALL * len(words)
        known = self.known if lasting else NOTHING
        found = pc.index_in(words, value_set=known.words)
        new = words.filter(found.is_null())
        places = found.fill_null(0).to_numpy().copy()
        places[found.is_null().to_numpy(zero_copy_only=False)] = len(known.words) + np.arange(len(new), dtype=np.int32)
        grown = _Table(pa.concat_arrays([known.words, new]), known.pieces + PieceIds.of(self.cut(new.to_pylist())))
        if lasting:  # another thread may do so at the same time: what only one of them has found is found again
            # Where there are too many, those that came up again stay: they are the frequent ones.
            self.known = grown if len(grown.words) <= KNOWN else _taken(known, found.drop_null())
        return grown, places


def _taken(table: _Table, places: pa.Int32Array) -> _Table:
    return _Table(table.words.take(places), table.pieces.take(places.to_numpy()))
