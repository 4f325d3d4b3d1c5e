"""Choice of engine and index factory, from sizes and measured constants: the same input gives the same choice on every machine.

benchmarks/index.md describes how the constants were measured.
"""

import math
from dataclasses import dataclass

from miner.errors import ConfigError
from miner.search.centroids import KMEANS_ITERATIONS, POINTS_PER_LIST

MAX_FLAT_ROWS = 20_000  # up to here every vector is compared: training would take longer
MAX_LISTS = 1 << 18
MIN_GROUP_PAIRS = 1024  # elements of exact search that keep many workers busy
MAX_GROUP_ROWS = 1 << 23  # of one side of an element, whose neighbours are in memory
ID_BYTES = 8

# faiss-gpu: allowed bytes of a product code, and allowed dimensions per byte.
GPU_CODE_BYTES = (96, 64, 56, 48, 40, 32, 28, 24, 20, 16, 12, 8, 4, 3, 2, 1)
GPU_SUBVECTOR_DIMS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32)

# Seconds of one core, per dimension of one vector.
INT8_SECONDS, FLOAT_SECONDS = 2.5e-11, 3.5e-11
EXACT_SECONDS = {  # per pair
    **dict.fromkeys(("int8-levels", "narrow-levels", "int8"), INT8_SECONDS),
    **dict.fromkeys(("float16", "bfloat16", "float32"), FLOAT_SECONDS),
}
FLAT_SECONDS = 1.5e-10  # per pair of vectors in a flat index
COARSE_SECONDS = 5e-11  # per centroid that a vector is compared with
SCAN_SECONDS = 3.5e-11  # per code that a query is compared with
RESCORE_SECONDS = 4e-9  # per candidate that is rescored
CODE_TRAINING_SECONDS = 14.0  # to train the codes of an index, whatever its size
TUNING_QUERIES = 2000  # compared exactly with all vectors of an index to tune it: once when it is built, once per search

CANDIDATES_PER_NEIGHBOUR = 12  # rescored; tuning takes 1 to 16

# Lists to probe: MEASURED_PROBES of MEASURED_ROWS vectors miss MEASURED_MISSES of the neighbours. The number grows with the vectors
# and falls with the share that may be missed, by these powers.
MEASURED_PROBES, MEASURED_ROWS, MEASURED_MISSES = 384, 1_000_000, 0.02
ROWS_EXPONENT, MISSES_EXPONENT = 0.16, 1.4


@dataclass(frozen=True)
class SearchWorkload:
    """A search for the k nearest in both directions."""

    rows: tuple[int, int]  # vectors of the source and of the target
    dim: int
    k: int
    target_recall: float


@dataclass(frozen=True)
class SearchEstimate:
    """Expected seconds of a search of both directions, by engine."""

    exact: float
    faiss: float

    @property
    def engine(self) -> str:
        """The faster engine; exact if they tie."""
        return "faiss" if self.faiss < self.exact else "exact"


def estimate_search(workload: SearchWorkload, precision: str, cores: int, has_index: tuple[bool, bool] = (False, False)) -> SearchEstimate:
    """Estimate a search on `cores` cores whose fastest arithmetic is `precision`; `has_index` says which sides are indexed already."""
    rows, dim = workload.rows, workload.dim
    exact = rows[0] * rows[1] * dim * EXACT_SECONDS[precision]
    approximate = 0.0
    for keys, queries, is_built in ((*rows, has_index[0]), (*rows[::-1], has_index[1])):
        approximate += _search_seconds(keys, queries, dim, workload.target_recall)
        approximate += RESCORE_SECONDS * dim * queries * CANDIDATES_PER_NEIGHBOUR * workload.k
        approximate += _tuning_seconds(keys, queries, dim, precision)
        approximate += 0 if is_built else _build_seconds(keys, dim) + _tuning_seconds(keys, keys, dim, precision)
    return SearchEstimate(exact / cores, approximate / cores + 2 * CODE_TRAINING_SECONDS)


def shards_per_group(num_shards: tuple[int, int], num_rows: tuple[int, int]) -> int:
    """Return how many shards of each side exact search compares in one element, for the shards and rows of the source and the target.

    A shard is read once per group of the other side. A group has the square root of the number of shards, if this leaves enough elements
    and its neighbours fit into memory.
    """
    by_elements = math.isqrt(num_shards[0] * num_shards[1] // MIN_GROUP_PAIRS)
    shard_rows = max(rows / max(1, shards) for rows, shards in zip(num_rows, num_shards, strict=True))
    by_memory = int(MAX_GROUP_ROWS / max(1.0, shard_rows))
    return max(1, min(by_elements, math.isqrt(max(num_shards)), by_memory))


def exact_read_bytes(num_shards: tuple[int, int], num_rows: tuple[int, int], dim: int, group: int, resident_bytes: float) -> float:
    """Return the bytes of vectors that exact search reads in groups of `group` shards.

    Sources are read once per group of targets; targets once per group of sources, and again if a group has more than `resident_bytes`.
    """
    num_bytes = [2 * dim * rows for rows in num_rows]
    source_groups, target_groups = (math.ceil(shards / group) for shards in num_shards)
    reads_per_group = max(1, math.ceil(num_bytes[0] / source_groups / resident_bytes))
    return num_bytes[0] * target_groups + num_bytes[1] * source_groups * reads_per_group


def _build_seconds(rows: int, dim: int) -> float:
    """Return the seconds to train an index and to add its vectors."""
    if rows <= MAX_FLAT_ROWS:
        return 0.0
    return COARSE_SECONDS * dim * _num_lists(rows) * (KMEANS_ITERATIONS * num_training_rows(rows) + rows)


def _tuning_seconds(keys: int, queries: int, dim: int, precision: str) -> float:
    return min(TUNING_QUERIES, queries) * keys * dim * EXACT_SECONDS[precision]


def training_share(rows: int) -> float:
    """Return the share of the build time that is training, which one process does; adding is spread over workers."""
    trained = KMEANS_ITERATIONS * num_training_rows(rows)
    return trained / (trained + rows)


def num_training_rows(rows: int) -> int:
    """Return the number of vectors that an index of `rows` vectors is trained on."""
    return 0 if rows <= MAX_FLAT_ROWS else POINTS_PER_LIST * _num_lists(rows)


def _search_seconds(keys: int, queries: int, dim: int, target_recall: float) -> float:
    if keys <= MAX_FLAT_ROWS:
        return FLAT_SECONDS * dim * keys * queries
    return dim * queries * (COARSE_SECONDS * _num_lists(keys) + SCAN_SECONDS * keys * _probed_share(keys, target_recall))


def _probed_share(keys: int, target_recall: float) -> float:
    """Return the share of the lists that has to be probed for the target recall."""
    misses = max(1 - target_recall, 1e-6)
    probes = MEASURED_PROBES * (keys / MEASURED_ROWS) ** ROWS_EXPONENT * (MEASURED_MISSES / misses) ** MISSES_EXPONENT
    return float(min(1.0, probes / _num_lists(keys)))


def choose_factory(rows: int, dim: int, max_bytes: int, gpu: bool = False) -> str:
    """Return the best FAISS factory string for `rows` vectors that takes at most `max_bytes` while it is searched.

    Raises ConfigError where none does.
    """
    sizes = _factory_bytes(rows, dim, gpu)
    for factory, size in sizes.items():
        if size <= max_bytes or factory == "Flat":
            return factory
    raise ConfigError(
        f"--memory: {rows:,} vectors x {dim} dimensions take {min(sizes.values()) / 1e9:.1g} GB in the smallest index that"
        " --factory auto chooses; give more memory, or a --factory"
    )


def index_bytes(factory: str, rows: int, dim: int) -> int:
    """Return the size, in memory and as a file, of an index that `choose_factory` can return."""
    return {**_factory_bytes(rows, dim, gpu=True), **_factory_bytes(rows, dim, gpu=False)}[factory]


def _factory_bytes(rows: int, dim: int, gpu: bool) -> dict[str, int]:
    """Return the candidate factories and the bytes of their indexes, best first."""
    if rows <= MAX_FLAT_ROWS:
        return {"Flat": rows * (4 * dim + ID_BYTES)}
    num_lists = _num_lists(rows)
    codes = _gpu_codes(dim) if gpu else _cpu_codes(dim)
    return {f"IVF{num_lists},{code}": rows * (code_bytes + ID_BYTES) + num_lists * dim * 4 for code, code_bytes in codes}


def _num_lists(rows: int) -> int:
    """Return the power of two nearest to 4 sqrt(rows), at most MAX_LISTS."""
    num_lists = 1 << round(math.log2(4 * math.sqrt(rows)))
    return min(MAX_LISTS, num_lists)


def _cpu_codes(dim: int) -> list[tuple[str, int]]:
    """Return (code, bytes per vector), best first: 4 bits for 2, 4 or 8 dimensions, which FAISS compares 32 vectors at a time."""
    subvectors = [dim // stride for stride in (2, 4, 8) if dim % stride == 0]
    return [(f"PQ{count}x4", math.ceil(count / 2)) for count in subvectors] or [("SQ8", dim), ("SQ4", math.ceil(dim / 2))]


def _gpu_codes(dim: int) -> list[tuple[str, int]]:
    """Return the same for faiss-gpu, which has no fast scan and no codes of more than 96 bytes."""
    sizes = [size for size in GPU_CODE_BYTES if dim % size == 0 and dim // size in GPU_SUBVECTOR_DIMS]
    return [("SQfp16", 2 * dim), ("SQ8", dim), *((f"PQ{size}", size) for size in sizes)]
