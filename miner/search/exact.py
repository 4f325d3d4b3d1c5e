"""Exact search in one pass: each tile of S = X Y^T gives the nearest neighbours of its rows *and* of its columns.

The similarity of two sentences is the dot product of their stored float16 vectors. In float64 it is exact: products are multiples of
2^-48, and sums of unit vectors stay far below 2^5, so no bit is rounded away and the order of summation does not matter. Equal vectors
therefore tie exactly, on any machine and however the corpora are sharded.

Fast arithmetic only proposes candidates, each with an upper bound of its similarity (`miner.search.prefilter`). The candidates that can
matter are scored exactly. A row is certain when its k-th similarity is above the bound of everything that was dropped. The few uncertain
rows are searched again for what reaches that similarity, with more candidates and in float32, and rows with many tied neighbours in
float64. So the result depends neither on the precision, which is chosen by what is fastest here, nor on the tiles.

Memory, beyond the two blocks of n vectors: one byte per dimension where int8 is the fastest, 8 bytes for each of the 2k + 16 candidates
of a vector, more while they are collected, and temporary arrays that do not depend on n.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from miner.devices import free_memory
from miner.errors import MinerError
from miner.search.device_side import DeviceBlock, DeviceNeighbours, SearchSide, device_blocks
from miner.search.neighbours import Neighbours, VectorBlock, empty_neighbours
from miner.search.parallel import parallel_for
from miner.search.precision import PRECISIONS, ROW_MULTIPLE, SLACK, Precision, Tile, build_tiles, full_precision_matmul, rank_precisions
from miner.search.prefilter import PrefilterSettings, TileCandidates, scan_both, scan_rows
from miner.search.principal_axes import AxesSettings, PrincipalAxes, choose_axes

T = TypeVar("T")

MIN_TILE_ROWS = 256
PRODUCT_BYTES = 32  # of device memory for each product of a tile: itself, and what is copied of it where most candidates tie
TRIAL_ROWS = 256  # vectors of either side on which a precision is tried
CHUNK_ELEMENTS = {"cpu": 1 << 20, "cuda": 1 << 26}  # of a temporary array of float64: 8 and 512 MB
SCORING_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}  # of one while candidates are scored: on a CPU it has to fit into the cache
EXTRA_CANDIDATES = 16  # beyond 2k
AXES_ROUNDING_ERROR = 0.03  # of products in levels, for the choice of axes only
WIDE_FACTOR = 8  # times as many candidates in the second search
FLOAT64_TILE_ROWS = 8192

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchOptions:
    """Where and how a block is searched. None of this changes the result."""

    device: str = "cpu"
    precision: str | None = None  # one of PRECISIONS; None: the fastest here
    axes: PrincipalAxes | None = None  # along which a precision in levels multiplies; None: all dimensions
    cpu_tile_rows: int = 2048  # rows and columns of a tile, which fits into the cache
    gpu_tile_rows: int = 32768  # at most: larger tiles amortise kernel launches
    min_trial_multiplications: int = 1 << 31  # below, float32 is used without trying other precisions
    min_axes_multiplications: int = 1 << 36  # below, finding principal axes takes longer than they save

    def tile_rows(self, device: torch.device) -> int:
        """Return the rows and columns of a tile on this device."""
        return self.cpu_tile_rows if device.type == "cpu" else fitting_tile_rows(self.gpu_tile_rows, free_memory(device))

    def halve_tiles(self, device: torch.device) -> "SearchOptions | None":
        """Return options with tiles of half the rows; None where they would have less than MIN_TILE_ROWS."""
        rows = self.tile_rows(device) // 2
        return replace(self, cpu_tile_rows=rows, gpu_tile_rows=rows) if rows >= MIN_TILE_ROWS else None


DEFAULT_OPTIONS = SearchOptions()


def fitting_tile_rows(max_rows: int, free_bytes: int) -> int:
    """Return the rows and columns of the largest tile that fits: `max_rows`, halved as often as necessary, at least MIN_TILE_ROWS."""
    rows = max_rows
    while rows // 2 >= MIN_TILE_ROWS and PRODUCT_BYTES * rows**2 > free_bytes:
        rows //= 2
    return rows


def search_block(
    source: VectorBlock,
    target: VectorBlock,
    k: int,
    options: SearchOptions = DEFAULT_OPTIONS,
    previous: tuple[Neighbours, Neighbours] | None = None,
) -> tuple[Neighbours, Neighbours]:
    """Return the k nearest targets of every source and the k nearest sources of every target; exact, ties by smaller id.

    `previous` are neighbours from other blocks: the result is merged with them, and faster, as only nearer candidates are scored.
    Raises MinerError where the device has too little memory.
    """
    forward, backward = previous or (empty_neighbours(len(source.ids), k), empty_neighbours(len(target.ids), k))
    sides = _upload(source, forward, options), _upload(target, backward, options)
    search_sides(*sides, options)
    return sides[0].neighbours.download(), sides[1].neighbours.download()


def search_sides(source: SearchSide, target: SearchSide, options: SearchOptions = DEFAULT_OPTIONS) -> SearchOptions:
    """Search both directions of two sides on one device, and replace their neighbours by those merged with what is nearer.

    Return the options, with smaller tiles where memory ran out. Raises MinerError where the smallest tiles do not fit.
    """
    if not len(source.block) or not len(target.block):
        return options

    def search(options: SearchOptions) -> tuple[DeviceNeighbours, DeviceNeighbours, Arithmetic]:
        arithmetic = _choose_arithmetic(source.block, target.block, source.neighbours.k, options)
        x, y = (_tiles_of(side.block, arithmetic, options) for side in (source, target))
        rows, columns = _new_candidates(x, y, source.neighbours, arithmetic), _new_candidates(y, x, target.neighbours, arithmetic)
        scan_both(rows, columns, arithmetic.precision)
        forward = _ExactScorer(source.block.vectors, target.block, y, options).resolve(rows, source.neighbours, arithmetic.later)
        backward = _ExactScorer(target.block.vectors, source.block, x, options).resolve(columns, target.neighbours, arithmetic.later)
        return forward, backward, arithmetic

    (source.neighbours, target.neighbours, chosen), options = _retry_with_smaller_tiles(search, source.block.vectors.device, options)
    if _num_multiplications(source.block, target.block) < options.min_trial_multiplications:
        return options
    return replace(options, precision=chosen.name, axes=chosen.axes)


def search_forward(source: VectorBlock, target: VectorBlock, previous: Neighbours, options: SearchOptions = DEFAULT_OPTIONS) -> Neighbours:
    """Return the nearest targets of every source, merged with `previous`: one direction, for few sources among many targets."""
    if not len(source.ids) or not len(target.ids):
        return previous
    device = torch.device(options.device)
    side, (keys,) = _upload(source, previous, options), device_blocks([target], device)

    def search(options: SearchOptions) -> DeviceNeighbours:
        arithmetic = _choose_arithmetic(side.block, keys, previous.k, options)
        x, y = (_tiles_of(block, arithmetic, options) for block in (side.block, keys))
        rows = _new_candidates(x, y, side.neighbours, arithmetic)
        scan_rows(rows, y, arithmetic.precision)
        return _ExactScorer(side.block.vectors, keys, y, options).resolve(rows, side.neighbours, arithmetic.later)

    return _retry_with_smaller_tiles(search, device, options)[0].download()


def _upload(block: VectorBlock, neighbours: Neighbours, options: SearchOptions) -> SearchSide:
    device = torch.device(options.device)
    (uploaded,) = device_blocks([block], device)
    return SearchSide(uploaded, DeviceNeighbours.upload(neighbours, device))


def _retry_with_smaller_tiles(
    search: Callable[[SearchOptions], T], device: torch.device, options: SearchOptions
) -> tuple[T, SearchOptions]:
    """Return the result of `search`, called again with tiles of half the rows as often as memory runs out, and the last options."""
    while True:
        try:
            with full_precision_matmul():
                return search(options), options
        except torch.OutOfMemoryError as error:
            reason = error.with_traceback(None)  # the traceback keeps the tensors of the search
        smaller = options.halve_tiles(device)
        if smaller is None:
            raise MinerError(f"{device}: too little memory for a block of the search; free some of it, or give --device cpu") from reason
        options = smaller
        logger.warning("%s: out of memory; searching again with tiles of %d rows", device, options.tile_rows(device))
        if device.type == "cuda":
            torch.cuda.empty_cache()


@dataclass(frozen=True)
class Arithmetic:
    """How the products of a search are computed: in a precision, and along principal axes or in all dimensions."""

    name: str  # of the precision
    axes: PrincipalAxes | None = None

    @property
    def precision(self) -> Precision:
        return PRECISIONS[self.name]

    @property
    def later(self) -> "tuple[Arithmetic, ...]":
        """In which uncertain rows are searched again, before float64. Along axes, more candidates would rarely make them certain."""
        return (self, Arithmetic("float32")) if self.precision.is_in_levels and self.axes is None else (Arithmetic("float32"),)

    def build_tiles(self, vectors: Tensor, tile_rows: int) -> list[Tile]:
        return build_tiles(vectors, self.precision, tile_rows, self.axes)


def _tiles_of(block: DeviceBlock, arithmetic: Arithmetic, options: SearchOptions) -> list[Tile]:
    """Return the tiles of a block: those of an earlier search, if it had the same arithmetic."""
    key = (arithmetic.name, balanced_tile_rows(len(block), options, block.vectors.device), arithmetic.axes)
    if key not in block.tiles:
        block.tiles[key] = arithmetic.build_tiles(block.vectors, key[1])
    return block.tiles[key]


def balanced_tile_rows(num_rows: int, options: SearchOptions, device: torch.device) -> int:
    """Return the rows of a tile so that each thread gets as many tiles; the largest tile on a GPU, which has one after the other."""
    max_rows, num_threads = options.tile_rows(device), torch.get_num_threads()
    if device.type != "cpu" or num_rows <= num_threads * MIN_TILE_ROWS:
        return max_rows
    tiles_per_thread = math.ceil(num_rows / (num_threads * max_rows))
    rows = math.ceil(num_rows / (num_threads * tiles_per_thread))
    return math.ceil(rows / ROW_MULTIPLE) * ROW_MULTIPLE


def _num_multiplications(x: DeviceBlock, y: DeviceBlock) -> int:
    return len(x) * len(y) * x.vectors.shape[1]


def choose_options(x: DeviceBlock, y: DeviceBlock, k: int, options: SearchOptions = DEFAULT_OPTIONS) -> SearchOptions:
    """Return the options with the arithmetic that is the fastest for these blocks, of whatever size."""
    arithmetic = _choose_arithmetic(x, y, k, replace(options, min_trial_multiplications=0))
    return replace(options, precision=arithmetic.name, axes=arithmetic.axes)


def _choose_arithmetic(x: DeviceBlock, y: DeviceBlock, k: int, options: SearchOptions) -> Arithmetic:
    """Choose the fastest precision that costs less than float32, including the uncertain rows that are searched again.

    The share of uncertain rows depends on the density of the vectors, so it is measured on TRIAL_ROWS of either side.
    """
    if options.precision is not None:
        return Arithmetic(options.precision, options.axes)
    if _num_multiplications(x, y) < options.min_trial_multiplications:
        return Arithmetic("float32")
    costs = rank_precisions(x.vectors.device, x.vectors.shape[1])
    for arithmetic, cost in _candidate_arithmetics(x, y, k, costs, options):
        uncertain = 0.0
        if arithmetic.name != "float32":
            uncertain = sum(_uncertain_share(*sides, k, arithmetic, options) for sides in ((x, y), (y, x)))
        if cost + uncertain * costs[arithmetic.later[0].name] <= costs["float32" if arithmetic.axes is None else arithmetic.name]:
            break
        for block in (x, y):
            block.tiles.clear()
    num_dims = x.vectors.shape[1] if arithmetic.axes is None else arithmetic.axes.matrix.shape[1]
    message = "%d x %d vectors: %d dimensions in %s, of which %.1f %% will be searched again"
    logger.debug(message, len(x), len(y), num_dims, arithmetic.name, 50 * uncertain)
    return arithmetic


def _candidate_arithmetics(
    x: DeviceBlock, y: DeviceBlock, k: int, costs: Mapping[str, float], options: SearchOptions
) -> Iterator[tuple[Arithmetic, float]]:
    """Yield what may be the fastest arithmetic, with the seconds of a product: first the most promising, at last float32."""
    fastest, dim = next(iter(costs)), x.vectors.shape[1]
    if PRECISIONS[fastest].is_in_levels and _num_multiplications(x, y) >= options.min_axes_multiplications:
        settings = AxesSettings(k, _num_candidates(k), AXES_ROUNDING_ERROR, costs["float32"] / costs[fastest])
        axes = choose_axes(x.vectors, y.vectors, settings)
        if axes is not None:
            yield Arithmetic(fastest, axes), costs[fastest] * axes.matrix.shape[1] / dim
    for name, cost in costs.items():
        yield Arithmetic(name), cost


def _uncertain_share(x: DeviceBlock, y: DeviceBlock, k: int, arithmetic: Arithmetic, options: SearchOptions) -> float:
    """Return the share of the vectors of x whose neighbours are not certain in this arithmetic, over a sample."""
    sample, tiles = x.vectors[:: max(1, len(x) // TRIAL_ROWS)][:TRIAL_ROWS], _tiles_of(y, arithmetic, options)
    nothing = DeviceNeighbours.empty(len(sample), k, sample.device)
    (rows,) = _new_candidates(arithmetic.build_tiles(sample, TRIAL_ROWS), tiles, nothing, arithmetic)
    scan_rows([rows], tiles, arithmetic.precision)
    _, similarities = _score_candidates(sample, y.vectors, rows)
    return float((similarities[:, -1] <= rows.dropped_bounds[: len(sample)]).double().mean())


def _num_candidates(k: int) -> int:
    return 2 * k + EXTRA_CANDIDATES


def _new_candidates(
    tiles: Sequence[Tile], others: Sequence[Tile], nearest: DeviceNeighbours, arithmetic: Arithmetic, factor: int = 1
) -> list[TileCandidates]:
    """Return empty candidates of these tiles among `others` that accept what is not farther than the k-th neighbour so far."""
    settings = PrefilterSettings(nearest.k, factor * _num_candidates(nearest.k), arithmetic.precision)
    # Ties go to the smaller id, so a candidate that ties with the k-th neighbour so far must be kept.
    last = nearest.similarities[:, -1]
    min_similarities = (last - SLACK).masked_fill_(last.isnan(), -torch.inf).float()
    return [TileCandidates(tile, others, settings, min_similarities[tile.positions]) for tile in tiles]


@dataclass(frozen=True)
class _ExactScorer:
    """Turns the candidates of x among the vectors of `keys` into exact neighbours."""

    x: Tensor
    keys: DeviceBlock
    tiles: Sequence[Tile]  # of the keys, in the first arithmetic
    options: SearchOptions

    def resolve(self, candidates: Sequence[TileCandidates], previous: DeviceNeighbours, later: Sequence[Arithmetic]) -> DeviceNeighbours:
        """Return the exact neighbours, merged with `previous`; uncertain rows are searched again in later arithmetic, then in float64."""
        resolved = DeviceNeighbours.empty(len(self.x), previous.k, self.x.device)
        uncertain: list[Tensor] = []

        def resolve_tile(number: int) -> None:
            collected = candidates[number]
            rows = collected.tile.positions
            positions, similarities = _score_candidates(self.x, self.keys.vectors, collected)
            merged = previous.take(rows).merge(self.keys.ids[positions], similarities)
            resolved.put(rows, merged)
            dropped = collected.dropped_bounds[: len(rows)]
            uncertain.append(rows[~(merged.similarities[:, -1] > dropped) & (dropped > -torch.inf)])

        parallel_for(len(candidates), resolve_tile, self.x.device.type)
        rows = torch.cat(uncertain)
        if len(rows):
            again = _ExactScorer(self.x[rows], self.keys, self.tiles, self.options)
            resolved.put(rows, again.search_again(previous.take(rows), resolved.take(rows), later))
        return resolved

    def search_again(self, previous: DeviceNeighbours, nearest: DeviceNeighbours, later: Sequence[Arithmetic]) -> DeviceNeighbours:
        """Search again in the first of these with more candidates; what is uncertain then, in the others.

        `nearest` are the neighbours so far. They include `previous`, and nothing farther than their last one is a candidate.
        """
        if not later:
            return _search_float64(self.x, self.keys, previous)
        arithmetic, tile_rows = later[0], self.options.tile_rows(self.x.device)
        is_first = arithmetic.precision.is_integer
        tiles = self.tiles if is_first else arithmetic.build_tiles(self.keys.vectors, tile_rows)
        rows = _new_candidates(arithmetic.build_tiles(self.x, tile_rows), tiles, nearest, arithmetic, WIDE_FACTOR)
        scan_rows(rows, tiles, arithmetic.precision)
        return self.resolve(rows, previous, later[1:])


def _score_candidates(x: Tensor, y: Tensor, candidates: TileCandidates) -> tuple[Tensor, Tensor]:
    """Return positions in y and similarities (m, k) of the m vectors of a tile: nearest first, ties by position, NaN for none.

    The k candidates with the largest bounds are scored first. Of the others only those whose bound reaches the k-th score can matter.
    """
    rows, k = candidates.tile.positions, candidates.k
    upper_bounds, positions = candidates.upper_bounds[: len(rows)], candidates.positions[: len(rows)]
    scores = torch.full(upper_bounds.shape, -torch.inf, dtype=torch.float64, device=x.device)

    def score_cells(is_scored: Tensor) -> None:
        row, column = is_scored.nonzero().unbind(1)
        scores[row, column] = _exact_similarities(x, y, rows[row], positions[row, column])

    is_candidate = ~upper_bounds.isinf()
    is_first = is_candidate & (torch.arange(upper_bounds.shape[1], device=x.device) < k)
    score_cells(is_first)
    score_cells(is_candidate & ~is_first & (upper_bounds >= scores[:, :k].amin(1, keepdim=True)))
    positions, order = positions.sort(dim=1)
    scores, order = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    scores, positions = scores[:, :k], positions.gather(1, order)[:, :k]
    return positions, scores.masked_fill(scores.isinf(), torch.nan)


def _exact_similarities(x: Tensor, y: Tensor, x_rows: Tensor, y_rows: Tensor) -> Tensor:
    """Return the exact similarities (n,) of the vectors x[x_rows] and y[y_rows].

    A product of two float16 numbers has 22 bits and is exact in float32; only the sum needs float64.
    """
    chunks = _chunk_slices(len(x_rows), 2 * x.shape[1], SCORING_ELEMENTS[x.device.type])
    return torch.cat([x.index_select(0, x_rows[chunk]).float().mul_(y.index_select(0, y_rows[chunk])).double().sum(1) for chunk in chunks])


def _chunk_slices(num_rows: int, row_elements: int, chunk_elements: int) -> list[slice]:
    """Cut rows into chunks whose temporary arrays of `row_elements` per row have about `chunk_elements`; at least one chunk."""
    step = max(1, chunk_elements // max(1, row_elements))
    return [slice(start, start + step) for start in range(0, max(1, num_rows), step)]


def _search_float64(x: Tensor, keys: DeviceBlock, previous: DeviceNeighbours) -> DeviceNeighbours:
    """Compute every similarity of x (n, dim) in float64, which is slow but always certain; return the nearest, merged with `previous`."""
    result = DeviceNeighbours.empty(len(x), previous.k, x.device)
    for rows in _chunk_slices(len(x), FLOAT64_TILE_ROWS, CHUNK_ELEMENTS[x.device.type]):
        queries, nearest = x[rows].double(), DeviceNeighbours(previous.ids[rows], previous.similarities[rows])
        for start in range(0, len(keys), FLOAT64_TILE_ROWS):
            positions, scores = _top_k(queries @ keys.vectors[start : start + FLOAT64_TILE_ROWS].double().T, previous.k)
            nearest = nearest.merge(keys.ids[positions + start], scores)
        result.ids[rows], result.similarities[rows] = nearest.ids, nearest.similarities
    return result


def _top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return positions and values of the k largest scores of each row, ties by smaller position: `topk` alone takes any of the tied."""
    count = min(k, scores.shape[1])
    kth_score = scores.topk(count, dim=1).values[:, -1:]
    is_tied = scores == kth_score
    is_kept = scores > kth_score
    is_kept |= is_tied & (is_tied.cumsum(1) <= count - is_kept.sum(1, keepdim=True))
    positions = is_kept.nonzero()[:, 1].view(-1, count)
    return positions, scores.gather(1, positions)
