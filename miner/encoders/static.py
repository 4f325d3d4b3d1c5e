"""The static encoder: SentencePiece pieces -> mean of their vectors -> length 1. No context, and so very fast.

A folder holds three files: `miner.json` (kind, format, dim), `vectors.safetensors` (one float16 row a piece, named `vectors`)
and `sentencepiece.model`. Nothing in it is pickled.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from miner import storage
from miner.encoders.base import EncodeCounts
from miner.encoders.word_cache import PieceIds, WordCache
from miner.errors import ModelError

KIND = "static"
FORMAT = 1
SETTINGS = "miner.json"
VECTORS = "vectors.safetensors"
PIECES = "sentencepiece.model"

Floats = npt.NDArray[np.float32]

SLICE = 1 << 15  # sentences a thread takes at most at a time: the more, the fewer their different words
ROWS = 4096  # sentences summed at a time: 4 MB at dimension 256, memory that is used again and again
SPACE = "\u2581"  # how SentencePiece writes a space


class StaticEncoder:
    """A folder of piece vectors; read when first used, by as many threads as there are cores."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        settings = storage.read_json(str(self.folder / SETTINGS))
        if settings.get("kind") != KIND or settings.get("format") != FORMAT:
            raise ModelError(
                f"{self.folder / SETTINGS}: not a static encoder of format {FORMAT}; update the program or choose another encoder"
            )
        if not isinstance(settings.get("dim"), int) or settings["dim"] < 1:
            raise ModelError(f"{self.folder / SETTINGS}: does not tell the dimension; fetch or train the encoder again")
        self.dim: int = settings["dim"]
        self.words = WordCache(self._cut)
        self.tally = EncodeCounts()

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

    @cached_property
    def by_word(self) -> bool:
        """Whether the pieces of a sentence are those of its words one after the other: no piece reaches over a space.

        Where two ways to cut a word have one score, the sentence around it may tip the scale in its last bit (once in 60,000 real
        sentences); a word on its own is always cut the same way.
        """
        names = map(self.pieces.id_to_piece, range(self.pieces.get_piece_size()))
        return self.pieces.normalize(" a  b ") == f"{SPACE}a{SPACE}b" and not any(SPACE in name[1:] for name in names)

    def encode(self, texts: Sequence[str]) -> Floats:
        """n texts -> (n, dim) float32 rows of length 1; a text without a known piece is a zero row."""
        texts, vectors, cores = list(texts), self.vectors, storage.available_cores()
        result = np.empty((len(texts), self.dim), dtype=np.float32)
        size = max(1, min(SLICE, ceil(len(texts) / cores)))

        def encode_slice(at: int) -> int:
            part = slice(at, at + size)
            pieces = self.pieces_of(texts[part])
            bag(vectors, pieces, result[part])
            return len(pieces.ids)

        with ThreadPoolExecutor(cores) as pool:
            self.tally.tokens += sum(pool.map(encode_slice, range(0, len(texts), size)))
        return result

    def pieces_of(self, texts: list[str]) -> PieceIds:
        """The pieces of n texts."""
        return self.words.pieces_of(texts) if self.by_word else PieceIds.of(self._cut(texts))

    def _cut(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self.pieces.encode(texts, num_threads=1)
        return ids


def bag(vectors: Floats, pieces: PieceIds, out: Floats) -> None:
    """Piece vectors (pieces, dim), and the pieces of n texts -> `out` (n, dim): means of length 1, zero for a text without pieces.

    The sum stands for the mean: they differ by a factor, which the length takes away. It is a product of a sparse matrix, a row
    for each sentence, with the vectors: nine times as fast as `np.add.reduceat`, and it adds up the pieces of a sentence in
    their order, whatever else is in the batch.
    """
    from scipy.sparse import csr_array

    for at in range(0, len(out), ROWS):
        bounds = pieces.bounds[at : at + ROWS + 1]
        ids = pieces.ids[bounds[0] : bounds[-1]]
        shape = (len(bounds) - 1, len(vectors))
        sums: Floats = csr_array((np.ones(len(ids), dtype=np.float32), ids, bounds - bounds[0]), shape=shape) @ vectors
        norms = np.sqrt(np.einsum("ij,ij->i", sums, sums))[:, None]
        np.divide(sums, np.where(norms > 0, norms, 1), out=out[at : at + ROWS])


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
