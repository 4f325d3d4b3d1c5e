"""Linear layers with int8 weights and activations, for transformers on a CPU.

Each output has a scale for its weights, each token a scale for its activations. So a token with outliers, such as a separator, makes
the rounding of no other token coarser, and no batch decides how a text is rounded. Sums of products are exact. With w' = round(w / s)
and x' = round(x / t),

    y = s t (w' . x') + b

Integers are at most 90, 7.5 bits: without VNNI, products of larger ones saturate. They are the same on every processor, so an encoder's
vectors do not depend on the machine.
"""

from functools import lru_cache

import torch
from torch import Tensor, nn

from miner.search.int8_products import MAX_UNSATURATED, PackedInt8

MIN_MAGNITUDE = 2.0**-100  # of a row, so that a row of zeros can be divided by it
PROBE_SHAPE = (32, 512)  # tokens and dimensions of the products that are checked


class Int8Linear(nn.Module):
    """A linear layer whose weights are rounded to int8."""

    def __init__(self, linear: nn.Linear) -> None:
        """Round the weights (outputs, inputs) of a float32 layer."""
        super().__init__()
        weights, scales = quantise_rows(linear.weight.detach())
        self.products = PackedInt8(weights, scales.flatten(), MAX_UNSATURATED)
        self.weight = self.products.packed  # under its usual name, as T5 asks for its dtype
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, activations: Tensor) -> Tensor:
        """Return the outputs (..., outputs) of activations (..., inputs)."""
        rounded, scales = quantise_rows(activations.reshape(-1, activations.shape[-1]))
        outputs = self.products.multiply(rounded, 1.0, 1.0, torch.float32)
        outputs = outputs.mul_(scales)
        if self.bias is not None:
            outputs = outputs.add_(self.bias)
        return outputs.view(*activations.shape[:-1], -1)


def quantise_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Round rows (n, dim) to integers (n, dim) int8 with a scale (n, 1) each: rows = integers * scales, up to half a scale."""
    magnitudes = torch.maximum(rows.amax(1, keepdim=True), rows.amin(1, keepdim=True).neg_())  # much faster than a norm
    scales = magnitudes.clamp_min_(MIN_MAGNITUDE).div_(MAX_UNSATURATED)
    return torch.mul(rows, scales.reciprocal()).round_().to(torch.int8), scales


@lru_cache
def is_exact() -> bool:
    """Return whether this torch sums products of int8 exactly on this processor."""
    num_tokens, dim = PROBE_SHAPE
    largest = nn.Linear(dim, dim, bias=False)
    nn.init.ones_(largest.weight)
    try:
        outputs = Int8Linear(largest)(torch.ones(num_tokens, dim))
    except (AttributeError, RuntimeError):
        return False
    return bool(torch.allclose(outputs, torch.full_like(outputs, dim)))
