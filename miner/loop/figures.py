"""What the summary and the report of a loop derive from the figures of its rounds."""

from collections.abc import Mapping
from typing import Any


def training_precision(selection: Mapping[str, Any]) -> float | None:
    """Return the precision of the training pairs of a round, over the language pairs with gold; None without such pairs."""
    with_gold = [pair for pair in selection["pairs"].values() if "precision" in pair and pair["training"]]
    num_pairs = sum(pair["training"] for pair in with_gold)
    return sum(pair["precision"] * pair["training"] for pair in with_gold) / num_pairs if num_pairs else None
