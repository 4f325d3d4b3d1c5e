"""Products of int8 matrices by oneDNN, which rounds them to another type before it stores them. For CPUs with VNNI: others saturate."""

import torch
from torch import Tensor

OFFSET = 128  # of unsigned operands, which the zero point takes back: signed ones are slow


class PackedInt8:
    """A matrix (n, dim) of int8, packed as the right operand of products, with a scale (n,) for each row."""

    def __init__(self, rows: Tensor, scales: Tensor) -> None:
        self.packed = torch.ops.onednn.qlinear_prepack(rows, None)
        self.scales = scales
        self.zero_points = torch.zeros(len(scales), dtype=torch.int32)

    def multiply(self, left: Tensor, scale: float, out_scale: float, dtype: torch.dtype) -> Tensor:
        """Return the products (m, n) of int8 rows (m, dim) with one scale: in multiples of `out_scale`, rounded to `dtype`."""
        unsigned = left.view(torch.uint8) ^ OFFSET
        products: Tensor = torch.ops.onednn.qlinear_pointwise(
            unsigned, scale, OFFSET, self.packed, self.scales, self.zero_points, None, out_scale, 0, dtype, "none", [], ""
        )
        return products
