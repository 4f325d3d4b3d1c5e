"""A kernel in Triton, which reads the products of a tile once for the maxima of its rows and of its columns; torch would read them twice.

Importing it needs Triton, which comes with torch for CUDA.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# What one program reads: runs of 1024 bytes in 16 bits. Each thread has all rows of a column group, so these maxima need no exchange.
BLOCK_ROWS = tl.constexpr(16)
BLOCK_COLUMNS = tl.constexpr(512)
NUM_WARPS = 2


def group_maxima(products: Tensor, row_group: int, column_group: int) -> tuple[Tensor, Tensor]:
    """Return the maxima (p, q / row_group) of adjacent products (p, q) of rows, and those (q, p / column_group) of columns.

    p is a multiple of BLOCK_ROWS, q of `row_group`; both groups are powers of two that divide the block.
    """
    num_rows, num_columns = products.shape
    by_row = products.new_empty(num_rows, num_columns // row_group)
    by_column = products.new_empty(num_rows // column_group, num_columns)
    grid = (num_rows // BLOCK_ROWS.value, triton.cdiv(num_columns, BLOCK_COLUMNS.value))
    with torch.cuda.device_of(products):  # type: ignore[no-untyped-call]
        _group_maxima[grid](products, by_row, by_column, num_columns, row_group, column_group, num_warps=NUM_WARPS)
    return by_row, by_column.T


@triton.jit
def _larger(one, other):  # type: ignore[no-untyped-def]
    return tl.maximum(one, other)


@triton.jit  # type: ignore[untyped-decorator]
def _group_maxima(products, by_row, by_column, num_columns, ROW_GROUP: tl.constexpr, COLUMN_GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    ROW_GROUPS: tl.constexpr = BLOCK_COLUMNS // ROW_GROUP
    COLUMN_GROUPS: tl.constexpr = BLOCK_ROWS // COLUMN_GROUP
    rows = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    columns = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)[None, :]
    block = tl.load(products + rows * num_columns + columns, mask=columns < num_columns)

    groups = tl.program_id(1) * ROW_GROUPS + tl.arange(0, ROW_GROUPS)[None, :]
    num_groups = num_columns // ROW_GROUP
    maxima = tl.reduce(tl.reshape(block, (BLOCK_ROWS, ROW_GROUPS, ROW_GROUP)), 2, _larger)  # tl.max would compute in 32 bits
    tl.store(by_row + rows * num_groups + groups, maxima, mask=groups < num_groups)

    groups = tl.program_id(0).to(tl.int64) * COLUMN_GROUPS + tl.arange(0, COLUMN_GROUPS)[:, None]
    maxima = tl.reduce(tl.reshape(block, (COLUMN_GROUPS, COLUMN_GROUP, BLOCK_COLUMNS)), 1, _larger)
    tl.store(by_column + groups * num_columns + columns, maxima, mask=columns < num_columns)
