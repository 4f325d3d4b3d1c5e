"""Products in levels of 8 bits: find those above the thresholds of their rows and of their columns.

Few products are above, so words of eight are tested. torch compares bytes slowly, but takes their maxima fast: the larger of a product and
its threshold, less the threshold, is zero unless the product is above.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

WORD = 8  # products that are tested at a time
BLOCK_BYTES = 1 << 18  # of products that are tested at a time: they, their thresholds and the differences fit into the cache

Cells = tuple[Tensor, Tensor, Tensor]  # row (ascending), offset in the row, and level


def words_above(products: Tensor, thresholds: Sequence[Tensor]) -> Tensor:
    """Return the numbers, ascending, of the words of products (p, q) with one above the threshold of its row or of its column.

    `thresholds` are those of the rows (p,) and, if columns count too, those of the columns (q,).
    """
    step = max(1, BLOCK_BYTES // products.shape[1])
    words = []
    for start in range(0, len(products), step):
        lower = thresholds[0][start : start + step, None]
        if len(thresholds) > 1:
            lower = torch.minimum(lower, thresholds[1])
        excess = torch.maximum(products[start : start + step], lower).sub_(lower)
        words.append(excess.view(-1).view(torch.int64).nonzero()[:, 0] + start * products.shape[1] // WORD)
    return torch.cat(words)


def cells_above(products: Tensor, words: Tensor, thresholds: Tensor, dim: int) -> Cells:
    """Return the cells of these words above the thresholds of their rows (dim 1) or of their columns (dim 0).

    With dim 0, the columns of the products are the rows of the cells.
    """
    words_per_row = products.shape[1] // WORD
    row, word_in_row = words // words_per_row, words % words_per_row
    levels = products.view(-1, WORD).index_select(0, words)
    limits = thresholds.index_select(0, row)[:, None] if dim == 1 else thresholds.view(-1, WORD).index_select(0, word_in_row)
    hits = (levels > limits).view(-1).nonzero()[:, 0]
    columns = word_in_row.index_select(0, hits // WORD) * WORD + hits % WORD
    if dim == 1:
        return row.index_select(0, hits // WORD), columns, levels.view(-1).index_select(0, hits)
    sorted_columns, order = columns.int().sort(stable=True)  # sorting fewer bits is faster
    hits = hits.index_select(0, order)
    return sorted_columns.long(), row.index_select(0, hits // WORD), levels.view(-1).index_select(0, hits)


def strided_maxima(products: Tensor, dim: int, min_groups: int) -> Tensor:
    """Return maxima of groups of each row (dim 1) or column (dim 0): at least `min_groups` of them, if there are as many products."""
    maxima, half = products, products.shape[dim] // 2
    while half >= min_groups and 2 * half == maxima.shape[dim]:
        maxima, half = torch.maximum(maxima.narrow(dim, 0, half), maxima.narrow(dim, half, half)), half // 2
    return maxima if dim == 1 else maxima.T.contiguous()
