"""What static encoders have in common: the vector of a text is the normalised sum of the vectors of its tokens."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path
from typing import TypeVar

import numpy as np

from miner import devices
from miner.arrays import Floats32, Ints32
from miner.encoders.base import EncodeCounts, check_texts
from miner.encoders.token_vectors import TokenTable, TokenVectors
from miner.encoders.word_cache import PieceIds
from miner.progress import add_work

Result = TypeVar("Result")

MIN_SLICE_TEXTS, MAX_SLICE_TEXTS = 1 << 6, 1 << 15  # per thread and call: larger slices repeat more of their words
SUMMED_TEXTS = 4096  # at a time: 4 MB at dimension 256, which fits the cache


class VectorSums(ABC):
    """An encoder with a vector per token, in one thread per core."""

    dim: int
    token_dim: int | None = None  # leading dimensions that late interaction compares; None: all

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tally = EncodeCounts()

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """The size of the vocabulary."""

    @abstractmethod
    def rows(self, tokens: Ints32) -> Floats32:
        """Return the vectors (n, dim) of n tokens; zero for a token without a meaning."""

    @property
    def vectors(self) -> Floats32:
        """(tokens, dim) float32, of all tokens. Texts need few of them, so encoding does without."""
        return self.rows(np.arange(self.num_tokens, dtype=np.int32))

    @abstractmethod
    def split_texts(self, texts: list[str]) -> PieceIds:
        """Split n texts into tokens."""

    def encode(self, texts: Sequence[str]) -> Floats32:
        """n texts -> (n, dim) float32 unit rows; a zero row for a text without a known piece."""
        check_texts(texts)
        result = np.empty((len(texts), self.dim), dtype=np.float32)

        def encode_slice(rows: slice, pieces: PieceIds) -> int:
            tokens, numbers = self._number_tokens([pieces])
            write_unit_sums(self.rows(tokens), PieceIds(pieces.bounds, numbers[pieces.ids]), result[rows])
            return len(pieces.ids)

        self.tally.tokens += sum(self._map_slices(encode_slice, list(texts)))
        add_work(len(texts))
        return result

    def token_vectors(self, texts: Sequence[str]) -> TokenVectors:
        """Return the vectors of the pieces of n texts; those of unknown pieces are left out."""
        slices = self._map_slices(lambda rows, pieces: pieces, list(texts))  # noqa: ARG005
        used_tokens, numbers = self._number_tokens(slices)
        table = TokenTable.of(self.rows(used_tokens), self.token_dim)

        def weight_pieces(pieces: PieceIds) -> TokenVectors:
            return TokenVectors.of(table, numbers[pieces.ids], pieces.bounds)

        with ThreadPoolExecutor(devices.available_cores()) as pool:
            tokens = TokenVectors.concat(table, list(pool.map(weight_pieces, slices)))
        add_work(len(texts))
        return tokens

    def _number_tokens(self, slices: Sequence[PieceIds]) -> tuple[Ints32, Ints32]:
        """Return the tokens (t,) of texts, ascending, and the number of each token of the vocabulary among them."""
        is_used = np.zeros(self.num_tokens, dtype=bool)
        for pieces in slices:
            is_used[pieces.ids] = True
        return np.flatnonzero(is_used).astype(np.int32), np.cumsum(is_used, dtype=np.int32) - 1

    def _map_slices(self, function: Callable[[slice, PieceIds], Result], texts: list[str]) -> list[Result]:
        """Call a function with the rows and pieces of slices of n texts, in one thread per core."""
        cores = devices.available_cores()
        size = min(MAX_SLICE_TEXTS, max(MIN_SLICE_TEXTS, ceil(len(texts) / cores)))
        slices = [slice(start, start + size) for start in range(0, len(texts), size)]

        def map_slice(rows: slice) -> Result:
            return function(rows, self.split_texts(texts[rows]))

        with ThreadPoolExecutor(cores) as pool:
            return list(pool.map(map_slice, slices))


def write_unit_sums(vectors: Floats32, pieces: PieceIds, out: Floats32) -> None:
    """Piece vectors (pieces, dim) and the pieces of n texts -> `out` (n, dim): normalized means, zero for a text without pieces.

    Normalization removes the factor between sum and mean. Sums do not depend on the batch: the pieces of a text are added in order.
    """
    for start in range(0, len(out), SUMMED_TEXTS):
        sums = _sum_pieces(vectors, pieces.ids, pieces.bounds[start : start + SUMMED_TEXTS + 1])
        norms = np.sqrt(np.einsum("ij,ij->i", sums, sums))[:, None]
        np.divide(sums, np.where(norms > 0, norms, 1), out=out[start : start + SUMMED_TEXTS])


def _sum_pieces(vectors: Floats32, ids: Ints32, bounds: Ints32) -> Floats32:
    """Sum the rows `ids` of vectors (t, dim) between the bounds (n + 1,) of each text -> (n, dim).

    The first pieces of all texts are added, then the second ones, and so on: five times as fast as `np.add.reduceat`.
    """
    lengths = np.diff(bounds)
    order = np.argsort(-lengths, kind="stable")  # the texts that have a piece at a position are the first ones
    starts, sums = bounds[:-1][order], np.zeros((len(lengths), vectors.shape[1]), dtype=np.float32)
    counts = np.searchsorted(-lengths[order], -np.arange(int(lengths.max(initial=0))))  # of the texts that have a piece at each position
    pieces = np.empty_like(sums)
    for position, count in enumerate(counts.tolist()):
        np.take(vectors, ids[starts[:count] + position], axis=0, out=pieces[:count], mode="clip")  # "raise" would copy
        sums[:count] += pieces[:count]
    result = np.empty_like(sums)
    result[order] = sums
    return result
