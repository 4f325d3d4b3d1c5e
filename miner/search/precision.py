"""Arithmetic that proposes candidates: how vectors are rounded, how fast each precision is here, and its error bound.

A precision multiplies rounded vectors. With X = X' + R, where R is the rounding residual, Cauchy-Schwarz bounds the error:

    |x y - x' y'| <= |r_x| |y| + |x'| |r_y|

Norms and residuals are those of the actual vectors, not worst cases of the format. Vectors along principal axes have fewer dimensions, and
tails that add to the error (`miner.search.principal_axes`). The arithmetic adds an error of its own:
none for integers, and for floats the bound of Higham (Accuracy and Stability of Numerical Algorithms, section 3.1). The products of
int8-levels are those of int8, rounded to 8 bits before they are stored: a quarter of the bytes to scan, at the cost of half a level.
narrow-levels are the same with operands of 7.5 bits, which do not saturate on processors without VNNI.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import torch
from torch import Tensor

from miner.search.int8_products import MAX_INT8, MAX_UNSATURATED, PackedInt8
from miner.search.parallel import parallel_for, single_thread
from miner.search.principal_axes import PrincipalAxes, ProjectedVectors

ROW_MULTIPLE = 64  # tiles are padded to a multiple of this: groups divide evenly, and tensor cores need it
SUM_ERROR_PER_TERM = 2 * 2.0**-24  # of a float32 sum; doubled for units that truncate instead of rounding
SLACK = 2.0**-20  # of thresholds and bounds, which are float32
LEVELS = 254  # of a product in 8 bits: 255 is never reached, so nothing saturates
LEVEL_ERROR = 0.5 + 2.0**-8  # of a product in levels: the rounding to a level, and those of the float32 scales before it
# Of it, where the sum is rounded to float32: 2^-24 of 255 x 127 per dimension where a level is 127^2 / 254 at least; as much with 181 x 90.
LEVEL_ERROR_PER_DIM = 2.0**-15
# Rows and columns of the products that measure a precision, and the multiple of float32's seconds above which it is not measured further.
# Small products have a fixed cost, so they rule out only formats that are much slower.
PROBES = (((16, 128), 5), ((64, 256), 2), ((256, 512), 1))
PROBE_REPEATS = 4  # of which the fastest counts
MAX_PROBE_DIM = 512  # with more dimensions, the order of the precisions is the same


@dataclass(frozen=True)
class Precision:
    """How products are computed. `rounding` is the relative error of a stored product and of a threshold in its dtype."""

    operands: torch.dtype
    products: torch.dtype
    rounding: float
    max_operand: int = MAX_INT8  # of integers

    @property
    def is_integer(self) -> bool:
        """Whether operands are integers with a scale."""
        return not self.operands.is_floating_point

    @property
    def is_in_levels(self) -> bool:
        """Whether products are rounded to levels of 8 bits, 0 for all below the first."""
        return self.products == torch.uint8

    def product_scale(self, left: "Tile", right: "Tile") -> float:
        """Return the similarity that a stored product of 1 stands for. No product of the rounded vectors exceeds their largest norms."""
        if self.is_in_levels:
            return max(left.max_rounded_norm * right.max_rounded_norm, 2.0**-24) / LEVELS
        return left.scale * right.scale

    def multiplier(self, columns: "Tile", max_rows: int) -> Callable[["Tile"], Tensor]:
        """Return a function of a tile of at most `max_rows` to its products (p, q) with `columns`, which the next ones may overwrite."""
        if self.is_in_levels:
            return self._level_multiplier(columns)
        right = columns.operand.T.to(self.operands).contiguous()
        memory = right.new_empty(max_rows * right.shape[1], dtype=self.products)  # allocating memory for each product would be slow

        def multiply(rows: "Tile") -> Tensor:
            shape = (len(rows.operand), right.shape[1])
            return self.multiply(rows.operand, right, memory[: shape[0] * shape[1]].view(shape))

        return multiply

    def _level_multiplier(self, columns: "Tile") -> Callable[["Tile"], Tensor]:
        right = PackedInt8(columns.operand, torch.full((len(columns.operand),), columns.scale), self.max_operand)
        return lambda rows: right.multiply(rows.operand, rows.scale, self.product_scale(rows, columns), self.products)

    def arithmetic_error(self, dim: int) -> float:
        """Return the error bound of the arithmetic for a product of unit vectors."""
        return SLACK + (0 if self.is_integer else SUM_ERROR_PER_TERM * dim + self.rounding)

    def level_error(self, dim: int) -> float:
        """Return the error bound of a product, in levels: 0 where it is not rounded to them."""
        return LEVEL_ERROR + dim * LEVEL_ERROR_PER_DIM if self.is_in_levels else 0.0

    def multiply(self, left: Tensor, right: Tensor, out: Tensor) -> Tensor:
        """Write the product (m, n) of (m, dim) and (dim, n) to `out`."""
        left, right = left.to(self.operands), right.to(self.operands)
        if self.is_integer and left.shape[1] == 1:  # torch's integer product is wrong for one dimension on a CPU
            return torch.mul(left.int(), right.int(), out=out)
        return torch._int_mm(left, right, out=out) if self.is_integer else torch.mm(left, right, out=out)


PRECISIONS: Mapping[str, Precision] = {
    "int8": Precision(torch.int8, torch.int32, 0),
    "int8-levels": Precision(torch.int8, torch.uint8, 0),
    "narrow-levels": Precision(torch.int8, torch.uint8, 0, MAX_UNSATURATED),
    "float16": Precision(torch.float16, torch.float16, 2 * 2.0**-11),
    "bfloat16": Precision(torch.bfloat16, torch.bfloat16, 2 * 2.0**-8),
    "float32": Precision(torch.float32, torch.float32, 2 * 2.0**-24),
}


@dataclass(frozen=True)
class Tile:
    """Vectors of a block as a precision takes them; tensors of p rows are padded with zeros to a multiple of ROW_MULTIPLE."""

    positions: Tensor  # (m,) int64: row of each vector in its block
    operand: Tensor  # (p, dim): integers, or float16 vectors that are rounded when they are multiplied
    scale: float  # rounded vectors = operand * scale
    rounded_norms: Tensor  # (p,) float32
    residual_norms: Tensor  # (p,) float32
    tail_norms: Tensor  # (p,) float32, of what the principal axes leave; 0 without them
    max_norm: float  # of the vectors before rounding
    max_rounded_norm: float
    max_residual_norm: float
    max_tail_norm: float


def build_tiles(vectors: Tensor, precision: Precision, tile_rows: int, axes: PrincipalAxes | None = None) -> list[Tile]:
    """Cut vectors (n, dim) float16 into tiles of `tile_rows` rows: along `axes`, or with all dimensions.

    An integer tile has one scale, so that its products are comparable. Rows are sorted by their largest component, so that the
    few rows that need a large scale share a tile and do not coarsen the others; along axes by their tails, whose largest norm counts.
    """
    projected = axes.project(vectors) if axes is not None else None
    order = torch.arange(len(vectors), device=vectors.device)
    if projected is not None:
        order = projected.tails.argsort(stable=True)
    elif precision.is_integer:
        order = torch.cat([part.float().abs().amax(1) for part in torch.split(vectors, tile_rows)]).argsort(stable=True)
    parts = torch.split(order, tile_rows)
    tiles: dict[int, Tile] = {}

    def build(number: int) -> None:
        tiles[number] = _build_tile(vectors, parts[number], precision, projected)

    parallel_for(len(parts), build, vectors.device.type)
    return [tiles[number] for number in range(len(parts))]


def _build_tile(vectors: Tensor, positions: Tensor, precision: Precision, projected: ProjectedVectors | None) -> Tile:
    first = int(positions[0])
    if projected is not None:
        rows = projected.coordinates[positions]
    else:
        rows = vectors[positions] if precision.is_integer else vectors[first : first + len(positions)]  # a view needs no memory
    rows = _pad(rows)
    exact = rows.float()
    scale = 1.0
    if precision.is_integer:
        scale = max(float(exact.abs().amax()), 2.0**-24) / precision.max_operand
        rounded = (exact / scale).round_()
        operand = rounded.to(precision.operands)
        rounded *= scale
    else:
        operand, rounded = rows, rows.to(precision.operands).float()
    margin = 1 + exact.shape[1] * 2.0**-24  # norms are computed in float32 themselves
    rounded_norms, norms = rounded.norm(dim=1) * margin, exact.norm(dim=1) * margin
    residual_norms = exact.sub_(rounded).norm(dim=1) * margin
    tail_norms = torch.zeros_like(norms)
    if projected is not None:
        norms, tail_norms = _pad(projected.lengths[positions]), _pad(projected.tails[positions])
        residual_norms += _pad(projected.errors[positions])
    maxima = (float(each.amax()) for each in (norms, rounded_norms, residual_norms, tail_norms))
    return Tile(positions, operand, scale, rounded_norms, residual_norms, tail_norms, *maxima)


def _pad(rows: Tensor) -> Tensor:
    """Append zeros to m rows, up to a multiple of ROW_MULTIPLE."""
    missing = -len(rows) % ROW_MULTIPLE
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows


REDUCED_SUMS = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction", "allow_fp16_accumulation")


@contextlib.contextmanager
def full_precision_matmul() -> Iterator[None]:
    """Make CUDA accumulate products of 16 bits in float32, and not round float32 operands to TF32.

    Torch's older setting, `allow_tf32`, is not read: it raises an error once a process has used the newer one, `fp32_precision`.
    """
    matmul = torch.backends.cuda.matmul
    sums, precision = {name: getattr(matmul, name) for name in REDUCED_SUMS}, matmul.fp32_precision
    matmul.fp32_precision = "none"  # as torch.backends.fp32_precision says
    inherited = matmul.fp32_precision
    try:
        matmul.fp32_precision = "ieee"
        for name in REDUCED_SUMS:
            setattr(matmul, name, False)
        yield
    finally:
        matmul.fp32_precision = "none" if precision == inherited else precision
        for name, is_allowed in sums.items():
            setattr(matmul, name, is_allowed)


@lru_cache
def rank_precisions(device: torch.device, dim: int) -> Mapping[str, float]:
    """Return seconds per product of two vectors by precision, fastest first, float32 last: a slower one is not worth its error.

    On a CPU they are measured, which takes 0.02 to 0.07 s: that an instruction for a format exists says little about its speed. On a
    GPU, tensor cores multiply the stored float16 vectors without rounding and as fast as any other format.
    """
    if device.type != "cpu":
        return {"float16": 1.0, "float32": 8.0}
    with single_thread():  # threads that wait for each other would distort the measurement
        ranked = rank_by_probes(PRECISIONS, lambda name, shape: _probe_seconds(PRECISIONS[name], shape, min(dim, MAX_PROBE_DIM)))
    if "int8-levels" in ranked:
        ranked.pop("narrow-levels", None)  # as fast, but with larger errors
    if "int8-levels" in ranked and "int8" in ranked:
        # The products take about as long, and there is a quarter of the bytes to scan, so noise must not decide between them.
        ranked["int8-levels"] = min(ranked["int8-levels"], ranked["int8"])
        ranked = dict(sorted(ranked.items(), key=lambda item: (item[1], item[0] != "int8-levels")))
    return ranked


def rank_by_probes(names: Iterable[str], probe: Callable[[str, tuple[int, int]], float]) -> dict[str, float]:
    """Return the precisions that are at least as fast as float32, fastest first, with their seconds per product of two vectors.

    `probe(name, shape)` times one product of `shape` rows and columns. Without instructions for a format, a product can take a
    hundred times as long as in float32. So the products grow, and a format that is slow in one of them gets no larger ones, and two of
    this size: the first may include the set-up of a format, or be interrupted.
    """
    remaining, seconds = [name for name in names if name != "float32"], dict[str, float]()
    for shape, max_ratio in PROBES:
        baseline = min(probe("float32", shape) for _ in range(PROBE_REPEATS))
        seconds = {name: _fastest_seconds(partial(probe, name, shape), max_ratio * baseline) for name in remaining}
        remaining = [name for name in remaining if seconds[name] <= max_ratio * baseline]
    ranked = sorted([(seconds[name], name) for name in remaining] + [(baseline, "float32")])
    return {name: total / (shape[0] * shape[1]) for total, name in ranked}


def _fastest_seconds(probe: Callable[[], float], limit: float) -> float:
    """Return the fastest of PROBE_REPEATS probes, or of two if both exceed the limit."""
    seconds = min(probe(), probe())
    return seconds if seconds > limit else min(seconds, *(probe() for _ in range(PROBE_REPEATS - 2)))


def fastest_precision(device: torch.device, dim: int) -> str:
    """Return the name of the fastest precision on this device."""
    return next(iter(rank_precisions(device, dim)))


def _probe_seconds(precision: Precision, shape: tuple[int, int], dim: int) -> float:
    """Return the seconds of one product of `shape`; infinity where this processor or this torch does not support the precision.

    Without VNNI, torch's products of int8 saturate pairs of products at 16 bits, so the result for the largest operands is checked.
    """
    largest = precision.max_operand if precision.is_integer else 1
    rows, columns = (_probe_tile(torch.full((size, dim), largest, dtype=precision.operands)) for size in shape)
    try:
        multiply = precision.multiplier(columns, shape[0])
        start = time.perf_counter()
        products = multiply(rows)
    except (RuntimeError, AttributeError):
        return float("inf")
    seconds = time.perf_counter() - start
    expected = LEVELS if precision.is_in_levels else largest**2 * dim
    return float("inf") if precision.is_integer and bool((products != expected).any()) else seconds


def _probe_tile(operand: Tensor) -> Tile:
    norm = float(operand[0].float().norm())
    nothing = operand.new_zeros(0)
    return Tile(nothing, operand, 1.0, nothing, nothing, nothing, norm, norm, 0.0, 0.0)
