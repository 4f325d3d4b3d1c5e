"""Data-parallel training: each process embeds its rows of a batch, and all compute the loss of the whole batch."""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from miner.errors import require
from miner.training.settings import TrainingSettings

require("accelerate")

from accelerate import Accelerator as Accelerator  # noqa: E402  # after the error for a missing package
from accelerate.state import AcceleratorState  # noqa: E402

PRECISIONS = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}  # dtype -> accelerate's name


def start(settings: TrainingSettings, device: torch.device) -> Accelerator:
    """Join the processes of torchrun or `accelerate launch`, or run as a single process."""
    # accelerate keeps its precision per process, but one process may train several times in different precisions.
    AcceleratorState._reset_state(reset_partial_state=device.type == "cpu" and not torch.distributed.is_initialized())
    return Accelerator(cpu=device.type == "cpu", mixed_precision=PRECISIONS[settings.dtype])


def is_main_process() -> bool:
    """Return whether this process reports for all; true in a single process."""
    return int(os.environ.get("RANK", 0)) == 0


def local_rows(count: int, accelerator: Accelerator) -> slice:
    """Return the slice of `count` rows that this process encodes."""
    index: int = accelerator.process_index
    return _row_slices(count, accelerator.num_processes)[index]


def _row_slices(count: int, processes: int) -> list[slice]:
    bounds = [count * process // processes for process in range(processes + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def gather(local: Tensor, count: int, accelerator: Accelerator) -> Tensor:
    """Collect the rows (m, d) of every process -> all rows (count, d), detached."""
    local = local.detach()
    if accelerator.num_processes == 1:
        return local.clone()
    sizes = [rows.stop - rows.start for rows in _row_slices(count, accelerator.num_processes)]
    padded = local.new_zeros(max(sizes), local.shape[1])
    padded[: len(local)] = local
    gathered: Tensor = accelerator.gather(padded)
    return torch.cat([rows[:size] for rows, size in zip(torch.split(gathered, max(sizes)), sizes, strict=True)])


def average_gradients(weights: Sequence[Tensor], accelerator: Accelerator) -> None:
    """Replace every gradient by its mean over the processes, in a single all-reduce."""
    if accelerator.num_processes == 1:
        return
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    mean: Any = accelerator.reduce(flat, reduction="mean")
    for gradient, values in zip(gradients, mean.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(values.view_as(gradient))
