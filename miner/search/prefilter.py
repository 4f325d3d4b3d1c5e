"""Candidates for the nearest neighbours in fast arithmetic: one pass over the tiles of X Y^T, for its rows and its columns.

A candidate is kept with an upper bound of its similarity: the fast product plus its error bound. Each row keeps the candidates with
the largest bounds, and the largest bound that it may have dropped. The exact similarities of the candidates therefore
show whether they include all nearest neighbours.

Most tiles hold nothing new for most rows. So the maxima of small groups of products are taken, by rows and by columns, while the tile
is in the cache, and only groups whose maximum exceeds the dropped bound of a row are read. Products in levels of 8 bits are compared
directly (`miner.search.levels`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from miner.search.group_maxima import COLUMN_GROUP, ROW_GROUP, both_maxima, row_maxima
from miner.search.levels import WORD, Cells, cells_above, strided_maxima, words_above
from miner.search.parallel import parallel_for
from miner.search.precision import Precision, Tile

DENSE_SHARE = 1 / 4  # of the groups of a tile: where more pass, it pays to raise the dropped bound by the maxima first
DENSE_SAMPLE = 32  # every so many rows of products in levels show how many pass
NO_CANDIDATE = -2139095041 << 32  # the key of a bound of -inf
POSITION_MASK = (1 << 32) - 1  # of a key
GROUPS_PER_CANDIDATE = 8  # where thresholds are raised by maxima: with fewer, the best products share groups
MAX_PENDING_PER_ROW = 8  # candidates collected before the best are selected


@dataclass(frozen=True)
class PrefilterSettings:
    """How many candidates to keep per vector, for its `k` nearest neighbours."""

    k: int
    num_candidates: int
    precision: Precision


class TileCandidates:
    """The candidates of the vectors of one tile, as keys: one integer for upper bound and position, so that sorting is one fast pass."""

    def __init__(self, tile: Tile, others: Sequence[Tile], settings: PrefilterSettings, min_similarities: Tensor) -> None:
        """Collect candidates from the vectors of `others` with a similarity above `min_similarities` (m,), -inf for any."""
        rows, device = len(tile.operand), tile.operand.device
        self.tile = tile
        self.k = settings.k
        self.precision = settings.precision
        self.arithmetic_error = settings.precision.arithmetic_error(tile.operand.shape[1])
        self.level_error = settings.precision.level_error(tile.operand.shape[1])
        self.dtype = settings.precision.products
        self.keys = torch.full((rows, settings.num_candidates), NO_CANDIDATE, device=device)  # descending
        self.dropped_bounds = torch.full((rows,), -torch.inf, device=device)  # no dropped candidate has a larger upper bound
        self.dropped_bounds[: len(min_similarities)] = min_similarities
        errors = torch.stack([self._error_bounds(other) for other in others]).amax(0)
        self.bound_widths = 2 * errors
        if self.precision.is_in_levels:  # level 0 is never a candidate
            self.dropped_bounds = torch.maximum(self.dropped_bounds, errors)
        self.pending: list[tuple[Tensor, Tensor]] = []  # rows ascending, keys
        self.num_pending = 0
        self.lock = Lock()  # several threads add products

    @property
    def upper_bounds(self) -> Tensor:
        """Upper bounds (p, c) of the candidates, descending; -inf is padding."""
        return unpack_bounds(self.keys)

    @property
    def positions(self) -> Tensor:
        """Positions (p, c) int64 of the candidates."""
        return self.keys & POSITION_MASK

    def _error_bounds(self, other: Tile) -> Tensor:
        """Return the error bound (p,) of a product with any vector of `other` (see `miner.search.precision`)."""
        tile = self.tile
        errors = tile.residual_norms * other.max_norm + tile.rounded_norms * (
            other.max_residual_norm + self.arithmetic_error * other.max_rounded_norm
        )
        return errors + tile.tail_norms * other.max_tail_norm + self.level_error * self.precision.product_scale(tile, other)

    def add_products(self, products: Tensor, maxima: Tensor, other: Tile, dim: int) -> None:
        """Add products (p, q) with the vectors of `other`, whose groups have these maxima.

        Vectors of this tile are the rows (dim 1) or the columns (dim 0).
        """
        scale, errors = self.precision.product_scale(self.tile, other), self._error_bounds(other)
        with self.lock:
            groups, thresholds = self._select_groups(maxima, other)
            rows, offsets, values = _read_groups(products, groups, thresholds, dim)
            self._add_pending(rows, self._to_upper_bounds(values, scale, errors[rows]), _block_positions(other, offsets))

    def add_levels(self, cells: Cells, other: Tile) -> None:
        """Add products in levels with the vectors of `other`."""
        rows, offsets, levels = cells
        scale, errors = self.precision.product_scale(self.tile, other), self._error_bounds(other)
        with self.lock:
            self._add_pending(rows, levels.float() * scale + errors.index_select(0, rows), _block_positions(other, offsets))

    def _add_pending(self, rows: Tensor, bounds: Tensor, positions: Tensor) -> None:
        self.pending.append((rows, pack_keys(bounds, positions)))
        self.num_pending += len(rows)
        if self.num_pending > MAX_PENDING_PER_ROW * len(self.dropped_bounds):
            self.select_pending()

    def thresholds(self, other: Tile) -> Tensor:
        """Return the product (p,) that a candidate among the vectors of `other` has to exceed."""
        return self._to_products((self.dropped_bounds - self._error_bounds(other)) / self.precision.product_scale(self.tile, other))

    def _select_groups(self, maxima: Tensor, other: Tile) -> tuple[Tensor, Tensor]:
        """Return the flat numbers of the groups (p, groups) to read, and the product (p,) that a candidate has to exceed."""
        thresholds = self.thresholds(other)
        groups = _groups_above(maxima, thresholds)
        if len(groups) > DENSE_SHARE * maxima.numel() and maxima.shape[1] > self.keys.shape[1]:
            self._raise_by_maxima(maxima, other)
            thresholds = self.thresholds(other)
            groups = _groups_above(maxima, thresholds)
        return groups, thresholds

    def raise_dropped_bounds(self, maxima: Tensor, other: Tile) -> None:
        """Raise the dropped bounds by the maxima (p, groups) of groups of products with the vectors of `other`."""
        if maxima.shape[1] > self.keys.shape[1]:
            with self.lock:
                self._raise_by_maxima(maxima, other)

    def _raise_by_maxima(self, maxima: Tensor, other: Tile) -> None:
        """The best candidates are in the groups with the largest maxima, so anything below the least of these can be dropped."""
        scale, errors = self.precision.product_scale(self.tile, other), self._error_bounds(other)
        self._raise_dropped_bounds(_largest(self._to_upper_bounds(maxima, scale, errors[:, None]), self.keys.shape[1]))

    def _raise_dropped_bounds(self, best: Tensor) -> None:
        """Raise the dropped bounds by the best upper bounds (p, c), descending.

        The k best similarities are at least these bounds less their width, so a lower bound need not be kept.
        """
        self.dropped_bounds = torch.maximum(self.dropped_bounds, torch.maximum(best[:, -1], best[:, self.k - 1] - self.bound_widths))

    def _to_products(self, bounds: Tensor) -> Tensor:
        """Convert bounds to the dtype of products, rounding down."""
        if self.dtype.is_floating_point:
            return bounds.to(self.dtype)
        if self.precision.is_in_levels:
            return bounds.floor().clamp(min=0, max=255).to(self.dtype)
        lowest = torch.iinfo(self.dtype).min
        return bounds.floor().clamp(min=lowest, max=-(lowest + 128)).to(self.dtype)  # float32 represents 2^31 - 128, not 2^31 - 1

    def _to_upper_bounds(self, products: Tensor, scale: float, errors: Tensor) -> Tensor:
        is_padding = products == padding_value(self.dtype)
        return (products.float() * scale + errors).masked_fill_(is_padding, -torch.inf)

    def select_pending(self) -> None:
        """Select the best among the kept and the pending candidates; no dropped one is better than the last that is kept."""
        if not self.num_pending:
            return
        num_rows, num_candidates = self.keys.shape
        numbers = torch.arange(num_rows + 1, device=self.keys.device)
        num_taken = torch.full((num_rows,), num_candidates, device=self.keys.device)  # of the row: after the candidates so far
        columns = []
        for rows, _ in self.pending:
            starts = torch.searchsorted(rows, numbers)  # unlike bincount, it does not make the CPU wait for a GPU
            columns.append(torch.arange(len(rows), device=rows.device) + (num_taken - starts[:-1]).index_select(0, rows))
            num_taken += starts.diff()
        rows, keys = (torch.cat(parts) for parts in zip(*self.pending, strict=True))
        self.pending, self.num_pending = [], 0
        merged = self.keys.new_full((num_rows, int(num_taken.max())), NO_CANDIDATE)
        merged[:, :num_candidates] = self.keys
        merged.view(-1).index_copy_(0, rows * merged.shape[1] + torch.cat(columns), keys)
        self.keys = _largest(merged, num_candidates)
        self._raise_dropped_bounds(self.upper_bounds)


def _largest(values: Tensor, count: int) -> Tensor:
    """Return the `count` largest of each row (p, w), descending. numpy sorts short rows several times as fast as torch selects."""
    if values.device.type != "cpu":
        return values.topk(count, dim=1).values
    return torch.from_numpy(np.sort(values.numpy(), axis=1)[:, : -count - 1 : -1].copy())


def pack_keys(bounds: Tensor, positions: Tensor) -> Tensor:
    """Return keys (n,) int64 that sort like upper bounds (n,) float32, then positions (n,)."""
    return (_flip_negatives(bounds.view(torch.int32)).long() << 32) | positions


def unpack_bounds(keys: Tensor) -> Tensor:
    """Return the upper bounds (n,) float32 of keys (n,)."""
    return _flip_negatives((keys >> 32).int()).view(torch.float32)


def _flip_negatives(bits: Tensor) -> Tensor:
    """Make the bits of float32 numbers sort like the numbers, and back: those of negative ones descend."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def padding_value(dtype: torch.dtype) -> float:
    """Return the product that marks padding: the lowest value of its dtype."""
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _block_positions(tile: Tile, offsets: Tensor) -> Tensor:
    """Return the positions in the block of rows of a tile. Padding rows are clamped; their bounds of -inf exclude them."""
    return tile.positions.index_select(0, offsets.clamp(max=len(tile.positions) - 1))


def _groups_above(maxima: Tensor, thresholds: Tensor) -> Tensor:
    """Return the flat numbers, ascending, of the groups (p, groups) whose maximum is above the threshold (p,) of their row."""
    is_above = (maxima > thresholds[:, None]).contiguous().view(-1)
    if is_above.device.type != "cpu":
        return is_above.nonzero()[:, 0]
    words = is_above.view(torch.int64).nonzero()[:, 0]  # eight flags at a time, because few are set
    word, byte = is_above.view(-1, 8)[words].nonzero().unbind(1)
    return words[word] * 8 + byte


def _read_groups(products: Tensor, groups: Tensor, thresholds: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the products above the threshold in these groups: row (ascending), offset in the row, and value.

    With dim 0, the groups are those of columns, and so are the rows and offsets.
    """
    size = ROW_GROUP if dim == 1 else COLUMN_GROUP
    groups_per_row = products.shape[dim] // size
    rows, numbers = groups // groups_per_row, groups % groups_per_row
    if dim == 1:
        values = products.view(-1, size).index_select(0, groups)
    else:
        values = products.view(groups_per_row, size, -1).transpose(1, 2)[numbers, rows]
    hits = (values > thresholds[rows][:, None]).view(-1).nonzero()[:, 0]
    group = hits // size
    return rows[group], numbers[group] * size + hits % size, values.view(-1)[hits]


def _add_products(products: Tensor, rows: TileCandidates, other: Tile, columns: TileCandidates | None) -> None:
    """Add the products (p, q) with the vectors of `other` to the candidates of the rows, and to those of the columns where given."""
    sides = [(rows, other, 1)]
    if columns is not None:
        sides.append((columns, rows.tile, 0))
    if rows.precision.is_in_levels:
        _add_levels(products, sides)
        return
    maxima = [row_maxima(products)] if columns is None else both_maxima(products)
    for side_maxima, (candidates, others, dim) in zip(maxima, sides, strict=True):
        candidates.add_products(products, side_maxima, others, dim)


def _add_levels(products: Tensor, sides: Sequence[tuple[TileCandidates, Tile, int]]) -> None:
    """Add products in levels. Where many are above the thresholds, as in the first tile, these are raised by maxima of groups first."""
    thresholds = [candidates.thresholds(other) for candidates, other, _ in sides]
    sample = words_above(products[::DENSE_SAMPLE], [thresholds[0][::DENSE_SAMPLE], *thresholds[1:]])
    if len(sample) > DENSE_SHARE * products.numel() // (WORD * DENSE_SAMPLE):
        for candidates, other, dim in sides:
            candidates.raise_dropped_bounds(strided_maxima(products, dim, GROUPS_PER_CANDIDATE * candidates.keys.shape[1]), other)
        thresholds = [candidates.thresholds(other) for candidates, other, _ in sides]
    words = words_above(products, thresholds)
    for (candidates, other, _), cells in zip(sides, cells_above(products, words, thresholds), strict=True):
        candidates.add_levels(cells, other)


def scan_rows(rows: Sequence[TileCandidates], y: Sequence[Tile], precision: Precision) -> None:
    """Collect the candidates of `rows` among the vectors of y: one direction."""

    def scan_column(j: int) -> None:
        for i, products in _tile_products([candidates.tile for candidates in rows], y[j], j, precision):
            _add_products(products, rows[i], y[j], None)

    parallel_for(len(y), scan_column, y[0].operand.device.type)
    _select_pending(rows)


def scan_both(rows: Sequence[TileCandidates], columns: Sequence[TileCandidates], precision: Precision) -> None:
    """Collect the candidates of `rows` among the vectors of `columns`, and the reverse."""

    def scan_column(j: int) -> None:
        for i, products in _tile_products([candidates.tile for candidates in rows], columns[j].tile, j, precision):
            _add_products(products, rows[i], columns[j].tile, columns[j])

    parallel_for(len(columns), scan_column, columns[0].tile.operand.device.type)
    _select_pending([*rows, *columns])


def _select_pending(tiles: Sequence[TileCandidates]) -> None:
    parallel_for(len(tiles), lambda number: tiles[number].select_pending(), tiles[0].keys.device.type)


def _tile_products(rows: Sequence[Tile], columns: Tile, first: int, precision: Precision) -> Iterator[tuple[int, Tensor]]:
    """Yield i and the products of rows[i] with `columns`; i starts at `first` and wraps, so that threads work on different rows."""
    multiply = precision.multiplier(columns, max(len(tile.operand) for tile in rows))
    padding = padding_value(precision.products)
    for i in (*range(first % len(rows), len(rows)), *range(first % len(rows))):
        products = multiply(rows[i])
        products[len(rows[i].positions) :] = padding
        products[:, len(columns.positions) :] = padding
        yield i, products
