"""The approximate search stage: each side is searched in the FAISS index of the other. The output has the format of `exact`.

The candidates of an index are rescored from the stored vectors, so similarities and order are exact; only neighbours that the index did
not propose are missed. The recall is measured, and the effort tuned, on a sample of the queries themselves: sentences of another language
are distributed differently from the vectors of the index.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from miner import records, stages, storage
from miner.corpus import Corpus
from miner.encoders.transformer_parts import choose_device
from miner.search import faiss_index
from miner.search.tuning import SearchParameters
from miner.stages import Manifest, Shard
from miner.tables import neighbours_schema
from pipelines.beam import workers
from pipelines.beam.runner import Pipeline, ShardTask, StageRun, run_stages
from pipelines.beam.workers import CPU
from pipelines.search.exact import BACKWARD, FORWARD, SearchRequest, to_arrow
from pipelines.search.open_index import SAMPLE_ROWS, OpenIndex, draw_sample

SAMPLE_SEED = 2


@dataclass(frozen=True)
class IndexedSide:
    """The index of one side, and the corpus that it indexes."""

    folder: str
    file: str
    checksum: str
    factory: str
    corpus: Corpus

    def open(self, device: str) -> OpenIndex:
        return OpenIndex(self.folder, self.file, self.corpus, device)


@dataclass(frozen=True)
class _Direction:
    """Queries of one side and the index of the other."""

    name: str
    queries: Corpus
    index: IndexedSide
    target_recall: float


def run(
    search: SearchRequest, indexes: tuple[IndexedSide, IndexedSide], target_recall: float, folder: str, options: Sequence[str] = ()
) -> Pipeline[tuple[Manifest, Manifest]]:
    """Write FOLDER/forward and FOLDER/backward with the indexes of the sources and of the targets.

    Complete shards are kept. The manifests record the recall of each direction.
    """
    forward = _Direction(FORWARD, search.source, indexes[1], target_recall)
    backward = _Direction(BACKWARD, search.target, indexes[0], target_recall)
    runs = [_plan_search(search, direction, folder, options) for direction in (forward, backward)]
    yield from run_stages([run for run in runs if run is not None])
    return stages.read_manifest(search.stage(folder, FORWARD).folder), stages.read_manifest(search.stage(folder, BACKWARD).folder)


def _plan_search(search: SearchRequest, direction: _Direction, folder: str, options: Sequence[str]) -> StageRun | None:
    """Return the stage that searches one direction; None if it is complete."""
    stage = search.stage(folder, direction.name)
    # The parameters are tuned on a sample of all queries, so a change of the queries invalidates every shard.
    shared = {"engine": "faiss", "index": direction.index.checksum}
    shared |= {"target_recall": str(direction.target_recall), "queries": direction.queries.key}
    inputs = {shard.name: stage.key({**shared, "shard": shard.checksum}) for shard in direction.queries.shards}
    stage.start()
    if stage.is_complete(inputs):
        return None
    parameters = _tune(search, direction, storage.join(folder, f"{direction.name}.json"), options)
    task = SearchIndex(search, direction, parameters, stage.folder)
    return StageRun(stage, inputs, task, lambda shards: _details(direction, parameters, shards))


def _tune(search: SearchRequest, direction: _Direction, uri: str, options: Sequence[str]) -> SearchParameters:
    """Return the search parameters, tuned once and recorded in `uri`, so that a resumed run continues with the same ones."""
    fingerprint = storage.key([search.k, direction.target_recall, direction.queries.key, direction.index.checksum])
    if storage.exists(uri):
        recorded = records.read(uri, dict[str, Any])
        if recorded.get("asked") == fingerprint:
            parameters: SearchParameters = records.parse(recorded.get("setting"), SearchParameters, uri)
            return parameters
    sample = draw_sample(direction.queries, SAMPLE_ROWS, SAMPLE_SEED)[1]
    index = direction.index.open(str(workers.describe(options).local_device(search.device)))
    parameters = index.tune(sample, search.k, direction.target_recall)
    records.write(uri, {"asked": fingerprint, "setting": asdict(parameters)})
    return parameters


def _details(direction: _Direction, parameters: SearchParameters, shards: Sequence[Shard]) -> dict[str, Any]:
    searched_again = sum(shard.counts.get("searched_again", 0) for shard in shards)
    recall = {"target_recall": direction.target_recall, **asdict(parameters)}
    return {"factory": direction.index.factory, **recall, "searched_again": searched_again}


class SearchIndex(ShardTask):
    """Write the neighbours of one shard of queries."""

    def __init__(self, search: SearchRequest, direction: _Direction, parameters: SearchParameters, folder: str) -> None:
        self.queries = direction.queries
        self.side = direction.index
        self.parameters = parameters
        self.k = search.k
        self.device = search.device
        self.folder = folder
        self.uses_accelerator = search.device != CPU and faiss_index.has_gpu_search(self.side.factory)

    def setup(self) -> None:
        self.index = self.side.open(str(choose_device(self.device)))  # the worker may have a device that the driver lacks

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        num_rows = num_searched_again = 0
        schema = neighbours_schema(self.k)
        with storage.parquet_writer(storage.join(self.folder, name), schema) as writer:
            writer.write_table(schema.empty_table())  # an empty shard has a row group too
            for ids, vectors in self.queries.vectors(name):
                neighbours, searched_again = self.index.search(vectors, self.k, self.parameters)
                writer.write_table(to_arrow(ids, neighbours))
                num_rows, num_searched_again = num_rows + len(ids), num_searched_again + searched_again
        return num_rows, {"searched_again": num_searched_again}
