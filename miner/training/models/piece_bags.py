"""Tokenised texts of a static encoder."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from miner.training.data.batches import Ints


@dataclass(frozen=True)
class PieceBags:
    """n tokenised texts: the pieces of text i are `flat[bounds[i]:bounds[i + 1]]`."""

    flat: npt.NDArray[np.int32]
    bounds: Ints  # (n + 1,)
    is_cut: npt.NDArray[np.bool_]  # (n,) whether a text was longer than the limit

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @classmethod
    def from_lists(cls, pieces: Sequence[Sequence[int]], max_pieces: int | None) -> "PieceBags":
        """Concatenate lists of pieces, each truncated to `max_pieces`, if given."""
        full_lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        lengths = full_lengths if max_pieces is None else np.minimum(full_lengths, max_pieces)
        flat = np.fromiter(chain.from_iterable(ids[:max_pieces] for ids in pieces), dtype=np.int32, count=int(lengths.sum()))
        return cls(flat, np.concatenate([[0], np.cumsum(lengths)]), lengths < full_lengths)

    @classmethod
    def concatenate(cls, bags: Sequence["PieceBags"]) -> "PieceBags":
        lengths = np.concatenate([np.diff(part.bounds) for part in bags])
        flat, is_cut = (np.concatenate([getattr(part, name) for part in bags]) for name in ("flat", "is_cut"))
        return cls(flat, np.concatenate([[0], np.cumsum(lengths)]), is_cut)

    def take(self, rows: Ints) -> "PieceBags":
        """Return the texts of rows (m,)."""
        starts = self.bounds[rows]
        lengths = self.bounds[rows + 1] - starts
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        return PieceBags(self.flat[np.repeat(starts - bounds[:-1], lengths) + np.arange(lengths.sum())], bounds, self.is_cut[rows])

    def drop_pieces(self, dropout: float, random: np.random.Generator) -> "PieceBags":
        """Drop every piece with probability `dropout`."""
        kept = random.random(len(self.flat)) >= dropout
        return PieceBags(self.flat[kept], np.concatenate([[0], np.cumsum(kept)])[self.bounds], self.is_cut)
