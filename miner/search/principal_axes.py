"""Search in fewer dimensions: the leading principal axes of both sides, and a bound of what the other dimensions add to a similarity.

For a matrix Q (dim, d) with orthonormal columns, x y = (Q'x)(Q'y) + x_t y_t, where x_t is what Q leaves of x, its tail. Cauchy-Schwarz
bounds the last product by |x_t| |y_t|. Products of d dimensions take less time, and their candidates are scored exactly, as all are. The
fewer dimensions, the more candidates there are, so their number is chosen for the vectors at hand.

Q is rounded, and so is Q'x. `PrincipalAxes.project` adds both errors to the norms that it returns, so the bound holds in floating point.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from miner.search.parallel import parallel_for, single_thread

UNIT_ROUNDOFF = 2.0**-24  # of float32
SLACK = 2.0**-20  # of squared norms, for the rounding of the few operations that compute them
PROJECTED_ROWS = 2048  # vectors that are projected at a time
SAMPLE_ROWS_PER_DIM = 4  # vectors that determine the axes
TEST_ROWS, TEST_KEYS = 64, 8192  # vectors of each side that show how many candidates there are
MIN_COUNT = 4  # candidates of a row among these keys up to which chance decides whether they stand for many
MAX_STEPS = 16  # numbers of dimensions that are compared: multiples of one of them, itself a multiple of STEP_MULTIPLE
STEP_MULTIPLE = 32
MAX_COST = 0.9  # of that of all dimensions, for which it pays to project


@dataclass(frozen=True, eq=False)
class PrincipalAxes:
    """Nearly orthonormal directions, as columns of a matrix (dim, d) float32; `error` bounds the norm of matrix' matrix - I."""

    matrix: Tensor
    error: float

    @classmethod
    def of(cls, matrix: Tensor) -> "PrincipalAxes":
        """Measure the error of a matrix."""
        gram = matrix.T.double() @ matrix.double()
        return cls(matrix, float((gram - torch.eye(len(gram), dtype=torch.float64, device=gram.device)).norm()) + UNIT_ROUNDOFF)

    def project(self, vectors: Tensor) -> "ProjectedVectors":
        """Return vectors (n, dim) along these axes."""
        dim, num_axes = self.matrix.shape
        coordinates = vectors.new_empty((len(vectors), num_axes), dtype=torch.float32)
        norms = vectors.new_empty(len(vectors), dtype=torch.float32)

        def project_rows(number: int) -> None:
            rows = slice(number * PROJECTED_ROWS, (number + 1) * PROJECTED_ROWS)
            exact = vectors[rows].float()
            torch.mm(exact, self.matrix, out=coordinates[rows])
            norms[rows] = exact.norm(dim=1)

        parallel_for(-(-len(vectors) // PROJECTED_ROWS), project_rows, vectors.device.type)
        rounding = 1 + 2 * dim * UNIT_ROUNDOFF
        norms *= rounding
        # A coordinate is a sum of dim products of a vector and an axis: Higham's bound, doubled for units that truncate.
        errors = norms * (2 * dim * UNIT_ROUNDOFF * num_axes**0.5 * (1 + self.error))
        lengths = coordinates.norm(dim=1)
        shortest, longest = (lengths / rounding - errors).clamp_(min=0), lengths * rounding + errors
        tails = norms**2 - shortest**2 / (1 + self.error) + longest**2 * (self.error / (1 - self.error)) + SLACK * norms**2
        return ProjectedVectors(coordinates, errors, longest, tails.clamp_(min=0).sqrt_() * (1 + SLACK))


@dataclass(frozen=True)
class ProjectedVectors:
    """n vectors along d axes, with what bounds their similarities: |x y - x' y'| is at most the sum of three products of norms.

    These are the error of x' times the length of y, the length of x' times the error of y', and that of the tails.
    """

    coordinates: Tensor  # (n, d) float32
    errors: Tensor  # (n,) bounds of the norm of the error of the coordinates
    lengths: Tensor  # (n,) bounds of the norm of the exact coordinates
    tails: Tensor  # (n,) bounds of the norm of the rest of each vector


@dataclass(frozen=True)
class AxesSettings:
    """What a search is for, and what it costs; costs are multiples of that of a search with all dimensions."""

    k: int
    num_candidates: int  # that are kept of a row
    rounding_error: float  # of a product of the rounded coordinates
    search_again_cost: float  # of a search of all rows of a side for more candidates


def choose_axes(x: Tensor, y: Tensor, settings: AxesSettings) -> PrincipalAxes | None:
    """Return the principal axes that make a search of vectors (n, dim) and (m, dim) fastest; None: all dimensions, or nearly.

    The cost of a number of dimensions is estimated by the share of rows with more candidates than are kept, which are searched again.
    """
    dim = x.shape[1]
    step = -(-dim // (MAX_STEPS * STEP_MULTIPLE)) * STEP_MULTIPLE
    if dim < 2 * step:
        return None
    matrix = _principal_axes(x, y)
    shares = torch.zeros(dim // step)
    for queries, keys in ((x, y), (y, x)):
        shares += _uncertain_shares(queries, keys, matrix, step, settings)
    costs = torch.arange(1, len(shares) + 1) * step / dim + settings.search_again_cost * shares
    best = int(costs.argmin())
    return PrincipalAxes.of(matrix[:, : (best + 1) * step].contiguous()) if costs[best] < MAX_COST else None


def _principal_axes(x: Tensor, y: Tensor) -> Tensor:
    """Return the eigenvectors (dim, dim) of the second moments of a sample, in the order of descending eigenvalues."""
    sample = torch.cat([_sample(side, SAMPLE_ROWS_PER_DIM * x.shape[1] // 2) for side in (x, y)]).float()
    with single_thread():  # on several, small steps of the decomposition wait for each other
        eigenvectors: Tensor = torch.linalg.eigh(sample.T @ sample).eigenvectors
    return eigenvectors.flip(1)


def _uncertain_shares(queries: Tensor, keys: Tensor, matrix: Tensor, step: int, settings: AxesSettings) -> Tensor:
    """Return for each multiple of `step` dimensions the share of a sample of queries with more candidates among the keys than are kept."""
    tested, sample = _sample(queries, TEST_ROWS).float(), _sample(keys, TEST_KEYS).float()
    kth_similarities = _kth_similarities(tested, keys, settings.k)[:, None] - settings.rounding_error
    max_count = max(MIN_COUNT, settings.num_candidates * len(sample) / len(keys))
    all_bounds = _upper_bounds(tested @ matrix, sample @ matrix, step)
    return torch.stack([((bounds >= kth_similarities).sum(1) > max_count).float().mean() for bounds in all_bounds])


def _upper_bounds(x: Tensor, y: Tensor, step: int) -> Iterator[Tensor]:
    """Yield the upper bounds (n, m) of the similarities of vectors along all axes, by their first `step`, 2 `step`, ... coordinates."""
    products = x.new_zeros((len(x), len(y)))
    squares = [(side**2).sum(1) for side in (x, y)]
    for start in range(0, x.shape[1] // step * step, step):
        x_part, y_part = x[:, start : start + step], y[:, start : start + step]
        products += x_part @ y_part.T
        squares = [square - (part**2).sum(1) for square, part in zip(squares, (x_part, y_part), strict=True)]
        tails = [square.clamp(min=0).sqrt() for square in squares]
        yield products + tails[0][:, None] * tails[1]


def _kth_similarities(queries: Tensor, keys: Tensor, k: int) -> Tensor:
    """Return the k-th largest similarity (n,) of each query, in float32; the smallest where there are fewer keys."""
    best = queries.new_full((len(queries), k), -torch.inf)
    for part in torch.split(keys, PROJECTED_ROWS):
        best = torch.cat([best, queries @ part.float().T], dim=1).topk(k, dim=1).values
    return best[:, -1]


def _sample(vectors: Tensor, count: int) -> Tensor:
    return vectors[:: max(1, len(vectors) // count)][:count]
