"""Maxima of small groups of the products of a tile, by rows and by columns: they show which groups may hold candidates."""

import logging
from functools import lru_cache

import torch
from torch import Tensor

from miner.search.precision import ROW_MULTIPLE

ROW_GROUP = 32  # adjacent products of a row that share a maximum
COLUMN_GROUP = 16  # of a column: fewer, because they are not contiguous in memory

logger = logging.getLogger(__name__)


@lru_cache
def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel in Triton compiles here and returns what torch returns. Triton may be missing, or lack a C compiler."""
    sample = torch.arange(ROW_MULTIPLE * 5 * ROW_MULTIPLE, device=device).mul_(12_289).remainder_(1021).sub_(510)
    products = sample.view(ROW_MULTIPLE, -1).to(dtype)
    try:
        from miner.search import triton_maxima

        by_row, by_column = triton_maxima.group_maxima(products, ROW_GROUP, COLUMN_GROUP)
    except Exception as error:  # Triton raises many kinds, which also depend on its version
        logger.info("%s: a search reads products twice, because Triton does not work: %s", device, str(error).partition("\n")[0])
        return False
    return torch.equal(by_row, row_maxima(products)) and torch.equal(by_column, _column_maxima(products))


def row_maxima(products: Tensor) -> Tensor:
    """Return the maxima (p, q / ROW_GROUP) of the rows of products (p, q)."""
    return products.view(len(products), -1, ROW_GROUP).amax(2)


def both_maxima(products: Tensor) -> tuple[Tensor, Tensor]:
    """Return the maxima (p, q / ROW_GROUP) of the rows of products (p, q), and those (q, p / COLUMN_GROUP) of the columns.

    p and q are multiples of ROW_MULTIPLE. On a GPU the products are read once, if Triton works there.
    """
    if products.is_cuda and has_kernel(products.device, products.dtype):
        from miner.search import triton_maxima

        return triton_maxima.group_maxima(products, ROW_GROUP, COLUMN_GROUP)
    return row_maxima(products), _column_maxima(products)


def _column_maxima(products: Tensor) -> Tensor:
    return products.view(-1, COLUMN_GROUP, products.shape[1]).amax(1).T
