"""Masked language modelling beside contrast (Devlin et al. 2019, section 3.1, task 1; Gao et al. 2021)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

MASKED, RANDOM = 0.8, 0.1  # of the chosen tokens; the rest stay as they are
IGNORED = -100  # label of a token that was not chosen


def mask_tokens(
    ids: Tensor, special: Tensor, probability: float, mask: int, vocabulary: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Token ids (n, l), and which are special (padding included) -> the ids to read and the labels to guess, (n, l) each.

    Every token that is not special is chosen with `probability`. Of the chosen 80 % become the token `mask`, 10 % one drawn from
    the `vocabulary` tokens there are; what a token was is its label, and IGNORED that of all others. `ids` stay as they are.
    """
    chosen = (torch.rand(ids.shape, generator=generator) < probability) & ~special
    fate = torch.rand(ids.shape, generator=generator)
    drawn = torch.randint(vocabulary, ids.shape, generator=generator)
    labels = ids.masked_fill(~chosen, IGNORED)
    masked = ids.masked_fill(chosen & (fate < MASKED), mask)
    return torch.where(chosen & (fate >= MASKED) & (fate < MASKED + RANDOM), drawn, masked), labels


def mlm_loss(tokens: Tensor, labels: Tensor, decoder: Callable[[Tensor], Tensor]) -> Tensor:
    """Token vectors (n, l, d), labels (n, l) and the decoder of (m, d) to logits (m, v) -> the mean cross entropy; 0 of no label.

    Only the vectors that have a label are decoded: logits of all would be the largest tensor of the step.
    """
    chosen = labels != IGNORED
    losses = functional.cross_entropy(decoder(tokens[chosen]), labels[chosen], reduction="sum")
    return losses / chosen.sum().clamp_min(1)
