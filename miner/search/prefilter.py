"""Candidates for the nearest neighbours, by fast arithmetic: one pass over the tiles of X Y^T, for its rows and its columns.

What is kept of a similarity is an upper bound: the fast product plus its greatest error. A row keeps the largest of these, and
remembers the largest that it may have let go, so that whoever computes the similarities themselves can tell whether the nearest
are among the candidates.

Most of the work is to find out that a tile holds nothing new. So the maxima of small groups are taken, of rows and of columns,
while the tile is in the cache, and only groups that reach above what a row holds already are looked into.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import torch
from torch import Tensor

from miner.search.parallel import for_each
from miner.search.precision import Precision, Tile

ROW_GROUP = 32  # neighbouring elements of a row that share a maximum
COLUMN_GROUP = 16  # fewer of a column, whose elements lie apart
BURST = 1 / 4  # share of a tile's groups above which it pays to look at their maxima first
PENDING = 8  # candidates a row collects before the best are selected


@dataclass(frozen=True)
class Wanted:
    """Keep `count` candidates of each vector, of which the `k` best matter."""

    k: int
    count: int
    precision: Precision


class Best:
    """The best candidates of the vectors of a tile, among all others so far."""

    def __init__(self, tile: Tile, others: Sequence[Tile], wanted: Wanted, least: Tensor) -> None:
        """Look among the vectors of `others` for what is above `least` (m,), which is -inf where everything is welcome."""
        rows, count, device = len(tile.operand), wanted.count, tile.operand.device
        self.tile = tile
        self.k = wanted.k
        self.arithmetic = wanted.precision.error(tile.operand.shape[1])
        self.dtype = wanted.precision.products
        self.upper = torch.full((rows, count), -torch.inf, device=device)  # descending
        self.positions = torch.zeros((rows, count), dtype=torch.int32, device=device)
        self.dropped = torch.full((rows,), -torch.inf, device=device)  # no upper bound let go lies above
        self.dropped[: len(least)] = least
        self.window = 2 * torch.stack([self._error(other) for other in others]).amax(0)
        self.pending: list[tuple[Tensor, Tensor, Tensor]] = []  # rows ascending, upper bounds, positions
        self.held = 0
        self.lock = Lock()  # tiles of products come from several threads

    def _error(self, other: Tile) -> Tensor:
        """(p,): how far a product with a vector of `other` may be off (see `miner.search.precision`)."""
        return self.tile.residuals * other.longest + self.tile.lengths * (other.worst + self.arithmetic * other.longest_rounded)

    def offer(self, products: Tensor, other: Tile, dim: int) -> None:
        """Products (p, q), in which our vectors are the rows (dim 1) or the columns (dim 0), and those of `other` the rest."""
        maxima = _maxima(products, dim)
        scale, error = self.tile.scale * other.scale, self._error(other)
        with self.lock:
            groups, floor = self._promising(maxima, scale, error)
            rows, places, values = _look_into(products, groups, floor, dim)
            self.pending.append((rows, self._upper(values, scale, error[rows]), _named(other, places)))
            self.held += len(rows)
            if self.held > PENDING * len(self.dropped):
                self.settle()

    def _promising(self, maxima: Tensor, scale: float, error: Tensor) -> tuple[Tensor, Tensor]:
        """The numbers of the groups (p, groups) that are to be looked into, and what has to be exceeded there (p,)."""
        floor = self._floor((self.dropped - error) / scale)
        groups = _above(maxima, floor)
        if len(groups) > BURST * maxima.numel() and maxima.shape[1] > self.upper.shape[1]:
            # The best candidates lie in the groups with the largest maxima, so the least of these can be let go.
            self._let_go(self._upper(maxima, scale, error[:, None]).topk(self.upper.shape[1], dim=1).values)
            floor = self._floor((self.dropped - error) / scale)
            groups = _above(maxima, floor)
        return groups, floor

    def _let_go(self, best: Tensor) -> None:
        """The best upper bounds (p, count), descending: the k best similarities are at least these less the window."""
        self.dropped = torch.maximum(self.dropped, torch.maximum(best[:, -1], best[:, self.k - 1] - self.window))

    def _floor(self, bound: Tensor) -> Tensor:
        """The bound as a product; what is not above it is of no use."""
        if self.dtype.is_floating_point:
            return bound.to(self.dtype)
        least = torch.iinfo(self.dtype).min
        return bound.floor().clamp(min=least, max=-(least + 128)).to(self.dtype)  # float32 knows 2^31 - 128, not 2^31 - 1

    def _upper(self, values: Tensor, scale: float, error: Tensor) -> Tensor:
        padding = values == lowest(self.dtype)
        return (values.float() * scale + error).masked_fill_(padding, -torch.inf)

    def settle(self) -> None:
        """Select from what was collected."""
        if not self.pending:
            return
        taken = torch.zeros(len(self.dropped), dtype=torch.int64, device=self.dropped.device)
        places = []
        for rows, _, _ in self.pending:
            counts = torch.bincount(rows, minlength=len(taken))
            first = taken - (counts.cumsum(0) - counts)
            places.append(torch.arange(len(rows), device=rows.device) + first[rows])
            taken += counts
        rows, upper, positions = (torch.cat(parts) for parts in zip(*self.pending, strict=True))
        self.pending, self.held = [], 0
        where = (rows, torch.cat(places))
        width = int(taken.max())
        wide = torch.full((len(taken), width), -torch.inf, device=upper.device).index_put_(where, upper)
        named = torch.zeros((len(taken), width), dtype=torch.int32, device=upper.device).index_put_(where, positions)
        self._select(wide, named)

    def _select(self, upper: Tensor, positions: Tensor) -> None:
        """Keep the best of what is there and of (p, w) more; what is let go is no better than the last that is kept."""
        if not upper.shape[1]:
            return
        count = self.upper.shape[1]
        self.upper, order = torch.cat([self.upper, upper], dim=1).topk(count, dim=1)
        self.positions = torch.cat([self.positions, positions], dim=1).gather(1, order)
        self._let_go(self.upper)


def lowest(dtype: torch.dtype) -> float:
    """What stands where there is no product."""
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _named(other: Tile, places: Tensor) -> Tensor:
    """Rows of a tile -> positions in the block. Rows that only fill up the tile are found too, and left out by their bounds."""
    return other.positions[places.clamp(max=len(other.positions) - 1)].int()


def _maxima(products: Tensor, dim: int) -> Tensor:
    """(p, q) -> the maxima (p, groups) of the rows, or (q, groups) of the columns."""
    if dim == 1:
        return products.view(len(products), -1, ROW_GROUP).amax(2)
    return products.view(-1, COLUMN_GROUP, products.shape[1]).amax(1).T


def _above(maxima: Tensor, floor: Tensor) -> Tensor:
    """(p, groups), (p,) -> the numbers of the groups that reach above the floor of their row, ascending."""
    above = (maxima > floor[:, None]).contiguous().view(-1)
    words = above.view(torch.int64).nonzero()[:, 0]  # eight at a time, as there are few
    which, byte = above.view(-1, 8)[words].nonzero().unbind(1)
    return words[which] * 8 + byte


def _look_into(products: Tensor, groups: Tensor, floor: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """What lies above the floor in these groups: rows (ascending), places in them, and values; or columns instead of rows."""
    size = ROW_GROUP if dim == 1 else COLUMN_GROUP
    each = products.shape[dim] // size
    rows, numbers = groups // each, groups % each
    apart = products.view(each, size, -1).transpose(1, 2) if dim == 0 else None
    values = products.view(-1, size).index_select(0, groups) if apart is None else apart[numbers, rows]
    hits = (values > floor[rows][:, None]).view(-1).nonzero()[:, 0]
    which = hits // size
    return rows[which], numbers[which] * size + hits % size, values.view(-1)[hits]


def scan(rows: Sequence[Best], y: Sequence[Tile], precision: Precision) -> None:
    """Find the candidates of `rows` among the vectors of y: one direction."""

    def column(j: int) -> None:
        for i, products in _products([best.tile for best in rows], y[j], j, precision):
            rows[i].offer(products, y[j], 1)

    for_each(len(y), column, y[0].operand.device)
    _settle(rows)


def scan_both(rows: Sequence[Best], columns: Sequence[Best], precision: Precision) -> None:
    """Find the candidates of `rows` among the vectors of `columns`, and the reverse."""

    def column(j: int) -> None:
        for i, products in _products([best.tile for best in rows], columns[j].tile, j, precision):
            rows[i].offer(products, columns[j].tile, 1)
            columns[j].offer(products, rows[i].tile, 0)

    for_each(len(columns), column, columns[0].tile.operand.device)
    _settle([*rows, *columns])


def scan_self(rows: Sequence[Best], precision: Precision) -> None:
    """Find the candidates of `rows` among their own vectors, each itself included."""
    tiles = [best.tile for best in rows]

    def column(j: int) -> None:
        for i, products in _products(tiles[: j + 1], tiles[j], j, precision):
            rows[i].offer(products, tiles[j], 1)
            if i != j:
                rows[j].offer(products, tiles[i], 0)

    for_each(len(tiles), column, tiles[0].operand.device)
    _settle(rows)


def _settle(found: Sequence[Best]) -> None:
    for_each(len(found), lambda number: found[number].settle(), found[0].upper.device)


def _products(rows: Sequence[Tile], columns: Tile, first: int, precision: Precision) -> Iterator[tuple[int, Tensor]]:
    """The products of each rows[i] with `columns`, from i = `first` on and round, so that threads are not at the same rows.

    The next one overwrites them: fresh memory for each would be slow.
    """
    right = columns.operand.T.to(precision.operands).contiguous()
    memory = right.new_empty(max(len(tile.operand) for tile in rows) * right.shape[1], dtype=precision.products)
    for i in (*range(first % len(rows), len(rows)), *range(first % len(rows))):
        shape = (len(rows[i].operand), right.shape[1])
        products = precision.multiply(rows[i].operand, right, memory[: shape[0] * shape[1]].view(shape))
        products[len(rows[i].positions) :] = lowest(precision.products)
        products[:, len(columns.positions) :] = lowest(precision.products)
        yield i, products
