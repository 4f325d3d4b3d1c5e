"""Candidates for the nearest neighbours in fast arithmetic: one pass over the tiles of X Y^T, for its rows and its columns.

A candidate is kept with an upper bound of its similarity: the fast product plus its error bound. Each row keeps the candidates with
the largest bounds, and the largest bound that it may have dropped. The exact similarities of the candidates therefore
show whether they include all nearest neighbours.

Most tiles hold nothing new for most rows. So the maxima of small groups of products are taken, by rows and by columns, while the tile
is in the cache, and only groups whose maximum exceeds the dropped bound of a row are read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from miner.search.parallel import parallel_for
from miner.search.precision import Precision, Tile

ROW_GROUP = 32  # adjacent products of a row that share a maximum
COLUMN_GROUP = 16  # of a column: fewer, because they are not contiguous in memory
DENSE_SHARE = 1 / 4  # of the groups of a tile: where more pass, it pays to raise the dropped bound by the maxima first
MAX_PENDING_PER_ROW = 8  # candidates collected before the best are selected


@dataclass(frozen=True)
class PrefilterSettings:
    """How many candidates to keep per vector, for its `k` nearest neighbours."""

    k: int
    num_candidates: int
    precision: Precision


class TileCandidates:
    """The candidates of the vectors of one tile. `upper_bounds` descend; a bound of -inf is padding."""

    def __init__(self, tile: Tile, others: Sequence[Tile], settings: PrefilterSettings, min_similarities: Tensor) -> None:
        """Collect candidates from the vectors of `others` with a similarity above `min_similarities` (m,), -inf for any."""
        rows, device = len(tile.operand), tile.operand.device
        self.tile = tile
        self.k = settings.k
        self.arithmetic_error = settings.precision.arithmetic_error(tile.operand.shape[1])
        self.dtype = settings.precision.products
        self.upper_bounds = torch.full((rows, settings.num_candidates), -torch.inf, device=device)
        self.positions = torch.zeros((rows, settings.num_candidates), dtype=torch.int32, device=device)
        self.dropped_bounds = torch.full((rows,), -torch.inf, device=device)  # no dropped candidate has a larger upper bound
        self.dropped_bounds[: len(min_similarities)] = min_similarities
        self.bound_widths = 2 * torch.stack([self._error_bounds(other) for other in others]).amax(0)
        self.pending: list[tuple[Tensor, Tensor, Tensor]] = []  # rows ascending, upper bounds, positions
        self.num_pending = 0
        self.lock = Lock()  # several threads add products

    def _error_bounds(self, other: Tile) -> Tensor:
        """Return the error bound (p,) of a product with any vector of `other` (see `miner.search.precision`)."""
        tile = self.tile
        return tile.residual_norms * other.max_norm + tile.rounded_norms * (
            other.max_residual_norm + self.arithmetic_error * other.max_rounded_norm
        )

    def add_products(self, products: Tensor, other: Tile, dim: int) -> None:
        """Add products (p, q) with the vectors of `other`; vectors of this tile are the rows (dim 1) or the columns (dim 0)."""
        maxima = _group_maxima(products, dim)
        scale, errors = self.tile.scale * other.scale, self._error_bounds(other)
        with self.lock:
            groups, thresholds = self._select_groups(maxima, scale, errors)
            rows, offsets, values = _read_groups(products, groups, thresholds, dim)
            self.pending.append((rows, self._to_upper_bounds(values, scale, errors[rows]), _block_positions(other, offsets)))
            self.num_pending += len(rows)
            if self.num_pending > MAX_PENDING_PER_ROW * len(self.dropped_bounds):
                self.select_pending()

    def _select_groups(self, maxima: Tensor, scale: float, errors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the flat numbers of the groups (p, groups) to read, and the product (p,) that a candidate has to exceed."""
        thresholds = self._to_products((self.dropped_bounds - errors) / scale)
        groups = _groups_above(maxima, thresholds)
        num_candidates = self.upper_bounds.shape[1]
        if len(groups) > DENSE_SHARE * maxima.numel() and maxima.shape[1] > num_candidates:
            # The best candidates are in the groups with the largest maxima, so anything below the least of these can be dropped.
            self._raise_dropped_bounds(self._to_upper_bounds(maxima, scale, errors[:, None]).topk(num_candidates, dim=1).values)
            thresholds = self._to_products((self.dropped_bounds - errors) / scale)
            groups = _groups_above(maxima, thresholds)
        return groups, thresholds

    def _raise_dropped_bounds(self, best: Tensor) -> None:
        """Raise the dropped bounds by the best upper bounds (p, c), descending.

        The k best similarities are at least these bounds less their width, so a lower bound need not be kept.
        """
        self.dropped_bounds = torch.maximum(self.dropped_bounds, torch.maximum(best[:, -1], best[:, self.k - 1] - self.bound_widths))

    def _to_products(self, bounds: Tensor) -> Tensor:
        """Convert bounds to the dtype of products, rounding down."""
        if self.dtype.is_floating_point:
            return bounds.to(self.dtype)
        lowest = torch.iinfo(self.dtype).min
        return bounds.floor().clamp(min=lowest, max=-(lowest + 128)).to(self.dtype)  # float32 represents 2^31 - 128, not 2^31 - 1

    def _to_upper_bounds(self, products: Tensor, scale: float, errors: Tensor) -> Tensor:
        is_padding = products == padding_value(self.dtype)
        return (products.float() * scale + errors).masked_fill_(is_padding, -torch.inf)

    def select_pending(self) -> None:
        """Select the best among the kept and the pending candidates."""
        if not self.pending:
            return
        num_taken = torch.zeros(len(self.dropped_bounds), dtype=torch.int64, device=self.dropped_bounds.device)
        columns = []
        numbers = torch.arange(len(num_taken), device=num_taken.device)
        for rows, _, _ in self.pending:
            starts = torch.searchsorted(rows, numbers)  # unlike bincount, it does not make the CPU wait for a GPU
            columns.append(torch.arange(len(rows), device=rows.device) + (num_taken - starts)[rows])
            num_taken += torch.searchsorted(rows, numbers, right=True) - starts
        rows, bounds, positions = (torch.cat(parts) for parts in zip(*self.pending, strict=True))
        self.pending, self.num_pending = [], 0
        cells, shape = (rows, torch.cat(columns)), (len(num_taken), int(num_taken.max()))
        dense_bounds = torch.full(shape, -torch.inf, device=bounds.device).index_put_(cells, bounds)
        dense_positions = torch.zeros(shape, dtype=torch.int32, device=bounds.device).index_put_(cells, positions)
        self._keep_best(dense_bounds, dense_positions)

    def _keep_best(self, bounds: Tensor, positions: Tensor) -> None:
        """Keep the best of the candidates so far and of (p, w) more; no dropped one is better than the last that is kept."""
        if not bounds.shape[1]:
            return
        num_candidates = self.upper_bounds.shape[1]
        self.upper_bounds, order = torch.cat([self.upper_bounds, bounds], dim=1).topk(num_candidates, dim=1)
        self.positions = torch.cat([self.positions, positions], dim=1).gather(1, order)
        self._raise_dropped_bounds(self.upper_bounds)


def padding_value(dtype: torch.dtype) -> float:
    """Return the product that marks padding: the lowest value of its dtype."""
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _block_positions(tile: Tile, offsets: Tensor) -> Tensor:
    """Return the positions in the block of rows of a tile. Padding rows are clamped; their bounds of -inf exclude them."""
    return tile.positions[offsets.clamp(max=len(tile.positions) - 1)].int()


def _group_maxima(products: Tensor, dim: int) -> Tensor:
    """Return the maxima (p, groups) of the rows of products (p, q), or (q, groups) of the columns."""
    if dim == 1:
        return products.view(len(products), -1, ROW_GROUP).amax(2)
    return products.view(-1, COLUMN_GROUP, products.shape[1]).amax(1).T


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


def scan_rows(rows: Sequence[TileCandidates], y: Sequence[Tile], precision: Precision) -> None:
    """Collect the candidates of `rows` among the vectors of y: one direction."""

    def scan_column(j: int) -> None:
        for i, products in _tile_products([candidates.tile for candidates in rows], y[j], j, precision):
            rows[i].add_products(products, y[j], 1)

    parallel_for(len(y), scan_column, y[0].operand.device)
    _select_pending(rows)


def scan_both(rows: Sequence[TileCandidates], columns: Sequence[TileCandidates], precision: Precision) -> None:
    """Collect the candidates of `rows` among the vectors of `columns`, and the reverse."""

    def scan_column(j: int) -> None:
        for i, products in _tile_products([candidates.tile for candidates in rows], columns[j].tile, j, precision):
            rows[i].add_products(products, columns[j].tile, 1)
            columns[j].add_products(products, rows[i].tile, 0)

    parallel_for(len(columns), scan_column, columns[0].tile.operand.device)
    _select_pending([*rows, *columns])


def _select_pending(tiles: Sequence[TileCandidates]) -> None:
    parallel_for(len(tiles), lambda number: tiles[number].select_pending(), tiles[0].upper_bounds.device)


def _tile_products(rows: Sequence[Tile], columns: Tile, first: int, precision: Precision) -> Iterator[tuple[int, Tensor]]:
    """Yield i and the products of rows[i] with `columns`; i starts at `first` and wraps, so that threads work on different rows.

    The next products overwrite them: allocating memory for each would be slow.
    """
    right = columns.operand.T.to(precision.operands).contiguous()
    memory = right.new_empty(max(len(tile.operand) for tile in rows) * right.shape[1], dtype=precision.products)
    padding = padding_value(precision.products)
    for i in (*range(first % len(rows), len(rows)), *range(first % len(rows))):
        shape = (len(rows[i].operand), right.shape[1])
        products = precision.multiply(rows[i].operand, right, memory[: shape[0] * shape[1]].view(shape))
        products[len(rows[i].positions) :] = padding
        products[:, len(columns.positions) :] = padding
        yield i, products
