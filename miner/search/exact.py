"""Exact search in one pass: each tile of S = X Y^T gives the nearest neighbours of its rows *and* of its columns.

The similarity of two sentences is the dot product of their stored float16 vectors. In float64 it is exact: products are
multiples of 2^-48, and sums of unit vectors stay far below 2^5, so no bit is ever rounded away and the result is the same in
every order of summation. Equal vectors therefore tie exactly, on any machine and however the corpora are cut.

Fast arithmetic only proposes candidates, each with an upper bound of its similarity (`miner.search.prefilter`). Those that can
matter are scored exactly, and a row is done when its k-th similarity lies above the bound of everything that was let go. The few
rows for which that cannot be said are searched again in float32, and those with many equal neighbours in float64. So neither the
precision, which is chosen by what is fastest here, nor the tiles show in the result.

Memory, beyond the two blocks of n vectors: a byte for each of their numbers where int8 is the fastest, 8 bytes for each of the
2k + 16 candidates of a vector, some more while they are collected, and temporary arrays that do not depend on n.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from miner.errors import MinerError
from miner.search import neighbours
from miner.search.neighbours import Ids, Neighbours
from miner.search.parallel import for_each
from miner.search.precision import PRECISIONS, SLACK, Precision, Tile, fastest, full_sums, tiles
from miner.search.prefilter import Best, Wanted, scan, scan_both, scan_self

TILE = 2048  # rows and columns of a tile on a CPU: it stays in the cache
DEVICE_TILE = 16384  # at most, on a GPU, where starting an operation takes longer
SMALL = 1 << 31  # multiplications that are done before a precision is chosen
SAMPLE = 256  # vectors with which a precision is tried
CHUNK = 1 << 20  # numbers of a temporary array while candidates are scored: 8 MB of float64
MORE = 16  # candidates beyond 2k
WIDER = 8  # times as many candidates where the first were too few
FLOAT64_TILE = 8192

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class VectorBlock:
    """A stretch of a corpus: ids (n,) ascending, and vectors (n, dim) float16, finite and of length 1 or 0."""

    ids: Ids
    vectors: npt.NDArray[np.float16]


def search_block(
    source: VectorBlock,
    target: VectorBlock,
    k: int,
    device: str = "cpu",
    precision: str | None = None,
    known: tuple[Neighbours, Neighbours] | None = None,
) -> tuple[Neighbours, Neighbours]:
    """The k nearest targets of every source, and the k nearest sources of every target; exact, ties by smaller id.

    `precision` is one of PRECISIONS; without, the fastest here is taken. `known` are neighbours found elsewhere: the result is
    merged with them, and found sooner, as nothing beyond them is looked into. MinerError where the device has too little memory.
    """
    forward, backward = known or (neighbours.none(len(source.ids), k), neighbours.none(len(target.ids), k))
    if not len(source.ids) or not len(target.ids):
        return forward, backward
    with _device_errors(device), full_sums():
        x, y = _on_device(source, device), _on_device(target, device)
        plan = _plan(x, y, k, precision)
        rows, columns = _start(plan.x, plan.y, forward, plan.precision), _start(plan.y, plan.x, backward, plan.precision)
        scan_both(rows, columns, plan.precision)
        return _finish(x, y, target.ids, rows, forward, plan.name), _finish(y, x, source.ids, columns, backward, plan.name)


def search_for(
    source: VectorBlock, target: VectorBlock, known: Neighbours, device: str = "cpu", precision: str | None = None
) -> Neighbours:
    """The nearest targets of every source alone, merged with those `known`: for a few sources among many targets.

    Otherwise as `search_block`.
    """
    if not len(source.ids) or not len(target.ids):
        return known
    with _device_errors(device), full_sums():
        x, y = _on_device(source, device), _on_device(target, device)
        plan = _plan(x, y, known.k, precision)
        rows = _start(plan.x, plan.y, known, plan.precision)
        scan(rows, plan.y, plan.precision)
        return _finish(x, y, target.ids, rows, known, plan.name)


def search_self(block: VectorBlock, k: int, device: str = "cpu", precision: str | None = None) -> Neighbours:
    """The k nearest of every sentence among the others of its block; exact, ties by smaller id. Each product is made once."""
    if not len(block.ids):
        return neighbours.none(0, k)
    known = neighbours.none(len(block.ids), k + 1)  # with the sentence itself: the nearest without it are among these
    with _device_errors(device), full_sums():
        x = _on_device(block, device)
        plan = _plan(x, x, k + 1, precision)
        rows = _start(plan.x, plan.x, known, plan.precision)
        scan_self(rows, plan.precision)
        found = _finish(x, x, block.ids, rows, known, plan.name)
    return found.without(block.ids)


def _on_device(block: VectorBlock, device: str) -> Tensor:
    # Arrow's buffers are read-only, which torch warns about: they are copied.
    return torch.from_numpy(np.require(block.vectors, requirements="W")).to(device)


@contextlib.contextmanager
def _device_errors(device: str) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MinerError(f"{device}: too little memory for a block of the search; free some of it, or give --device cpu") from error


@dataclass(frozen=True)
class _Plan:
    """The precision of a search, and the tiles of both sides in it."""

    name: str
    x: Sequence[Tile]
    y: Sequence[Tile]

    @property
    def precision(self) -> Precision:
        return PRECISIONS[self.name]


def _plan(x: Tensor, y: Tensor, k: int, name: str | None) -> _Plan:
    """Choose a precision: the fastest here that takes less than float32, with what is then searched again in float32 counted in.

    That share depends on how near to each other the vectors lie, so it is found out with SAMPLE of either side.
    """
    if name is None and len(x) * len(y) * x.shape[1] < SMALL:
        name = "float32"
    if name is not None:
        return _tiled(x, y, name)
    costs = fastest(x.device, x.shape[1])
    for name, cost in costs.items():
        plan = _tiled(x, y, name)
        shares = (_unsure(x, y, plan.y, k, plan.precision) + _unsure(y, x, plan.x, k, plan.precision)) if name != "float32" else 0
        if cost + shares * costs["float32"] <= costs["float32"]:
            break
    logger.debug("%d x %d vectors: %s, of which %.1f %% is to be searched again", len(x), len(y), name, 50 * shares)
    return plan


def _tiled(x: Tensor, y: Tensor, name: str) -> _Plan:
    size = _tile_size(x.device)
    left = tiles(x, PRECISIONS[name], size)
    return _Plan(name, left, left if y is x else tiles(y, PRECISIONS[name], size))


def _tile_size(device: torch.device) -> int:
    """Rows and columns of a tile; on a GPU as many as fit into what is free, with 32 bytes for each product and what is made of it."""
    if device.type == "cpu":
        return TILE
    size, free = DEVICE_TILE, torch.cuda.mem_get_info(device)[0]
    while size > TILE and 32 * size**2 > free:
        size //= 2
    return size


def _start(tiles_: Sequence[Tile], others: Sequence[Tile], known: Neighbours, precision: Precision, wider: int = 1) -> list[Best]:
    """Ready to look for the neighbours of these tiles among `others`, above what is known; NaN, which is nothing, is below all."""
    wanted = Wanted(known.k, wider * (2 * known.k + MORE), precision)
    # Of equal similarities the smaller id counts: what is just as near must not be let go.
    least = torch.from_numpy(np.nan_to_num(known.similarities[:, -1] - SLACK, nan=-np.inf)).float()
    return [Best(tile, others, wanted, least[tile.positions.cpu()].to(tile.operand.device)) for tile in tiles_]


def _unsure(x: Tensor, y: Tensor, y_tiles: Sequence[Tile], k: int, precision: Precision) -> float:
    """The share of the vectors of x whose nearest this precision does not tell for certain."""
    some = x[:: max(1, len(x) // SAMPLE)][:SAMPLE]
    found = _start(tiles(some, precision, SAMPLE), y_tiles, neighbours.none(len(some), k), precision)
    scan(found, y_tiles, precision)
    similarities = _score(some, y, found[0])[1]
    return float((similarities[:, -1] <= found[0].dropped[: len(some)]).double().mean())


def _finish(x: Tensor, y: Tensor, y_ids: Ids, proposed: Sequence[Best], known: Neighbours, name: str) -> Neighbours:
    """Candidates -> exact neighbours, merged with those known. What cannot be told for certain is searched again."""
    found = neighbours.none(len(x), known.k)
    unsure: list[npt.NDArray[np.int64]] = []

    def score(number: int) -> None:
        best = proposed[number]
        at = best.tile.positions.cpu().numpy()
        places, similarities = (values.cpu().numpy() for values in _score(x, y, best))
        part = known.rows(at).add(y_ids[places], similarities)
        found.ids[at], found.similarities[at] = part.ids, part.similarities
        dropped = best.dropped[: len(at)].cpu().numpy()
        unsure.append(at[~(part.similarities[:, -1] > dropped) & (dropped > -np.inf)])

    for_each(len(proposed), score, x.device)
    again = np.concatenate(unsure)
    if len(again):
        part = _search_again(x[torch.from_numpy(again).to(x.device)], y, y_ids, known.rows(again), name)
        found.ids[again], found.similarities[again] = part.ids, part.similarities
    return found


def _score(x: Tensor, y: Tensor, best: Best) -> tuple[Tensor, Tensor]:
    """Positions in y and similarities (m, k), of the m vectors of a tile, nearest first, ties by position; NaN where there is none.

    The k candidates with the largest bounds are scored first. Of the others only those matter that may lie above the least of them.
    """
    rows, k = best.tile.positions, best.k
    upper, places = best.upper[: len(rows)], best.positions[: len(rows)].long()
    scores = torch.full(upper.shape, -torch.inf, dtype=torch.float64, device=x.device)

    def score(which: Tensor) -> None:
        row, column = which.nonzero().unbind(1)
        scores[row, column] = _exact(x, y, rows[row], places[row, column])

    there = ~upper.isinf()
    first = there & (torch.arange(upper.shape[1], device=x.device) < k)
    score(first)
    score(there & ~first & (upper >= scores[:, :k].amin(1, keepdim=True)))
    places, order = places.sort(dim=1)
    scores, order = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    scores, places = scores[:, :k], places.gather(1, order)[:, :k]
    return places, scores.masked_fill(scores.isinf(), torch.nan)


def _exact(x: Tensor, y: Tensor, rows: Tensor, places: Tensor) -> Tensor:
    """The exact similarities (n,) of the vectors x[rows] and y[places]."""
    parts = _chunks(len(rows), 2 * x.shape[1])
    return torch.cat([torch.linalg.vecdot(x[rows[part]].double(), y[places[part]].double()) for part in parts])


def _chunks(rows: int, numbers: int) -> list[slice]:
    """Stretches of rows for which temporary arrays of `numbers` numbers a row stay small; at least one."""
    step = max(1, CHUNK // max(1, numbers))
    return [slice(start, start + step) for start in range(0, max(1, rows), step)]


def _search_again(x: Tensor, y: Tensor, y_ids: Ids, known: Neighbours, name: str) -> Neighbours:
    """One direction, more carefully: in float32 with more candidates, and what is unsure then in float64."""
    if name == "float64":
        found = _search_all(x, y, known.k)
        return Neighbours(np.where(found.found, y_ids[found.ids], -1), found.similarities).merge(known)
    plan = _tiled(x, y, "float32")
    rows = _start(plan.x, plan.y, known, plan.precision, WIDER)
    scan(rows, plan.y, plan.precision)
    return _finish(x, y, y_ids, rows, known, "float64")


def _search_all(x: Tensor, y: Tensor, k: int) -> Neighbours:
    """Every similarity in float64: slow and certain. Neighbours are named by their positions in y."""
    found = []
    for rows in _chunks(len(x), FLOAT64_TILE):
        some = x[rows].double()
        parts = [_first_largest(some @ y[at : at + FLOAT64_TILE].double().T, at, k) for at in range(0, len(y), FLOAT64_TILE)]
        found.append(neighbours.merge_all(parts))
    return neighbours.stack(found)


def _first_largest(scores: Tensor, start: int, k: int) -> Neighbours:
    """The k largest of each row, of equal ones the first: `topk` alone takes any of them."""
    count = min(k, scores.shape[1])
    least = scores.topk(count, dim=1).values[:, -1:]
    tied = scores == least
    kept = scores > least
    kept |= tied & (tied.cumsum(1) <= count - kept.sum(1, keepdim=True))
    positions = kept.nonzero()[:, 1].view(-1, count)
    return neighbours.nearest((positions + start).cpu().numpy(), scores.gather(1, positions).cpu().numpy(), k)
