"""Which engine, and which index: chosen by sizes and by what was measured, so that the same input chooses the same everywhere.

benchmarks/index.md tells how the constants were measured.
"""

import math
from dataclasses import dataclass

from miner.errors import ConfigError
from miner.search.centroids import POINTS, ROUNDS

FLAT_ROWS = 20_000  # below, every vector is compared: training would take longer
MOST_LISTS = 1 << 18
ID_BYTES = 8

# Of faiss-gpu: the bytes of a product code, and the numbers that a byte of it may stand for.
GPU_CODES = (96, 64, 56, 48, 40, 32, 28, 24, 20, 16, 12, 8, 4, 3, 2, 1)
GPU_STRIDES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32)

# Seconds of one core, for one number of one vector.
EXACT_SECONDS = {"int8": 2.5e-11, "float16": 3.5e-11, "bfloat16": 3.5e-11, "float32": 3.5e-11}  # compared with one of the other side
FLAT_SECONDS = 1.5e-10  # compared with one of an index that compares them all
COARSE_SECONDS = 5e-11  # compared with the centroid of a list
SCAN_SECONDS = 3.5e-11  # of a code that is compared, for a number of its vector
RESCORE_SECONDS = 4e-9  # scored again exactly, for a number of its vector
START_SECONDS = 14.0  # to train the codes of an index
TUNED = 2000  # vectors that are compared with all of an index to tune it: when it is built, and for each search

CANDIDATES = 12  # scored again for each neighbour wanted; tuning takes some of 1 to 16

# Lists to look into: so many of MEASURED_ROWS vectors for all but MEASURED_MISSED of the neighbours; of more vectors, and to miss
# fewer, as many more as these powers tell.
MEASURED_LISTS, MEASURED_ROWS, MEASURED_MISSED = 384, 1_000_000, 0.02
GROWTH, STEEPNESS = 0.16, 1.4


@dataclass(frozen=True)
class SearchEstimate:
    """What a search of both directions would take here, in seconds."""

    exact: float
    faiss: float

    @property
    def engine(self) -> str:
        """The faster one; exact where there is nothing in it."""
        return "faiss" if self.faiss < self.exact else "exact"


def estimate(
    rows: tuple[int, int], dim: int, k: int, target_recall: float, precision: str, cores: int, built: tuple[bool, bool] = (False, False)
) -> SearchEstimate:
    """Of the k nearest in two sides of `rows` vectors; `built` tells which have an index already.

    `precision` is the arithmetic that is fastest here, of `miner.search.precision`.
    """
    exact = rows[0] * rows[1] * dim * EXACT_SECONDS[precision]
    approximate = 0.0
    for keys, queries, ready in ((*rows, built[0]), (*rows[::-1], built[1])):
        approximate += _search_seconds(keys, queries, dim, target_recall) + RESCORE_SECONDS * dim * queries * CANDIDATES * k
        approximate += _tuning_seconds(keys, queries, dim, precision)
        approximate += 0 if ready else _build_seconds(keys, dim) + _tuning_seconds(keys, keys, dim, precision)
    return SearchEstimate(exact / cores, approximate / cores + 2 * START_SECONDS)


def _build_seconds(keys: int, dim: int) -> float:
    """To train an index and add the vectors."""
    if keys <= FLAT_ROWS:
        return 0.0
    return COARSE_SECONDS * dim * _lists(keys) * (ROUNDS * training_rows(keys) + keys)


def _tuning_seconds(keys: int, queries: int, dim: int, precision: str) -> float:
    return min(TUNED, queries) * keys * dim * EXACT_SECONDS[precision]


def training_share(keys: int) -> float:
    """Of the time to build an index, that in which it is trained: by one process, while the vectors can be added by many."""
    trained = ROUNDS * training_rows(keys)
    return trained / (trained + keys)


def training_rows(keys: int) -> int:
    """How many vectors an index of so many is trained with."""
    return 0 if keys <= FLAT_ROWS else POINTS * _lists(keys)


def _search_seconds(keys: int, queries: int, dim: int, target_recall: float) -> float:
    if keys <= FLAT_ROWS:
        return FLAT_SECONDS * dim * keys * queries
    return dim * queries * (COARSE_SECONDS * _lists(keys) + SCAN_SECONDS * keys * _share(keys, target_recall))


def _share(keys: int, target_recall: float) -> float:
    """Of the lists, that which has to be looked into for the target."""
    missed = max(1 - target_recall, 1e-6)
    lists = MEASURED_LISTS * (keys / MEASURED_ROWS) ** GROWTH * (MEASURED_MISSED / missed) ** STEEPNESS
    return float(min(1.0, lists / _lists(keys)))


def factory(rows: int, dim: int, memory: int, gpu: bool = False) -> str:
    """An index of `rows` vectors that takes at most `memory` bytes while it is searched; ConfigError where none does."""
    sizes = _sizes(rows, dim, gpu)
    for name, size in sizes.items():
        if size <= memory or name == "Flat":
            return name
    raise ConfigError(
        f"--memory: {rows:,} vectors x {dim} dimensions take {min(sizes.values()) / 1e9:.1g} GB in the smallest index that is chosen by"
        " itself; give more, or a --factory"
    )


def index_bytes(name: str, rows: int, dim: int, gpu: bool = False) -> int:
    """What an index that `factory` may choose takes while it is searched, and as a file."""
    return _sizes(rows, dim, gpu)[name]


def _sizes(rows: int, dim: int, gpu: bool) -> dict[str, int]:
    """The indexes to choose from, the best first, and their bytes."""
    if rows <= FLAT_ROWS:
        return {"Flat": rows * (4 * dim + ID_BYTES)}
    lists = _lists(rows)
    kinds = _gpu_kinds(dim) if gpu else _kinds(dim)
    return {f"IVF{lists},{kind}": rows * (code + ID_BYTES) + lists * dim * 4 for kind, code in kinds}


def _lists(rows: int) -> int:
    """About 4 sqrt(rows), a power of two."""
    lists = 1 << round(math.log2(4 * math.sqrt(rows)))
    return min(MOST_LISTS, lists)


def _kinds(dim: int) -> list[tuple[str, int]]:
    """(code, its bytes), the best first: four bits for 2, 4 or 8 numbers, which FAISS compares 32 vectors at a time."""
    halves = [dim // stride for stride in (2, 4, 8) if dim % stride == 0]
    return [(f"PQ{words}x4", math.ceil(words / 2)) for words in halves] or [("SQ8", dim), ("SQ4", math.ceil(dim / 2))]


def _gpu_kinds(dim: int) -> list[tuple[str, int]]:
    """The same of what faiss-gpu has: no quantiser over the lists, no codes of more than 96 bytes, no fast scan."""
    codes = [size for size in GPU_CODES if dim % size == 0 and dim // size in GPU_STRIDES]
    return [("SQfp16", 2 * dim), ("SQ8", dim), *((f"PQ{size}", size) for size in codes)]
