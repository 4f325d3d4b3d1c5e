"""Time, memory and disk of every stage of a run, from the sizes of the corpora and the speeds of a machine.

benchmarks/scale.md compares the estimates with measurements.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from miner.plan.hardware import Speeds
from miner.search import blocks, cost_model
from miner.search.cost_model import SearchWorkload
from miner.text.sharding import DEFAULT_SIZES
from pipelines.mining.candidates import DEFAULT_LIMITS
from pipelines.search import exact

# Seconds of one machine, measured by benchmarks/scale.py.
JOIN_SECONDS = 6e-6  # per sentence of either side: join the neighbours of both directions to candidates, and match these
WRITE_SECONDS = 1.5e-5  # per pair: write it compressed, which one machine does
MERGE_SECONDS = 1e-6  # per sentence and group of shards of the other side: write its partial neighbours, read and merge them

# Of one core, measured by benchmarks/late.py.
RESCORE_SECONDS = 5e-8  # per candidate and dimension
DISTINCT_SHARE = 0.8  # share of the candidates of both directions that differ

# Memory and disk.
PROCESS_BYTES = 0.45e9  # Python, torch, Beam and the built-in encoder, without data
ALLOCATOR_BYTES = 0.25e9  # freed memory that Arrow and the allocator keep
SEARCH_BYTES = 0.5e9  # vectors, candidates and scores in use by FAISS
TILE_BYTES_PER_DIM = 5  # of a vector that is searched exactly: as float16, and its tiles
CANDIDATE_BYTES_PER_NEIGHBOUR = 150  # of such a vector, for each of its k neighbours: its candidates while they are collected and scored
SEARCHED_BYTES = 0.35e9  # freed memory that the allocator keeps after a search
RANGE_COPIES = 3  # bytes per byte of a text range while it is sorted and written
SCATTERED_ROW_BYTES = 28  # bytes of a line before sorting, besides its text
TRAINING_BYTES_PER_COMPONENT = 12  # bytes per dimension of a training vector: as float16, as float32, and in k-means
CANDIDATE_FILE_BYTES = 24  # bytes of a candidate in its table, compressed
CANDIDATE_MATCHING_BYTES = 120  # bytes of a candidate that is matched
CANDIDATE_SHUFFLE_BYTES = 25  # bytes of a candidate on its way to the range of its other side
RESCORED_CANDIDATE_BYTES = 400  # bytes of a candidate that is joined and rescored
RESCORED_TEXT_COPIES = 4  # bytes per byte of a text that is rescored: as a string, in Arrow, and its tokens
PAIR_COPIES = 3  # bytes per byte of the pairs that are joined or sorted
PAIR_ROW_BYTES = 80  # bytes of a pair, besides its texts


@dataclass(frozen=True)
class CorpusSize:
    """The expected size of a corpus."""

    sentences: int
    text_bytes: float  # mean bytes of a sentence
    row_bytes: float  # mean bytes of a sentence in its table
    shards: int
    dim: int
    reason: str = ""  # how the number of sentences was determined
    lines: float = 0.0  # lines to read
    files: int = 0  # files to read; the number of shards where the size comes from plan.sentences; 0 where the corpus is embedded
    token_bytes: float = 0.0  # mean bytes of the stored tokens of a sentence
    encoder_bytes: float = 0.0  # bytes of a transformer in memory

    @property
    def shard_sentences(self) -> float:
        return self.sentences / self.shards


@dataclass(frozen=True)
class ResourceNeed:
    """What a stage takes."""

    memory: float  # bytes of one process
    disk: float = 0.0  # bytes of its output
    temporary_disk: float = 0.0  # bytes of files that are removed when it is complete
    read_bytes: float = 0.0  # bytes of vectors that exact search reads, once per group of the other side


@dataclass(frozen=True)
class StageCost:
    """One line of a plan."""

    name: str
    seconds: float  # with all workers
    need: ResourceNeed

    def figures(self) -> dict[str, Any]:
        """Return the cost for --json."""
        return {"name": self.name, "seconds": self.seconds, "hours": self.seconds / 3600, **asdict(self.need)}


@dataclass(frozen=True)
class EngineChoice:
    """The search engine of a pair of corpora, and its cost."""

    engine: str
    reason: str
    factories: tuple[str, str] | None  # FAISS factory strings of the source and the target; None for exact search
    recall: float  # expected
    search_seconds: float  # time of one machine
    build_seconds: tuple[float, float]  # time of one machine, per index
    rescore_seconds: float = 0.0  # time of one machine; 0 if candidates are not rescored


@dataclass(frozen=True)
class WorkerPool:
    """Identical machines, each with one worker process."""

    workers: int
    speeds: Speeds

    def seconds(self, work_seconds: float, parts: int, starts: int = 1) -> float:
        """Return the time for work that one machine does in `work_seconds`, in equal parts that are not split, and `starts` stages."""
        rounds = math.ceil(parts / self.workers)
        return work_seconds * rounds / parts + starts * self.speeds.stage_start_seconds


@dataclass(frozen=True)
class EngineRequest:
    """The settings that determine the search engine."""

    k: int  # neighbours that are searched
    target_recall: float
    max_index_bytes: int
    cores: int
    fixed_engine: tuple[str, str] | None  # the engine and the reason, where sizes do not matter
    is_rescored: bool = False  # whether all neighbours are rescored
    has_gpu: bool = False  # whether FAISS searches on a GPU


def plan_engine(source: CorpusSize, target: CorpusSize, request: EngineRequest, speeds: Speeds) -> EngineChoice:
    """Return the engine that `miner run` will choose, and its cost. Raises ConfigError where no index is small enough."""
    rows, dim = (source.sentences, target.sentences), source.dim
    workload = SearchWorkload(rows, dim, request.k, request.target_recall)

    def faiss_seconds(source_built: bool, target_built: bool) -> float:
        return cost_model.estimate_search(workload, speeds.search, (source_built, target_built)).faiss

    estimate = cost_model.estimate_search(workload, speeds.search)
    if speeds.pairs_per_second is not None:
        estimate = replace(estimate, exact=rows[0] * rows[1] / speeds.pairs_per_second)
    search_seconds = faiss_seconds(True, True)
    build_seconds = faiss_seconds(False, True) - search_seconds, faiss_seconds(True, False) - search_seconds
    comparison = f"exact search in {estimate.exact:,.0f} s, FAISS in {estimate.faiss:,.0f} s, of one machine"
    engine, reason = request.fixed_engine or (estimate.engine, comparison)
    num_candidates = DISTINCT_SHARE * request.k * sum(rows) if request.is_rescored else 0.0
    rescore_seconds = RESCORE_SECONDS * dim * num_candidates / request.cores
    if engine == "exact":
        return EngineChoice(engine, reason, None, 1.0, estimate.exact, (0.0, 0.0), rescore_seconds)
    source_factory, target_factory = (cost_model.choose_factory(count, dim, request.max_index_bytes, request.has_gpu) for count in rows)
    return EngineChoice(
        engine,
        reason,
        (source_factory, target_factory),
        request.target_recall,
        search_seconds,
        build_seconds,
        rescore_seconds,
    )


def corpus_costs(name: str, corpus: CorpusSize, pool: WorkerPool, shares_jobs: bool = False) -> list[StageCost]:
    """Return the cost of reading and embedding a corpus, by jobs of its own, or by those of another one."""
    assert pool.speeds.lines_per_second is not None
    assert pool.speeds.sentences_per_second is not None
    read_seconds = pool.seconds(corpus.lines / pool.speeds.lines_per_second, corpus.files, starts=0 if shares_jobs else 2)
    embed_seconds = pool.seconds(corpus.sentences / pool.speeds.sentences_per_second, corpus.shards, starts=0 if shares_jobs else 1)
    return [
        StageCost(f"read {name}", read_seconds, reading_need(corpus)),
        StageCost(f"embed {name}", embed_seconds, embedding_need(corpus)),
    ]


def index_cost(name: str, corpus: CorpusSize, factory: str, build_seconds: float, pool: WorkerPool) -> StageCost:
    """Return the cost of an index: one machine trains it, as many as there are shards fill it."""
    training_seconds = build_seconds * cost_model.training_share(corpus.sentences)
    seconds = training_seconds + pool.seconds(build_seconds - training_seconds, corpus.shards, starts=4)
    return StageCost(f"index {name}", seconds, indexing_need(corpus, factory))


def pair_costs(name: str, sides: Sequence[CorpusSize], choice: EngineChoice, k: int, pool: WorkerPool) -> list[StageCost]:
    """Return the cost of searching a pair of corpora and of mining their bitext."""
    source, target = sides
    if choice.factories is None:
        group = cost_model.shards_per_group((source.shards, target.shards), (source.sentences, target.sentences))
        source_groups, target_groups = (math.ceil(side.shards / group) for side in sides)
        merge_seconds = MERGE_SECONDS * (source.sentences * target_groups + target.sentences * source_groups)
        search_seconds = pool.seconds(choice.search_seconds, source_groups * target_groups)
        search_seconds += pool.seconds(merge_seconds, source.shards + target.shards, starts=2)
        need = exact_search_need(source, target, k)
    else:
        search_seconds = pool.seconds(choice.search_seconds, source.shards + target.shards, starts=2)
        need = faiss_search_need(source, target, k, choice.factories)
    rescoring = []
    if choice.rescore_seconds:
        rescore_seconds = pool.seconds(choice.rescore_seconds, target.shards, starts=2)
        rescoring = [StageCost(f"rescore {name}", rescore_seconds, rescoring_need(source, target, k))]
    mine_seconds = pool.seconds(JOIN_SECONDS * (source.sentences + target.sentences), source.shards)
    mine_seconds += WRITE_SECONDS * min(source.sentences, target.sentences)
    return [
        StageCost(f"search {name}", search_seconds, need),
        *rescoring,
        StageCost(f"mine {name}", mine_seconds, mining_need(source, target, k)),
    ]


def _process(data_bytes: float) -> float:
    """Return the memory of a process that holds this much data."""
    return PROCESS_BYTES + ALLOCATOR_BYTES + data_bytes


def reading_need(corpus: CorpusSize) -> ResourceNeed:
    """Text -> sentences. All lines are on disk, uncompressed, until they are sorted."""
    line_bytes = corpus.text_bytes + SCATTERED_ROW_BYTES
    range_bytes = max(DEFAULT_SIZES.range_bytes, corpus.shard_sentences * line_bytes)
    return ResourceNeed(_process(RANGE_COPIES * range_bytes), corpus.sentences * corpus.row_bytes, corpus.sentences * line_bytes)


def embedding_need(corpus: CorpusSize) -> ResourceNeed:
    """Sentences -> embeddings and stored tokens. Two row groups are in memory, one of which is being written."""
    rows = 2 * min(DEFAULT_SIZES.row_group_rows, corpus.shard_sentences)
    data = rows * (corpus.text_bytes + (4 + 2) * corpus.dim + 2 * corpus.token_bytes)
    memory = _process(data + corpus.encoder_bytes)
    return ResourceNeed(memory, corpus.sentences * (cost_model.ID_BYTES + 2 * corpus.dim + corpus.token_bytes))


def indexing_need(corpus: CorpusSize, factory: str) -> ResourceNeed:
    """Embeddings -> index: the training sample or the index and its serialised copy; on disk also the vectors, and the parts meanwhile."""
    index_bytes = cost_model.index_bytes(factory, corpus.sentences, corpus.dim)
    training_bytes = cost_model.num_training_rows(corpus.sentences) * TRAINING_BYTES_PER_COMPONENT * corpus.dim
    return ResourceNeed(_process(max(training_bytes, 3 * index_bytes)), index_bytes + corpus.sentences * 2 * corpus.dim, index_bytes)


def index_copy_bytes(corpus: CorpusSize, factory: str) -> float:
    """Return the bytes of the copy of a remote index that each machine has: the index, the vectors and their ids."""
    return cost_model.index_bytes(factory, corpus.sentences, corpus.dim) + corpus.sentences * (2 * corpus.dim + cost_model.ID_BYTES)


def exact_search_need(source: CorpusSize, target: CorpusSize, k: int) -> ResourceNeed:
    """Exact search: each pair of groups of shards writes the neighbours of both, which are merged with those of the passes before.

    A process has the neighbours of a group, and the resident vectors of its sources and a block of its targets, with tiles and candidates.
    """
    row_bytes = _neighbour_row_bytes(k)
    disk, shard_rows = (source.sentences + target.sentences) * row_bytes, source.shard_sentences + target.shard_sentences
    group = cost_model.shards_per_group((source.shards, target.shards), (source.sentences, target.sentences))
    source_groups, target_groups = (math.ceil(side.shards / group) for side in (source, target))
    pass_groups = min(exact.TARGET_GROUPS_PER_PASS, target_groups)
    partial = (source.sentences * pass_groups + target.sentences * pass_groups / target_groups * source_groups) * row_bytes
    previous = disk if pass_groups < target_groups else 0
    resident = min(blocks.MAX_RESIDENT_BYTES, group * source.shard_sentences * 2 * source.dim)
    shards, sentences = (source.shards, target.shards), (source.sentences, target.sentences)
    read = cost_model.exact_read_bytes(shards, sentences, source.dim, group, blocks.MAX_RESIDENT_BYTES)
    rows = (resident + min(blocks.CPU_BLOCK_BYTES, group * target.shard_sentences * 2 * target.dim)) / (2 * source.dim)
    searching = rows * (TILE_BYTES_PER_DIM * source.dim + CANDIDATE_BYTES_PER_NEIGHBOUR * k)
    memory = _process(source.encoder_bytes + searching + 3 * group * shard_rows * row_bytes)
    return ResourceNeed(memory, disk, partial + previous, read)


def faiss_search_need(source: CorpusSize, target: CorpusSize, k: int, factories: tuple[str, str]) -> ResourceNeed:
    """Search by FAISS: the larger index, twice where its codes are laid out again, the ids of its corpus, and a shard of neighbours."""
    index_bytes = [
        2 * cost_model.index_bytes(factory, side.sentences, side.dim) + side.sentences * cost_model.ID_BYTES
        for factory, side in zip(factories, (source, target), strict=True)
    ]
    row_bytes = _neighbour_row_bytes(k)
    neighbours = 3 * max(source.shard_sentences, target.shard_sentences) * row_bytes
    return ResourceNeed(_process(SEARCH_BYTES + max(index_bytes) + neighbours), (source.sentences + target.sentences) * row_bytes)


def rescoring_need(source: CorpusSize, target: CorpusSize, k: int) -> ResourceNeed:
    """Candidates -> late interaction: texts and tokens of a range of targets and of the sources of its candidates, and these candidates.

    A text, or its stored tokens, are on disk once for each range of targets that has one of its candidates.
    """
    text_bytes = sum(side.token_bytes or side.text_bytes for side in (source, target))
    sources = min(source.sentences, 2 * k * target.shard_sentences)
    candidates = k * (source.sentences / target.shards + target.shard_sentences)
    data = (
        SEARCHED_BYTES
        + source.encoder_bytes
        + RESCORED_TEXT_COPIES * (target.shard_sentences + sources) * text_bytes / 2
        + candidates * RESCORED_CANDIDATE_BYTES
    )
    sent_bytes = source.token_bytes or source.text_bytes
    return ResourceNeed(_process(data), 0.0, source.sentences * sent_bytes * min(target.shards, 2 * k))


def mining_need(source: CorpusSize, target: CorpusSize, k: int) -> ResourceNeed:
    """Neighbours -> candidates -> bitext, by ranges of ids and of margins.

    The number of pairs is that of the smaller side: the most that one-to-one retrieval can give.
    """
    candidates, pair_bytes = k * (source.sentences + target.sentences), source.text_bytes + target.text_bytes + PAIR_ROW_BYTES
    pairs = min(source.sentences, target.sentences)
    joining = PAIR_COPIES * CANDIDATE_SHUFFLE_BYTES * k * (source.shard_sentences + target.shard_sentences)
    matching = min(candidates, DEFAULT_LIMITS.matched_rows) * CANDIDATE_MATCHING_BYTES
    sorting = PAIR_COPIES * min(pairs, DEFAULT_LIMITS.margin_range_rows) * pair_bytes
    disk = candidates * CANDIDATE_FILE_BYTES + pairs * pair_bytes
    memory = _process(source.encoder_bytes + max(joining, matching, sorting))
    return ResourceNeed(memory, disk, max(2 * candidates * CANDIDATE_SHUFFLE_BYTES, pairs * pair_bytes))


def _neighbour_row_bytes(k: int) -> int:
    """Return the bytes of a sentence id, its k neighbours and their similarities."""
    return cost_model.ID_BYTES + 16 * k
