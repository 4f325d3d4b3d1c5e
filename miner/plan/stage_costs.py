"""The stages of a run: what each takes of time, memory and disk, by the sizes of the corpora and the speeds of a machine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from miner.plan import resources
from miner.plan.resources import CorpusSize, ResourceNeed
from miner.plan.speeds import Speeds
from miner.search import cost_model

# Of a machine, measured by benchmarks/scale.py: for a sentence of either side, to join the neighbours of both directions to candidates
# and to match these; for a pair, to write it packed, which one machine does; for a sentence and a shard of the other side, to write
# its neighbours there, read them again and merge them.
JOIN_SECONDS = 6e-6
WRITE_SECONDS = 1.5e-5
MERGE_SECONDS = 1e-6


@dataclass(frozen=True)
class StageCost:
    """One line of a plan."""

    name: str
    seconds: float  # of `workers` machines side by side
    need: ResourceNeed


@dataclass(frozen=True)
class EngineChoice:
    """How the neighbours of a pair are found."""

    engine: str
    why: str
    index: tuple[str, str] | None  # of the source and of the target, in the words of FAISS
    recall: float  # that is expected
    searching: float  # seconds of one machine
    building: tuple[float, float]  # seconds of one machine, for either index


@dataclass(frozen=True)
class WorkerPool:
    """Who does the work: so many machines of one kind."""

    workers: int
    speeds: Speeds

    def seconds(self, work: float, parts: int, starts: int = 1) -> float:
        """`work` seconds of one machine in so many equal parts, none of which is shared, and what it takes to start."""
        rounds = math.ceil(parts / self.workers)
        return work * rounds / parts + starts * self.speeds.start


@dataclass(frozen=True)
class EngineRequest:
    """What decides on the search of a pair."""

    k: int
    target_recall: float
    memory: int  # of an index
    precision: str  # the arithmetic that is the fastest
    cores: int
    known: tuple[str, str] | None  # the engine and the reason, where sizes do not matter


def choose(source: CorpusSize, target: CorpusSize, asked: EngineRequest, speeds: Speeds) -> EngineChoice:
    """The engine that `miner run` will choose, and the time it takes. ConfigError where no index is small enough."""
    rows, dim = (source.sentences, target.sentences), source.dim

    workload = cost_model.SearchWorkload(rows, dim, asked.k, asked.target_recall)

    def expected(*built: bool) -> float:
        return cost_model.estimate_search(workload, asked.precision, asked.cores, (built[0], built[1])).faiss

    exact = rows[0] * rows[1] / speeds.search
    searching = expected(True, True)
    building = expected(False, True) - searching, expected(True, False) - searching
    estimate = cost_model.estimate_search(workload, asked.precision, asked.cores)
    faster = speeds.faster
    told = f"exact search in {estimate.exact / faster:,.0f} s, FAISS in {estimate.faiss / faster:,.0f} s, of one machine"
    engine, why = asked.known or (estimate.engine, told)
    if engine == "exact":
        return EngineChoice(engine, why, None, 1.0, exact, (0.0, 0.0))
    factories = cost_model.choose_factory(rows[0], dim, asked.memory), cost_model.choose_factory(rows[1], dim, asked.memory)
    return EngineChoice(engine, why, factories, asked.target_recall, searching / faster, (building[0] / faster, building[1] / faster))


def of_corpus(name: str, corpus: CorpusSize, lines: float, inputs: int, crew: WorkerPool) -> list[StageCost]:
    """From text to vectors."""
    assert crew.speeds.read is not None
    assert crew.speeds.embed is not None
    read = crew.seconds(lines / crew.speeds.read, inputs, starts=2)
    embed = crew.seconds(corpus.sentences / crew.speeds.embed, corpus.shards)
    return [StageCost(f"read {name}", read, resources.reading(corpus)), StageCost(f"embed {name}", embed, resources.embedding(corpus))]


def of_index(name: str, corpus: CorpusSize, factory: str, seconds: float, crew: WorkerPool) -> StageCost:
    """One index: trained by one machine, filled by as many as there are shards."""
    training = seconds * cost_model.training_share(corpus.sentences)
    building = training + crew.seconds(seconds - training, corpus.shards, starts=4)
    return StageCost(f"index {name}", building, resources.indexing(corpus, factory))


def of_pair(name: str, sides: Sequence[CorpusSize], chosen: EngineChoice, k: int, crew: WorkerPool) -> list[StageCost]:
    """From vectors to pairs."""
    source, target = sides
    both = source.sentences + target.sentences
    if chosen.index is None:
        blocks = source.shards * target.shards
        merged = MERGE_SECONDS * (source.sentences * target.shards + target.sentences * source.shards)
        search = crew.seconds(chosen.searching, blocks) + crew.seconds(merged, source.shards + target.shards, starts=2)
        need = resources.comparing(source, target, k)
    else:
        search = crew.seconds(chosen.searching, source.shards + target.shards, starts=2)
        need = resources.proposing(source, target, k, chosen.index)
    decide = crew.seconds(JOIN_SECONDS * both, source.shards) + WRITE_SECONDS * min(source.sentences, target.sentences)
    return [StageCost(f"search {name}", search, need), StageCost(f"decide {name}", decide, resources.deciding(source, target, k))]
