"""Turn failures of a training step into errors that name the batch and the setting to change."""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from miner.errors import DataError, ModelError
from miner.training.data.batches import ANCHOR, Batch

SHOWN_TEXTS, SHOWN_CHARS = 3, 80  # texts of a faulty batch, and characters of each


@contextlib.contextmanager
def explain_out_of_memory(batch: Batch, step: int, tower: Any) -> Iterator[None]:
    """Turn out of memory in a step into a ModelError with the size of the batch and the settings that reduce it."""
    try:
        yield
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        num_texts = sum(map(len, batch.views.values()))
        raise ModelError(
            f"step {step}: out of memory on a batch of {len(batch)} examples, {num_texts} texts of up to {tower.max_length} tokens;"
            f" {tower.MEMORY_ADVICE}"
        ) from error


@contextlib.contextmanager
def explain_model_too_large(device: torch.device) -> Iterator[None]:
    """Turn out of memory while the model moves to its device into a ModelError."""
    try:
        yield
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        raise ModelError(
            f"{device}: out of memory for the encoder and its losses; choose a smaller encoder.model or another device"
        ) from error


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether memory ran out; on a CPU, torch has no exception class for it."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def check_weights(weights: Iterable[Tensor], step: int) -> None:
    """Raise DataError where a weight is NaN or infinite, so that no such encoder or checkpoint is saved."""
    if not all(bool(torch.isfinite(weight).all()) for weight in weights):
        raise DataError(f"step {step}: weights became NaN or infinite; lower training.lr, set training.clip, or raise the temperature")


def check_loss(loss: float, is_finite: Mapping[str, Tensor], batch: Batch, step: int) -> None:
    """Raise DataError where the loss is NaN or infinite, with the texts whose vectors are not finite, given by view (n,)."""
    if math.isfinite(loss):
        return
    faulty = []
    for name, is_finite_row in is_finite.items():
        positions = (~is_finite_row).nonzero().flatten().cpu().numpy()[:SHOWN_TEXTS]
        faulty += batch.views[name].take(positions)
    description = "NaN or infinite vectors of" if faulty else "the batch starts with"
    shown = faulty or batch.views[ANCHOR].take(np.arange(min(len(batch), SHOWN_TEXTS)))
    texts = ", ".join(repr(text[:SHOWN_CHARS]) for text in shown[:SHOWN_TEXTS])
    raise DataError(
        f"step {step}: the loss is {loss}; {description} {texts} (source {batch.source!r});"
        " lower training.lr, set training.clip, raise the temperature, or remove these examples"
    )
