"""The losses of a batch, which stay on the device until they are read: reading makes the CPU wait for the device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from miner.training.data.batches import Batch
from miner.training.steps import errors


@dataclass(frozen=True)
class BatchResult:
    """The result of one batch, over all processes."""

    batch: Batch
    step: int  # from 1
    names: list[str]  # names of the losses
    losses: Tensor  # (names,)
    is_finite: Mapping[str, Tensor]  # view -> (n,) whether the vectors have no NaN or infinity
    text_counts: Tensor  # (2,) texts, and those that were cut

    def read_losses(self) -> dict[str, float]:
        """Return the losses by name; raise DataError where their sum, `loss`, is NaN or infinite."""
        losses = dict(zip(self.names, self.losses.tolist(), strict=True))
        errors.check_loss(losses["loss"], self.is_finite, self.batch, self.step)
        return losses


def mean_losses(results: Sequence[BatchResult], accumulation: int) -> dict[str, float]:
    """Return the losses of an optimizer step by name, from those of its batches: `accumulation` for each stream."""
    totals: dict[str, float] = {"loss": 0.0}
    for result in results:
        for name, loss in result.read_losses().items():
            totals[name] = totals.get(name, 0.0) + loss / accumulation
    return totals
