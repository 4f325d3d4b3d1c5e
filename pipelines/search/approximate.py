"""The approximate search stage: each side is searched in the FAISS index of the other. The output has the format of `exact`.

The candidates of an index are rescored from the stored vectors, so similarities and order are exact; only neighbours that the index did
not propose are missed. The recall is measured, and the effort tuned, on a sample of the queries themselves: sentences of another language
are distributed differently from the vectors of the index.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from miner.config.choices import FAISS
from miner.devices import choose_device
from miner.io import stages, storage, table_files
from miner.io.corpus import Corpus
from miner.io.stages import Manifest, Shard, Stage
from miner.io.tables import neighbours_schema
from miner.search.tuning import SearchParameters
from pipelines.beam.runner import Pipeline, run_stages
from pipelines.beam.tasks import ShardTask, StageRun
from pipelines.search import tune
from pipelines.search.exact import BACKWARD, FORWARD, SearchRequest, to_arrow
from pipelines.search.index_files import IndexedSide
from pipelines.search.open_index import OpenIndex
from pipelines.search.tune import TuningRequest

SAMPLE_SEED = 2


@dataclass(frozen=True)
class _Direction:
    """Queries of one side and the index of the other."""

    name: str
    queries: Corpus
    index: IndexedSide
    target_recall: float


def run(
    search: SearchRequest, indexes: tuple[IndexedSide, IndexedSide], target_recall: float, folder: str
) -> Pipeline[tuple[Manifest, Manifest]]:
    """Write FOLDER/forward and FOLDER/backward with the indexes of the sources and of the targets.

    Complete shards are kept. The manifests record the recall of each direction.
    """
    forward = _Direction(FORWARD, search.source, indexes[1], target_recall)
    backward = _Direction(BACKWARD, search.target, indexes[0], target_recall)
    incomplete = [direction for direction in (forward, backward) if not _is_complete(search, direction, folder)]
    yield from run_stages([_plan_tuning(search, direction, folder) for direction in incomplete])
    yield from run_stages([_plan_search(search, direction, folder) for direction in incomplete])
    return stages.read_manifest(search.stage(folder, FORWARD).folder), stages.read_manifest(search.stage(folder, BACKWARD).folder)


def _is_complete(search: SearchRequest, direction: _Direction, folder: str) -> bool:
    """Claim the directory of a direction, and return whether all its shards are up to date."""
    stage = search.stage(folder, direction.name)
    stage.start()
    return stage.is_complete(_shard_keys(stage, direction))


def _shard_keys(stage: Stage, direction: _Direction) -> dict[str, str]:
    # The parameters are tuned on a sample of all queries, so a change of the queries invalidates every shard.
    shared = {"engine": FAISS, "index": direction.index.checksum}
    shared |= {"target_recall": str(direction.target_recall), "queries": direction.queries.key}
    return {shard.name: stage.key({**shared, "shard": shard.checksum}) for shard in direction.queries.shards}


def _plan_tuning(search: SearchRequest, direction: _Direction, folder: str) -> StageRun:
    """Return the stage that tunes one direction. Its result is kept, so that a resumed search continues with the same parameters."""
    request = TuningRequest(
        side=direction.index,
        queries=direction.queries,
        has_own_queries=False,
        seed=SAMPLE_SEED,
        k=search.k,
        target_recall=direction.target_recall,
        device=search.device,
    )
    return tune.plan_tuning(request, _tuning_folder(direction, folder))


def _tuning_folder(direction: _Direction, folder: str) -> str:
    return storage.join(folder, f"{tune.STAGE}-{direction.name}")


def _plan_search(search: SearchRequest, direction: _Direction, folder: str) -> StageRun:
    """Return the stage that searches one direction with the tuned parameters."""
    stage = search.stage(folder, direction.name)
    parameters = tune.read(_tuning_folder(direction, folder)).parameters
    task = SearchIndex(search, direction, parameters, stage.folder)
    return StageRun(stage, _shard_keys(stage, direction), task, lambda shards: _details(direction, parameters, shards))


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
        self.uses_accelerator = tune.uses_accelerator(search.device, self.side.factory)

    def setup(self) -> None:
        self.index = OpenIndex(self.side, choose_device(self.device))  # the worker may have a device that the driver lacks

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        num_rows = num_searched_again = 0
        schema = neighbours_schema(self.k)
        with table_files.parquet_writer(storage.join(self.folder, name), schema) as writer:
            writer.write_table(schema.empty_table())  # an empty shard has a row group too
            for ids, vectors in self.queries.vectors(name):
                neighbours, searched_again = self.index.search(vectors, self.k, self.parameters)
                writer.write_table(to_arrow(ids, neighbours))
                num_rows, num_searched_again = num_rows + len(ids), num_searched_again + searched_again
        return num_rows, {"searched_again": num_searched_again}
