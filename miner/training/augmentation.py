"""What is done to the positives of a source before they are read."""

from typing import Any

from miner.training.batches import Change


def change(source: Any) -> Change | None:  # noqa: ARG001
    return None
