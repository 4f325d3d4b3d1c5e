"""The candidates stage: neighbours -> the pairs worth a decision, with all that any margin needs; a shard for each range of the sources.

They are found once, and decided on as often as one likes: with another margin, retrieval, threshold or filter.

The neighbours of sources go to the ranges of their targets, where they meet those of the targets and get these sentences' means; all
go to the ranges of their sources then, and get theirs. A worker holds one range, and k neighbours of each sentence of it, besides the
sentences of the other side that have these for neighbours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from miner import stages, storage
from miner.corpus import Corpus, open_corpus
from miner.errors import DataError
from miner.mining import candidates as scoring
from miner.mining import writers
from miner.mining.candidates import Edges, MergedEdges, ScoredPairs
from miner.stages import Manifest, Shard, Stage
from pipelines.beam import shuffle
from pipelines.beam.runner import ShardTask, run_stage
from pipelines.beam.shuffle import ShuffleSteps, TextsById
from pipelines.search.exact import BACKWARD, FORWARD, from_arrow, read_neighbours

STAGE = "candidates"  # and its folder's name


def run(neighbours: str, folder: str, options: Sequence[str] = (), details: Mapping[str, Any] | None = None) -> Manifest:
    """Fill `folder` from the neighbours of both directions; the manifest gets `details`."""
    manifests = {direction: stages.read_manifest(storage.join(neighbours, direction)) for direction in (FORWARD, BACKWARD)}
    inputs = {f"{direction}/{shard.name}": shard.checksum for direction, found in manifests.items() for shard in found.shards}
    stage = Stage(folder, STAGE, {}, inputs)
    sides = _Sides(neighbours, *(found.shards for found in manifests.values()))
    made_from = {stages.shard_name(index, len(sides.sources)): stage.key() for index in range(len(sides.sources))}
    edges = sum(found.rows * found.config.get("k", 1) for found in manifests.values())
    steps = ShuffleSteps("joining", f"{folder}.steps", stage.key(), edges, options)
    if not stage.is_complete(made_from):
        offers = {shuffle.arrow_name(shard.name): shard.name for shard in sides.sources}
        steps.run("offers", list(offers), _Offer(sides, offers, steps.place("offers")))
        work = _Meet(sides, steps.place("offers"), list(offers), steps.place("meetings"))
        steps.run("meetings", shuffle.names(len(sides.targets)), work)
    join = _Join(sides, steps.place("meetings"), folder)
    manifest = run_stage(stage, made_from, join, options, lambda _: details or {})
    steps.remove()
    return manifest


@dataclass(frozen=True)
class _Sides:
    """Where the neighbours of both sides are, and in which shards."""

    neighbours: str
    sources: Sequence[Shard]
    targets: Sequence[Shard]


class _Offer(ShardTask):
    """One shard of sources -> its neighbours, by the range of the targets."""

    row_unit = None

    def __init__(self, sides: _Sides, shards: Mapping[str, str], folder: str) -> None:
        self.neighbours = storage.join(sides.neighbours, FORWARD)
        self.ranges = len(sides.targets)
        self.shards = shards
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        edges = scoring.forward_edges(*read_neighbours(self.neighbours, self.shards[name]))
        shuffle.scatter_by_id(storage.join(self.folder, name), _to_arrow(edges), "target_ids", self.ranges)
        return len(edges.source_ids), {}


class _Meet(ShardTask):
    """One range of targets -> all pairs they are in, with their means, by the range of the sources."""

    row_unit = None

    def __init__(self, sides: _Sides, offers: str, shards: Sequence[str], folder: str) -> None:
        self.sides = sides
        self.offers = offers
        self.shards = shards
        self.folder = folder

    def setup(self) -> None:
        self.backward = TextsById(storage.join(self.sides.neighbours, BACKWARD), self.sides.targets)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        index = stages.shard_index(name)
        offered = shuffle.gather(self.offers, self.shards, index)
        own = [from_arrow(table) for table in self.backward.read(index, len(self.sides.targets))]
        edges = [scoring.backward_edges(*part) for part in own]
        met = scoring.meet(
            Edges(*(offered[column.name].to_numpy() for column in fields(Edges))), scoring.concat([scoring.NO_EDGES, *edges])
        )
        means = scoring.all_means([scoring.means_of(*part) for part in own]).of(met.target_ids)
        table = _to_arrow(met).append_column("target_means", pa.array(means))
        shuffle.scatter_by_id(storage.join(self.folder, name), table, "source_ids", len(self.sides.sources))
        return len(met.source_ids), {}


class _Join(ShardTask):
    """One range of sources -> its candidates."""

    row_unit = "pairs"

    def __init__(self, sides: _Sides, meetings: str, folder: str) -> None:
        self.sides = sides
        self.meetings = meetings
        self.folder = folder

    def setup(self) -> None:
        self.forward = TextsById(storage.join(self.sides.neighbours, FORWARD), self.sides.sources)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        index = stages.shard_index(name)
        met = shuffle.gather(self.meetings, shuffle.names(len(self.sides.targets)), index)
        order = np.lexsort((met["target_ids"].to_numpy(), met["source_ids"].to_numpy()))
        columns = {column: met[column].to_numpy()[order] for column in met.column_names}
        own = [from_arrow(table) for table in self.forward.read(index, len(self.sides.sources))]
        found = scoring.Candidates(
            source_means=scoring.all_means([scoring.means_of(*part) for part in own]).of(columns["source_ids"]), **columns
        )
        storage.write_table(storage.join(self.folder, name), writers.candidates_to_arrow(found))
        return len(found), {}


def _to_arrow(rows: Edges | MergedEdges) -> pa.Table:
    return pa.table({column.name: pa.array(getattr(rows, column.name)) for column in fields(rows)})


def read(folder: str, margin: str, threshold: float) -> ScoredPairs:
    """All candidates of a folder whose margin is above the threshold."""
    shards = stages.read_manifest(folder, STAGE).shards
    tables = (storage.read_table(storage.join(folder, shard.name)) for shard in shards)
    return scoring.concat([scoring.score(writers.candidates_from_arrow(table), margin, threshold) for table in tables])


@dataclass(frozen=True)
class SearchResult:
    """Two sides and the candidates that were found between them: what is decided on."""

    source: Corpus
    target: Corpus
    folder: str  # of the candidates
    k: int
    engine: Mapping[str, Any]  # by which the neighbours were found, and why

    def details(self, output: str) -> dict[str, Any]:
        """What the manifest of the candidates in OUTPUT tells, so that `searched` finds the sides again."""
        sides = {"source": self.source, "target": self.target}
        return {
            "k": self.k,
            "engine": self.engine,
            **{side: {"folder": _place(corpus.folder, output), "key": corpus.key} for side, corpus in sides.items()},
        }


def searched(output: str) -> SearchResult:
    """What an earlier `miner mine` into `output` searched.

    Raises StorageError where there are no finished candidates or a side is gone, DataError where a side has changed since.
    """
    folder = storage.join(output, STAGE)
    details = stages.read_manifest(folder, STAGE).details
    sides = []
    for side in ("source", "target"):
        place = details[side]["folder"]
        corpus = open_corpus(place if "://" in place else storage.join(output, place))
        if corpus.key != details[side]["key"]:
            raise DataError(f"{corpus.folder}: not what the candidates in {folder} were found in; run `miner mine` on it again")
        sides.append(corpus)
    return SearchResult(*sides, folder, details["k"], details["engine"])


def _place(folder: str, output: str) -> str:
    """Where a side is: seen from OUTPUT where it lies in it, else a name that also holds in another working directory."""
    absolute, within = (uri if "://" in uri else storage.filesystem(uri)[1] for uri in (folder, output))
    return absolute.removeprefix(f"{within.rstrip('/')}/")
