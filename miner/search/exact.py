"""Exact search in one pass: each tile of S = X Y^T gives the nearest neighbours of its rows *and* of its columns.

The similarity of two sentences is the dot product of their stored float16 vectors. In float64 it is exact: products are
multiples of 2^-48, and sums of unit vectors stay far below 2^5, so no bit is ever rounded away and the result is the same in
every order of summation. Equal vectors therefore tie exactly, on any machine and however the corpora are cut.

Float32 arithmetic, which is fast, only proposes candidates: a few more than k. They are scored exactly, and a row is done when
its k-th similarity lies above everything that can have been dropped, given the error bound of a float32 dot product. The few
rows for which that cannot be said (many equal vectors, zero vectors) are searched again in float64.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from miner.search import neighbours
from miner.search.neighbours import Ids, Neighbours

TILE = 8192  # rows and columns of a tile: 256 MB of float32
GROUP = 16  # elements that share one maximum
SLACK = 4  # candidates beyond k
CHUNK = 1 << 22  # numbers of a temporary array while candidates are scored again: 32 MB of float64


@dataclass(frozen=True)
class Block:
    """A stretch of a corpus: ids (n,) ascending, and vectors (n, dim) float16, finite and of length 1 or 0."""

    ids: Ids
    vectors: npt.NDArray[np.float16]


def search_block(source: Block, target: Block, k: int, device: str = "cpu") -> tuple[Neighbours, Neighbours]:
    """The k nearest targets of every source, and the k nearest sources of every target; exact, ties by smaller id."""
    if not len(source.ids) or not len(target.ids):
        return neighbours.none(len(source.ids), k), neighbours.none(len(target.ids), k)
    x, y = _on_device(source, device), _on_device(target, device)
    x_lengths, y_lengths = _lengths(x), _lengths(y)
    rows, columns = _propose(x, y, k + SLACK)
    forward = _settle(x, y, rows, _float32_error(x, x_lengths, y_lengths), k)
    backward = _settle(y, x, columns, _float32_error(y, y_lengths, x_lengths), k)
    return _named(forward, target.ids), _named(backward, source.ids)


def _on_device(block: Block, device: str) -> Tensor:
    # Arrow's buffers are read-only, which torch warns about: they are copied.
    return torch.from_numpy(np.require(block.vectors, requirements="W")).to(device)


def _lengths(vectors: Tensor) -> Tensor:
    """(n, dim) -> (n,) float32."""
    return torch.cat([vectors[start : start + TILE].float().norm(dim=1) for start in range(0, len(vectors), TILE)])


def _float32_error(x: Tensor, x_lengths: Tensor, y_lengths: Tensor) -> Tensor:
    """(n,) bound of |float32 dot product - exact one| of each row of x with any row of y.

    Higham, Accuracy and Stability of Numerical Algorithms, section 3.1: dim u |x| |y|, here doubled, which covers the higher
    orders, the rounding of the lengths, and units that cut off instead of rounding.
    """
    return (2 * x.shape[1] * 2.0**-24) * x_lengths.double() * y_lengths.double().max()


class _Best:
    """The largest approximate similarities of some rows so far, and the positions of their partners."""

    def __init__(self, rows: int, count: int, device: torch.device) -> None:
        self.values = torch.full((rows, count), -torch.inf, device=device)
        self.positions = torch.zeros((rows, count), dtype=torch.int64, device=device)

    def offer(self, first: int, values: Tensor, positions: Tensor) -> None:
        """Take what is better of values (m, c) for the rows from `first` on; merging drops nothing above the last value kept."""
        rows = slice(first, first + len(values))
        kept, order = torch.cat([self.values[rows], values], dim=1).topk(self.values.shape[1], dim=1)
        self.positions[rows] = torch.cat([self.positions[rows], positions], dim=1).gather(1, order)
        self.values[rows] = kept


def _propose(x: Tensor, y: Tensor, count: int) -> tuple[_Best, _Best]:
    """The `count` best of each row and of each column of X Y^T in float32 (or all, where there are fewer)."""
    rows, columns = _Best(len(x), min(count, len(y)), x.device), _Best(len(y), min(count, len(x)), x.device)
    memory = torch.empty(min(TILE, len(x)) * min(TILE, len(y)), device=x.device)  # one for all tiles: fresh memory is slow
    for top in range(0, len(x), TILE):
        left = x[top : top + TILE].float()
        for start in range(0, len(y), TILE):
            right = y[start : start + TILE].float().T
            scores = torch.mm(left, right, out=memory[: len(left) * right.shape[1]].view(len(left), -1))
            values, positions = _largest(scores, count, dim=1)
            rows.offer(top, values, positions + start)
            values, positions = _largest(scores, count, dim=0)
            columns.offer(start, values.T, positions.T + top)
    return rows, columns


def _largest(scores: Tensor, count: int, dim: int) -> tuple[Tensor, Tensor]:
    """The `count` largest along `dim`, and their positions there.

    They lie in the `count` groups with the largest maxima, so only those groups are looked into. A group is every
    (length / GROUP)-th element: its maximum is then an elementwise maximum of long stretches of memory.
    """
    length = scores.shape[dim]
    groups = length // GROUP
    if groups <= 2 * count:
        return _topk(scores, min(count, length), dim)
    whole = groups * GROUP
    shape = (-1, GROUP, groups) if dim == 1 else (GROUP, groups, scores.shape[1])
    maxima = scores.narrow(dim, 0, whole).reshape(shape).amax(dim)
    best = _topk(maxima, count, dim)[1]
    members = torch.arange(GROUP, device=scores.device) * groups
    tail = torch.arange(whole, length, device=scores.device)
    if dim == 1:
        positions = (best[:, :, None] + members).flatten(1)
        positions = torch.cat([positions, tail.expand(len(scores), -1)], dim=1)
    else:
        positions = (best[:, None, :] + members[:, None]).flatten(0, 1)
        positions = torch.cat([positions, tail[:, None].expand(-1, scores.shape[1])], dim=0)
    values, order = _topk(scores.gather(dim, positions), count, dim)
    return values, positions.gather(dim, order)


def _topk(scores: Tensor, count: int, dim: int) -> tuple[Tensor, Tensor]:
    values, order = scores.topk(count, dim=dim)
    return values, order


def _settle(x: Tensor, y: Tensor, best: _Best, error: Tensor, k: int) -> Neighbours:
    """Candidates with approximate similarities -> exact neighbours, named by their positions in y."""
    exact = torch.cat([_exact(x, y, best.positions, rows) for rows in _chunks(len(x), best.positions.shape[1] * x.shape[1])])
    found = neighbours.nearest(best.positions.cpu().numpy(), exact.cpu().numpy(), k)
    count = best.values.shape[1]
    if count == len(y):  # nothing was dropped
        return found
    kth = torch.from_numpy(found.similarities[:, -1]).to(x.device)
    unsure = (kth <= best.values[:, -1].double() + error).nonzero()[:, 0]
    if len(unsure):
        again, rows = _search_again(x[unsure], y, k), unsure.cpu().numpy()
        found.ids[rows], found.similarities[rows] = again.ids, again.similarities
    return found


def _exact(x: Tensor, y: Tensor, positions: Tensor, rows: slice) -> Tensor:
    """The exact similarities (m, c) of some rows of x and their candidates in y."""
    return (y[positions[rows]].double() @ x[rows].double()[:, :, None])[:, :, 0]


def _chunks(rows: int, numbers: int) -> list[slice]:
    """Stretches of rows for which temporary arrays of `numbers` numbers a row stay small."""
    step = max(1, CHUNK // max(1, numbers))
    return [slice(start, start + step) for start in range(0, rows, step)]


def _search_again(x: Tensor, y: Tensor, k: int) -> Neighbours:
    """Every similarity in float64: slow and certain."""
    found = []
    for rows in _chunks(len(x), TILE):
        some = x[rows].double()
        parts = [_first_largest(some @ y[start : start + TILE].double().T, start, k) for start in range(0, len(y), TILE)]
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


def _named(found: Neighbours, ids: Ids) -> Neighbours:
    """Positions -> ids. Ids ascend, so the order of ties stays."""
    return Neighbours(np.where(found.found, ids[found.ids], -1), found.similarities)
