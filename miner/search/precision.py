"""The arithmetic that proposes candidates: how vectors are rounded for it, how fast it is here, and how far it may be off.

A precision multiplies rounded vectors. With X = X' + R, where R is what rounding took away, Cauchy and Schwarz bound the error:

    |x y - x' y'| <= |r_x| |y| + |x'| |r_y|

Lengths and residuals are those of the vectors at hand, not worst cases of the format. The arithmetic itself adds to this: nothing
for whole numbers, and for floats what Higham says (Accuracy and Stability of Numerical Algorithms, section 3.1).
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from miner.search.parallel import for_each

PAD = 64  # tiles have a multiple of so many rows: groups come out even, and tensor cores want it
ACCUMULATED = 2 * 2.0**-24  # error of a float32 sum for each term; doubled for units that cut off instead of rounding
SLACK = 2.0**-20  # of thresholds and bounds, which are float32
TRIAL = 1024  # rows and columns of the product that measures a precision


@dataclass(frozen=True)
class Precision:
    """How products are made. `rounding` is relative, of a product as it is stored and of a threshold it is compared with."""

    operands: torch.dtype
    products: torch.dtype
    rounding: float

    @property
    def whole(self) -> bool:
        """Whether operands are whole numbers with a scale."""
        return not self.operands.is_floating_point

    def error(self, dim: int) -> float:
        """Of a product of vectors of length 1, the error of the arithmetic."""
        return SLACK + (0 if self.whole else ACCUMULATED * dim + self.rounding)

    def multiply(self, left: Tensor, right: Tensor, out: Tensor) -> Tensor:
        """(m, dim), (dim, n) -> (m, n), written to `out`."""
        left, right = left.to(self.operands), right.to(self.operands)
        if self.whole and left.shape[1] == 1:  # for which torch's product of whole numbers is wrong on a CPU
            return torch.mul(left.int(), right.int(), out=out)
        return torch._int_mm(left, right, out=out) if self.whole else torch.mm(left, right, out=out)


PRECISIONS: Mapping[str, Precision] = {
    "int8": Precision(torch.int8, torch.int32, 0),
    "float16": Precision(torch.float16, torch.float16, 2 * 2.0**-11),
    "bfloat16": Precision(torch.bfloat16, torch.bfloat16, 2 * 2.0**-8),
    "float32": Precision(torch.float32, torch.float32, 2 * 2.0**-24),
}


@dataclass(frozen=True)
class Tile:
    """Some vectors as a precision takes them; (p,) tensors are padded with zeros to a multiple of PAD rows."""

    positions: Tensor  # (m,) int64: which rows of the block these are
    operand: Tensor  # (p, dim): whole numbers, or the vectors as they are stored, which are rounded when they are multiplied
    scale: float  # operand times scale is the vectors, rounded
    lengths: Tensor  # (p,) float32, of the rounded vectors
    residuals: Tensor  # (p,) float32, lengths of what rounding took away
    longest: float  # the greatest length, of a vector itself
    longest_rounded: float
    worst: float  # the greatest residual


def tiles(vectors: Tensor, precision: Precision, size: int) -> list[Tile]:
    """Vectors (n, dim) float16 -> tiles of `size` rows.

    Whole numbers share one scale in a tile, so that its products compare with one another. Rows that need a large one come
    together: sorted by their largest number, they do not spoil the tiles of the others.
    """
    order = torch.arange(len(vectors), device=vectors.device)
    if precision.whole:
        order = torch.cat([part.float().abs().amax(1) for part in torch.split(vectors, size)]).argsort(stable=True)
    parts = torch.split(order, size)
    made: dict[int, Tile] = {}
    for_each(len(parts), lambda number: made.update({number: _tile(vectors, parts[number], precision)}), vectors.device)
    return [made[number] for number in range(len(parts))]


def _tile(vectors: Tensor, positions: Tensor, precision: Precision) -> Tile:
    first = int(positions[0])
    rows = vectors[positions] if precision.whole else vectors[first : first + len(positions)]  # a view needs no memory
    if len(rows) % PAD:
        rows = torch.cat([rows, rows.new_zeros(PAD - len(rows) % PAD, rows.shape[1])])
    exact = rows.float()
    scale = 1.0
    if precision.whole:
        scale = max(float(exact.abs().amax()), 2.0**-24) / 127
        rounded = (exact / scale).round_()
        operand = rounded.to(precision.operands)
        rounded *= scale
    else:
        operand, rounded = rows, rows.to(precision.operands).float()
    up = 1 + exact.shape[1] * 2.0**-24  # norms are float32 themselves
    lengths, longest = rounded.norm(dim=1) * up, float(exact.norm(dim=1).amax()) * up
    residuals = exact.sub_(rounded).norm(dim=1) * up
    return Tile(positions, operand, scale, lengths, residuals, longest, float(lengths.amax()), float(residuals.amax()))


@contextlib.contextmanager
def full_sums() -> Iterator[None]:
    """Let CUDA sum in float32 what it multiplies in float16, and not round float32 to fewer bits."""
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_reduced_precision_reduction, matmul.allow_tf32
    matmul.allow_fp16_reduced_precision_reduction, matmul.allow_tf32 = False, False
    try:
        yield
    finally:
        matmul.allow_fp16_reduced_precision_reduction, matmul.allow_tf32 = before


@lru_cache
def fastest(device: torch.device, dim: int) -> Mapping[str, float]:
    """Precision -> seconds of a product of vectors, the fastest first, float32 last: what is slower is not worth its error.

    On a CPU they are measured, which takes some hundredths of a second: whether instructions for a format exist says little of
    their speed. The vectors are float16 already, so tensor cores multiply them without rounding, and as fast as anything.
    """
    if device.type != "cpu":
        return {"float16": 1.0, "float32": 8.0}
    with _one_thread():
        seconds = {name: _measure(precision, dim) for name, precision in PRECISIONS.items()}
    return {name: took for name, took in sorted(seconds.items(), key=lambda item: item[1]) if took <= seconds["float32"]}


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine would drown what is measured."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure(precision: Precision, dim: int) -> float:
    """Seconds of one product; infinite where this processor or this torch has none."""
    left, right = (torch.ones(shape, dtype=precision.operands) for shape in ((TRIAL, dim), (dim, TRIAL)))
    out = torch.empty((TRIAL, TRIAL), dtype=precision.products)
    try:
        return min(_seconds(lambda: precision.multiply(left, right, out)) for _ in range(5)) / TRIAL**2
    except (RuntimeError, AttributeError):
        return float("inf")


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
