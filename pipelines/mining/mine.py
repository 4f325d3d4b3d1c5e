"""The whole way from two sides to pairs: embed what is text, search both directions, join candidates, decide.

What is finished is kept, so that a run with another margin, retrieval, threshold or gold only decides anew.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from miner import stages, storage
from miner.config.commands import EngineSettings, FromCandidatesConfig, MineConfig
from miner.encoders.transformer_parts import choose_device
from miner.mining import writers
from miner.mining.gold import GoldScores
from miner.mining.thresholds import ThresholdChoice
from pipelines.beam.runner import claim_output
from pipelines.mining import auto_threshold, candidates, filter_pairs, select_pairs
from pipelines.mining import gold_pairs as golds
from pipelines.mining.candidates import SearchResult
from pipelines.mining.deltas import BitextDelta
from pipelines.mining.gold_pairs import GoldFile
from pipelines.mining.inputs import CorpusPair, open_sides
from pipelines.mining.planted_pairs import PlantConfig
from pipelines.mining.select_pairs import STAGE, WrittenBitext
from pipelines.search import engine as engine_module
from pipelines.search.engine import NEIGHBOURS
from pipelines.search.exact import SearchRequest


@dataclass(frozen=True)
class MineResult:
    """What `miner mine` found."""

    output: str
    sentences: Mapping[str, int]  # by side: lines kept
    unique: Mapping[str, int]
    pairs: int
    threshold: float | None  # None where there is no bound
    choice: ThresholdChoice | None  # of the threshold, with `auto`
    dropped: Mapping[str, int]  # by the filter's reason: candidates above the threshold
    seconds: Mapping[str, float]  # by stage
    scores: GoldScores | None  # with gold
    engine: Mapping[str, Any]  # of the search, and why
    set_aside: Mapping[str, str]  # of the sides: file or shard -> why it is left out
    delta: BitextDelta | None  # where corpora changed since the run before
    examples: Sequence[tuple[float, str, str]]  # margin, source, target: from the best pair to the last

    @property
    def files(self) -> list[str]:
        """What was written for others to read."""
        return [storage.join(self.output, name) for name in (writers.TSV, writers.PARQUET, stages.MANIFEST)]

    def figures(self) -> dict[str, Any]:
        """What a program wants to know."""
        names = ("sentences", "unique", "pairs", "threshold", "dropped", "engine", "seconds", "set_aside")
        told = {name: getattr(self, name) for name in names}
        choice = {"choice": asdict(self.choice)} if self.choice else {}
        delta = {"delta": self.delta.figures()} if self.delta else {}
        return {**told, **choice, **delta, **(asdict(self.scores) if self.scores else {})}


def run(config: MineConfig, options: Sequence[str] = ()) -> MineResult:
    """Mine `config.source` and `config.target` into `config.output`; what an earlier run finished there is kept.

    Raises the MinerError of whatever cannot work: sides, encoder, gold, output folder, or another k than in an earlier run there.
    """
    gold = _begin(config)
    choose_device(config.device)
    with claim_output(config.output):
        sides = open_sides(config, options)
        wanted = golds.resolve(gold, sides.source, sides.target) if gold else None
        chooser = auto_threshold.prepare(config, sides.source, sides.target, wanted)
        start = time.perf_counter()
        found = _search(config, sides, options)
        searched = time.perf_counter()
        choice = chooser.choose(found, storage.join(config.output, NEIGHBOURS), options)
        written = select_pairs.write(found, config, config.output, wanted, choice, options)
    return _result(config.output, found, written, {**sides.seconds, "search": searched - start, "mine": time.perf_counter() - searched})


def run_from_candidates(config: FromCandidatesConfig, options: Sequence[str] = ()) -> MineResult:
    """Decide again on the candidates that an earlier run left in `config.candidates`, into `config.output`.

    Raises what `candidates.searched` raises.
    """
    start = time.perf_counter()
    gold = _begin(config)
    found = candidates.searched(config.candidates)
    with claim_output(config.output):
        wanted = golds.resolve(gold, found.source, found.target) if gold else None
        chooser = auto_threshold.prepare(config, found.source, found.target, wanted)
        choice = chooser.choose(found, storage.join(config.candidates, NEIGHBOURS), options)
        written = select_pairs.write(found, config, config.output, wanted, choice, options)
    return _result(config.output, found, written, {"mine": time.perf_counter() - start})


def _begin(config: PlantConfig) -> GoldFile | None:
    """The gold; raises what is wrong with the settings, gold, and a folder where another stage has its own."""
    auto_threshold.check(config)
    filter_pairs.check(config)
    gold = golds.read(config.gold) if config.gold is not None else None
    if storage.exists(storage.join(config.output, stages.MANIFEST)):
        stages.read_manifest(config.output, STAGE)
    return gold


def _search(config: MineConfig, sides: CorpusPair, options: Sequence[str]) -> SearchResult:
    """Fill OUTPUT/neighbours and OUTPUT/candidates."""
    wanted = SearchRequest(sides.source, sides.target, config.k, config.device)
    engine = engine_module.find_neighbours(wanted, (config.source, config.target), config.part(EngineSettings), config.output, options)
    found = SearchResult(sides.source, sides.target, storage.join(config.output, candidates.STAGE), config.k, engine)
    candidates.run(storage.join(config.output, NEIGHBOURS), found.folder, options, found.details(config.output))
    return found


def _result(output: str, found: SearchResult, written: WrittenBitext, seconds: Mapping[str, float]) -> MineResult:
    sentences, unique = select_pairs.sizes(found)
    rounded = {name: round(value, 3) for name, value in seconds.items()}
    return MineResult(
        output=output,
        sentences=sentences,
        unique=unique,
        pairs=written.pairs,
        threshold=written.threshold,
        choice=written.choice,
        dropped=written.dropped,
        seconds=rounded,
        scores=written.scores,
        engine=found.engine,
        set_aside={**found.source.skipped, **found.target.skipped},
        delta=written.delta,
        examples=written.examples,
    )
