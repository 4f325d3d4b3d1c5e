"""The static encoder in training: pieces with shared spelling, summed."""

import copy
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece
import torch
from torch import Tensor, nn
from torch.nn import functional

from miner import storage
from miner.encoders import load_encoder, static
from miner.errors import ModelError
from miner.training.batches import Ints, View
from miner.training.datasets import Dataset
from miner.training.settings import StaticSettings
from miner.training.spelling import SparseProduct, spelling_matrix
from miner.training.vocabulary import train_pieces

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PieceBags:
    """n tokenised texts: text i is `flat[bounds[i]:bounds[i + 1]]`."""

    flat: npt.NDArray[np.int32]
    bounds: Ints

    @classmethod
    def of(cls, ids: Sequence[Sequence[int]], longest: int) -> "PieceBags":
        lengths = np.fromiter((min(len(pieces), longest) for pieces in ids), dtype=np.int64, count=len(ids))
        flat = np.fromiter(chain.from_iterable(pieces[:longest] for pieces in ids), dtype=np.int32, count=int(lengths.sum()))
        return cls(flat, np.concatenate([[0], np.cumsum(lengths)]))

    @classmethod
    def joined(cls, parts: Sequence["PieceBags"]) -> "PieceBags":
        lengths = np.concatenate([np.diff(part.bounds) for part in parts])
        return cls(np.concatenate([part.flat for part in parts]), np.concatenate([[0], np.cumsum(lengths)]))

    def take(self, rows: Ints) -> "PieceBags":
        lengths = self.bounds[rows + 1] - self.bounds[rows]
        ends = np.cumsum(lengths)
        return PieceBags(
            self.flat[np.repeat(self.bounds[rows] - ends + lengths, lengths) + np.arange(lengths.sum())], np.concatenate([[0], ends])
        )

    def thinned(self, dropout: float, random: np.random.Generator) -> "PieceBags":
        """Every piece is left out with probability `dropout`."""
        kept = random.random(len(self.flat)) >= dropout
        return PieceBags(self.flat[kept], np.concatenate([[0], np.cumsum(kept)])[self.bounds])


class PieceVectors(nn.Module):
    """(pieces, dim) vectors: a row of its own for each piece, plus what its spelling shares with others."""

    def __init__(self, pieces: list[str], buckets: int, own: Tensor, shared: Tensor) -> None:
        """`own` (pieces, dim) and `shared` (buckets, dim) are what to begin with; without buckets, nothing is shared."""
        super().__init__()
        self.own = nn.Parameter(own)
        self.shared = nn.Parameter(shared) if buckets else None
        self.matrix = self.transposed = None
        if buckets:
            matrix = spelling_matrix(pieces, buckets)
            self.transposed = matrix.t().coalesce().to_sparse_csr()
            self.matrix = matrix.to_sparse_csr()

    def forward(self) -> Tensor:
        if self.shared is None:
            return self.own
        shared: Tensor = SparseProduct.apply(self.shared, self.matrix, self.transposed)  # type: ignore[no-untyped-call]
        return self.own + shared


def _drawn(pieces: int, settings: StaticSettings) -> tuple[Tensor, Tensor]:
    """Random vectors to begin with: more of them in what spellings share, if they share."""
    scale = 1.6 / math.sqrt(settings.dim)
    own = torch.randn(pieces, settings.dim) * (0.3 * scale if settings.spelling_buckets else scale)
    return own, torch.randn(settings.spelling_buckets, settings.dim) * scale


def _begun(name: str) -> static.StaticEncoder:
    """The static encoder to go on from; ModelError where it is none."""
    encoder = load_encoder(name)
    if not isinstance(encoder, static.StaticEncoder):
        raise ModelError(f"{name}: not a static encoder; set encoder.kind to transformer")
    return encoder


def _pieces_model(corpora: Sequence[Dataset], settings: StaticSettings, seed: int, path: Path) -> bytes:
    if not path.exists():
        logger.info("training %d pieces", settings.vocabulary.size)
        with storage.atomic(str(path)) as handle:
            handle.write(train_pieces(corpora, settings.vocabulary, seed, storage.available_cores()))
    return path.read_bytes()


class StaticModel(nn.Module):
    """Texts -> the sums of their pieces' vectors. The pieces come from the texts it is trained on, which it reads once."""

    SMALLER = "lower training.batch_size, encoder.dim or encoder.spelling_buckets"  # what makes a step need less memory

    def __init__(self, corpora: Sequence[Dataset], settings: StaticSettings, seed: int, folder: Path) -> None:
        """Pieces that stand in FOLDER from an earlier start are taken from there.

        Raises ConfigError where the texts are too few for the vocabulary, ModelError where `settings.model` is no static encoder.
        """
        super().__init__()
        self.settings = settings
        begun = None if settings.model is None else _begun(settings.model)
        self.dim, self.longest = settings.dim if begun is None else begun.dim, settings.max_pieces
        if begun is None:
            self.model = _pieces_model(corpora, settings, seed, folder / static.PIECES)
        else:
            self.model = begun.pieces.serialized_model_proto()
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        self.known = {id(corpus.texts): self._read_all(corpus) for corpus in corpora}
        pieces = [self.processor.id_to_piece(piece) for piece in range(self.processor.get_piece_size())]
        buckets = settings.spelling_buckets
        drawn = _drawn(len(pieces), settings) if begun is None else (torch.tensor(begun.vectors), torch.zeros(buckets, self.dim))
        self.vectors = PieceVectors(pieces, buckets, *drawn)

    def _read_all(self, corpus: Dataset) -> PieceBags:
        return PieceBags.joined([self._pieces(part) for part in corpus.texts.parts()])

    def _pieces(self, texts: list[str]) -> PieceBags:
        return PieceBags.of(self.processor.encode(texts, num_threads=storage.available_cores()), self.settings.max_pieces)

    def read(self, views: Sequence[View], random: np.random.Generator) -> PieceBags:
        """Texts in numbers: those of all views, one after another. What is read as it stands in a corpus is known already."""
        parts = [self.known[id(view.texts)].take(view.rows) if view.as_it_stands else self._pieces(view.read(random)[0]) for view in views]
        return PieceBags.joined(parts).thinned(self.settings.piece_dropout, random)

    def numbers(self, texts: Sequence[str]) -> PieceBags:
        """Texts in numbers, as the finished encoder reads them."""
        return self._pieces(list(texts))

    def chunks(self, read: PieceBags, size: int | None) -> list[Ints]:  # noqa: ARG002
        """All texts at once: the sum over spellings, which every chunk would repeat, takes longer than the texts."""
        return [np.arange(len(read.bounds) - 1)]

    def forward(self, read: PieceBags, rows: Ints) -> Tensor:
        """Rows (n,) of what was read -> (n, dim) sums."""
        if len(rows) != len(read.bounds) - 1:
            read = read.take(rows)
        flat, offsets = torch.from_numpy(read.flat.astype(np.int64)), torch.from_numpy(read.bounds[:-1])
        table = self.vectors()
        return functional.embedding_bag(flat.to(table.device), table, offsets.to(table.device), mode="sum")

    def __deepcopy__(self, memo: dict[int, Any]) -> "StaticModel":
        """A copy with vectors of its own; what it knows of texts and pieces does not change and is shared."""
        memo |= {id(shared): shared for shared in (self.known, self.processor, self.vectors.matrix, self.vectors.transposed)}
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return twin

    def save(self, folder: Path) -> None:
        """Write the encoder as `miner` loads it."""
        with torch.no_grad():
            table = self.vectors().cpu().numpy()
        table[self.processor.unk_id()] = 0  # characters never seen say nothing
        static.save(folder, table, self.model)
