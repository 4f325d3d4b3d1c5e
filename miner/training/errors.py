"""What can go wrong in a step, told so that the user can do something about it."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from miner.errors import DataError, ModelError
from miner.training.batches import ANCHOR, Batch

SHOWN, LONGEST = 3, 80  # offending texts, and characters of each


@contextlib.contextmanager
def memory(batch: Batch, step: int, tower: Any) -> Iterator[None]:
    """Out of memory -> what was too big and what to change; `tower` says how long a text is cut, and what makes a step smaller."""
    try:
        yield
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
        texts = sum(map(len, batch.views.values()))
        raise ModelError(
            f"step {step}: out of memory on a batch of {len(batch)} examples, {texts} texts of up to {tower.max_length} tokens;"
            f" {tower.MEMORY_ADVICE}"
        ) from error


@contextlib.contextmanager
def room(device: torch.device) -> Iterator[None]:
    """Out of memory before the first step -> what does not fit."""
    try:
        yield
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
        raise ModelError(
            f"{device}: no room for the encoder and what trains it; choose a smaller encoder.model or another device"
        ) from error


def _out_of_memory(error: RuntimeError) -> bool:
    """torch.OutOfMemoryError is a RuntimeError; on a CPU there is no kind of its own."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def check_weights(weights: Iterable[Tensor], step: int) -> None:
    """Raise DataError where a weight is no number: what is not fit to go on from is not to be saved."""
    if not all(bool(torch.isfinite(weight).all()) for weight in weights):
        raise DataError(f"step {step}: it left weights that are no numbers; lower training.lr, set training.clip, or raise the temperature")


def check_loss(loss: Tensor, vectors: Mapping[str, Tensor], batch: Batch, step: int) -> None:
    """Raise DataError, with the step and the examples at fault, where the loss is not a number."""
    if torch.isfinite(loss):
        return
    shown = []
    for name, rows in vectors.items():
        bad = (~torch.isfinite(rows).all(dim=1)).nonzero().flatten().cpu().numpy()[:SHOWN]
        shown += batch.views[name].texts.take(batch.views[name].rows[bad])
    what = "vectors that are no numbers, of" if shown else "the batch begins with"
    shown = shown or batch.views[ANCHOR].texts.take(batch.views[ANCHOR].rows[:SHOWN])
    texts = ", ".join(repr(text[:LONGEST]) for text in shown[:SHOWN])
    raise DataError(
        f"step {step}: the loss is {loss.item()}; {what} {texts} (source {batch.source!r});"
        " lower training.lr, set training.clip, raise the temperature, or drop such examples"
    )
