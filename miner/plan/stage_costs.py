"""Time, memory and disk of every stage of a run, from the sizes of the corpora and the speeds of a machine."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from miner.plan import resources
from miner.plan.resources import BatchSizes, CorpusSize, ResourceNeed
from miner.plan.speeds import Speeds
from miner.search import cost_model
from miner.search.cost_model import SearchWorkload

# Of one machine, measured by benchmarks/scale.py.
JOIN_SECONDS = 6e-6  # per sentence of either side: join the neighbours of both directions to candidates, and match these
WRITE_SECONDS = 1.5e-5  # per pair: write it compressed, which one machine does
MERGE_SECONDS = 1e-6  # per sentence and group of shards of the other side: write its partial neighbours, read and merge them

# Of one core, measured by benchmarks/late.py.
RESCORE_SECONDS = 5e-8  # per candidate and dimension
DISTINCT_SHARE = 0.8  # of the candidates of both directions


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
    search_seconds: float  # of one machine
    build_seconds: tuple[float, float]  # of one machine, per index
    rescore_seconds: float = 0.0  # of one machine; 0 if candidates are not rescored


@dataclass(frozen=True)
class WorkerPool:
    """Identical machines, each with one worker process."""

    workers: int
    speeds: Speeds
    batches: BatchSizes

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
    precision: str  # the fastest arithmetic
    cores: int
    fixed_engine: tuple[str, str] | None  # the engine and the reason, where sizes do not matter
    is_rescored: bool = False  # whether all neighbours are rescored
    has_gpu: bool = False  # whether FAISS searches on a GPU


def plan_engine(source: CorpusSize, target: CorpusSize, request: EngineRequest, speeds: Speeds) -> EngineChoice:
    """Return the engine that `miner run` will choose, and its cost. Raises ConfigError where no index is small enough."""
    rows, dim = (source.sentences, target.sentences), source.dim
    workload = SearchWorkload(rows, dim, request.k, request.target_recall)

    def faiss_seconds(source_built: bool, target_built: bool) -> float:
        return cost_model.estimate_search(workload, request.precision, request.cores, (source_built, target_built)).faiss

    exact_seconds = rows[0] * rows[1] / speeds.pairs_per_second
    search_seconds = faiss_seconds(True, True)
    build_seconds = faiss_seconds(False, True) - search_seconds, faiss_seconds(True, False) - search_seconds
    estimate, speedup = cost_model.estimate_search(workload, request.precision, request.cores), speeds.speedup
    comparison = f"exact search in {estimate.exact / speedup:,.0f} s, FAISS in {estimate.faiss / speedup:,.0f} s, of one machine"
    engine, reason = request.fixed_engine or (estimate.engine, comparison)
    num_candidates = DISTINCT_SHARE * request.k * sum(rows) if request.is_rescored else 0.0
    rescore_seconds = RESCORE_SECONDS * dim * num_candidates / request.cores / speedup
    if engine == "exact":
        return EngineChoice(engine, reason, None, 1.0, exact_seconds, (0.0, 0.0), rescore_seconds)
    source_factory, target_factory = (cost_model.choose_factory(count, dim, request.max_index_bytes, request.has_gpu) for count in rows)
    return EngineChoice(
        engine,
        reason,
        (source_factory, target_factory),
        request.target_recall,
        search_seconds / speedup,
        (build_seconds[0] / speedup, build_seconds[1] / speedup),
        rescore_seconds,
    )


def corpus_costs(name: str, corpus: CorpusSize, lines: float, files: int, pool: WorkerPool) -> list[StageCost]:
    """Return the cost of reading and embedding a corpus of `files` files."""
    assert pool.speeds.lines_per_second is not None
    assert pool.speeds.sentences_per_second is not None
    read_seconds = pool.seconds(lines / pool.speeds.lines_per_second, files, starts=2)
    embed_seconds = pool.seconds(corpus.sentences / pool.speeds.sentences_per_second, corpus.shards)
    return [
        StageCost(f"read {name}", read_seconds, resources.reading_need(corpus, pool.batches)),
        StageCost(f"embed {name}", embed_seconds, resources.embedding_need(corpus, pool.batches)),
    ]


def index_cost(name: str, corpus: CorpusSize, factory: str, build_seconds: float, pool: WorkerPool) -> StageCost:
    """Return the cost of an index: one machine trains it, as many as there are shards fill it."""
    training_seconds = build_seconds * cost_model.training_share(corpus.sentences)
    seconds = training_seconds + pool.seconds(build_seconds - training_seconds, corpus.shards, starts=4)
    return StageCost(f"index {name}", seconds, resources.indexing_need(corpus, factory))


def pair_costs(name: str, sides: Sequence[CorpusSize], choice: EngineChoice, k: int, pool: WorkerPool) -> list[StageCost]:
    """Return the cost of searching a pair of corpora and of mining their bitext."""
    source, target = sides
    if choice.factories is None:
        group = cost_model.shards_per_group((source.shards, target.shards), (source.sentences, target.sentences))
        source_groups, target_groups = (math.ceil(side.shards / group) for side in sides)
        merge_seconds = MERGE_SECONDS * (source.sentences * target_groups + target.sentences * source_groups)
        search_seconds = pool.seconds(choice.search_seconds, source_groups * target_groups)
        search_seconds += pool.seconds(merge_seconds, source.shards + target.shards, starts=2)
        need = resources.exact_search_need(source, target, k, pool.batches)
    else:
        search_seconds = pool.seconds(choice.search_seconds, source.shards + target.shards, starts=2)
        need = resources.faiss_search_need(source, target, k, choice.factories)
    rescoring = []
    if choice.rescore_seconds:
        rescore_seconds = pool.seconds(choice.rescore_seconds, target.shards, starts=2)
        rescoring = [StageCost(f"rescore {name}", rescore_seconds, resources.rescoring_need(source, target, k))]
    mine_seconds = pool.seconds(JOIN_SECONDS * (source.sentences + target.sentences), source.shards)
    mine_seconds += WRITE_SECONDS * min(source.sentences, target.sentences)
    return [
        StageCost(f"search {name}", search_seconds, need),
        *rescoring,
        StageCost(f"mine {name}", mine_seconds, resources.mining_need(source, target, k, pool.batches)),
    ]
