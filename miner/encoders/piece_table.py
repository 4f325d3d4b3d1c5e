"""The pieces of a serialized SentencePiece model, and the part of the model that few texts need.

SentencePiece indexes all pieces of a model when it loads it: half a second and 60 MB for the 325,311 pieces of the built-in encoder. A
model of only the pieces that a text contains splits it in the same way, and is read in milliseconds.
"""

from array import array
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from miner.arrays import Hashes, Ints, Ints32

SPACE = "\u2581"  # SentencePiece's symbol for a space
PIECE, NAME, SCORE = 0x0A, 0x0A, 0x15  # tags, of Protocol Buffers, of a piece, and of its name and score
TRAINER, NORMALIZER = 0x12, 0x1A  # tags of what a part of a model keeps: how texts become characters
TAG_BYTES, NAME_OFFSET, SCORE_BYTES = 2, 4, 5  # of the tag and length of a piece or name; of both; of a score with its tag
NORMAL = 1  # type of most pieces, and of those without a type
KEY_BYTES, HASH_BITS = 8, 16  # names are first compared by a hash of their first bytes
HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, as in Fibonacci hashing


class PieceTable:
    """The pieces of a model, in the layout that SentencePiece writes. Raises IndexError or ValueError for another one."""

    def __init__(self, model: bytes) -> None:
        starts, start = array("i"), 0
        while model[start] == PIECE:
            starts.append(start)
            start += TAG_BYTES + model[start + 1]
        self.model, self.data = model, np.frombuffer(model, np.uint8)
        self.bounds: Ints32 = np.append(np.frombuffer(starts, np.int32), np.int32(start))  # (n + 1,)
        names = self.bounds[:-1] + NAME_OFFSET
        self.name_bytes = self.data[names - 1]
        scores = names + self.name_bytes
        type_bytes = self.bounds[1:] - scores - SCORE_BYTES
        is_usual = np.isin(type_bytes, (0, 2)) & (self.data[names - 2] == NAME) & (self.data[scores] == SCORE)
        if not len(starts) or not is_usual.all():
            raise ValueError("another layout")
        self.is_normal = (type_bytes == 0) | (self.data[self.bounds[1:] - 1] == NORMAL)
        self.settings = _read_settings(model, start)

    def __len__(self) -> int:
        return len(self.name_bytes)

    @cached_property
    def crosses_spaces(self) -> bool:
        """Whether a piece has a space after its first character."""
        space = SPACE.encode()
        num_first = int(np.count_nonzero(self.keys & np.uint64(0xFFFFFF) == int.from_bytes(space, "little")))
        return self.model.count(space, 0, int(self.bounds[-1])) > num_first and any(
            space in self._name(piece)[1:] for piece in range(len(self))
        )

    @cached_property
    def keys(self) -> Hashes:
        """(n,) the first bytes of each name, filled with zeros."""
        last = len(self.data) - KEY_BYTES
        keys = np.lib.stride_tricks.sliding_window_view(self.data, KEY_BYTES)[np.minimum(self.bounds[:-1] + NAME_OFFSET, last)]
        spare = np.uint64(8) * (KEY_BYTES - np.minimum(self.name_bytes, KEY_BYTES)).astype(np.uint64)
        result: Hashes = keys.view(np.uint64)[:, 0] << spare >> spare
        return result

    @cached_property
    def always(self) -> Ints:
        """The pieces of every part: those with a type, such as `<unk>`, and the extreme scores, on which unknown characters depend."""
        normal = np.flatnonzero(self.is_normal)
        starts = self.bounds[normal] + NAME_OFFSET + self.name_bytes[normal] + 1
        scores = self.data[starts[:, None] + np.arange(SCORE_BYTES - 1)].view("<f4")[:, 0]
        return np.concatenate([np.flatnonzero(~self.is_normal), normal[[scores.argmin(), scores.argmax()]]])

    def part(self, texts: Iterable[str]) -> tuple[bytes, Ints]:
        """Return the model of the pieces that are in normalized texts, and their numbers, ascending."""
        contained = _substrings(texts, int(self.name_bytes.max()))
        is_contained = np.zeros(1 << HASH_BITS, dtype=bool)
        is_contained[_hash(np.frombuffer(b"".join(name[:KEY_BYTES].ljust(KEY_BYTES, b"\0") for name in contained), np.uint64))] = True
        similar = np.flatnonzero(is_contained[_hash(self.keys)])
        pieces = np.unique([*self.always.tolist(), *(piece for piece in similar.tolist() if self._name(piece) in contained)])
        starts, ends = self.bounds[pieces].tolist(), self.bounds[pieces + 1].tolist()
        return b"".join(self.model[start:end] for start, end in zip(starts, ends, strict=True)) + self.settings, pieces

    def names_from(self, start: str) -> list[str]:
        """Return the pieces that start with at most KEY_BYTES bytes of text."""
        first = start.encode()
        mask = np.uint64((1 << 8 * len(first)) - 1)
        starting = np.flatnonzero(self.keys & mask == np.uint64(int.from_bytes(first, "little")))
        return [self._name(piece).decode() for piece in starting.tolist()]

    def _name(self, piece: int) -> bytes:
        start = self.bounds[piece] + NAME_OFFSET
        return self.model[start : start + self.name_bytes[piece]]


def _hash(keys: Hashes) -> Hashes:
    return (keys * HASH_MULTIPLIER) >> np.uint64(64 - HASH_BITS)


def _substrings(texts: Iterable[str], max_bytes: int) -> set[bytes]:
    """Return the parts of the words of normalized texts, as UTF-8; of `max_bytes` at most, and some longer ones."""
    words = {word for text in texts for word in text.replace(SPACE, f" {SPACE}").split(" ")}
    return {
        word[start:end].encode()
        for word in words
        for start in range(len(word))
        for end in range(start + 1, min(len(word), start + max_bytes) + 1)
    }


def _read_settings(model: bytes, start: int) -> bytes:
    """Return the fields of a model, after its pieces, that say how texts become characters."""
    settings = b""
    while start < len(model):
        tag, size, end = model[start], 0, start + 1
        for shift in range(0, 35, 7):
            size |= (model[end] & 0x7F) << shift
            end += 1
            if model[end - 1] < 0x80:
                break
        if tag & 7 != 2 or end + size > len(model):
            raise ValueError("another layout")
        if tag in (TRAINER, NORMALIZER):
            settings += model[start : end + size]
        start = end + size
    return settings
