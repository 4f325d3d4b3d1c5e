"""Several processes as one: each embeds its part of a batch, all compare the whole of it."""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor

from miner.training.settings import TrainingSettings

PRECISIONS = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}


def start(settings: TrainingSettings, device: torch.device) -> Accelerator:
    """The processes that torchrun or `accelerate launch` started, or this one alone."""
    # One process may train several times, in precisions of its own each time.
    AcceleratorState._reset_state(reset_partial_state=device.type == "cpu" and not torch.distributed.is_initialized())
    return Accelerator(cpu=device.type == "cpu", mixed_precision=PRECISIONS[settings.dtype])


def first() -> bool:
    """Whether this is the only process, or the one that tells of all."""
    return int(os.environ.get("RANK", 0)) == 0


def part(count: int, accelerator: Accelerator) -> slice:
    """Which of `count` rows are this process's."""
    index: int = accelerator.process_index
    return _parts(count, accelerator.num_processes)[index]


def _parts(count: int, processes: int) -> list[slice]:
    bounds = [count * process // processes for process in range(processes + 1)]
    return [slice(first, last) for first, last in pairwise(bounds)]


def gather(local: Tensor, count: int, accelerator: Accelerator) -> Tensor:
    """This process's rows (m, d) of `count` -> all rows (count, d), cut off from their past."""
    local = local.detach()
    if accelerator.num_processes == 1:
        return local.clone()
    sizes = [of.stop - of.start for of in _parts(count, accelerator.num_processes)]
    padded = local.new_zeros(max(sizes), local.shape[1])
    padded[: len(local)] = local
    every: Tensor = accelerator.gather(padded)
    return torch.cat([rows[:size] for rows, size in zip(torch.split(every, max(sizes)), sizes, strict=True)])


def average_gradients(weights: Sequence[Tensor], accelerator: Accelerator) -> None:
    """Replace every gradient by its mean over the processes, all of them in one message."""
    if accelerator.num_processes == 1:
        return
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    mean: Any = accelerator.reduce(flat, reduction="mean")
    for gradient, part_of in zip(gradients, mean.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(part_of.view_as(gradient))
