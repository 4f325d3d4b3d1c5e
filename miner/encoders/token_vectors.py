"""The token vectors of texts, as integers: sums of their products are exact, so every machine gives the same scores."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from miner.arrays import AnyFloats, Floats, Int8s, Ints, Ints32, bounds_of, concatenate_ranges, sum_rows
from miner.errors import StorageError

SCALE = 127  # of a component of a unit vector, which becomes an 8-bit integer
WEIGHT_SCALE = 4096  # weight of the heaviest token of a text
DIM_MULTIPLE = 8  # to which vectors in a file are padded, as late interaction needs them
BLOCK_ROWS = 512  # rounded at a time: 1 MB at dimension 256, which fits the cache
MIN_WEIGHT = 0.25  # lighter tokens, relative to the heaviest one, are dropped: a third of them, without a loss of accuracy


@dataclass(frozen=True)
class TokenTable:
    """Vectors to which tokens refer: those pieces of a static encoder that are in some texts, or all tokens of these."""

    vectors: npt.NDArray[np.int8]  # (t, dim), of length SCALE; zero if the norm is
    norms: Floats  # (t,) before that, of all dimensions

    @classmethod
    def of(cls, vectors: AnyFloats, dim: int | None = None) -> TokenTable:
        """Round vectors (t, all dimensions), of which the first `dim` are kept, None for all."""
        dim = dim or vectors.shape[1]
        table = cls(np.empty((len(vectors), dim), np.int8), np.empty(len(vectors)))
        for start in range(0, len(vectors), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            exact = vectors[rows].astype(np.float64)
            table.norms[rows] = np.sqrt((exact * exact).sum(axis=1))
            kept = exact[:, :dim]
            norms = table.norms[rows] if dim == vectors.shape[1] else np.sqrt((kept * kept).sum(axis=1))
            kept *= (SCALE / np.where(norms > 0, norms, 1))[:, None]
            table.vectors[rows] = np.rint(kept, out=kept)
        return table

    @classmethod
    def of_rounded(cls, vectors: Int8s) -> TokenTable:
        """Return a table of rounded vectors (t, dim) that weigh the same, or nothing if they are zero."""
        return cls(vectors, np.asarray(vectors.any(axis=1), dtype=np.float64))


class TokenFile:
    """Collect the vectors of very many tokens in a temporary file, which exists until its table is released."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="miner-tokens-")  # noqa: SIM115  # the table keeps it
        self._dim = DIM_MULTIPLE
        self._norms = [np.zeros(0)]

    def append(self, block: TokenTable) -> None:
        """Write the vectors (t, dim) of a block, padded with zeros. Raise StorageError where the disk is full."""
        dim = block.vectors.shape[1]
        self._dim = -(-dim // DIM_MULTIPLE) * DIM_MULTIPLE
        padded = np.pad(block.vectors, ((0, 0), (0, self._dim - dim)))
        try:
            self._file.write(np.ascontiguousarray(padded).data)
            self._file.flush()
        except OSError as error:
            folder = tempfile.gettempdir()
            raise StorageError(
                f"{folder}: {error.strerror}; token vectors take {dim} bytes per token, so set TMPDIR to a folder with more room"
            ) from error
        self._norms.append(block.norms)

    def table(self) -> TokenTable:
        """Return all vectors, mapped into memory."""
        norms = np.concatenate(self._norms)
        shape = (len(norms), self._dim)
        # Copy on write: torch warns of arrays that are read-only.
        return TokenTable(np.memmap(self._file, np.int8, "c", shape=shape) if len(norms) else np.zeros(shape, np.int8), norms)


@dataclass(frozen=True)
class TokenVectors:
    """The tokens of n texts, concatenated: those of text i are bounds[i] to bounds[i + 1]. A text may have none."""

    table: npt.NDArray[np.int8]  # (t, dim)
    rows: Ints32  # (m,) of the table
    weights: Ints32  # (m,): 1 to WEIGHT_SCALE, by the norm relative to the largest one of the text
    bounds: Ints  # (n + 1,)

    @classmethod
    def of(cls, table: TokenTable, rows: Ints32, bounds: npt.NDArray[np.integer]) -> TokenVectors:
        """Weight the tokens (m,) of n texts with these bounds (n + 1,), and drop the light ones."""
        lengths = np.diff(bounds).astype(np.int64)
        norms = table.norms[rows]
        largest = np.zeros(len(lengths))
        has_tokens = lengths > 0
        if len(norms):
            largest[has_tokens] = np.maximum.reduceat(norms, bounds[:-1][has_tokens])
        largest = np.repeat(largest, lengths)
        weights = np.rint(norms / np.where(largest > 0, largest, 1) * WEIGHT_SCALE).astype(np.int32)
        is_kept = weights >= MIN_WEIGHT * WEIGHT_SCALE
        return cls(table.vectors, rows[is_kept], weights[is_kept], bounds_of(sum_rows(is_kept, bounds)))

    @classmethod
    def concat(cls, table: TokenTable, parts: Sequence[TokenVectors]) -> TokenVectors:
        """Concatenate the texts of parts that refer to one table."""
        empty = cls(table.vectors, np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(1, np.int64))
        lengths = np.concatenate([np.zeros(1, np.int64), *(part.lengths for part in parts)])
        rows, weights = (np.concatenate([getattr(part, name) for part in (empty, *parts)]) for name in ("rows", "weights"))
        return cls(table.vectors, rows, weights, np.cumsum(lengths))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def take(self, texts: Ints) -> TokenVectors:
        """Return these texts (k,)."""
        lengths = self.lengths[texts]
        positions = concatenate_ranges(self.bounds[texts], lengths)
        return TokenVectors(self.table, self.rows[positions], self.weights[positions], bounds_of(lengths))

    @property
    def lengths(self) -> Ints:
        """(n,)"""
        return np.diff(self.bounds)

    def total_weights(self) -> Ints:
        """Return the sum (n,) of the weights of each text."""
        return sum_rows(self.weights, self.bounds)


@dataclass(frozen=True)
class TextTokens:
    """The token vectors of n texts as they are stored, one after the other: those of text i follow those of text i - 1."""

    vectors: Int8s  # (t, dim), of length SCALE; zero for a token that does not count
    counts: Ints  # (n,)

    @classmethod
    def from_arrow(cls, column: pa.ChunkedArray, dim: int) -> TextTokens:
        """Convert a column of n binary values, each the vectors of a text."""
        values = b"".join(value.as_buffer() for value in column)
        lengths = pc.binary_length(column).to_numpy().astype(np.int64)
        return cls(np.frombuffer(values, np.int8).reshape(-1, dim), lengths // dim)

    def to_arrow(self) -> pa.LargeBinaryArray:
        """Convert to n binary values."""
        offsets, data = bounds_of(self.counts * self.vectors.shape[1]), np.ascontiguousarray(self.vectors)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self.counts), buffers)

    def to_token_vectors(self) -> TokenVectors:
        """Return them as late interaction takes them: all tokens weigh the same."""
        table = TokenTable.of_rounded(self.vectors)
        return TokenVectors.of(table, np.arange(len(self.vectors), dtype=np.int32), bounds_of(self.counts))
