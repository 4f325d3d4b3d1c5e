"""What can go wrong in a step, told so that the user can do something about it."""

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from miner.errors import DataError, ModelError
from miner.training.batches import ANCHOR, Batch

SHOWN, LONGEST = 3, 80  # offending texts, and characters of each


@contextlib.contextmanager
def memory(batch: Batch, step: int) -> Iterator[None]:
    """Out of memory -> what was too big and what to change."""
    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one; on a CPU there is no kind of its own
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
            raise
        texts = sum(map(len, batch.views.values()))
        longest = max(max(map(len, view.texts.take(view.rows))) for view in batch.views.values())
        raise ModelError(
            f"step {step}: out of memory on a batch of {len(batch)} examples, {texts} texts of up to {longest} characters;"
            " set training.gradient_cache (texts held at once) or lower it, or lower training.batch_size or encoder.max_tokens"
        ) from error


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
