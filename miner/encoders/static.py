"""The static encoder: SentencePiece pieces -> mean of their vectors -> length 1. It ignores context, and so is very fast.

A folder has three files: `miner.json` (kind, format, dim, token_dim, eight_bit_dims), `vectors.safetensors` (one row per piece: tensors
`vectors`, int8, and `scales`, float32, of the rows) and `sentencepiece.model`. Nothing is pickled. `token_dim` is the number of leading
dimensions that late interaction compares, `eight_bit_dims` of those with 8 bits; all where it is missing. The dimensions after those have
4 bits: tensors `halves`, uint8, with two dimensions per byte, and `half_scales`, float32.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from miner.arrays import Floats32, Ints32
from miner.encoders.piece_table import SPACE, PieceTable
from miner.encoders.unmarked_words import MARK, UnmarkedWords
from miner.encoders.vector_sums import VectorSums
from miner.encoders.word_cache import MAX_CACHED_WORDS, PieceIds, WordCache, joins_unspaced
from miner.errors import ModelError
from miner.io import checksums, storage

KIND = "static"
FORMAT = 2
SETTINGS = "miner.json"
SETTING_NAMES = {"kind", "format", "dim", "token_dim", "eight_bit_dims"}
VECTORS = "vectors.safetensors"
PIECES = "sentencepiece.model"
DAMAGED = "download or train the encoder again"  # remedy

MAX_PART_CHARACTERS = 1 << 15  # which are split by a part of the SentencePiece model; the whole model takes as long to load
HASHED_BYTES = 1 << 20  # at a time: blocks that stay in the cache are hashed several times as fast as a whole file
INT8_MAX = 127
HALF_MAX, HALF_ZERO = 7, 8  # largest value of 4 bits, and the code of 0
CLIPPED = (1.0, 0.9, 0.8, 0.7)  # largest values of a row of 4 bits, relative to its largest component: larger components are clipped
METADATA = "__metadata__"  # in the header of a safetensors file
DTYPES = {"I8": np.int8, "U8": np.uint8, "F32": np.float32}  # by their names there

Layout = dict[str, tuple[tuple[int, ...], str]]  # shape and dtype of each tensor


class StaticEncoder(VectorSums):
    """Encode with a folder of piece vectors, which is read on first use, in one thread per core."""

    def __init__(self, folder: str | Path, max_cached_words: int = MAX_CACHED_WORDS) -> None:
        super().__init__(Path(folder))
        checksums.check(self.folder, DAMAGED)
        settings = storage.read_json(str(self.folder / SETTINGS))
        unknown = sorted(settings.keys() - SETTING_NAMES)
        if unknown or settings.get("kind") != KIND or settings.get("format") != FORMAT:
            problem = f"unknown key {unknown[0]!r}" if unknown else f"not a static encoder of format {FORMAT}"
            raise ModelError(f"{self.folder / SETTINGS}: {problem}; update the program or choose another encoder")
        self.dim: int = settings.get("dim")
        self.token_dim: int = settings.get("token_dim", self.dim)
        self.eight_bit_dims: int = settings.get("eight_bit_dims", self.dim)
        for name, value in ("dim", self.dim), ("token_dim", self.token_dim), ("eight_bit_dims", self.eight_bit_dims):
            if not isinstance(value, int) or not 1 <= value <= self.dim:
                raise ModelError(f"{self.folder / SETTINGS}: no valid dimension `{name}`; download or train the encoder again")
        self._pieces_lock = threading.Lock()
        self._num_characters = 0  # that were split
        self.max_cached_words = max_cached_words

    @cached_property
    def fingerprint(self) -> str:
        """Hash the weights and the SentencePiece model, which includes the preprocessing."""
        digest = xxhash.xxh3_64()
        digest.update(f"{KIND} {FORMAT} {self.dim}".encode())
        if self.token_dim != self.dim:
            digest.update(f" {self.token_dim}".encode())
        for name in (VECTORS, PIECES):
            with self._open(name) as file:
                while block := file.read(HASHED_BYTES):
                    digest.update(block)
        return f"{KIND}-{digest.hexdigest()}"

    def _read_bytes(self, name: str) -> bytes:
        with self._open(name) as file:
            return file.read()

    @contextmanager
    def _open(self, name: str) -> Iterator[BinaryIO]:
        try:
            with (self.folder / name).open("rb") as file:
                yield file
        except OSError as error:
            raise ModelError(
                f"{self.folder / name}: {error.strerror}; the folder is incomplete, download or train the encoder again"
            ) from error

    @property
    def num_tokens(self) -> int:
        return len(self.stored["vectors"])

    def rows(self, tokens: Ints32) -> Floats32:
        rows: Floats32 = self.stored["vectors"][tokens] * self.stored["scales"][tokens, None]
        if self.eight_bit_dims == self.dim:
            return rows
        bytes_of = self.stored["halves"][tokens]
        codes = np.concatenate([bytes_of & 0xF, bytes_of >> 4], axis=1).astype(np.int8) - HALF_ZERO
        return np.concatenate([rows, codes * self.stored["half_scales"][tokens, None]], axis=1)

    @cached_property
    def stored(self) -> Mapping[str, npt.NDArray[Any]]:
        """The tensors of the vectors' file: `vectors` (pieces, eight_bit_dims) and `scales` (pieces,), and those of 4 bits."""
        from safetensors import SafetensorError

        num_pieces = self.pieces.get_piece_size() if self._table is None else len(self._table)
        path = self.folder / VECTORS
        expected: Layout = {"vectors": ((num_pieces, self.eight_bit_dims), "int8"), "scales": ((num_pieces,), "float32")}
        if half_dims := self.dim - self.eight_bit_dims:
            expected |= {"halves": ((num_pieces, half_dims // 2), "uint8"), "half_scales": ((num_pieces,), "float32")}
        try:
            with self._open(VECTORS) as file:
                stored = _map_tensors(file)
            layout: Layout = {name: (stored[name].shape, stored[name].dtype.name) for name in expected}
        except (SafetensorError, KeyError) as error:
            raise ModelError(f"{path}: not the vectors of a static encoder ({error}); {DAMAGED}") from error
        if layout != expected:
            raise ModelError(f"{path}: has {_describe(layout)}, but {SETTINGS} and {PIECES} imply {_describe(expected)}; {DAMAGED}")
        if not all(np.isfinite(stored[name]).all() for name, (_, dtype) in expected.items() if dtype == "float32"):
            raise ModelError(f"{path}: contains NaN or infinite values; {DAMAGED}")
        return stored

    def preload(self, num_bytes: float) -> None:
        """Start to read the SentencePiece model in a background thread, which takes half a second and does not hold Python's lock.

        Texts of few bytes need only a part of it.
        """
        if num_bytes <= MAX_PART_CHARACTERS:
            return

        def read() -> None:
            with suppress(ModelError):  # raised again where the model is used
                _ = self.pieces

        threading.Thread(target=read, name="preload").start()

    @property
    def pieces(self) -> Any:
        """The SentencePiece processor."""
        with self._pieces_lock:
            return self._pieces

    @cached_property
    def _pieces(self) -> Any:
        return self._load_model(self._read_bytes(PIECES))

    def _load_model(self, model: bytes) -> Any:
        from sentencepiece import SentencePieceProcessor

        try:
            return SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"{self.folder / PIECES}: not a SentencePiece model; download or train the encoder again") from error

    @cached_property
    def _table(self) -> PieceTable | None:
        """The pieces; None for a model in an unusual layout, of which no part can be read."""
        try:
            return PieceTable(self._read_bytes(PIECES))
        except (IndexError, ValueError):
            return None

    @cached_property
    def splits_by_word(self) -> bool:
        """Whether the pieces of a sentence are the concatenated pieces of its words: no piece crosses a space.

        If two segmentations of a word have equal scores, the surrounding sentence may decide between them by a rounding error (once
        in 60,000 real sentences); a word on its own is always split the same way.
        """
        if self._table is None or self._table.crosses_spaces:
            return False
        return bool(self._normalizer.normalize(" a  b ") == f"{SPACE}a{SPACE}b")

    @cached_property
    def _normalizer(self) -> Any:
        """A processor that normalizes texts as that of all pieces does."""
        return self.pieces if self._table is None else self._load_model(self._table.part([])[0])

    @cached_property
    def words(self) -> WordCache:
        """Split texts by word. Words that a text has without diacritics may have pieces of their own."""
        marked = [] if self._table is None else self._table.names_from(SPACE + MARK)
        unmarked = UnmarkedWords(pa.array([name[2:] for name in marked], pa.large_string())) if marked else None
        return WordCache(self._split, self.max_cached_words, joins_unspaced(self._normalizer), unmarked)

    def split_texts(self, texts: list[str]) -> PieceIds:
        """Split n texts into pieces."""
        return self.words.split_texts(texts) if self.splits_by_word else PieceIds.from_lists(self._split(texts))

    def _split(self, texts: list[str]) -> list[list[int]]:
        with self._pieces_lock:
            self._num_characters += sum(map(len, texts))
            is_small = self._num_characters <= MAX_PART_CHARACTERS and "_pieces" not in self.__dict__
        ids: list[list[int]]
        if not is_small or self._table is None or not self.splits_by_word:
            ids = self.pieces.encode(texts, num_threads=1)
            return ids
        part, pieces = self._table.part(self._normalizer.normalize(texts))
        ids, numbers = self._load_model(part).encode(texts, num_threads=1), pieces.tolist()
        return [[numbers[piece] for piece in text] for text in ids]


def _map_tensors(file: BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """Map the tensors of a safetensors file into memory: texts need few of the rows. Raises SafetensorError for another file."""
    from safetensors import safe_open

    with safe_open(file.name, framework="numpy"):
        header_bytes = int.from_bytes(file.read(8), "little")  # the layout of the file, which safetensors has checked
        header = json.loads(file.read(header_bytes))
    tensors = dict[str, npt.NDArray[Any]]()
    for name, tensor in header.items():
        if name != METADATA:
            offset = 8 + header_bytes + tensor["data_offsets"][0]
            tensors[name] = np.memmap(file, DTYPES[tensor["dtype"]], "r", offset, tuple(tensor["shape"]))
    return tensors


def _describe(layout: Layout) -> str:
    return ", ".join(f"{name} {shape} of {dtype}" for name, (shape, dtype) in layout.items())


def save(
    folder: str | Path,
    vectors: npt.NDArray[np.floating[Any]],
    pieces: bytes,
    token_dim: int | None = None,
    eight_bit_dims: int | None = None,
) -> None:
    """Write a static encoder: vectors (pieces, dim), rounded, and a serialized SentencePiece model.

    Late interaction compares the first `token_dim` dimensions, None for all. The first `eight_bit_dims` are rounded to 8 bits, None for
    all, and an even number of others to 4.
    """
    from safetensors.numpy import save as to_bytes

    folder = str(folder)
    storage.make_folder(folder)
    with storage.atomic(storage.join(folder, PIECES)) as handle:
        handle.write(pieces)
    vectors, has_halves = vectors.astype(np.float32), eight_bit_dims is not None and eight_bit_dims < vectors.shape[1]
    tensors = dict(zip(("vectors", "scales"), round_to_int8(vectors[:, :eight_bit_dims]), strict=True))
    if has_halves:
        tensors |= dict(zip(("halves", "half_scales"), round_to_4_bits(vectors[:, eight_bit_dims:]), strict=True))
    with storage.atomic(storage.join(folder, VECTORS)) as handle:
        handle.write(to_bytes(tensors))
    dims = {"dim": int(vectors.shape[1])} | ({} if token_dim is None else {"token_dim": token_dim})
    dims |= {"eight_bit_dims": eight_bit_dims} if eight_bit_dims is not None and has_halves else {}
    storage.write_json(storage.join(folder, SETTINGS), {"kind": KIND, "format": FORMAT, **dims})
    checksums.write(Path(folder))


def round_to_int8(vectors: Floats32) -> tuple[npt.NDArray[np.int8], Floats32]:
    """Round rows (n, dim) to integers of 8 bits with a scale (n,) each. Rows that were rounded before do not change.

    For that, a scale has 16 significant bits: 127 times it is exact, and so is the largest component of a rounded row.
    """
    scales = _round_up(np.abs(vectors).max(axis=1) / np.float32(INT8_MAX))
    with np.errstate(invalid="ignore"):  # NaN stays in the scale, which is checked when it is read
        rows = np.rint(vectors / np.where(scales > 0, scales, 1)[:, None]).astype(np.int8)
    return rows, scales


def round_to_4_bits(vectors: Floats32) -> tuple[npt.NDArray[np.uint8], Floats32]:
    """Round rows (n, dim) to integers of 4 bits, two per byte (n, dim / 2), with a scale (n,) each.

    Component i is in the lower half of byte i, component dim / 2 + i in the upper one. Of several scales, the closest row is kept.
    """
    largest = np.abs(vectors).max(axis=1)
    best: npt.NDArray[np.int8] = np.zeros(vectors.shape, dtype=np.int8)
    scales, errors = np.zeros(len(vectors), dtype=np.float32), np.full(len(vectors), np.inf)
    for share in CLIPPED:
        candidates = _round_up((largest * np.float32(share)) / np.float32(HALF_MAX))
        divisors = np.where(candidates > 0, candidates, 1)[:, None]
        with np.errstate(invalid="ignore"):  # NaN stays in the scale, which is checked when it is read
            rows = np.clip(np.rint(vectors / divisors), -HALF_MAX, HALF_MAX).astype(np.int8)
            distances = ((rows * divisors - vectors) ** 2).sum(axis=1)
        is_closer = ~(distances >= errors)
        best[is_closer], scales[is_closer], errors[is_closer] = rows[is_closer], candidates[is_closer], distances[is_closer]
    half = vectors.shape[1] // 2
    codes: npt.NDArray[np.uint8] = (best + HALF_ZERO).astype(np.uint8)
    packed: npt.NDArray[np.uint8] = np.bitwise_or(codes[:, :half], np.left_shift(codes[:, half:], 4))
    return packed, scales


def _round_up(scales: Floats32) -> Floats32:
    """Return scales with 16 significant bits, not smaller."""
    rounded: Floats32 = ((scales.view(np.uint32) + np.uint32(0xFF)) & ~np.uint32(0xFF)).view(np.float32)
    return rounded
