"""Products of int8 matrices by oneDNN, which rounds them to another type before it stores them.

Without VNNI, processors add pairs of products in 16 bits, which saturate, unless operands are small: see MAX_UNSATURATED.
"""

import torch
from torch import Tensor

MAX_INT8 = 127
MAX_UNSATURATED = 90  # largest operand of products that never saturate: 2 x (90 + 91) x 90, with the offset of left operands, is below 2^15


class PackedInt8:
    """A matrix (n, dim) of int8, packed as the right operand of products, with a scale (n,) for each row.

    Left operands, of at most `max_left`, are made unsigned by an offset, which the zero point takes back: signed ones are slow.
    """

    def __init__(self, rows: Tensor, scales: Tensor, max_left: int = MAX_INT8) -> None:
        self.packed = torch.ops.onednn.qlinear_prepack(rows, None)
        self.scales = scales
        self.offset = max_left + 1
        self.zero_points = torch.zeros(len(scales), dtype=torch.int32)

    def multiply(self, left: Tensor, scale: float, out_scale: float, dtype: torch.dtype) -> Tensor:
        """Return the products (m, n) of int8 rows (m, dim) with one scale: in multiples of `out_scale`, rounded to `dtype`."""
        unsigned = left.view(torch.uint8) + self.offset  # modulo 256
        products: Tensor = torch.ops.onednn.qlinear_pointwise(
            unsigned, scale, self.offset, self.packed, self.scales, self.zero_points, None, out_scale, 0, dtype, "none", [], ""
        )
        return products
