"""Dual momentum contrast: keys from momentum encoders, negatives from queues of earlier keys (Wang et al., EMNLP 2021).

In one training step the encoders compute queries, the gradient of `momentum_contrast` updates them,
`update_momentum_encoder` moves the momentum encoders, and only then the keys of the step enter the queues.
"""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from miner.training.losses.contrastive import log_sums, softplus

Module = TypeVar("Module", bound=nn.Module)


def copy_momentum_encoder(encoder: Module) -> Module:
    """Copy an encoder without gradients; `update_momentum_encoder` moves the copy."""
    return copy.deepcopy(encoder).requires_grad_(False)


@torch.no_grad()
def update_momentum_encoder(momentum_encoder: nn.Module, encoder: nn.Module, momentum: float) -> None:
    """Set weights to `m * momentum_encoder + (1 - m) * encoder` (He et al. 2020, eq. 2), and copy buffers."""
    for average, weight in zip(momentum_encoder.parameters(), encoder.parameters(), strict=True):
        average.lerp_(weight, 1 - momentum)
    for copied, buffer in zip(momentum_encoder.buffers(), encoder.buffers(), strict=True):
        copied.copy_(buffer)


class Queue(nn.Module):
    """The last `size` keys of one side, first in, first out. Its state_dict is its whole state."""

    keys: Tensor  # (size, dim) unit rows
    groups: Tensor  # (size,) the group of each key
    count: Tensor  # () number of keys ever added; the next key overwrites row `count % size`

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.size, self.is_full = size, False
        self.register_buffer("keys", torch.zeros(size, dim))
        self.register_buffer("groups", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def enqueue(self, keys: Tensor, groups: Tensor) -> None:
        """Add keys (b, dim) and their groups (b,), overwriting the oldest keys once the queue is full.

        In distributed training every process adds the keys of all processes in the same order, so all queues are equal. Take the
        gradient of a loss on `contents` first: the keys are overwritten in place.
        """
        positions = self.count + torch.arange(len(keys), device=self.count.device)[-self.size :]
        self.keys[positions % self.size] = keys[-self.size :].to(self.keys.dtype)
        self.groups[positions % self.size] = groups[-self.size :]
        self.count += len(keys)

    def contents(self) -> tuple[Tensor, Tensor]:
        """Return the keys (k, dim) in the queue and their groups (k,); k is `size` once the queue is full."""
        count = self.size if self.is_full else int(self.count)  # reading it waits for the device
        self.is_full, length = count >= self.size, min(self.size, count)
        return self.keys[:length], self.groups[:length]


def momentum_contrast(queries: Tensor, keys: Tensor, groups: Tensor, queue: Queue, temperature: float) -> Tensor:
    """Queries (n, d), the key (n, d) and the group (n,) of each, and the queue of the keys' side -> the mean loss.

    `-log exp(q_i k_i / t) / (exp(q_i k_i / t) + sum over the queue exp(q_i k_j / t))` (He et al. 2020, eq. 1). Queued keys of the
    query's own group are excluded, so group numbers must be stable across batches. With an empty queue the loss is 0.
    """
    positive_logits = (queries * keys.detach()).sum(dim=1) / temperature
    queued_keys, queued_groups = queue.contents()
    negatives, _ = log_sums(queries, queued_keys, (groups, queued_groups), temperature)
    return softplus(negatives - positive_logits).mean()


def dual_momentum_contrast(
    queries: tuple[Tensor, Tensor], keys: tuple[Tensor, Tensor], groups: Tensor, queues: tuple[Queue, Queue], temperature: float
) -> Tensor:
    """Queries and keys of both sides, (n, d) each, and their queues -> L(x, y) + L(y, x) (Wang et al. 2021).

    The query of one side retrieves the key of the other side among the keys in the other side's queue.
    """
    forward = momentum_contrast(queries[0], keys[1], groups, queues[1], temperature)
    return forward + momentum_contrast(queries[1], keys[0], groups, queues[0], temperature)
