"""Contrastive losses and alignments: tensors in, a scalar out.

Every contrastive loss compares an anchor's similarity to a positive with its similarities to negatives; the losses differ in
what counts as a negative. For one positive the loss of a row is `-log exp(s / t) / (exp(s / t) + sum over negatives exp(s_j / t))`,
computed as `log(1 + exp(N - s / t))` from N, the log-sum over negatives. A row without negatives has loss 0.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from miner.errors import ConfigError


@dataclass(frozen=True)
class Tiling:
    """Size of the tiles in which a similarity matrix is computed, which bounds the memory of a loss."""

    similarities: int = 1 << 22  # per tile
    min_rows: int = 128  # per tile, however many columns it has: matrix products of fewer rows are slow

    def row_slices(self, rows: int, columns: int) -> list[slice]:
        """Cut a (rows, columns) matrix into slices of rows; no slices for a matrix without columns."""
        if not columns:
            return []
        size = max(self.min_rows, self.similarities // columns)
        return [slice(start, start + size) for start in range(0, rows, size)]


DEFAULT_TILING = Tiling()


@dataclass(frozen=True)
class EmbeddingBatch:
    """n anchors with their positives and hard negatives, as unit rows of dimension d.

    Anchors with the same number in `groups` have the same meaning. The positives and hard negatives of a group are therefore no
    negatives of its anchors, nor are hard negatives of other groups whose text is in the group. The exception is an anchor's own
    hard negative, which always counts.
    """

    anchors: Tensor  # (n, d)
    positives: Tensor  # (p, d)
    groups: Tensor  # (n,) integers
    owners: Tensor | None = None  # (p,) the anchor of each positive; None: positive i belongs to anchor i
    negatives: Tensor | None = None  # (k, d) hard negatives
    weights: Tensor | None = None  # (n,) of the anchors in the mean; None: equal
    negative_groups: Tensor | None = None  # (k,) the group that contains each hard negative, or -1; None: no group does
    negative_owners: Tensor | None = None  # (k,) the anchor of each hard negative; None: hard negative i belongs to anchor i
    tiling: Tiling = DEFAULT_TILING

    def anchor_of_positives(self) -> Tensor:
        """Return the row (p,) of the anchor of each positive."""
        return torch.arange(len(self.positives), device=self.groups.device) if self.owners is None else self.owners

    def split(self, sizes: Sequence[int]) -> Iterator["EmbeddingBatch"]:
        """Split a batch of one positive per anchor, without hard negatives, into batches of these sizes; one size is the whole batch."""
        if len(sizes) == 1:
            yield self
            return
        columns = {
            name: torch.split(rows, list(sizes))
            for name, rows in vars(self).items()
            if rows is not None and name not in ("owners", "tiling")
        }
        for rows in zip(*columns.values(), strict=True):
            yield EmbeddingBatch(**dict(zip(columns, rows, strict=True)), tiling=self.tiling)


def info_nce(batch: EmbeddingBatch, temperature: float, two_way: bool = False, hard_weight: float = 0.0) -> Tensor:
    """Return the weighted mean InfoNCE loss over anchors with one positive each.

    The loss of anchor i is `-log exp(s_ii / t) / (sum_j exp(s_ij / t) + sum_j exp(r_ij / t + w [o_j = i]))`, where s is its similarity
    to the positives and r to the hard negatives, if any; hard negative j is that of anchor o_j (van den Oord et al. 2018, eq. 4; Gao et
    al. 2021, eq. 5; their appendix defines the weight w, `hard_weight`, a logit added to a row's own hard negative). `two_way`
    averages it with the loss in which the positives retrieve their anchors, without hard negatives (Yang et al. 2019).
    """
    positive_logits = (batch.anchors * batch.positives).sum(dim=1) / temperature
    forward, backward = log_sums(batch.anchors, batch.positives, (batch.groups, batch.groups), temperature, two_way, batch.tiling)
    losses = softplus(_add_hard_negatives(batch, forward, temperature, hard_weight) - positive_logits)
    if two_way:
        losses = (losses + softplus(backward - positive_logits)) / 2
    return _weighted_mean(losses, batch.weights)


def multi_positive(batch: EmbeddingBatch, temperature: float | Tensor, form: str = "out", siblings: bool = True) -> Tensor:
    """Return the weighted mean loss over the anchors that have positives, any number of them.

    With q_ip = exp(s_ip / t) / D_ip, the loss of anchor i is `-mean_p log q_ip` over its positives P_i in the form "out", and
    `-log mean_p q_ip` in the form "in" (Khosla et al. 2020, eq. 2 and 3; Zhao et al. 2024). D_ip sums exp(s / t) over P_i and
    the negatives of i, its own hard negative included; without `siblings`, over p and the negatives. Raise ConfigError for an
    unknown form.
    """
    if form not in FORMS:
        raise ConfigError(f"unknown form {form!r}; one of {', '.join(FORMS)}")
    owners, num_anchors = batch.anchor_of_positives(), len(batch.anchors)
    positive_logits = (batch.anchors[owners] * batch.positives).sum(dim=1) / temperature
    negatives = _add_hard_negatives(batch, _log_sums_over_positives(batch, temperature), temperature)
    if siblings:
        log_shares = positive_logits - torch.logaddexp(_log_sum_by_owner(owners, positive_logits, num_anchors), negatives)[owners]
    else:
        log_shares = -softplus(negatives[owners] - positive_logits)
    return _mean_over_owners(FORMS[form](owners, log_shares, num_anchors), owners, batch.weights)


def rescaled_temperature(batch: EmbeddingBatch, temperature: float) -> Tensor:
    """Return the temperature, a scalar, that has the effect of rescaling all similarities to 0..1 and using `temperature`.

    Rescaling is (s - min) / (max - min) over all similarities of anchors to positives and hard negatives (Zhao et al. 2024).
    Subtracting a constant cancels in a quotient of exponentials, so only the division remains, and the temperature can absorb
    it. Where all similarities are equal, return `temperature`.
    """
    keys = batch.positives if batch.negatives is None else torch.cat([batch.positives, batch.negatives])
    similarities = batch.anchors @ keys.T
    spread = similarities.max() - similarities.min()
    return temperature * torch.where(spread > 0, spread, 1.0)


def label_contrast(batch: EmbeddingBatch, labels: Tensor, temperature: float) -> Tensor:
    """Return the mean over anchors, with class labels (n,), of the mean loss of their views, which are the positives of the batch.

    InfoNCE in which only views of anchors with another label are negatives (Wang et al. 2022, "Supervised Contrastive Learning for
    Cross-lingual Transfer Learning"): `-log exp(s_ip / t) / (exp(s_ip / t) + sum over j with another label exp(s_ij / t))`.
    """
    return multi_positive(replace(batch, groups=labels, negatives=None), temperature, siblings=False)


def retrieval_contrast(batch: EmbeddingBatch, temperature: float) -> Tensor:
    """Return the mean over anchors of label-aware contrast for retrieval, with groups as labels (Wang et al. 2022, as above).

    Translations and translated paraphrases are positives: all those in an anchor's group, whichever anchor owns them. The loss
    of anchor i is the sum over them (section 5.4) of `-log exp(s_ip / t) / (exp(s_ip / t) + sum over negatives exp(s_ij / t))`.
    """
    same_group = batch.groups[:, None] == batch.groups[batch.anchor_of_positives()]
    rows, columns = same_group.nonzero(as_tuple=True)
    positive_logits = (batch.anchors[rows] * batch.positives[columns]).sum(dim=1) / temperature
    negatives = _add_hard_negatives(batch, _log_sums_over_positives(batch, temperature), temperature)
    losses = positive_logits.new_zeros(len(batch.anchors)).index_add(0, rows, softplus(negatives[rows] - positive_logits))
    return _mean_over_owners(losses, rows, batch.weights)


def alignment(first: Tensor, second: Tensor, distance: str) -> Tensor:
    """Return the mean distance between two views of n rows, (n, d) unit vectors each; a loss without negatives.

    Multi-view alignment (Wang et al. 2022). "cosine" is 1 - cos; "mse" `sum_c (x_c - y_c)^2`; "kl" `sum_c p_c log(p_c / q_c)` with p
    and q the softmax of x and of y, since vectors have negative components; "symmetric_kl" that sum plus the one with p and q
    exchanged. Raise ConfigError for an unknown distance.
    """
    if distance not in DISTANCES:
        raise ConfigError(f"unknown distance {distance!r}; one of {', '.join(DISTANCES)}")
    return _weighted_mean(DISTANCES[distance](first, second), None)


def _cosine_distance(first: Tensor, second: Tensor) -> Tensor:
    return 1 - functional.cosine_similarity(first, second, dim=1)


def _squared_error(first: Tensor, second: Tensor) -> Tensor:
    return (first - second).square().sum(dim=1)


def _kl_divergence(first: Tensor, second: Tensor) -> Tensor:
    p, q = first.log_softmax(dim=1), second.log_softmax(dim=1)
    return (p.exp() * (p - q)).sum(dim=1)


def _symmetric_kl_divergence(first: Tensor, second: Tensor) -> Tensor:
    return _kl_divergence(first, second) + _kl_divergence(second, first)


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": _cosine_distance,
    "mse": _squared_error,
    "kl": _kl_divergence,
    "symmetric_kl": _symmetric_kl_divergence,
}


def log_sums(
    queries: Tensor,
    keys: Tensor,
    groups: tuple[Tensor, Tensor],
    temperature: float | Tensor,
    two_way: bool = False,
    tiling: Tiling = DEFAULT_TILING,
) -> tuple[Tensor, Tensor]:
    """Queries (n, d), keys (m, d) and their groups (n,), (m,) -> the log of the sum over negatives of exp(s / t).

    The first result (n,) sums over the keys of each query; the second (m,), for `two_way`, over the queries of each key. Negatives
    are those of another group; a key may be in several groups, (m, s). Without a negative the result is the most negative finite
    number, since minus infinity would have a gradient of NaN.
    """
    sums: tuple[Tensor, Tensor] = LogSums.apply(queries / temperature, keys, *groups, two_way, tiling)  # type: ignore[no-untyped-call]
    return sums


class LogSums(torch.autograd.Function):
    """`log_sums` that holds one tile of the (n, m) similarities at a time; the backward pass computes them again."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, query_groups: Tensor, key_groups: Tensor, two_way: bool, tiling: Tiling
    ) -> tuple[Tensor, Tensor]:
        minimum = torch.finfo(queries.dtype).min
        row_sums, column_sums = queries.new_full((len(queries),), minimum), queries.new_full((len(keys),), minimum)
        for rows in tiling.row_slices(len(queries), len(keys)):
            logits = queries[rows] @ keys.T
            logits.masked_fill_(_is_same_group(query_groups[rows], key_groups), minimum)
            row_sums[rows] = _log_sum(logits, dim=1).clamp_min(minimum)
            if two_way:
                column_sums = torch.logaddexp(column_sums, _log_sum(logits, dim=0))
        ctx.save_for_backward(queries, keys, query_groups, key_groups, row_sums, column_sums)
        ctx.two_way, ctx.tiling = two_way, tiling
        return row_sums, column_sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, row_gradient: Tensor, column_gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The derivative of a log-sum with respect to a logit is the softmax at that logit."""
        queries, keys, query_groups, key_groups, row_sums, column_sums = ctx.saved_tensors
        query_gradient, key_gradient = torch.zeros_like(queries), torch.zeros_like(keys)
        for rows in ctx.tiling.row_slices(len(queries), len(keys)):
            logits = queries[rows] @ keys.T
            logit_gradient = (logits - row_sums[rows, None]).exp_().mul_(row_gradient[rows, None])
            if ctx.two_way:
                logit_gradient += logits.sub_(column_sums).exp_().mul_(column_gradient)
            logit_gradient.masked_fill_(_is_same_group(query_groups[rows], key_groups), 0)
            query_gradient[rows] = logit_gradient @ keys
            key_gradient.addmm_(logit_gradient.T, queries[rows])
        return query_gradient, key_gradient, None, None, None, None


def _is_same_group(query_groups: Tensor, key_groups: Tensor) -> Tensor:
    """Groups (n,) and (m,) or (m, s) -> (n, m), whether a query is in a group of the key."""
    first, *others = key_groups.reshape(len(key_groups), -1).unbind(1)
    is_same = query_groups[:, None] == first
    for other in others:
        is_same |= query_groups[:, None] == other
    return is_same


def _log_sum(logits: Tensor, dim: int) -> Tensor:
    """Compute torch.logsumexp for finite numbers, ten times as fast on CPUs."""
    maximum = logits.amax(dim=dim, keepdim=True)
    return (logits - maximum).exp_().sum(dim=dim).log_().add_(maximum.squeeze(dim))


def _log_sums_over_positives(batch: EmbeddingBatch, temperature: float | Tensor) -> Tensor:
    """Return the log-sums (n,) over the positives of other groups."""
    groups = batch.groups, batch.groups[batch.anchor_of_positives()]
    sums, _ = log_sums(batch.anchors, batch.positives, groups, temperature, tiling=batch.tiling)
    return sums


def _add_hard_negatives(batch: EmbeddingBatch, sums: Tensor, temperature: float | Tensor, hard_weight: float = 0.0) -> Tensor:
    """Add the hard negatives, always including an anchor's own, to log-sums (n,) over negatives."""
    if batch.negatives is None:
        return sums
    owners = torch.arange(len(batch.negatives), device=batch.groups.device) if batch.negative_owners is None else batch.negative_owners
    own_logits = (batch.anchors[owners] * batch.negatives).sum(dim=1) / temperature + hard_weight
    own = _log_sum_by_owner(owners, own_logits, len(batch.anchors))
    owner_groups = batch.groups[owners]
    key_groups = owner_groups if batch.negative_groups is None else torch.stack([owner_groups, batch.negative_groups], dim=1)
    others, _ = log_sums(batch.anchors, batch.negatives, (batch.groups, key_groups), temperature, tiling=batch.tiling)
    return torch.logaddexp(torch.logaddexp(sums, others), own)


def _log_sum_by_owner(owners: Tensor, values: Tensor, num_owners: int) -> Tensor:
    """Values (p,) -> (num_owners,) the log of the sum of exponentials per owner; finite for an owner without values, too."""
    info = torch.finfo(values.dtype)
    maximum = values.new_full((num_owners,), info.min).scatter_reduce(0, owners, values.detach(), "amax")
    sums = values.new_zeros(num_owners).index_add(0, owners, (values - maximum[owners]).exp())
    return sums.clamp_min(info.tiny).log() + maximum


def _mean_log_share(owners: Tensor, log_shares: Tensor, num_owners: int) -> Tensor:
    """log q (p,) -> (num_owners,) minus the mean of log q per owner."""
    weights = 1 / torch.bincount(owners, minlength=num_owners).to(log_shares.dtype)
    return log_shares.new_zeros(num_owners).index_add(0, owners, -log_shares * weights[owners])


def _log_mean_share(owners: Tensor, log_shares: Tensor, num_owners: int) -> Tensor:
    """log q (p,) -> (num_owners,) minus the log of the mean of q per owner."""
    counts = torch.bincount(owners, minlength=num_owners).clamp_min(1).to(log_shares.dtype)
    return counts.log() - _log_sum_by_owner(owners, log_shares, num_owners)


FORMS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {"out": _mean_log_share, "in": _log_mean_share}


def softplus(x: Tensor) -> Tensor:
    """Compute log(1 + exp(x)) to full precision; torch's softplus returns x above 20."""
    return -functional.logsigmoid(-x)


def _mean_over_owners(losses: Tensor, owners: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean of losses (n,) over the anchors that own a positive."""
    has_positive = torch.bincount(owners, minlength=len(losses)) > 0
    return _weighted_mean(losses[has_positive], None if weights is None else weights[has_positive])


def _weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Return the weighted mean of losses (n,); 0 for n = 0 or where all weights are 0."""
    if weights is None:
        return losses.sum() / max(1, len(losses))
    total = weights.sum()
    return (losses * weights).sum() / torch.where(total > 0, total, 1.0)
