"""Train a static encoder from groups of translations: pieces first, then their vectors by contrast."""

import json
import logging
import math
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece
import torch
from torch import Tensor, nn
from torch.nn import functional

from miner import storage
from miner.config import StaticSettings, TrainConfig
from miner.encoders import static
from miner.errors import DataError
from miner.training.examples import Block, BlockSampler, Groups, Ints, read_groups
from miner.training.losses import Vectors, info_nce
from miner.training.spelling import SparseProduct, spelling_matrix
from miner.training.vocabulary import train_pieces

LAST_RATE = 0.02  # of the learning rate, at the last step
EVERY = 20  # steps between two lines of the log

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """What a training run came to."""

    encoder: str  # its folder
    texts: int
    languages: int
    pairs: int
    loss: float  # mean of the last steps


@dataclass(frozen=True)
class Pieces:
    """n tokenised texts: text i is `flat[bounds[i]:bounds[i + 1]]`."""

    flat: npt.NDArray[np.int32]
    bounds: Ints

    @classmethod
    def of(cls, groups: Groups, processor: Any, longest: int) -> "Pieces":
        flat, lengths = [], [np.zeros(1, dtype=np.int64)]
        for chunk in groups.texts.chunks:
            ids = [piece[:longest] for piece in processor.encode(chunk.to_pylist(), num_threads=storage.available_cores())]
            lengths.append(np.fromiter(map(len, ids), dtype=np.int64, count=len(ids)))
            flat.append(np.fromiter(chain.from_iterable(ids), dtype=np.int32, count=int(lengths[-1].sum())))
        return cls(np.concatenate(flat), np.cumsum(np.concatenate(lengths)))

    def bags(self, rows: Ints, dropout: float, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Rows (n,) -> their pieces, joined, and the offset (n,) of each; every piece is left out with probability `dropout`."""
        lengths = self.bounds[rows + 1] - self.bounds[rows]
        starts = np.cumsum(lengths) - lengths
        flat = self.flat[np.repeat(self.bounds[rows] - starts, lengths) + np.arange(lengths.sum())]
        kept = random.random(len(flat)) >= dropout
        before = np.concatenate([[0], np.cumsum(kept)])
        return torch.from_numpy(flat[kept].astype(np.int64)), torch.from_numpy(before[starts])


class PieceVectors(nn.Module):
    """(pieces, dim) vectors: a row of its own for each piece, plus what its spelling shares with others."""

    def __init__(self, pieces: list[str], settings: StaticSettings) -> None:
        super().__init__()
        scale = 1.6 / math.sqrt(settings.dim)
        shared = settings.spelling_buckets > 0
        self.own = nn.Parameter(torch.randn(len(pieces), settings.dim) * (0.3 * scale if shared else scale))
        self.shared = nn.Parameter(torch.randn(settings.spelling_buckets, settings.dim) * scale) if shared else None
        if shared:
            matrix = spelling_matrix(pieces, settings.spelling_buckets)
            self.transposed = matrix.t().coalesce().to_sparse_csr()
            self.matrix = matrix.to_sparse_csr()

    def forward(self) -> Tensor:
        if self.shared is None:
            return self.own
        shared: Tensor = SparseProduct.apply(self.shared, self.matrix, self.transposed)  # type: ignore[no-untyped-call]
        return self.own + shared


def embed(vectors: Tensor, pieces: Tensor, offsets: Tensor) -> Tensor:
    """Vectors (p, d), joined pieces and the offset (n,) of each text -> (n, d) unit rows."""
    return functional.normalize(functional.embedding_bag(pieces, vectors, offsets, mode="sum"), dim=1)


def train(config: TrainConfig, output: str) -> Training:
    """Train by `config` and write OUTPUT/encoder and OUTPUT/log.jsonl.

    Raises DataError where the data cannot be read or the loss stops being a number.
    """
    torch.manual_seed(config.seed)
    groups = read_groups(config.data)
    logger.info("%d texts in %d languages; training %d pieces", len(groups), len(groups.languages), config.vocabulary.size)
    model = train_pieces(groups, config.vocabulary, config.seed, storage.available_cores())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = Pieces.of(groups, processor, config.encoder.max_pieces)
    names = [processor.id_to_piece(piece) for piece in range(processor.get_piece_size())]
    vectors = PieceVectors(names, config.encoder)
    sampler = BlockSampler(groups, config.encoder.pivot, config.encoder.language_smoothing, config.encoder.pivot_share, config.seed)
    log = _optimise(vectors, pieces, sampler, config)
    with torch.no_grad():
        table = vectors().numpy()
    table[processor.unk_id()] = 0  # characters never seen say nothing
    encoder = storage.join(output, "encoder")
    static.save(encoder, table, model)
    storage.write_json(storage.join(output, "train.json"), config.model_dump())
    with storage.atomic(storage.join(output, "log.jsonl")) as handle:
        handle.writelines((json.dumps(line) + "\n").encode() for line in log)
    return Training(encoder, len(groups), len(groups.languages), int(log[-1]["pairs"]), log[-1]["loss"])


def _optimise(vectors: PieceVectors, pieces: Pieces, sampler: BlockSampler, config: TrainConfig) -> list[dict[str, float]]:
    """Run the steps; the log, a line for every few of them."""
    settings = config.encoder
    optimiser = torch.optim.AdamW(vectors.parameters(), lr=settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    random = np.random.default_rng(config.seed + 1)
    blocks = sampler.blocks(settings.block_size)
    log, recent, pairs = [], [], 0
    for step in range(settings.steps):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * rate(step, settings)
        drawn = list(islice(blocks, settings.blocks))
        loss = _loss(vectors(), drawn, pieces, sampler.groups, settings, random)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        recent.append(loss.item())
        pairs += sum(len(block.anchors) for block in drawn)
        if not math.isfinite(recent[-1]):
            raise DataError(f"step {step}: the loss is {recent[-1]}; lower encoder.learning_rate or raise encoder.temperature")
        progress = {"stage": "train", "done": step + 1, "total": settings.steps, "unit": "step", "note": f"loss {recent[-1]:.3f}"}
        logger.info("train: step %d of %d, loss %.4f", step + 1, settings.steps, recent[-1], extra={"progress": progress})
        if (step + 1) % EVERY == 0 or step + 1 == settings.steps:
            log.append({"step": step + 1, "pairs": pairs, "loss": float(np.mean(recent))})
            recent = []
    return log


def rate(step: int, settings: StaticSettings) -> float:
    """The factor of the learning rate at a step: a linear rise, then a linear fall."""
    return min(1.0, (step + 1) / max(1, settings.warmup_steps)) * max(LAST_RATE, 1 - step / settings.steps)


def _loss(
    vectors: Tensor, drawn: list[Block], pieces: Pieces, groups: Groups, settings: StaticSettings, random: np.random.Generator
) -> Tensor:
    """The mean over the pairs of all blocks; negatives come from a pair's own block."""
    anchors, positives = (
        embed(vectors, *pieces.bags(rows, settings.piece_dropout, random))
        for rows in (np.concatenate([block.anchors for block in drawn]), np.concatenate([block.positives for block in drawn]))
    )
    sizes = [len(block.anchors) for block in drawn]
    members = [torch.from_numpy(groups.group[block.anchors]) for block in drawn]
    losses = [
        info_nce(Vectors(x, y, of), settings.temperature, two_way=True) * len(of)
        for x, y, of in zip(torch.split(anchors, sizes), torch.split(positives, sizes), members, strict=True)
        if len(of)
    ]
    return torch.stack(losses).sum() / sum(sizes)
