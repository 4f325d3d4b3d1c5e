"""The mining stage, and the whole way to it: two sides -> pairs.

Candidates are scored by shard of the source side, and kept. Deciding which of them are pairs needs no more than the best of each
sentence, so it is done in one place, and again whenever the margin, the retrieval, the threshold or the gold change.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from miner import storage
from miner.config import MineConfig
from miner.encoders.transformer_parts import choose_device
from miner.mining import candidates as scoring
from miner.mining import gold as evaluation
from miner.mining import matching, writers
from miner.mining.candidates import Candidates, Means
from miner.mining.gold import Scores
from miner.mining.margin import THRESHOLDS
from miner.storage import Manifest, Shard, Stage
from pipelines import gold as golds
from pipelines import search
from pipelines.runner import nothing_left_of_nothing, run_stage
from pipelines.search import BACKWARD, FORWARD, Search, read_neighbours
from pipelines.sides import Sides, open_sides

STAGE, CANDIDATES, NEIGHBOURS = "mine", "candidates", "neighbours"
EXAMPLES = 10  # pairs in the summary


@dataclass(frozen=True)
class MineResult:
    """What `miner mine` found."""

    output: str
    sentences: Mapping[str, int]  # by side: lines kept
    unique: Mapping[str, int]
    pairs: int
    threshold: float
    seconds: Mapping[str, float]  # by stage
    scores: Scores | None  # with gold
    examples: Sequence[tuple[float, str, str]]  # margin, source, target: from the best pair to the last

    @property
    def files(self) -> list[str]:
        """What was written for others to read."""
        return [storage.join(self.output, name) for name in (writers.TSV, writers.PARQUET, storage.MANIFEST)]

    def figures(self) -> dict[str, Any]:
        """What a program wants to know."""
        names = ("sentences", "unique", "pairs", "threshold", "seconds")
        return {**{name: getattr(self, name) for name in names}, **(asdict(self.scores) if self.scores else {})}


def run(config: MineConfig, options: Sequence[str] = ()) -> MineResult:
    """Mine `config.source` and `config.target` into `config.output`; what an earlier run finished there is kept.

    Raises the MinerError of whatever cannot work: sides, encoder, gold, output folder, or another k than in an earlier run there.
    """
    gold = golds.read(config.gold) if config.gold is not None else None
    choose_device(config.device)
    if storage.exists(storage.join(config.output, storage.MANIFEST)):
        storage.read_manifest(config.output, STAGE)  # an error where another stage has its folder there
    with nothing_left_of_nothing(config.output):
        sides = open_sides(config, options)
        wanted = golds.resolve(gold, sides.source, sides.target) if gold else None
        start = time.perf_counter()
        neighbours = storage.join(config.output, NEIGHBOURS)
        search.run(Search(sides.source, sides.target, config.k, config.device), neighbours, options)
        searched = time.perf_counter()
        _score(config, options)
        pairs, threshold = _decide(config)
        scores = evaluation.score_pairs(pairs, *wanted) if wanted else None
        bitext = writers.bitext(pairs, sides.source.lookup(pairs.source_ids), sides.target.lookup(pairs.target_ids))
        _write(config, sides, bitext, threshold, scores)
    seconds = {**sides.seconds, "search": searched - start, "mine": time.perf_counter() - searched}
    sentences, unique = _sizes(sides)
    return MineResult(
        output=config.output,
        sentences=sentences,
        unique=unique,
        pairs=len(pairs),
        threshold=threshold,
        seconds={name: round(value, 3) for name, value in seconds.items()},
        scores=scores,
        examples=_examples(bitext),
    )


def _score(config: MineConfig, options: Sequence[str]) -> Manifest:
    """Fill OUTPUT/candidates, a shard for each source shard."""
    neighbours = storage.join(config.output, NEIGHBOURS)
    forward, backward = (storage.read_manifest(storage.join(neighbours, direction)) for direction in (FORWARD, BACKWARD))
    inputs = {"margin": config.margin, **{f"{FORWARD}/{shard.name}": shard.checksum for shard in forward.shards}}
    inputs |= {f"{BACKWARD}/{shard.name}": shard.checksum for shard in backward.shards}
    # The margin is an input, not configuration: another one is no error, the shards are made again.
    stage = Stage(storage.join(config.output, CANDIDATES), CANDIDATES, {}, inputs)
    made_from = {shard.name: stage.key() for shard in forward.shards}
    work = _ScoreShard(neighbours, stage.folder, [shard.name for shard in backward.shards], config.margin)
    return run_stage(stage, made_from, work, options, lambda _: {"margin": config.margin})


class _ScoreShard:
    """The candidates of one shard of sources: their neighbours, and the targets that have them as neighbours."""

    def __init__(self, neighbours: str, folder: str, targets: Sequence[str], margin: str) -> None:
        self.forward = storage.join(neighbours, FORWARD)
        self.backward = storage.join(neighbours, BACKWARD)
        self.folder = folder
        self.shards = targets
        self.margin = margin

    def setup(self) -> None:
        means = [scoring.means_of(*read_neighbours(self.backward, name)) for name in self.shards]
        self.targets = Means(np.concatenate([part.ids for part in means]), np.concatenate([part.means for part in means]))

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        ids, neighbours = read_neighbours(self.forward, name)
        sources = scoring.means_of(ids, neighbours)
        backward = [scoring.backward_edges(*read_neighbours(self.backward, shard), sources) for shard in self.shards]
        forward = scoring.forward_edges(ids, neighbours)
        found = scoring.score(forward, scoring.concat_edges(backward), sources, self.targets, self.margin)
        storage.write_table(storage.join(self.folder, name), writers.candidates_to_arrow(found))
        return len(found), {}


def _decide(config: MineConfig) -> tuple[Candidates, float]:
    """The pairs above the threshold, best first, and the threshold."""
    folder = storage.join(config.output, CANDIDATES)
    shards = storage.read_manifest(folder, CANDIDATES).shards
    parts = [writers.candidates_from_arrow(storage.read_table(storage.join(folder, shard.name))) for shard in shards]
    pairs = matching.match(scoring.concat([matching.contenders(part) for part in parts]), config.retrieval)
    threshold = THRESHOLDS[config.margin] if config.threshold is None else config.threshold
    return pairs.take(pairs.margins > threshold), threshold


def _sizes(sides: Sides) -> tuple[dict[str, int], dict[str, int]]:
    corpora = {"source": sides.source, "target": sides.target}
    return {side: corpus.counts["kept"] for side, corpus in corpora.items()}, {side: corpus.rows for side, corpus in corpora.items()}


def _write(config: MineConfig, sides: Sides, bitext: pa.Table, threshold: float, scores: Scores | None) -> None:
    """Write the pairs, and last the manifest. It tells no times and no places, so that a rerun gives the same bytes."""
    storage.remove(storage.join(config.output, storage.MANIFEST))
    writers.write_bitext(config.output, bitext)
    decided = {"k": config.k, "margin": config.margin, "retrieval": config.retrieval, "threshold": threshold}
    files = [Shard(name, len(bitext), storage.checksum(storage.join(config.output, name))) for name in (writers.TSV, writers.PARQUET)]
    details = {
        **dict(zip(("sentences", "unique"), _sizes(sides), strict=True)),
        "pairs": len(bitext),
        "languages": {"source": sides.source.lang, "target": sides.target.lang},
        "fingerprint": sides.source.fingerprint,
        **(asdict(scores) if scores else {}),
    }
    manifest = Manifest(STAGE, decided, {"source": sides.source.key, "target": sides.target.key}, files, details)
    storage.write_json(storage.join(config.output, storage.MANIFEST), asdict(manifest))


def _examples(bitext: pa.Table) -> list[tuple[float, str, str]]:
    """Up to EXAMPLES pairs, evenly spread from the first to the last."""
    rows = np.unique(np.linspace(0, len(bitext) - 1, EXAMPLES).round().astype(int)) if len(bitext) else []
    table = bitext.select(["margin", "source_text", "target_text"]).take(pa.array(rows, pa.int64()))
    return [tuple(row.values()) for row in table.to_pylist()]
