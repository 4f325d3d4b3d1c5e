"""Losses: tensors in, a scalar out."""

import torch
from torch import Tensor


def info_nce(anchors: Tensor, positives: Tensor, groups: Tensor, temperature: float) -> Tensor:
    """Anchors (n, d) and positives (n, d), unit rows, and the group (n,) of each pair -> the mean loss, a scalar.

    InfoNCE in both directions with in-batch negatives (van den Oord et al. 2018, eq. 4; symmetric as in Yang et al. 2019):
    the mean over i of `-log exp(s_ii / t) / sum_j exp(s_ij / t)` and of the same over columns. Pairs of one group are
    translations of one another, so they are nobody's negatives: they are left out of the sums.
    """
    logits = anchors @ positives.T / temperature
    same = groups[:, None] == groups[None, :]
    same.fill_diagonal_(False)
    logits = logits.masked_fill(same, float("-inf"))
    right = logits.diagonal()
    forward = torch.logsumexp(logits, dim=1) - right
    backward = torch.logsumexp(logits, dim=0) - right
    return (forward + backward).mean() / 2
