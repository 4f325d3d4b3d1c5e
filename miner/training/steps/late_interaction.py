"""Late interaction in training: contrast of a translation with its nearest wrong candidates, piece by piece.

The score of two texts is late interaction (Khattab and Zaharia 2020, eq. 3) in both directions, weighted by the lengths of the vectors.
Scores of all pairs of a batch would cost too much, so its pairs are divided into clusters of pairs that the mean vectors confuse, and a
text is contrasted with the translations of its cluster.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
import pydantic
import torch
from torch import Tensor
from torch.nn import functional

from miner.training.data.batches import ANCHOR, POSITIVE, Floats, Ints
from miner.training.models.piece_bags import PieceBags
from miner.training.steps.step import LossContext, LossTerm, ObjectiveSettings, TrainingStep

TINY = 1e-8  # avoids a division by the length of an empty text
CLUSTERS_AT_ONCE = 32  # per product: the cosines of their pieces fit the cache


def late_scores(first: Tensor, second: Tensor) -> Tensor:
    """Piece vectors (k, g, p, d) and (k, g, q, d) of g texts each in k clusters -> scores (k, g, g) of all pairs of a cluster.

    Zero vectors are padding. The score of texts with unit vectors u_i, v_j of lengths a_i, b_j is
    `(sum_i a_i max_j u_i.v_j / sum_i a_i + sum_j b_j max_i u_i.v_j / sum_j b_j) / 2`.
    """
    clusters, size, pieces, dim = first.shape
    first_norms, second_norms = first.norm(dim=3), second.norm(dim=3)
    first_unit = (first / first_norms.clamp(min=TINY)[..., None]).reshape(clusters, size * pieces, dim)
    second_unit = (second / second_norms.clamp(min=TINY)[..., None]).reshape(clusters, -1, dim)
    cosines = torch.bmm(first_unit, second_unit.transpose(1, 2)).view(clusters, size, pieces, size, -1)
    is_padding = (first_norms == 0)[..., None, None] | (second_norms == 0)[:, None, None]
    cosines = cosines.masked_fill(is_padding, -1.0)
    forward = torch.einsum("kgp,kgph->kgh", _shares(first_norms), cosines.max(dim=4).values)
    backward = torch.einsum("khq,kghq->kgh", _shares(second_norms), cosines.max(dim=2).values)
    return (forward + backward) / 2


def _shares(norms: Tensor) -> Tensor:
    return norms / norms.sum(dim=2, keepdim=True).clamp(min=TINY)


def pad_chunks(vectors: Tensor, bags: PieceBags, sizes: Sequence[int]) -> Iterator[Tensor]:
    """Vectors (all pieces, dim) of the pieces of `bags` -> (n, pieces of the longest, dim) for chunks of n texts, padded with zeros."""
    ends = np.cumsum((0, *sizes))
    chunk_bounds = [bags.bounds[start : end + 1] for start, end in pairwise(ends)]
    # Split, since the gradient of a slice is as large as all pieces.
    parts = torch.split(vectors, [int(bounds[-1] - bounds[0]) for bounds in chunk_bounds])
    for part, bounds in zip(parts, chunk_bounds, strict=True):
        lengths = np.diff(bounds)
        width = max(1, int(lengths.max()))
        rows = np.arange(len(part)) + np.repeat(np.arange(len(lengths)) * width - (bounds[:-1] - bounds[0]), lengths)
        padded = part.new_zeros(len(lengths) * width, part.shape[1])
        padded = padded.index_copy(0, torch.from_numpy(rows).to(part.device), part)
        yield padded.view(len(lengths), width, -1)


def cluster_pairs(similarities: Floats, size: int) -> Ints:
    """Divide n pairs, given the similarities (n, n) of their texts, into clusters (n // size, size) of similar pairs.

    The first pair that is left takes its nearest ones, and so on; the last n % size pairs are left out.
    """
    affinity = similarities + similarities.T
    np.fill_diagonal(affinity, np.inf)  # a pair belongs to its own cluster
    is_free = np.ones(len(affinity), dtype=bool)
    clusters = np.empty((len(affinity) // size, size), dtype=np.int64)
    for cluster in clusters:
        free = np.flatnonzero(is_free)
        cluster[:] = free[np.argpartition(-affinity[free[0], free], size - 1)[:size]]
        is_free[cluster] = False
    return clusters


class LateInteractionSettings(ObjectiveSettings):
    """Contrast by late interaction of piece vectors, among pairs that the mean vectors confuse."""

    loss: Literal["late_interaction"]
    temperature: float = pydantic.Field(0.05, gt=0)
    candidates: int = pydantic.Field(
        8, ge=2, description="Candidates of a text: its translation and those of the most similar texts of the batch."
    )
    max_pairs: int | None = pydantic.Field(
        None, ge=2, description="Maximum number of pairs of a batch that are contrasted, which bounds the time; null: all."
    )


class LateInteractionTerm(LossTerm):
    """Contrast a translation with the translations of similar texts, by late interaction of the pieces of a static encoder."""

    def __init__(self, settings: LateInteractionSettings, context: LossContext) -> None:
        super().__init__(settings, context)
        self.towers = tuple(context.towers)  # a tuple, since their weights are not this term's

    def forward(self, step: TrainingStep) -> Tensor:
        """Return the mean cross entropy of both directions over the texts of all clusters of this process."""
        clusters = self._cluster(step)
        groups = step.tensor(step.batch.groups[step.local_rows(ANCHOR)])
        if not len(clusters):
            return step.vectors[ANCHOR].sum() * 0  # no block has enough pairs
        tokens = [step.local_tokens(ANCHOR), step.local_tokens(POSITIVE)]
        # Clusters of similar length together, to save padding. One lookup for all, since its gradient is as large as the vocabulary.
        clusters = clusters[np.argsort(sum(np.diff(bags.bounds)[clusters].max(axis=1) for bags in tokens), kind="stable")]
        tokens = [bags.take(clusters.ravel()) for bags in tokens]
        pieces = [tower.look_up(bags.flat) for tower, bags in zip((self.towers[0], self.towers[-1]), tokens, strict=True)]
        chunks = np.split(clusters, range(CLUSTERS_AT_ONCE, len(clusters), CLUSTERS_AT_ONCE))
        padded = [pad_chunks(*side, [rows.size for rows in chunks]) for side in zip(pieces, tokens, strict=True)]
        losses = [
            self._sum_losses(late_scores(first.unflatten(0, rows.shape), second.unflatten(0, rows.shape)), groups[torch.from_numpy(rows)])
            for rows, first, second in zip(chunks, *padded, strict=True)
        ]
        return torch.stack(losses).sum() / clusters.size

    def _cluster(self, step: TrainingStep) -> Ints:
        """Return the clusters (k, candidates) of the pairs that this process encodes, each within a block."""
        local = step.local_rows(ANCHOR)
        first, second = (step.unit_vectors[view].detach()[local] for view in (ANCHOR, POSITIVE))
        bounds = np.cumsum((0, *(step.batch.blocks or (len(step.batch),))))
        bounds = np.unique(np.clip(bounds, local.start, local.stop) - local.start)
        clusters = [
            start + cluster_pairs((first[start:end] @ second[start:end].T).cpu().numpy(), self.settings.candidates)
            for start, end in pairwise(bounds)
        ]
        merged = np.concatenate([np.empty((0, self.settings.candidates), dtype=np.int64), *clusters])
        if self.settings.max_pairs is None:
            return merged
        # Evenly spaced, so that each block keeps its share.
        count = min(len(merged), max(1, self.settings.max_pairs // self.settings.candidates))
        return merged[np.arange(count) * len(merged) // count] if count else merged

    def _sum_losses(self, scores: Tensor, groups: Tensor) -> Tensor:
        """Scores (k, g, g) and groups (k, g) -> the sum over texts of the cross entropy, the mean of both directions."""
        size = groups.shape[1]
        is_same = (groups[:, :, None] == groups[:, None]) & ~torch.eye(size, dtype=torch.bool, device=groups.device)
        logits = (scores / self.settings.temperature).masked_fill(is_same, -torch.inf)
        truth = torch.arange(size, device=groups.device).repeat(len(groups))
        directions = logits, logits.transpose(1, 2)
        return torch.stack([functional.cross_entropy(rows.flatten(0, 1), truth, reduction="sum") for rows in directions]).sum() / 2
