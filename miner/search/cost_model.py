"""Choice of engine and index factory. The time of each engine follows from the sizes and from costs that are measured on a sample of the
vectors (`miner.search.trials`), or expected where a search is too small or too clear a case to measure them.

benchmarks/auto.md compares the choices with measured times.
"""

import math
from dataclasses import dataclass, replace

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

TUNING_QUERIES = 2000  # compared exactly with all vectors of an index to tune it: once when it is built, once per search
TUNING_SEARCHES = 12  # of these queries, with different efforts: together they take as long as this number with the final effort
CANDIDATES_PER_NEIGHBOUR = 12  # rescored; tuning takes 1 to 16
FIRST_BLOCK, LATER_BLOCK = 2.0, 0.5  # what a vector costs in these blocks of exact search, relative to the second
MIN_GAIN = 0.05  # of the time of exact search, below which FAISS is not worth the neighbours that it misses

# What is expected before anything is measured. Seconds of one core for vectors of REFERENCE_DIM; others take time in proportion.
REFERENCE_DIM = 256
INT8_SECONDS, FLOAT_SECONDS = 6e-10, 5e-9  # per product of two vectors
DENSE_SECONDS = 1.8e-8  # per pair of vectors in exact search without torch
SCAN_FACTOR = 2.0  # seconds of a pair in exact search, relative to those of its product
EXACT_ROW_SECONDS = 3e-5
ADD_SECONDS, CODES_SECONDS, QUERY_SECONDS = 6e-6, 0.7, 5e-5
PROBE_SECONDS, EXPECTED_LIST_ROWS = 3.6e-7, 188
CANDIDATE_SECONDS = 6e-7
EXPECTED_PROBES, EXPECTED_ROWS, EXPECTED_GROWTH = 600, 300_000, 0.3
EXPECTED_MISSES, MISSES_EXPONENT = 0.02, 1.4  # fewer misses take more probes, by this power


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
        """The faster engine; exact if they take about the same time."""
        return "faiss" if self.faiss < (1 - MIN_GAIN) * self.exact else "exact"


@dataclass(frozen=True)
class ExactCosts:
    """Seconds of exact search with all cores of a machine, which reads both sides in blocks."""

    pair: float  # per pair of vectors
    row: float  # per vector, for the second block of the other side
    block_rows: int

    def seconds(self, rows: tuple[int, int]) -> float:
        """Return the time of a search. In the first block a vector has more candidates than in the second, in later ones fewer."""
        blocks = [FIRST_BLOCK + LATER_BLOCK * (math.ceil(count / self.block_rows) - 1) for count in rows]
        passes = rows[0] * blocks[1] + rows[1] * blocks[0]
        return self.pair * rows[0] * rows[1] + self.row * passes / 2


@dataclass(frozen=True)
class FaissCosts:
    """Seconds of an index and of its search with all cores of a machine."""

    product: float  # per vector and centroid, or vector, that it is compared with in float32
    add: float  # per vector that is coded
    codes: float  # to train the codes of an index, whatever its size
    query: float  # per query, besides the following
    probe: float  # per list that is searched, which holds `list_rows` vectors
    list_rows: int
    candidate: float  # per candidate that is rescored
    probes: float  # lists that reach the target recall in an index of `rows` vectors
    rows: int
    growth: float  # the lists to probe grow with the vectors by this power


@dataclass(frozen=True)
class SearchCosts:
    """What a search costs on a machine, by engine."""

    exact: ExactCosts
    faiss: FaissCosts

    def scale(self, factor: float) -> "SearchCosts":
        """Return the costs of a machine on which everything takes `factor` times as long."""
        names = ("product", "add", "codes", "query", "probe", "candidate")
        faiss = replace(self.faiss, **{name: factor * getattr(self.faiss, name) for name in names})
        return SearchCosts(replace(self.exact, pair=factor * self.exact.pair, row=factor * self.exact.row), faiss)


def expected_costs(
    workload: SearchWorkload, cores: int, block_rows: int, int8_seconds: float | None = None, float_seconds: float | None = None
) -> SearchCosts:
    """Return the costs that are expected of `cores` cores; `int8_seconds` and `float_seconds` are those of a product of two vectors."""
    scale = workload.dim / REFERENCE_DIM
    pair = scale * INT8_SECONDS if int8_seconds is None else int8_seconds
    product = scale * FLOAT_SECONDS if float_seconds is None else float_seconds
    misses = max(1 - workload.target_recall, 1e-6)
    faiss = FaissCosts(
        product=product,
        add=scale * ADD_SECONDS,
        codes=scale * CODES_SECONDS,
        query=scale * QUERY_SECONDS,
        probe=scale * PROBE_SECONDS,
        list_rows=EXPECTED_LIST_ROWS,
        candidate=scale * CANDIDATE_SECONDS,
        probes=EXPECTED_PROBES * (EXPECTED_MISSES / misses) ** MISSES_EXPONENT,
        rows=EXPECTED_ROWS,
        growth=EXPECTED_GROWTH,
    )
    return SearchCosts(ExactCosts(SCAN_FACTOR * pair, scale * EXACT_ROW_SECONDS, block_rows), faiss).scale(1 / cores)


def estimate_search(workload: SearchWorkload, costs: SearchCosts, has_index: tuple[bool, bool] = (False, False)) -> SearchEstimate:
    """Estimate a search; `has_index` says which sides are indexed already."""
    rows, faiss = workload.rows, 0.0
    for keys, queries, is_built in ((*rows, has_index[0]), (*rows[::-1], has_index[1])):
        query_seconds = _query_seconds(keys, workload.k, costs.faiss)
        faiss += queries * query_seconds + _tuning_seconds(keys, queries, query_seconds, costs.faiss)
        faiss += 0 if is_built else _build_seconds(keys, costs.faiss) + _tuning_seconds(keys, keys, query_seconds, costs.faiss)
    return SearchEstimate(costs.exact.seconds(rows), faiss)


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


def _build_seconds(rows: int, costs: FaissCosts) -> float:
    """Return the seconds to train an index and to add its vectors."""
    if rows <= MAX_FLAT_ROWS:
        return 0.0
    return costs.codes + costs.add * rows + costs.product * num_lists(rows) * (KMEANS_ITERATIONS * num_training_rows(rows) + rows)


def _tuning_seconds(keys: int, queries: int, query_seconds: float, costs: FaissCosts) -> float:
    return min(TUNING_QUERIES, queries) * (costs.product * keys + TUNING_SEARCHES * query_seconds)


def training_share(rows: int) -> float:
    """Return the share of the build time that is training, which one process does; adding is spread over workers."""
    trained = KMEANS_ITERATIONS * num_training_rows(rows)
    return trained / (trained + rows)


def num_training_rows(rows: int) -> int:
    """Return the number of vectors that an index of `rows` vectors is trained on."""
    return 0 if rows <= MAX_FLAT_ROWS else POINTS_PER_LIST * num_lists(rows)


def _query_seconds(keys: int, k: int, costs: FaissCosts) -> float:
    """Return the seconds to search the neighbours of one query. Half of the time that a list takes is for the vectors in it."""
    rescoring = costs.candidate * CANDIDATES_PER_NEIGHBOUR * k
    if keys <= MAX_FLAT_ROWS:
        return costs.query + costs.product * keys + rescoring
    lists = num_lists(keys)
    probes: float = min(lists, costs.probes * (keys / costs.rows) ** costs.growth)
    return costs.query + costs.product * lists + probes * costs.probe * (1 + keys / lists / costs.list_rows) / 2 + rescoring


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
    lists = num_lists(rows)
    codes = _gpu_codes(dim) if gpu else _cpu_codes(dim)
    return {f"IVF{lists},{code}": rows * (code_bytes + ID_BYTES) + lists * dim * 4 for code, code_bytes in codes}


def num_lists(rows: int) -> int:
    """Return the power of two nearest to 4 sqrt(rows), at most MAX_LISTS."""
    return min(MAX_LISTS, 1 << round(math.log2(4 * math.sqrt(rows))))


def _cpu_codes(dim: int) -> list[tuple[str, int]]:
    """Return (code, bytes per vector), best first: 4 bits for 2, 4 or 8 dimensions, which FAISS compares 32 vectors at a time."""
    subvectors = [dim // stride for stride in (2, 4, 8) if dim % stride == 0]
    return [(f"PQ{count}x4", math.ceil(count / 2)) for count in subvectors] or [("SQ8", dim), ("SQ4", math.ceil(dim / 2))]


def _gpu_codes(dim: int) -> list[tuple[str, int]]:
    """Return the same for faiss-gpu, which has no fast scan and no codes of more than 96 bytes."""
    sizes = [size for size in GPU_CODE_BYTES if dim % size == 0 and dim // size in GPU_SUBVECTOR_DIMS]
    return [("SQfp16", 2 * dim), ("SQ8", dim), *((f"PQ{size}", size) for size in sizes)]
