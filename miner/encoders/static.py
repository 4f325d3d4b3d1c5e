"""The static encoder: SentencePiece pieces -> mean of their vectors -> length 1. No context, and so very fast.

A folder holds three files: `miner.json` (kind, format, dim), `vectors.safetensors` (one float16 row a piece, named `vectors`)
and `sentencepiece.model`. Nothing in it is pickled.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from miner import storage
from miner.errors import ModelError

KIND = "static"
FORMAT = 1
SETTINGS = "miner.json"
VECTORS = "vectors.safetensors"
PIECES = "sentencepiece.model"

Floats = npt.NDArray[np.float32]

SLICE = 2048  # sentences a thread sums at a time: their piece vectors (about 40 MB at dimension 256) stay near the caches
BATCH = 65536  # sentences tokenised at a time, so that memory does not grow with the number of texts


class StaticEncoder:
    """A folder of piece vectors; read when first used, by as many threads as there are cores."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        settings = storage.read_json(str(self.folder / SETTINGS))
        if settings.get("kind") != KIND or settings.get("format") != FORMAT:
            raise ModelError(
                f"{self.folder / SETTINGS}: not a static encoder of format {FORMAT}; update the program or choose another encoder"
            )
        self.dim = int(settings["dim"])

    @cached_property
    def fingerprint(self) -> str:
        """Names the weights and the preprocessing, which the SentencePiece model holds."""
        digest = xxhash.xxh3_64()
        digest.update(f"{KIND} {FORMAT} {self.dim}".encode())
        for name in (VECTORS, PIECES):
            digest.update(self._bytes(name))
        return f"{KIND}-{digest.hexdigest()}"

    def _bytes(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise ModelError(
                f"{self.folder / name}: {error.strerror}; the encoder's folder is not whole, fetch or train it again"
            ) from error

    @cached_property
    def vectors(self) -> Floats:
        """(pieces, dim) float32; the unknown piece's row is zero, so it adds nothing."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            stored = load(self._bytes(VECTORS))["vectors"]
        except (SafetensorError, KeyError) as error:
            raise ModelError(f"{self.folder / VECTORS}: not the vectors of a static encoder ({error}); fetch or train it again") from error
        expected = (self.pieces.get_piece_size(), self.dim)
        if stored.shape != expected:
            raise ModelError(f"{self.folder / VECTORS}: {stored.shape} vectors where {SETTINGS} and {PIECES} want {expected}")
        table: Floats = stored.astype(np.float32)
        if not np.isfinite(table).all():
            raise ModelError(f"{self.folder / VECTORS}: holds NaN or infinite values; fetch or train it again")
        return table

    @cached_property
    def pieces(self) -> Any:
        """The SentencePiece processor."""
        from sentencepiece import SentencePieceProcessor

        try:
            return SentencePieceProcessor(model_proto=self._bytes(PIECES))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"{self.folder / PIECES}: not a SentencePiece model; fetch or train the encoder again") from error

    def encode(self, texts: Sequence[str]) -> Floats:
        """n texts -> (n, dim) float32 rows of length 1; a text without a known piece is a zero row."""
        result = np.zeros((len(texts), self.dim), dtype=np.float32)
        threads = storage.available_cores()
        with ThreadPoolExecutor(threads) as pool:
            for start in range(0, len(texts), BATCH):
                batch = list(texts[start : start + BATCH])
                tokens = self.pieces.encode(batch, num_threads=threads)
                parts = range(0, len(tokens), SLICE)
                sums = pool.map(lambda at, tokens=tokens: bag(self.vectors, tokens[at : at + SLICE]), parts)
                for at, rows in zip(parts, sums, strict=True):
                    result[start + at : start + at + len(rows)] = rows
        return result


def bag(vectors: Floats, tokens: Sequence[Sequence[int]]) -> Floats:
    """Piece vectors (pieces, dim) and n lists of piece ids -> (n, dim) means of length 1; an empty list gives a zero row.

    The sum stands for the mean: they differ by a factor, which the length takes away.
    """
    lengths = np.fromiter(map(len, tokens), dtype=np.int64, count=len(tokens))
    flat = np.fromiter(chain.from_iterable(tokens), dtype=np.int64, count=int(lengths.sum()))
    sums = np.zeros((len(tokens), vectors.shape[1]), dtype=np.float32)
    filled = np.flatnonzero(lengths)
    if len(filled):
        starts = np.cumsum(lengths[filled]) - lengths[filled]
        sums[filled] = np.add.reduceat(vectors[flat], starts, axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    np.divide(sums, norms, out=sums, where=norms > 0)
    return sums


def save(folder: str | Path, vectors: npt.NDArray[np.floating[Any]], pieces: bytes) -> None:
    """Write a static encoder: (pieces, dim) vectors, stored as float16, and a serialised SentencePiece model."""
    from safetensors.numpy import save as to_bytes

    folder = str(folder)
    storage.make_folder(folder)
    with storage.atomic(storage.join(folder, PIECES)) as handle:
        handle.write(pieces)
    with storage.atomic(storage.join(folder, VECTORS)) as handle:
        handle.write(to_bytes({"vectors": np.ascontiguousarray(vectors, dtype=np.float16)}))
    storage.write_json(storage.join(folder, SETTINGS), {"kind": KIND, "format": FORMAT, "dim": int(vectors.shape[1])})
