"""The static encoder: SentencePiece pieces -> mean of their vectors -> length 1. It ignores context, and so is very fast.

A folder has three files: `miner.json` (kind, format, dim), `vectors.safetensors` (tensor `vectors`, one float16 row per piece)
and `sentencepiece.model`. Nothing is pickled.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from miner import checksums, storage
from miner.encoders.base import EncodeCounts, check_texts
from miner.encoders.token_vectors import TokenTable, TokenVectors
from miner.encoders.word_cache import MAX_CACHED_WORDS, PieceIds, WordCache
from miner.errors import ModelError
from miner.progress import add_work

KIND = "static"
FORMAT = 1
SETTINGS = "miner.json"
VECTORS = "vectors.safetensors"
PIECES = "sentencepiece.model"
DAMAGED = "download or train the encoder again"  # remedy

Floats = npt.NDArray[np.float32]
Result = TypeVar("Result")

MAX_SLICE_TEXTS = 1 << 15  # per thread and call: larger slices repeat more of their words
SUMMED_TEXTS = 4096  # per sparse product: 4 MB at dimension 256, which fits the cache
SPACE = "\u2581"  # SentencePiece's symbol for a space


class StaticEncoder:
    """Encode with a folder of piece vectors, which is read on first use, in one thread per core."""

    rescores_by_default = True

    def __init__(self, folder: str | Path, max_cached_words: int = MAX_CACHED_WORDS) -> None:
        self.folder = Path(folder)
        checksums.check(self.folder, DAMAGED)
        settings = storage.read_json(str(self.folder / SETTINGS))
        if settings.get("kind") != KIND or settings.get("format") != FORMAT:
            raise ModelError(
                f"{self.folder / SETTINGS}: not a static encoder of format {FORMAT}; update the program or choose another encoder"
            )
        if not isinstance(settings.get("dim"), int) or settings["dim"] < 1:
            raise ModelError(f"{self.folder / SETTINGS}: no valid dimension `dim`; download or train the encoder again")
        self.dim: int = settings["dim"]
        self.words = WordCache(self._split, max_cached_words)
        self.tally = EncodeCounts()

    @cached_property
    def fingerprint(self) -> str:
        """Hash the weights and the SentencePiece model, which includes the preprocessing."""
        digest = xxhash.xxh3_64()
        digest.update(f"{KIND} {FORMAT} {self.dim}".encode())
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
        table: Floats = stored.astype(np.float32)
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
            names = [self.pieces.id_to_piece(piece) for piece in range(self.pieces.get_piece_size())]
            normalized = self.pieces.normalize(" a  b ")
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{self.folder / PIECES}: damaged ({error}); {DAMAGED}") from error
        return bool(normalized == f"{SPACE}a{SPACE}b") and not any(SPACE in name[1:] for name in names)

    def encode(self, texts: Sequence[str]) -> Floats:
        """n texts -> (n, dim) float32 unit rows; a zero row for a text without a known piece."""
        check_texts(texts)
        vectors, result = self.vectors, np.empty((len(texts), self.dim), dtype=np.float32)

        def encode_slice(rows: slice, pieces: PieceIds) -> int:
            write_unit_sums(vectors, pieces, result[rows])
            return len(pieces.ids)

        self.tally.tokens += sum(self._map_slices(encode_slice, list(texts)))
        add_work(len(texts))
        return result

    @cached_property
    def token_table(self) -> TokenTable:
        """The vectors of all pieces, as integers."""
        return TokenTable.of(self.vectors)

    def token_vectors(self, texts: Sequence[str]) -> TokenVectors:
        """Return the vectors of the pieces of n texts; those of unknown pieces are left out."""
        table = self.token_table

        def weight_slice(rows: slice, pieces: PieceIds) -> TokenVectors:  # noqa: ARG001
            return TokenVectors.of(table, pieces.ids, pieces.bounds)

        return TokenVectors.concat(table, self._map_slices(weight_slice, list(texts)))

    def _map_slices(self, function: Callable[[slice, PieceIds], Result], texts: list[str]) -> list[Result]:
        """Call a function with the rows and pieces of slices of n texts, in one thread per core."""
        cores = storage.available_cores()
        size = max(1, min(MAX_SLICE_TEXTS, ceil(len(texts) / cores)))
        slices = [slice(start, start + size) for start in range(0, len(texts), size)]

        def map_slice(rows: slice) -> Result:
            return function(rows, self.split_texts(texts[rows]))

        with ThreadPoolExecutor(cores) as pool:
            return list(pool.map(map_slice, slices))

    def split_texts(self, texts: list[str]) -> PieceIds:
        """Split n texts into pieces."""
        return self.words.split_texts(texts) if self.splits_by_word else PieceIds.from_lists(self._split(texts))

    def _split(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self.pieces.encode(texts, num_threads=1)
        return ids


def write_unit_sums(vectors: Floats, pieces: PieceIds, out: Floats) -> None:
    """Piece vectors (pieces, dim) and the pieces of n texts -> `out` (n, dim): normalized means, zero for a text without pieces.

    Normalization removes the factor between sum and mean. The sum is a product of a sparse matrix, one row per text, with the
    vectors: nine times as fast as `np.add.reduceat`, and it adds the pieces of a text in order, whatever the batch.
    """
    from scipy.sparse import csr_array

    for start in range(0, len(out), SUMMED_TEXTS):
        bounds = pieces.bounds[start : start + SUMMED_TEXTS + 1]
        ids = pieces.ids[bounds[0] : bounds[-1]]
        shape = (len(bounds) - 1, len(vectors))
        sums: Floats = csr_array((np.ones(len(ids), dtype=np.float32), ids, bounds - bounds[0]), shape=shape) @ vectors
        norms = np.sqrt(np.einsum("ij,ij->i", sums, sums))[:, None]
        np.divide(sums, np.where(norms > 0, norms, 1), out=out[start : start + SUMMED_TEXTS])


def save(folder: str | Path, vectors: npt.NDArray[np.floating[Any]], pieces: bytes) -> None:
    """Write a static encoder: vectors (pieces, dim), stored as float16, and a serialized SentencePiece model."""
    from safetensors.numpy import save as to_bytes

    folder = str(folder)
    storage.make_folder(folder)
    with storage.atomic(storage.join(folder, PIECES)) as handle:
        handle.write(pieces)
    with storage.atomic(storage.join(folder, VECTORS)) as handle:
        handle.write(to_bytes({"vectors": np.ascontiguousarray(vectors, dtype=np.float16)}))
    storage.write_json(storage.join(folder, SETTINGS), {"kind": KIND, "format": FORMAT, "dim": int(vectors.shape[1])})
    checksums.write(Path(folder))
