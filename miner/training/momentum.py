"""Dual momentum contrast: keys from slow copies of the encoders, negatives from queues of them (Wang et al., EMNLP 2021).

One step of training: the encoders make queries, `momentum_contrast` and its gradient move them, `update` moves the slow copies, and
only then the keys, which the slow copies had made, go into the queues.
"""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from miner.training.losses import log_sums, softplus

Module = TypeVar("Module", bound=nn.Module)


def slow_copy(model: Module) -> Module:
    """A copy of the model that no gradient reaches; see `update`."""
    return copy.deepcopy(model).requires_grad_(False)


@torch.no_grad()
def update(slow: nn.Module, model: nn.Module, momentum: float) -> None:
    """Move a slow copy towards its model: `slow = m slow + (1 - m) model` (He et al. 2020, eq. 2). Buffers are taken as they are."""
    for mine, yours in zip(slow.parameters(), model.parameters(), strict=True):
        mine.lerp_(yours, 1 - momentum)
    for ours, theirs in zip(slow.buffers(), model.buffers(), strict=True):
        ours.copy_(theirs)


class Queue(nn.Module):
    """The last `size` keys of one side, first in, first out. Its state_dict is all there is to it."""

    keys: Tensor  # (size, dim) unit rows
    groups: Tensor  # (size,) what each of them says, by the numbers its batch gave
    count: Tensor  # () how many keys ever came in; the next takes place `count % size`

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("keys", torch.zeros(size, dim))
        self.register_buffer("groups", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def enqueue(self, keys: Tensor, groups: Tensor) -> None:
        """Let keys (b, dim) and their groups (b,) in and as many of the oldest out, once there is no more room.

        Of several processes, each gives the keys of all in the same order, so that all hold the same queue. The keys `held` before are
        overwritten, so the gradient of a loss on them must have been taken.
        """
        came = self.count + torch.arange(len(keys), device=self.count.device)[-self.size :]
        self.keys[came % self.size] = keys[-self.size :].to(self.keys.dtype)
        self.groups[came % self.size] = groups[-self.size :]
        self.count += len(keys)

    def held(self) -> tuple[Tensor, Tensor]:
        """The keys (k, dim) that are in, and their groups (k,); k is `size` once it is full."""
        filled = min(self.size, int(self.count))
        return self.keys[:filled], self.groups[:filled]


def momentum_contrast(queries: Tensor, keys: Tensor, groups: Tensor, queue: Queue, temperature: float) -> Tensor:
    """Queries (n, d), the key (n, d) and the group (n,) of each, and the queue of the keys' side -> the mean loss.

    `-log exp(q_i k_i / t) / (exp(q_i k_i / t) + sum over the queue exp(q_i k_j / t))` (He et al. 2020, eq. 1). Keys of the query's own
    group that are still in the queue are left out; with an empty queue the loss is 0. Groups are the same numbers in every batch.
    """
    right = (queries * keys.detach()).sum(dim=1) / temperature
    held, held_groups = queue.held()
    negatives, _ = log_sums(queries, held, (groups, held_groups), temperature)
    return softplus(negatives - right).mean()


def dual_momentum_contrast(
    queries: tuple[Tensor, Tensor], keys: tuple[Tensor, Tensor], groups: Tensor, queues: tuple[Queue, Queue], temperature: float
) -> Tensor:
    """Both sides' queries and keys, (n, d) each, and their queues -> L(x, y) + L(y, x) (Wang et al. 2021).

    The query of one side looks for the key of the other among those in the other side's queue.
    """
    forward = momentum_contrast(queries[0], keys[1], groups, queues[1], temperature)
    return forward + momentum_contrast(queries[1], keys[0], groups, queues[0], temperature)
