"""The static encoder in training: the embedding of a text is the sum of the vectors of its pieces."""

import copy
import logging
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece
import torch
from torch import Tensor, nn
from torch.nn import functional

from miner import devices
from miner.devices import upload
from miner.encoders import load_encoder, piece_table, static, static_export
from miner.encoders.base import PieceEncoder
from miner.errors import ConfigError, ModelError, first_line
from miner.io import checksums, storage
from miner.training.data.batches import Floats, Ints, MixedView, View
from miner.training.data.datasets import Dataset
from miner.training.models.piece_bags import PieceBags
from miner.training.models.spelling import SparseProduct, build_spelling_matrix
from miner.training.models.vocabulary import train_pieces
from miner.training.settings import StaticSettings

TOKEN_DIM = 128  # that late interaction compares: 0.7 of the time of 256, for 0.1 points of accuracy
NEW_DIMENSIONS_NORM = 0.3  # norm of new dimensions of initial vectors, relative to the dimensions that come from another encoder

logger = logging.getLogger(__name__)


class PieceVectors(nn.Module):
    """Vectors (pieces, dim): a row of its own per piece, plus rows shared with pieces of similar spelling."""

    start: Tensor  # (pieces, dim), only with rates
    trained: Tensor  # (t,) the pieces with a rate
    rates: Tensor  # (t, 1)

    def __init__(self, pieces: list[str], buckets: int, own: Tensor, shared: Tensor, rates: Tensor | None = None) -> None:
        """`own` (pieces, dim) and `shared` (buckets, dim) are initial values; with 0 buckets, nothing is shared.

        With `rates` (pieces,), a vector is its initial value plus its rate times what is learned. Rows with rate 0 have no parameters.
        """
        super().__init__()
        if rates is not None:
            trained = rates.nonzero()[:, 0]
            for name, tensor in ("start", own), ("trained", trained), ("rates", rates[trained, None]):
                self.register_buffer(name, tensor, persistent=False)
            pieces, own = [pieces[row] for row in trained.tolist()], torch.zeros(len(trained), own.shape[1])
        self.has_rates = rates is not None
        self.own = nn.Parameter(own)
        self.shared = nn.Parameter(shared) if buckets else None
        self.matrix = self.transposed = None
        if buckets:
            matrix = build_spelling_matrix(pieces, buckets)
            self.transposed = matrix.t().coalesce().to_sparse_csr()
            self.matrix = matrix.to_sparse_csr()

    def forward(self) -> Tensor:
        vectors: Tensor = self.own
        if self.shared is not None:
            vectors = vectors + SparseProduct.apply(self.shared, self.matrix, self.transposed)  # type: ignore[no-untyped-call]
        return self.start.index_add(0, self.trained, self.rates * vectors) if self.has_rates else vectors


def _read_rates(path: str | None, num_pieces: int) -> Tensor | None:
    if path is None:
        return None
    try:
        rates = np.load(path)
    except (OSError, EOFError, ValueError) as error:
        raise ConfigError(f"{path}: not a .npy file ({first_line(error)}); make it again") from error
    if rates.shape != (num_pieces,):
        raise ConfigError(f"{path}: rates of shape {rates.shape}, but encoder.model has {num_pieces} pieces; make both together")
    return torch.from_numpy(rates.astype(np.float32))


def _draw_vectors(num_pieces: int, settings: StaticSettings) -> tuple[Tensor, Tensor]:
    """Draw initial own and shared vectors. With sharing, most of the norm is in the shared vectors."""
    scale = 1.6 / math.sqrt(settings.dim)
    own = torch.randn(num_pieces, settings.dim) * (0.3 * scale if settings.spelling_buckets else scale)
    return own, torch.randn(settings.spelling_buckets, settings.dim) * scale


def _start_from(base: PieceEncoder, pieces: Sequence[str], vectors: PieceVectors) -> None:
    """Set the vectors (pieces, dim) of the pieces that `base` knows to its sums; the other ones keep their random vectors.

    A piece of both vocabularies has the same vector in both; any other is split into pieces of `base`, as if it were a word. Further
    dimensions are random and short, so that the cosines hardly change.
    """
    processor, unknown = base.pieces, base.pieces.unk_id()
    ids = [processor.piece_to_id(piece) for piece in pieces]
    words = processor.encode([piece.replace(piece_table.SPACE, " ") for piece in pieces])
    lists = [word if piece == unknown else [piece] for piece, word in zip(ids, words, strict=True)]
    bags = PieceBags.from_lists(lists, None)
    offsets = torch.from_numpy(bags.bounds[:-1])
    sums = functional.embedding_bag(torch.from_numpy(bags.flat.astype(np.int64)), torch.tensor(base.vectors), offsets, mode="sum")
    is_known = torch.tensor([unknown not in pieces for pieces in lists]) & (sums != 0).any(dim=1)
    new_dims = vectors.own.shape[1] - base.dim
    noise = torch.randn(len(sums), new_dims) * sums.norm(dim=1, keepdim=True) * NEW_DIMENSIONS_NORM / math.sqrt(max(1, new_dims))
    with torch.no_grad():
        # own + shared = sums
        vectors.own[is_known] += (torch.cat([sums, noise], dim=1) - vectors())[is_known]


def rotate_to_principal_axes(vectors: Floats) -> Floats:
    """Rotate piece vectors (pieces, dim), so that the first dimensions determine most of their cosines. No cosine changes."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.where(norms > 0, norms, 1)
    axes = np.linalg.eigh(units.T.astype(np.float64) @ units)[1][:, ::-1]
    rotated: Floats = (vectors @ axes).astype(np.float32)
    return rotated


def _load_base(name: str) -> PieceEncoder:
    """Load the static encoder to continue from. Raises ModelError for another kind of encoder."""
    encoder = load_encoder(name)
    if not isinstance(encoder, PieceEncoder):
        raise ModelError(f"{name}: not a static encoder; set encoder.kind to transformer")
    return encoder


def _load_initial(settings: StaticSettings) -> PieceEncoder:
    """Load the static encoder of the initial vectors. Raises ModelError if it has more dimensions."""
    base = _load_base(str(settings.initial))
    if base.dim > settings.dim:
        raise ModelError(f"{settings.initial}: {base.dim} dimensions, but encoder.dim is {settings.dim}; set it to {base.dim} or more")
    return base


def _train_or_load_pieces(datasets: Sequence[Dataset], settings: StaticSettings, seed: int, path: Path) -> bytes:
    if not path.exists():
        logger.info("training %d pieces", settings.vocabulary.size)
        with storage.atomic(str(path)) as handle:
            handle.write(train_pieces(datasets, settings.vocabulary, seed, devices.available_cores()))
        checksums.write(path.parent)
    checksums.check(path.parent, f"delete {path.parent} and train again")
    return path.read_bytes()


class StaticModel(nn.Module):
    """Texts -> sums of piece vectors, not normalised. All training texts are tokenised once, on construction."""

    LENGTH_SETTING = "encoder.max_pieces"
    MEMORY_ADVICE = "lower training.batch_size, encoder.dim or encoder.spelling_buckets"  # ends the out-of-memory error

    def __init__(self, datasets: Sequence[Dataset], settings: StaticSettings, seed: int, folder: Path) -> None:
        """Reuse the SentencePiece model in FOLDER if an earlier run trained it.

        Raises ConfigError if there are too few texts for the vocabulary, ModelError if `settings.model` is not a static encoder.
        """
        super().__init__()
        self.settings = settings
        base = None if settings.model is None else _load_base(settings.model)
        self.dim, self.max_length = settings.dim if base is None else base.dim, settings.max_pieces
        if base is None:
            self.pieces_model = _train_or_load_pieces(datasets, settings, seed, folder / static.PIECES)
        else:
            self.pieces_model = base.pieces.serialized_model_proto()
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.pieces_model)
        self.tokenized = {id(dataset.texts): self._tokenize_dataset(dataset) for dataset in datasets}
        pieces = [self.processor.id_to_piece(piece) for piece in range(self.processor.get_piece_size())]
        buckets = settings.spelling_buckets
        if base is None:
            own, shared = _draw_vectors(len(pieces), settings)
        else:
            own, shared = torch.tensor(base.vectors), torch.zeros(buckets, self.dim)
        self.vectors = PieceVectors(pieces, buckets, own, shared, _read_rates(settings.rates, len(pieces)))
        if settings.initial is not None:
            _start_from(_load_initial(settings), pieces, self.vectors)
        self.computed: Tensor | None = None
        self.leaf: Tensor | None = None

    def _tokenize_dataset(self, dataset: Dataset) -> PieceBags:
        return PieceBags.concatenate([self._tokenize(texts, self.settings.max_pieces) for texts in dataset.texts.iter_chunks()])

    def tokenize(self, texts: Sequence[str]) -> PieceBags:
        """Tokenise texts without piece dropout and without a limit, as the exported encoder does."""
        return self._tokenize(texts, None)

    def _tokenize(self, texts: Sequence[str], max_pieces: int | None) -> PieceBags:
        pieces = self.processor.encode(list(texts), num_threads=devices.available_cores())
        return PieceBags.from_lists(pieces, max_pieces)

    def tokenize_views(self, views: Sequence[View | MixedView], random: np.random.Generator) -> PieceBags:
        """Tokenise the texts of all views, concatenated, with piece dropout. Texts without augmentation were tokenised before."""
        bags = [
            self._tokenize(part.read(random)[0], self.max_length) if part.is_augmented else self.tokenized[id(part.texts)].take(part.rows)
            for view in views
            for part in view.parts
        ]
        return PieceBags.concatenate(bags).drop_pieces(self.settings.piece_dropout, random)

    def split_chunks(self, bags: PieceBags, size: int | None) -> list[Ints]:  # noqa: ARG002
        """Return all texts as one chunk: every chunk would repeat the spelling product, which costs more than the texts."""
        return [np.arange(len(bags))]

    def inference(self) -> AbstractContextManager["StaticModel"]:
        """Encode as the exported encoder does, which is no different here."""
        return nullcontext(self)

    def table(self) -> Tensor:
        """Return the vectors (pieces, dim). With gradients, it is a leaf that is computed once per optimizer step."""
        if not torch.is_grad_enabled():
            vectors: Tensor = self.vectors()
            return vectors
        if self.leaf is None:
            self.computed = self.vectors()
            self.leaf = self.computed.detach().requires_grad_()
        return self.leaf

    def finish_backward(self) -> None:
        """Backpropagate the gradient of the table to the parameters, which all texts of an optimizer step share."""
        if self.computed is not None and self.leaf is not None:
            self.computed.backward(self.leaf.grad)  # type: ignore[no-untyped-call]
        self.computed = self.leaf = None

    def collate(self, bags: PieceBags, rows: Ints) -> dict[str, Tensor]:
        """Return the pieces of rows (n,), and the offset (n,) of the first piece of each."""
        if len(rows) != len(bags):
            bags = bags.take(rows)
        return {"pieces": torch.from_numpy(bags.flat.astype(np.int64)), "offsets": torch.from_numpy(bags.bounds[:-1])}

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the sums (n, dim) of collated texts."""
        table = self.table()
        pieces, offsets = (upload(inputs[name], table.device) for name in ("pieces", "offsets"))
        return functional.embedding_bag(pieces, table, offsets, mode="sum")

    def look_up(self, pieces: npt.NDArray[np.int32]) -> Tensor:
        """Return the vectors (n, dim) of n pieces."""
        table = self.table()
        return functional.embedding(upload(torch.from_numpy(pieces.astype(np.int64)), table.device), table)

    def __deepcopy__(self, memo: dict[int, Any]) -> "StaticModel":
        """Copy the parameters; share the tokenised texts, the tokeniser and the spelling matrices, which never change."""
        memo |= {id(shared): shared for shared in (self.tokenized, self.processor, self.vectors.matrix, self.vectors.transposed)}
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return twin

    def save(self, folder: Path) -> None:
        """Write the encoder in the format that `load_encoder` reads, its vectors rotated to their principal axes.

        With rates, they are not rotated: those of rate 0 keep their bytes.
        """
        with torch.no_grad():
            table = self.vectors().cpu().numpy()
        table[self.processor.unk_id()] = 0  # the unknown piece carries no meaning
        vectors = table if self.vectors.has_rates else rotate_to_principal_axes(table)
        static.save(folder, vectors, self.pieces_model, min(TOKEN_DIM, self.dim), self.settings.eight_bit_dims)
        static_export.write(folder)
