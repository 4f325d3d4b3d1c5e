"""Contrastive losses and alignments: tensors in, a scalar out.

All of the contrastive losses compare an anchor's similarity to what says the same with the sum over its negatives; they differ in
what those are. A row's loss for one positive is `-log exp(s / t) / (exp(s / t) + sum over negatives exp(s_j / t))`, which is
computed as `log(1 + exp(N - s / t))` from N, the logarithm of the sum over negatives. Where no negative is left it is 0.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from miner.errors import ConfigError

PART = 1 << 22  # similarities held at a time
LEAST_ROWS = 128  # of a part, however many columns it has: shorter ones waste the processor


@dataclass(frozen=True)
class EmbeddingBatch:
    """n anchors and what belongs to them: unit rows of d numbers.

    Anchors with one number in `groups` are known to say the same. So no anchor has a negative among the positives and hard
    negatives of its group, nor in a hard negative of another that is a text of its group; but its own hard negative is one.
    """

    anchors: Tensor  # (n, d)
    positives: Tensor  # (p, d)
    groups: Tensor  # (n,) integers
    owners: Tensor | None = None  # (p,) the anchor of each positive; None: positive i is anchor i's
    negatives: Tensor | None = None  # (n, d) a hard negative for each anchor
    weights: Tensor | None = None  # (n,) what the anchors count in the mean; None: the same
    negative_groups: Tensor | None = None  # (n,) the group of which a hard negative is a text, or a number of no group; None: of none

    def owned(self) -> Tensor:
        """(p,) the anchor of each positive."""
        return torch.arange(len(self.positives), device=self.groups.device) if self.owners is None else self.owners

    def runs(self, sizes: Sequence[int]) -> Iterator["EmbeddingBatch"]:
        """Runs of so many anchors, each with one positive, as batches of their own."""
        columns = {name: torch.split(rows, list(sizes)) for name, rows in vars(self).items() if rows is not None and name != "owners"}
        for rows in zip(*columns.values(), strict=True):
            yield EmbeddingBatch(**dict(zip(columns, rows, strict=True)))


def info_nce(batch: EmbeddingBatch, temperature: float, two_way: bool = False, hard_weight: float = 0.0) -> Tensor:
    """One positive for each anchor -> the weighted mean over anchors of their losses.

    The loss of anchor i is `-log exp(s_ii / t) / (sum_j exp(s_ij / t) + sum_j exp(r_ij / t + w [i = j]))`, s its similarity to the
    positives and r to the hard negatives, if there are any (van den Oord et al. 2018, eq. 4; Gao et al. 2021, eq. 5 and
    appendix on the weight: a logit, for a row's own hard negative alone). `two_way` takes the mean of it and of the loss with the
    positives looking for their anchors, without hard negatives (Yang et al. 2019).
    """
    right = (batch.anchors * batch.positives).sum(dim=1) / temperature
    forward, backward = log_sums(batch.anchors, batch.positives, (batch.groups, batch.groups), temperature, two_way)
    losses = softplus(_with_hard(batch, forward, temperature, hard_weight) - right)
    if two_way:
        losses = (losses + softplus(backward - right)) / 2
    return _mean(losses, batch.weights)


def multi_positive(batch: EmbeddingBatch, temperature: float | Tensor, form: str = "out", siblings: bool = True) -> Tensor:
    """Any number of positives for each anchor -> the weighted mean over the anchors that have some.

    With q_ip = exp(s_ip / t) / D_ip, the loss of anchor i is `-mean_p log q_ip` over its positives P_i in the form "out", and
    `-log mean_p q_ip` in the form "in" (Khosla et al. 2020, eq. 2 and 3; Zhao et al. 2024). D_ip sums exp(s / t) over P_i and
    the negatives of i, its own hard negative included; without `siblings`, over p and the negatives. Raises ConfigError for an
    unknown form.
    """
    if form not in FORMS:
        raise ConfigError(f"unknown form {form!r}; one of {', '.join(FORMS)}")
    owners, count = batch.owned(), len(batch.anchors)
    right = (batch.anchors[owners] * batch.positives).sum(dim=1) / temperature
    negatives = _with_hard(batch, _log_sums_to_positives(batch, temperature), temperature)
    if siblings:
        terms = right - torch.logaddexp(_log_sum_by(owners, right, count), negatives)[owners]
    else:
        terms = -softplus(negatives[owners] - right)
    return _mean_over_positives(FORMS[form](owners, terms, count), owners, batch.weights)


def rescaled(batch: EmbeddingBatch, temperature: float) -> Tensor:
    """The temperature, a scalar, at which similarities act as they do at `temperature` once they are rescaled to 0..1.

    Rescaling is (s - least) / (largest - least), over all similarities of anchors to positives and hard negatives (Zhao et al. 2024).
    Sums of exponentials in a quotient do not feel what is subtracted, so only the division is left, and it can be the
    temperature's. Where all similarities are equal, it is `temperature`.
    """
    keys = batch.positives if batch.negatives is None else torch.cat([batch.positives, batch.negatives])
    similarities = batch.anchors @ keys.T
    spread = similarities.max() - similarities.min()
    return temperature * torch.where(spread > 0, spread, 1.0)


def label_contrast(anchors: Tensor, views: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Anchors (n, d), another view of each (n, d), and the labels (n,) of a classification -> the mean loss.

    InfoNCE whose negatives are the views of another label alone (Wang et al. 2022, "Supervised Contrastive Learning for
    Cross-lingual Transfer Learning"): `-log exp(s_ii / t) / (exp(s_ii / t) + sum over j with another label exp(s_ij / t))`.
    """
    right = (anchors * views).sum(dim=1) / temperature
    negatives, _ = log_sums(anchors, views, (labels, labels), temperature)
    return _mean(softplus(negatives - right), None)


def retrieval_contrast(batch: EmbeddingBatch, temperature: float) -> Tensor:
    """Label-aware contrast for retrieval, the groups being the labels (Wang et al. 2022, as above) -> the mean over anchors.

    Translations and translated paraphrases are positives: all those in an anchor's group, whichever anchor they belong to. The
    loss of anchor i is the mean over them of `-log exp(s_ip / t) / (exp(s_ip / t) + sum over negatives exp(s_ij / t))`.
    """
    members = batch.groups[:, None] == batch.groups[batch.owned()]
    rows, columns = members.nonzero(as_tuple=True)
    right = (batch.anchors[rows] * batch.positives[columns]).sum(dim=1) / temperature
    negatives = _with_hard(batch, _log_sums_to_positives(batch, temperature), temperature)
    losses = _outside(rows, -softplus(negatives[rows] - right), len(batch.anchors))
    return _mean_over_positives(losses, rows, batch.weights)


def alignment(first: Tensor, second: Tensor, distance: str) -> Tensor:
    """Two views of n rows, (n, d) each -> the mean over rows of how far apart they are, without negatives.

    "cosine" is 1 - cos; "mse" the mean of the squared differences; "kl" `sum_c p_c log(p_c / q_c)` with p and q the softmax of a
    row of the first and of the second view; "symmetric_kl" that sum and the one with p and q exchanged (multi-view alignment in Wang et
    al. 2022). Raises ConfigError for an unknown distance.
    """
    if distance not in DISTANCES:
        raise ConfigError(f"unknown distance {distance!r}; one of {', '.join(DISTANCES)}")
    return _mean(DISTANCES[distance](first, second), None)


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    return 1 - functional.cosine_similarity(first, second, dim=1)


def _squares(first: Tensor, second: Tensor) -> Tensor:
    return (first - second).square().mean(dim=1)


def _divergence(first: Tensor, second: Tensor) -> Tensor:
    p, q = first.log_softmax(dim=1), second.log_softmax(dim=1)
    return (p.exp() * (p - q)).sum(dim=1)


def _symmetric_divergence(first: Tensor, second: Tensor) -> Tensor:
    return _divergence(first, second) + _divergence(second, first)


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine": _cosine,
    "mse": _squares,
    "kl": _divergence,
    "symmetric_kl": _symmetric_divergence,
}


def log_sums(
    queries: Tensor, keys: Tensor, groups: tuple[Tensor, Tensor], temperature: float | Tensor, two_way: bool = False
) -> tuple[Tensor, Tensor]:
    """Queries (n, d), keys (m, d) and the groups (n,), (m,) of both -> the logarithm of the sum over negatives of exp(s / t).

    Over the keys of each query (n,) and, for `two_way`, over the queries of each key (m,). Negatives are those of another group; a key
    may be of several, (m, s). Where there is none, it is the most negative number instead of minus infinity, whose gradient would
    not be a number.
    """
    found: tuple[Tensor, Tensor] = LogSums.apply(queries / temperature, keys, *groups, two_way)  # type: ignore[no-untyped-call]
    return found


class LogSums(torch.autograd.Function):
    """`log_sums`, which holds no more than a part of the (n, m) similarities: its gradient computes them anew."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, query_groups: Tensor, key_groups: Tensor, two_way: bool) -> tuple[Tensor, Tensor]:
        least = torch.finfo(queries.dtype).min
        rows, columns = queries.new_full((len(queries),), least), queries.new_full((len(keys),), least)
        for part in _parts(len(queries), len(keys)):
            logits = queries[part] @ keys.T
            logits.masked_fill_(_alike(query_groups[part], key_groups), least)
            rows[part] = _log_sum(logits, dim=1).clamp_min(least)
            if two_way:
                columns = torch.logaddexp(columns, _log_sum(logits, dim=0))
        ctx.save_for_backward(queries, keys, query_groups, key_groups, rows, columns)
        ctx.two_way = two_way
        return rows, columns

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_rows: Tensor, of_columns: Tensor) -> tuple[Tensor | None, ...]:
        """The derivative of a log-sum by a logit is the softmax there."""
        queries, keys, query_groups, key_groups, rows, columns = ctx.saved_tensors
        of_queries, of_keys = torch.zeros_like(queries), torch.zeros_like(keys)
        for part in _parts(len(queries), len(keys)):
            logits = queries[part] @ keys.T
            shares = (logits - rows[part, None]).exp_().mul_(of_rows[part, None])
            if ctx.two_way:
                shares += logits.sub_(columns).exp_().mul_(of_columns)
            shares.masked_fill_(_alike(query_groups[part], key_groups), 0)
            of_queries[part] = shares @ keys
            of_keys.addmm_(shares.T, queries[part])
        return of_queries, of_keys, None, None, None


def _alike(queries: Tensor, keys: Tensor) -> Tensor:
    """Groups (n,) and (m,) or (m, s) -> (n, m), whether a query is of a group of the key."""
    first, *others = keys.reshape(len(keys), -1).unbind(1)
    found = queries[:, None] == first
    for other in others:
        found |= queries[:, None] == other
    return found


def _parts(rows: int, columns: int) -> list[slice]:
    """Runs of rows of a matrix, each of about PART numbers; none of a matrix without columns."""
    if not columns:
        return []
    size = max(LEAST_ROWS, PART // columns)
    return [slice(start, start + size) for start in range(0, rows, size)]


def _log_sum(logits: Tensor, dim: int) -> Tensor:
    """torch.logsumexp of finite numbers, at a tenth of its time on CPUs."""
    top = logits.amax(dim=dim, keepdim=True)
    return (logits - top).exp_().sum(dim=dim).log_().add_(top.squeeze(dim))


def _log_sums_to_positives(batch: EmbeddingBatch, temperature: float | Tensor) -> Tensor:
    sums, _ = log_sums(batch.anchors, batch.positives, (batch.groups, batch.groups[batch.owned()]), temperature)
    return sums


def _with_hard(batch: EmbeddingBatch, sums: Tensor, temperature: float | Tensor, hard_weight: float = 0.0) -> Tensor:
    """(n,) log-sums over negatives -> the same with the hard negatives, of which an anchor's own is never left out."""
    if batch.negatives is None:
        return sums
    own = (batch.anchors * batch.negatives).sum(dim=1) / temperature + hard_weight
    of = batch.groups if batch.negative_groups is None else torch.stack([batch.groups, batch.negative_groups], dim=1)
    others, _ = log_sums(batch.anchors, batch.negatives, (batch.groups, of), temperature)
    return torch.logaddexp(torch.logaddexp(sums, others), own)


def _log_sum_by(owners: Tensor, values: Tensor, count: int) -> Tensor:
    """Values (p,) -> (count,) the logarithm of the sum of their exponentials, for each owner; finite also where there is none."""
    info = torch.finfo(values.dtype)
    top = values.new_full((count,), info.min).scatter_reduce(0, owners, values.detach(), "amax")
    sums = values.new_zeros(count).index_add(0, owners, (values - top[owners]).exp())
    return sums.clamp_min(info.tiny).log() + top


def _outside(owners: Tensor, terms: Tensor, count: int) -> Tensor:
    """Terms log q (p,) -> (count,) minus their mean for each owner."""
    shares = 1 / torch.bincount(owners, minlength=count).to(terms.dtype)
    return terms.new_zeros(count).index_add(0, owners, -terms * shares[owners])


def _inside(owners: Tensor, terms: Tensor, count: int) -> Tensor:
    """Terms log q (p,) -> (count,) minus the logarithm of the mean of q for each owner."""
    return torch.bincount(owners, minlength=count).clamp_min(1).to(terms.dtype).log() - _log_sum_by(owners, terms, count)


FORMS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {"out": _outside, "in": _inside}


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) to the last digit; that of torch is x itself above 20."""
    return -functional.logsigmoid(-x)


def _mean_over_positives(losses: Tensor, owners: Tensor, weights: Tensor | None) -> Tensor:
    """The mean over those of n anchors that own a positive."""
    some = torch.bincount(owners, minlength=len(losses)) > 0
    return _mean(losses[some], None if weights is None else weights[some])


def _mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """(n,) -> their weighted mean; 0 of none, or where all weights are 0."""
    if weights is None:
        return losses.sum() / max(1, len(losses))
    total = weights.sum()
    return (losses * weights).sum() / torch.where(total > 0, total, 1.0)
