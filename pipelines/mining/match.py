"""Matching in steps: candidates -> pairs, by ranges of their sources and of their targets in turn.

The best candidate of a source shows in its range, that of a target in its own. One to one, pairs are taken in rounds (see
`miner.mining.matching`), until what is left is small enough for one worker to match at once, which for most corpora it is from
the start: contending are at most as many as there are sentences, and a round leaves a fraction of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from miner import stages, storage
from miner.mining import candidates as scoring
from miner.mining import matching, writers
from miner.mining.candidates import Bools, ScoredPairs
from pipelines.beam import shuffle
from pipelines.beam.runner import ShardTask
from pipelines.beam.shuffle import ShuffleSteps

AT_ONCE = 1 << 22  # candidates that one worker matches: 140 MB of them, and a few times that on the way
COLUMNS = {
    "source_ids": "source_id",
    "target_ids": "target_id",
    "similarities": "similarity",
    "margins": "margin",
    "forward": "forward",
    "backward": "backward",
}
CHOSEN = "chosen"  # column: going to sources, the best of its target; going to targets, a pair


@dataclass(frozen=True)
class RankedCandidates:
    """Candidates with their margins on the way: in the ranges of their sources, cut by those of their targets."""

    steps: ShuffleSteps
    folder: str
    sources: int  # ranges
    targets: int

    def of_target(self, index: int) -> pa.Table:
        return shuffle.gather(self.folder, shuffle.names(self.sources), index)


@dataclass(frozen=True)
class MatchedPairs:
    """Pairs, in the ranges of their targets, as several steps chose them."""

    places: Sequence[tuple[str, Sequence[str]]]  # folder, shards
    targets: int  # ranges
    rows: int

    def of_target(self, index: int) -> ScoredPairs:
        """Those of one range, best first."""
        tables = [shuffle.gather(folder, shards, index) for folder, shards in self.places]
        return matching.rank(scoring.concat([_chosen(table) for table in tables]))

    def read(self) -> ScoredPairs:
        """All of them in memory, best first: 34 bytes each."""
        return matching.rank(scoring.concat([self.of_target(index) for index in range(self.targets)]))


def to_arrow(pairs: ScoredPairs, **more: Bools) -> pa.Table:
    """Pairs (n,), and other columns (n,) of them -> a table."""
    columns = {column: getattr(pairs, name) for name, column in COLUMNS.items()} | more
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def from_arrow(table: pa.Table) -> ScoredPairs:
    return ScoredPairs(**{name: table[column].to_numpy() for name, column in COLUMNS.items()})


def offered(ranked: ScoredPairs) -> pa.Table:
    """Candidates of a range of sources as the targets are to see them."""
    return to_arrow(ranked, best_of_source=matching.best_of_sources(ranked))


def best_first(table: pa.Table) -> pa.Table:
    """Rows of pairs and more in the order of `matching.rank`."""
    margins, sources, targets = (table[name].to_numpy() for name in ("margin", "source_id", "target_id"))
    return table.take(pa.array(np.lexsort((targets, sources, -margins))))


def _chosen(table: pa.Table) -> ScoredPairs:
    return from_arrow(table.filter(table[CHOSEN]))


def score(folder: str, margin: str, threshold: float, targets: int, steps: ShuffleSteps) -> RankedCandidates:
    """The candidates in `folder` whose margin is above the threshold, for as many ranges of targets."""
    shards = [shard.name for shard in stages.read_manifest(folder).shards]
    steps.run("scored", shuffle.names(len(shards)), _Score(folder, shards, margin, threshold, targets, steps.place("scored")))
    return RankedCandidates(steps, steps.place("scored"), len(shards), targets)


def match(found: RankedCandidates, retrieval: str) -> MatchedPairs:
    """The pairs among candidates, of which only those need be there that are the best of their source, or `backward`."""
    steps, to_sources, to_targets = found.steps, shuffle.names(found.targets), shuffle.names(found.sources)
    contenders = steps.run("contenders", to_sources, _Contend(found, retrieval, steps.place("contenders")))
    if retrieval != "max":
        return MatchedPairs([(steps.place("contenders"), to_sources)], found.targets, contenders.rows)
    places, pairs, left, folder = [], 0, contenders.rows, steps.place("contenders")
    while left > AT_ONCE:
        number = len(places) + 1
        took = steps.place(f"taken-{number}")
        pairs += steps.run(f"taken-{number}", to_targets, _Take(folder, to_sources, found.targets, took)).rows
        places.append((took, to_targets))
        folder = steps.place(f"left-{number}")
        left = steps.run(f"left-{number}", to_sources, _Leave(took, to_targets, found.sources, folder)).rows
    rest = shuffle.names(1)
    pairs += steps.run("rest", rest, _Rest(folder, to_sources, (found.sources, found.targets), steps.place("rest"))).rows
    return MatchedPairs([*places, (steps.place("rest"), rest)], found.targets, pairs)


class _Score(ShardTask):
    """One range of sources -> its candidates above the threshold, by the range of the target."""

    row_unit = None

    def __init__(self, candidates: str, shards: Sequence[str], margin: str, threshold: float, ranges: int, folder: str) -> None:
        self.candidates = candidates
        self.shards = shards
        self.margin = margin
        self.threshold = threshold
        self.ranges = ranges
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        table = storage.read_table(storage.join(self.candidates, self.shards[stages.shard_index(name)]))
        found = matching.rank(scoring.score(writers.candidates_from_arrow(table), self.margin, self.threshold))
        shuffle.scatter_by_id(storage.join(self.folder, name), offered(found), "target_id", self.ranges)
        return len(found), {}


class _Contend(ShardTask):
    """One range of targets -> the candidates that are pairs or, one to one, may be."""

    row_unit = None

    def __init__(self, found: RankedCandidates, retrieval: str, folder: str) -> None:
        self.found = found
        self.retrieval = retrieval
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        found = best_first(self.found.of_target(stages.shard_index(name)))
        pairs, forward = from_arrow(found), found["best_of_source"].to_numpy()
        backward = matching.best_of_targets(pairs)
        rows = matching.listed(forward, backward, self.retrieval)
        pairs = ScoredPairs(pairs.source_ids, pairs.target_ids, pairs.similarities, pairs.margins, forward, backward).take(rows)
        one_to_one = self.retrieval == "max"
        chosen = matching.first(pairs.target_ids, np.ones(len(pairs), dtype=bool)) if one_to_one else np.ones(len(pairs), dtype=bool)
        column, ranges = ("source_id", self.found.sources) if one_to_one else ("target_id", self.found.targets)
        shuffle.scatter_by_id(storage.join(self.folder, name), to_arrow(pairs, chosen=chosen), column, ranges)
        return len(pairs), {}


class _Turn(ShardTask):
    """A step of a round: one range of what the other side left."""

    row_unit = None

    def __init__(self, others: str, shards: Sequence[str], ranges: int, folder: str) -> None:
        self.others = others
        self.shards = shards
        self.ranges = ranges
        self.folder = folder

    def gathered(self, name: str) -> tuple[ScoredPairs, Bools]:
        """What is left of the range, best first, and what is chosen of it."""
        table = best_first(shuffle.gather(self.others, self.shards, stages.shard_index(name)))
        return from_arrow(table), table[CHOSEN].to_numpy()


class _Take(_Turn):
    """One range of sources -> the pairs that are the best of both, and what they leave of the sources."""

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        found, best = self.gathered(name)
        taken, left = matching.take(found, best)
        rows = to_arrow(found.take(taken | left), chosen=taken[taken | left])
        shuffle.scatter_by_id(storage.join(self.folder, name), rows, "target_id", self.ranges)
        return int(taken.sum()), {}


class _Leave(_Turn):
    """One range of targets -> what the pairs leave of them."""

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        found, taken = self.gathered(name)
        left, best = matching.leave(found, taken)
        rows = to_arrow(found.take(left), chosen=best[left])
        shuffle.scatter_by_id(storage.join(self.folder, name), rows, "source_id", self.ranges)
        return int(left.sum()), {}


class _Rest(ShardTask):
    """All that is left -> the pairs among it."""

    row_unit = None

    def __init__(self, others: str, shards: Sequence[str], ranges: tuple[int, int], folder: str) -> None:
        self.others = others
        self.shards = shards
        self.sources, self.targets = ranges
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        tables = [shuffle.gather(self.others, self.shards, index) for index in range(self.sources)]
        pairs = matching.match(matching.rank(from_arrow(shuffle.together(tables))), "max")
        rows = to_arrow(pairs, chosen=np.ones(len(pairs), dtype=bool))
        shuffle.scatter_by_id(storage.join(self.folder, name), rows, "target_id", self.targets)
        return len(pairs), {}
