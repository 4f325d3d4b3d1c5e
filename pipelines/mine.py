"""The whole way from two sides to pairs: embed what is text, search both directions, join candidates, decide.

What is finished is kept, so that a run with another margin, retrieval, threshold or gold only decides anew.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from miner import storage
from miner.config import EngineSettings, FromCandidatesConfig, MineConfig
from miner.encoders.transformer_parts import choose_device
from miner.mining import writers
from miner.mining.gold import Scores
from pipelines import candidates, decide, neighbours
from pipelines import gold as golds
from pipelines.candidates import Searched
from pipelines.decide import STAGE, Written
from pipelines.runner import nothing_left_of_nothing
from pipelines.search import Search
from pipelines.sides import Sides, open_sides


@dataclass(frozen=True)
class MineResult:
    """What `miner mine` found."""

    output: str
    sentences: Mapping[str, int]  # by side: lines kept
    unique: Mapping[str, int]
    pairs: int
    threshold: float | None  # None where there is no bound
    dropped: Mapping[str, int]  # by the filter's reason: candidates above the threshold
    seconds: Mapping[str, float]  # by stage
    scores: Scores | None  # with gold
    examples: Sequence[tuple[float, str, str]]  # margin, source, target: from the best pair to the last

    @property
    def files(self) -> list[str]:
        """What was written for others to read."""
        return [storage.join(self.output, name) for name in (writers.TSV, writers.PARQUET, storage.MANIFEST)]

    def figures(self) -> dict[str, Any]:
        """What a program wants to know."""
        names = ("sentences", "unique", "pairs", "threshold", "dropped", "seconds")
        return {**{name: getattr(self, name) for name in names}, **(asdict(self.scores) if self.scores else {})}


def run(config: MineConfig, options: Sequence[str] = ()) -> MineResult:
    """Mine `config.source` and `config.target` into `config.output`; what an earlier run finished there is kept.

    Raises the MinerError of whatever cannot work: sides, encoder, gold, output folder, or another k than in an earlier run there.
    """
    gold = golds.read(config.gold) if config.gold is not None else None
    choose_device(config.device)
    _claim(config.output)
    with nothing_left_of_nothing(config.output):
        sides = open_sides(config, options)
        if gold:
            golds.resolve(gold, sides.source, sides.target)  # raises what is wrong with it before the long part
        start = time.perf_counter()
        found = _search(config, sides, options)
        searched = time.perf_counter()
        written = decide.write(found, config, config.output, gold)
    return _result(config.output, found, written, {**sides.seconds, "search": searched - start, "mine": time.perf_counter() - searched})


def run_from_candidates(config: FromCandidatesConfig) -> MineResult:
    """Decide again on the candidates that an earlier run left in `config.candidates`, into `config.output`.

    Raises what `candidates.searched` raises.
    """
    start = time.perf_counter()
    gold = golds.read(config.gold) if config.gold is not None else None
    found = candidates.searched(config.candidates)
    _claim(config.output)
    with nothing_left_of_nothing(config.output):
        written = decide.write(found, config, config.output, gold)
    return _result(config.output, found, written, {"mine": time.perf_counter() - start})


def _claim(output: str) -> None:
    """StorageError where another stage has its folder there."""
    if storage.exists(storage.join(output, storage.MANIFEST)):
        storage.read_manifest(output, STAGE)


def _search(config: MineConfig, sides: Sides, options: Sequence[str]) -> Searched:
    """Fill OUTPUT/neighbours and OUTPUT/candidates."""
    wanted = Search(sides.source, sides.target, config.k, config.device)
    engine = neighbours.find(wanted, (config.source, config.target), config.part(EngineSettings), config.output, options)
    found = Searched(sides.source, sides.target, storage.join(config.output, candidates.STAGE), config.k, engine)
    candidates.run(storage.join(config.output, neighbours.NEIGHBOURS), found.folder, options, found.details(config.output))
    return found


def _result(output: str, found: Searched, written: Written, seconds: Mapping[str, float]) -> MineResult:
    sentences, unique = decide.sizes(found)
    rounded = {name: round(value, 3) for name, value in seconds.items()}
    return MineResult(
        output=output,
        sentences=sentences,
        unique=unique,
        pairs=written.pairs,
        threshold=written.threshold,
        dropped=written.dropped,
        seconds=rounded,
        scores=written.scores,
        examples=written.examples,
    )
