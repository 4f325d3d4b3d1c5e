"""Products in levels of 8 bits: find those above the thresholds of their rows and of their columns.

Few products are above, so words of eight are tested. numpy compares bytes, and finds what passes, several times as fast as torch.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from miner.arrays import Bools, Ints

WORD = 8  # products that are tested at a time
BLOCK_BYTES = 1 << 18  # of products that are tested at a time: they, their thresholds and the differences fit into the cache

Cells = tuple[Tensor, Tensor, Tensor]  # row (ascending), offset in the row, and level


def words_above(products: Tensor, thresholds: Sequence[Tensor]) -> Tensor:
    """Return the numbers, ascending, of the words of products (p, q) with one above the threshold of its row or of its column.

    `thresholds` are those of the rows (p,) and, if columns count too, those of the columns (q,).
    """
    step = max(1, BLOCK_BYTES // products.shape[1])
    lower, is_above = (np.empty((min(step, len(products)), products.shape[1]), dtype=dtype) for dtype in (np.uint8, bool))
    is_above_words = np.empty(products.numel() // WORD, dtype=bool)
    for start in range(0, len(products), step):
        block = products[start : start + step].numpy()
        limits = thresholds[0][start : start + step, None].numpy()
        if len(thresholds) > 1:
            limits = np.minimum(limits, thresholds[1].numpy(), out=lower[: len(block)])
        words = np.greater(block, limits, out=is_above[: len(block)]).reshape(-1).view(np.int64)
        first = start * products.shape[1] // WORD
        np.not_equal(words, 0, out=is_above_words[first : first + len(words)])
    return torch.from_numpy(_set_flags(is_above_words))


def cells_above(products: Tensor, words: Tensor, thresholds: Sequence[Tensor]) -> list[Cells]:
    """Return the cells of these words above the thresholds of their rows and, if columns count too, those above the columns' thresholds.

    The rows of the latter are columns of the products.
    """
    words_per_row = products.shape[1] // WORD
    row, word_in_row = words // words_per_row, words % words_per_row
    levels = torch.from_numpy(_words(products)).index_select(0, words).view(torch.uint8)
    hits = _positions_above(levels, thresholds[0][:, None].expand(-1, WORD), row)
    cells = [(row.index_select(0, hits >> 3), word_in_row.index_select(0, hits >> 3) * WORD + (hits & 7), levels.index_select(0, hits))]
    if len(thresholds) > 1:
        hits = _positions_above(levels, thresholds[1], word_in_row)
        columns = word_in_row.index_select(0, hits >> 3) * WORD + (hits & 7)
        # numpy sorts 16 bits by their digits, several times as fast as more
        order = torch.from_numpy(columns.numpy().astype(np.min_scalar_type(products.shape[1])).argsort(kind="stable"))
        hits = hits.index_select(0, order)
        cells.append((columns.index_select(0, order), row.index_select(0, hits >> 3), levels.index_select(0, hits)))
    return cells


def _positions_above(levels: Tensor, thresholds: Tensor, numbers: Tensor) -> Tensor:
    """Return the positions, ascending, of the levels (8 n,) above their thresholds: for each word, those of its number."""
    limits = torch.from_numpy(_words(thresholds)).index_select(0, numbers).view(torch.uint8)
    return torch.from_numpy(np.flatnonzero(levels.numpy() > limits.numpy()))


def _words(levels: Tensor) -> Ints:
    """Return words of eight levels."""
    return levels.contiguous().view(-1).numpy().view(np.int64)


def _set_flags(flags: Bools) -> Ints:
    """Return the numbers, ascending, of the flags (8 n,) that are set: faster than numpy and torch alone where few are."""
    words = np.flatnonzero(flags.view(np.int64) != 0)
    positions = np.flatnonzero(flags.view(np.int64)[words].view(bool))
    numbers: Ints = words[positions >> 3] * WORD + (positions & 7)
    return numbers


def strided_maxima(products: Tensor, dim: int, min_groups: int) -> Tensor:
    """Return maxima of groups of each row (dim 1) or column (dim 0): at least `min_groups` of them, if there are as many products."""
    maxima, half = products, products.shape[dim] // 2
    while half >= min_groups and 2 * half == maxima.shape[dim]:
        maxima, half = torch.maximum(maxima.narrow(dim, 0, half), maxima.narrow(dim, half, half)), half // 2
    return maxima if dim == 1 else maxima.T.contiguous()
