"""The candidates stage: neighbours -> the pairs worth a decision, with all that any margin needs; a shard for each of the sources'.

They are found once, and decided on as often as one likes: with another margin, retrieval, threshold or filter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miner import storage
from miner.corpus import Corpus, open_corpus
from miner.errors import DataError
from miner.mining import candidates as scoring
from miner.mining import writers
from miner.mining.candidates import Means, Scored
from miner.storage import Manifest, Stage
from pipelines.runner import run_stage
from pipelines.search import BACKWARD, FORWARD, read_neighbours

STAGE = "candidates"  # and its folder's name


def run(neighbours: str, folder: str, options: Sequence[str] = (), details: Mapping[str, Any] | None = None) -> Manifest:
    """Fill `folder` from the neighbours of both directions; the manifest gets `details`."""
    forward, backward = (storage.read_manifest(storage.join(neighbours, direction)) for direction in (FORWARD, BACKWARD))
    inputs = {f"{FORWARD}/{shard.name}": shard.checksum for shard in forward.shards}
    inputs |= {f"{BACKWARD}/{shard.name}": shard.checksum for shard in backward.shards}
    stage = Stage(folder, STAGE, {}, inputs)
    made_from = {shard.name: stage.key() for shard in forward.shards}
    work = _JoinShard(neighbours, folder, [shard.name for shard in backward.shards])
    return run_stage(stage, made_from, work, options, lambda _: details or {})


class _JoinShard:
    """The candidates of one shard of sources: their neighbours, and the targets that have them as neighbours."""

    def __init__(self, neighbours: str, folder: str, targets: Sequence[str]) -> None:
        self.forward = storage.join(neighbours, FORWARD)
        self.backward = storage.join(neighbours, BACKWARD)
        self.folder = folder
        self.shards = targets

    def setup(self) -> None:
        means = scoring.concat([scoring.means_of(*read_neighbours(self.backward, name)) for name in self.shards])
        order = np.argsort(means.ids, kind="stable")  # they ascend within a shard, and mostly from one to the next
        self.targets = Means(means.ids[order], means.means[order])

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        ids, neighbours = read_neighbours(self.forward, name)
        sources = scoring.means_of(ids, neighbours)
        backward = [scoring.backward_edges(*read_neighbours(self.backward, shard), sources) for shard in self.shards]
        found = scoring.join(scoring.forward_edges(ids, neighbours), scoring.concat(backward), sources, self.targets)
        storage.write_table(storage.join(self.folder, name), writers.candidates_to_arrow(found))
        return len(found), {}


def read(folder: str, margin: str, threshold: float) -> Scored:
    """All candidates of a folder whose margin is above the threshold."""
    shards = storage.read_manifest(folder, STAGE).shards
    tables = (storage.read_table(storage.join(folder, shard.name)) for shard in shards)
    return scoring.concat([scoring.score(writers.candidates_from_arrow(table), margin, threshold) for table in tables])


@dataclass(frozen=True)
class Searched:
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


def searched(output: str) -> Searched:
    """What an earlier `miner mine` into `output` searched.

    Raises StorageError where there are no finished candidates or a side is gone, DataError where a side has changed since.
    """
    folder = storage.join(output, STAGE)
    details = storage.read_manifest(folder, STAGE).details
    sides = []
    for side in ("source", "target"):
        place = details[side]["folder"]
        corpus = open_corpus(place if "://" in place else storage.join(output, place))
        if corpus.key != details[side]["key"]:
            raise DataError(f"{corpus.folder}: not what the candidates in {folder} were found in; run `miner mine` on it again")
        sides.append(corpus)
    return Searched(*sides, folder, details["k"], details["engine"])


def _place(folder: str, output: str) -> str:
    """Where a side is: seen from OUTPUT where it lies in it, else a name that also holds in another working directory."""
    absolute, within = (uri if "://" in uri else storage.filesystem(uri)[1] for uri in (folder, output))
    return absolute.removeprefix(f"{within.rstrip('/')}/")
