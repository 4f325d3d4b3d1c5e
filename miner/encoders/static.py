"""The static encoder: SentencePiece pieces -> mean of their vectors -> length 1. It ignores context, and so is very fast.

A folder has three files: `miner.json` (kind, format, dim, token_dim), `vectors.safetensors` (tensor `vectors`, one float16 row per
piece) and `sentencepiece.model`. Nothing is pickled. `token_dim` is the number of leading dimensions that late interaction compares; all
where it is missing.
"""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from miner import checksums, storage
from miner.encoders.vector_sums import Floats, VectorSums
from miner.encoders.word_cache import MAX_CACHED_WORDS, PieceIds, WordCache
from miner.errors import ModelError

KIND = "static"
FORMAT = 1
SETTINGS = "miner.json"
VECTORS = "vectors.safetensors"
PIECES = "sentencepiece.model"
DAMAGED = "download or train the encoder again"  # remedy

SPACE = "\u2581"  # SentencePiece's symbol for a space


class StaticEncoder(VectorSums):
    """Encode with a folder of piece vectors, which is read on first use, in one thread per core."""

    def __init__(self, folder: str | Path, max_cached_words: int = MAX_CACHED_WORDS) -> None:
        super().__init__(Path(folder))
        checksums.check(self.folder, DAMAGED)
        settings = storage.read_json(str(self.folder / SETTINGS))
        if settings.get("kind") != KIND or settings.get("format") != FORMAT:
            raise ModelError(
                f"{self.folder / SETTINGS}: not a static encoder of format {FORMAT}; update the program or choose another encoder"
            )
        self.dim: int = settings.get("dim")
        self.token_dim: int = settings.get("token_dim", self.dim)
        for name, value in ("dim", self.dim), ("token_dim", self.token_dim):
            if not isinstance(value, int) or not 1 <= value <= self.dim:
                raise ModelError(f"{self.folder / SETTINGS}: no valid dimension `{name}`; download or train the encoder again")
        self.words = WordCache(self._split, max_cached_words)

    @cached_property
    def fingerprint(self) -> str:
        """Hash the weights and the SentencePiece model, which includes the preprocessing."""
        digest = xxhash.xxh3_64()
        digest.update(f"{KIND} {FORMAT} {self.dim}".encode())
        if self.token_dim != self.dim:
            digest.update(f" {self.token_dim}".encode())
        for name in (VECTORS, PIECES):
            digest.update(self._read_bytes(name))
        return f"{KIND}-{digest.hexdigest()}"

    def _read_bytes(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise ModelError(
                f"{self.folder / name}: {error.strerror}; the folder is incomplete, download or train the encoder again"
            ) from error

    @cached_property
    def vectors(self) -> Floats:
        """(pieces, dim) float32; the row of the unknown piece is zero."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            stored = load(self._read_bytes(VECTORS))["vectors"]
        except (SafetensorError, KeyError) as error:
            raise ModelError(
                f"{self.folder / VECTORS}: not the vectors of a static encoder ({error}); download or train the encoder again"
            ) from error
        expected = (self.pieces.get_piece_size(), self.dim)
        if stored.shape != expected:
            raise ModelError(
                f"{self.folder / VECTORS}: {stored.shape} vectors, but {SETTINGS} and {PIECES} imply {expected};"
                " download or train the encoder again"
            )
        # Arrow converts faster than numpy.
        table: Floats = pa.array(stored.ravel()).cast(pa.float32()).to_numpy().reshape(expected)
        if not np.isfinite(table).all():
            raise ModelError(f"{self.folder / VECTORS}: contains NaN or infinite values; download or train the encoder again")
        return table

    @cached_property
    def pieces(self) -> Any:
        """The SentencePiece processor."""
        from sentencepiece import SentencePieceProcessor

        try:
            return SentencePieceProcessor(model_proto=self._read_bytes(PIECES))
        except (RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"{self.folder / PIECES}: not a SentencePiece model; download or train the encoder again") from error

    @cached_property
    def splits_by_word(self) -> bool:
        """Whether the pieces of a sentence are the concatenated pieces of its words: no piece crosses a space.

        If two segmentations of a word have equal scores, the surrounding sentence may decide between them by a rounding error (once
        in 60,000 real sentences); a word on its own is always split the same way.
        """
        try:
            names = self.pieces.id_to_piece(list(range(self.pieces.get_piece_size())))
            normalized = self.pieces.normalize(" a  b ")
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{self.folder / PIECES}: damaged ({error}); {DAMAGED}") from error
        return bool(normalized == f"{SPACE}a{SPACE}b") and not any(SPACE in name[1:] for name in names)

    def split_texts(self, texts: list[str]) -> PieceIds:
        """Split n texts into pieces."""
        return self.words.split_texts(texts) if self.splits_by_word else PieceIds.from_lists(self._split(texts))

    def _split(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self.pieces.encode(texts, num_threads=1)
        return ids


def save(folder: str | Path, vectors: npt.NDArray[np.floating[Any]], pieces: bytes, token_dim: int | None = None) -> None:
    """Write a static encoder: vectors (pieces, dim), stored as float16, and a serialized SentencePiece model.

    Late interaction compares the first `token_dim` dimensions, None for all.
    """
    from safetensors.numpy import save as to_bytes

    folder = str(folder)
    storage.make_folder(folder)
    with storage.atomic(storage.join(folder, PIECES)) as handle:
        handle.write(pieces)
    with storage.atomic(storage.join(folder, VECTORS)) as handle:
        handle.write(to_bytes({"vectors": np.ascontiguousarray(vectors, dtype=np.float16)}))
    dims = {"dim": int(vectors.shape[1])} | ({} if token_dim is None else {"token_dim": token_dim})
    storage.write_json(storage.join(folder, SETTINGS), {"kind": KIND, "format": FORMAT, **dims})
    checksums.write(Path(folder))
