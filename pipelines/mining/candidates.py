"""The candidates stage: neighbours of both directions -> candidates, with everything that any margin needs; one shard per range of sources.

Candidates are computed once and selected from any number of times, with another margin, retrieval, threshold or filter.

The neighbours of sources go to the ranges of their targets, where they are merged with the neighbours of the targets and get the
targets' means. All edges then go to the ranges of their sources and get the sources' means. A worker holds one range with the k
neighbours of each of its sentences, and the edges of the other side that end in the range. In between, they can be rescored
(`pipelines.mining.rescore`).
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from miner.arrays import Ids
from miner.config.commands import EncoderSettings
from miner.errors import DataError, SettingsError, StorageError
from miner.io import stages, storage, table_files
from miner.io.corpus import Corpus, open_corpus
from miner.io.stages import CANDIDATES, Manifest, Shard, Stage
from miner.mining import candidates as scoring
from miner.mining import writers
from miner.mining.candidates import Candidates, Edges, MergedEdges, ScoredPairs, without_copies
from miner.search.neighbours import Neighbours
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline, run_stage
from pipelines.beam.shuffle import ShuffleSteps, StepOutput, TextsById
from pipelines.beam.tasks import ShardTask
from pipelines.mining import rescore
from pipelines.mining.rescore import PreviousCandidates
from pipelines.mining.rescore_choice import Rescoring
from pipelines.search.exact import BACKWARD, FORWARD, from_arrow, read_neighbours


@dataclass(frozen=True)
class MiningLimits:
    """Sizes that bound the memory of a worker. The result does not depend on them."""

    in_process_rows: int = shuffle.IN_PROCESS_ROWS  # with more edges or candidates, the steps run as Beam jobs
    matched_rows: int = 1 << 22  # candidates that one worker matches: 140 MB, and a few times that during the walk
    margin_range_rows: int = 1 << 19  # pairs with their texts in one margin range, approximately
    margin_samples: int = 256  # pairs sampled per shard to choose the margin ranges


DEFAULT_LIMITS = MiningLimits()


@dataclass(frozen=True)
class SearchResult:
    """Two corpora and the candidates between them, from which pairs are selected."""

    source: Corpus
    target: Corpus
    folder: str  # of the candidates
    k: int  # neighbours of the means
    engine: Mapping[str, Any]  # of the search, with the reason for it
    rescoring: Rescoring | None  # how the candidates are rescored
    is_one_corpus: bool = False  # source and target are the same: a candidate is a pair of different sentences, the smaller id first

    @property
    def num_neighbours(self) -> int:
        """The neighbours of each sentence that are candidates."""
        return self.k if self.rescoring is None else self.rescoring.num_neighbours(self.k)

    def stage(self, inputs: Mapping[str, str]) -> Stage:
        """Return the stage of the candidates."""
        config = {} if self.rescoring is None else {"k": self.k, **self.rescoring.figures()}
        if self.is_one_corpus:
            config["paraphrases"] = True
        return Stage(self.folder, CANDIDATES, config, inputs)

    def candidate_uris(self) -> list[str]:
        """Return the shards of the candidates, one per range of sources."""
        return [storage.join(self.folder, shard.name) for shard in stages.read_manifest(self.folder).shards]

    def read_candidates(self, keeps_copies: bool = True) -> Iterator[Candidates]:
        """Yield the candidates of each range of sources, sorted by source; on request, without those of two equal texts."""
        for uri in self.candidate_uris():
            block = writers.candidates_from_arrow(table_files.read_table(uri))
            yield block if keeps_copies else without_copies(block)

    def details(self, output: str) -> dict[str, Any]:
        """Return the details of the candidates' manifest in OUTPUT, by which `open_search_result` finds the corpora."""
        corpora = {"source": self.source, "target": self.target}
        return {
            "k": self.k,
            "engine": self.engine,
            "fingerprint": self.source.fingerprint,
            **{side: {"folder": _portable_path(corpus.folder, output), "key": corpus.key} for side, corpus in corpora.items()},
        }


def run(
    neighbours: str,
    search_result: SearchResult,
    encoder: EncoderSettings,
    details: Mapping[str, Any] | None = None,
    limits: MiningLimits = DEFAULT_LIMITS,
) -> Pipeline[Manifest]:
    """Fill the folder of the candidates from the neighbours of both directions. `details` go into the manifest.

    The encoder rescores the candidates, if `search_result` says so.
    """
    manifests = {direction: stages.read_manifest(storage.join(neighbours, direction)) for direction in (FORWARD, BACKWARD)}
    inputs = {f"{direction}/{shard.name}": shard.checksum for direction, manifest in manifests.items() for shard in manifest.shards}
    stage = search_result.stage(inputs)
    shard_lists = manifests[FORWARD].shards, manifests[BACKWARD].shards
    shards = _NeighbourShards(neighbours, search_result.k, *shard_lists, search_result.is_one_corpus)
    shard_keys = {stages.shard_name(index, len(shards.sources)): stage.key() for index in range(len(shards.sources))}
    num_edges = sum(manifest.rows * manifest.config.get("k", 1) for manifest in manifests.values())
    steps = ShuffleSteps("joining", f"{stage.folder}.steps", stage.key(), num_edges, limits.in_process_rows)
    merged = StepOutput(steps.place("merged-edges"), shuffle.names(len(shards.targets)), 0, Counter())
    forward_neighbours = TextsById({})
    if not stage.is_complete(shard_keys):
        stage.start()
        forward = yield from steps.apply("forward-edges", shuffle.names(len(shards.sources)), _write_forward_edges, shards)
        forward_neighbours = shards.by_id(FORWARD, search_result.source)
        backward_neighbours = shards.by_id(BACKWARD, search_result.target)
        merged = yield from steps.apply("merged-edges", merged.shards, _merge_target_range, shards, forward, backward_neighbours)
        if search_result.rescoring is not None:
            sides = rescore.rescored_sides((search_result.source, search_result.target), encoder, search_result.rescoring)
            previous = PreviousCandidates.find(stage, search_result.source.fingerprint)
            merged = yield from rescore.rescore(merged, sides, search_result.k, len(shards.sources), previous, steps)
    task = _JoinSourceRange(shards, merged, forward_neighbours, stage.folder)
    manifest = yield from run_stage(stage, shard_keys, task, lambda _: details or {})
    steps.remove()
    return manifest


@dataclass(frozen=True)
class _NeighbourShards:
    """The folder and the shards of the neighbours of both sides."""

    folder: str
    k: int  # neighbours of the means
    sources: Sequence[Shard]
    targets: Sequence[Shard]
    is_one_corpus: bool

    def others(self, ids: Ids, neighbours: Neighbours) -> tuple[Ids, Neighbours]:
        """Return the ids (n,) and neighbours of sentences without the sentences themselves, which are neighbours in one corpus."""
        return ids, neighbours.without_self(ids) if self.is_one_corpus else neighbours

    def by_id(self, direction: str, queries: Corpus) -> TextsById:
        """Return the neighbours of a direction by id: a shard has the ids of the shard of this name in the corpus."""
        return TextsById({storage.join(self.folder, direction, name): span for name, span in queries.spans().items()})

    def means(self, neighbours: Sequence[tuple[Ids, Neighbours]]) -> scoring.NeighbourMeans:
        """Return the means of the sentences of several tables of neighbours."""
        return scoring.merge_means([scoring.means_of(*part, self.k) for part in neighbours])


def _write_forward_edges(index: int, uri: str, shards: _NeighbourShards) -> tuple[int, Mapping[str, int]]:
    """Send the neighbours of one shard of sources to the ranges of targets."""
    edges = scoring.forward_edges(*shards.others(*read_neighbours(storage.join(shards.folder, FORWARD), shards.sources[index].name)))
    shuffle.scatter_by_id(uri, _to_arrow(edges), "target_ids", len(shards.targets))
    return len(edges.source_ids), {}


def _merge_target_range(
    index: int, uri: str, shards: _NeighbourShards, forward: StepOutput, backward: TextsById
) -> tuple[int, Mapping[str, int]]:
    """Merge the edges of one range of targets, add the targets' means, and send them to the ranges of sources."""
    table = forward.gather(index)
    forward_edges = Edges(*(table[column.name].to_numpy() for column in fields(Edges)))
    neighbours = [shards.others(*from_arrow(part)) for part in backward.read(index, len(shards.targets))]
    backward_edges = scoring.concat([scoring.NO_EDGES, *(scoring.backward_edges(*part) for part in neighbours)])
    edges = scoring.merge_edges(forward_edges, backward_edges)
    means = shards.means(neighbours).of(edges.target_ids)
    table = _to_arrow(edges).append_column("target_means", pa.array(means))
    shuffle.scatter_by_id(uri, table, "source_ids", len(shards.sources))
    return len(edges.source_ids), {}


class _JoinSourceRange(ShardTask):
    """Write the candidates of one range of sources: the merged edges with the sources' means."""

    row_unit = "pairs"

    def __init__(self, shards: _NeighbourShards, merged: StepOutput, forward: TextsById, folder: str) -> None:
        self.shards = shards
        self.merged = merged
        self.forward = forward
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        index = stages.shard_index(name)
        edges = self.merged.gather(index)
        # The edges come by ranges of targets, ascending, and those of each are sorted by (source, target), which takes no time to merge.
        order = np.argsort(edges["source_ids"].to_numpy(), kind="stable")
        columns = {column: edges[column].to_numpy()[order] for column in edges.column_names}
        late = rescore.late_scores(columns, self.shards.k)
        tables = self.forward.read(index, len(self.shards.sources))
        neighbours = [self.shards.others(*from_arrow(table)) for table in tables]
        means = self.shards.means(neighbours).of(columns["source_ids"])
        candidates = scoring.Candidates(source_means=means, late=late, **columns)
        if self.shards.is_one_corpus:  # after the means, which take all neighbours
            candidates = candidates.take(candidates.source_ids < candidates.target_ids)
        table_files.write_table(storage.join(self.folder, name), writers.candidates_to_arrow(candidates))
        return len(candidates), {}


def _to_arrow(edges: Edges | MergedEdges) -> pa.Table:
    return pa.table({column.name: pa.array(getattr(edges, column.name)) for column in fields(edges)})


def read(folder: str, margin: str, threshold: float) -> ScoredPairs:
    """Return all candidates of a folder whose margin is above the threshold."""
    shards = stages.read_manifest(folder, CANDIDATES).shards
    tables = (table_files.read_table(storage.join(folder, shard.name)) for shard in shards)
    return scoring.concat([scoring.score(writers.candidates_from_arrow(table), margin, threshold) for table in tables])


def open_search_result(output: str) -> SearchResult:
    """Open the search result of an earlier `miner mine` into `output`.

    Raises StorageError if there are no finished candidates or a corpus is missing, DataError if a corpus has changed since.
    """
    folder = storage.join(output, CANDIDATES)
    manifest = stages.read_manifest(folder, CANDIDATES)
    details, rescoring = manifest.details, Rescoring.read(manifest.config)
    missing = {"k", "engine", "source", "target"} - set(details)
    if missing:
        raise DataError(f"{storage.join(folder, stages.MANIFEST)}: no {min(missing)}, so not of `miner mine`; run `miner mine` again")
    corpora = []
    for side in ("source", "target"):
        path = details[side]["folder"]
        corpus = open_corpus(path if "://" in path else storage.join(output, path))
        if corpus.key != details[side]["key"]:
            raise DataError(f"{corpus.folder}: changed since the candidates in {folder} were computed; run `miner mine` on it again")
        corpora.append(corpus)
    source, target = corpora
    return SearchResult(source, target, folder, details["k"], details["engine"], rescoring)


def check_corpora(output: str, source: Corpus, target: Corpus) -> None:
    """Raise SettingsError if an output has candidates of other corpora, not only of earlier states of these."""
    details: Mapping[str, Any] = {}
    with contextlib.suppress(StorageError):  # of an output without candidates, or with a damaged manifest, which is written again
        details = stages.read_manifest(storage.join(output, CANDIDATES)).details
    for side, corpus in (("source", source), ("target", target)):
        previous = details.get(side, {"folder": "", "key": corpus.key})
        if previous["folder"] != _portable_path(corpus.folder, output) and previous["key"] != corpus.key:
            raise SettingsError(
                f"{output}: made from the {side} {previous['folder']}, not {corpus.folder}; choose another --output, or replace it by"
                " --replace"
            )


def _portable_path(folder: str, output: str) -> str:
    """Return the path of a corpus relative to OUTPUT if it is inside, else a path that does not depend on the working directory."""
    absolute, within = (uri if "://" in uri else storage.filesystem(uri)[1] for uri in (folder, output))
    return absolute.removeprefix(f"{within.rstrip('/')}/")
