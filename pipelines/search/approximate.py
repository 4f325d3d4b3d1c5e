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
from pipelines.search.tune import TuneSearch

SAMPLE_SEED = 2


@dataclass(frozen=True)
class _Direction:
    """A search of one side in the index of the other, which fills FOLDER/name."""

    name: str
    search: SearchRequest
    index: IndexedSide
    target_recall: float
    folder: str

    @property
    def queries(self) -> Corpus:
        return self.search.sides()[self.name][0]

    @property
    def stage(self) -> Stage:
        return self.search.stage(self.folder, self.name)

    @property
    def tuning_folder(self) -> str:
        """Where the tuned parameters are kept, so that a resumed search continues with them."""
        return storage.join(self.folder, f"{tune.STAGE}-{self.name}")

    def shard_keys(self) -> dict[str, str]:
        # The parameters are tuned on a sample of all queries, so a change of the queries invalidates every shard.
        shared = {"engine": FAISS, "index": self.index.checksum, "target_recall": str(self.target_recall), "queries": self.queries.key}
        return {shard.name: self.stage.key({**shared, "shard": shard.checksum}) for shard in self.queries.shards}

    def tuning(self) -> StageRun:
        """Return the stage that tunes the search."""
        search = self.search
        task = TuneSearch(self.index, self.queries, False, SAMPLE_SEED, search.k, self.target_recall, search.device, self.tuning_folder)
        return task.stage_run()

    def searching(self) -> StageRun:
        """Return the stage that searches with the tuned parameters."""
        parameters = tune.read(self.tuning_folder).parameters
        task = SearchIndex(self, parameters)
        return StageRun(self.stage, self.shard_keys(), task, lambda shards: _details(self, parameters, shards))


def run(
    search: SearchRequest, indexes: tuple[IndexedSide, IndexedSide], target_recall: float, folder: str
) -> Pipeline[tuple[Manifest, Manifest]]:
    """Write FOLDER/forward and FOLDER/backward with the indexes of the sources and of the targets.

    Complete shards are kept. The manifests record the recall of each direction.
    """
    directions = [_Direction(name, search, index, target_recall, folder) for name, index in ((FORWARD, indexes[1]), (BACKWARD, indexes[0]))]
    for direction in directions:
        direction.stage.start()
    incomplete = [direction for direction in directions if not direction.stage.is_complete(direction.shard_keys())]
    yield from run_stages([direction.tuning() for direction in incomplete])
    yield from run_stages([direction.searching() for direction in incomplete])
    forward, backward = (stages.read_manifest(direction.stage.folder) for direction in directions)
    return forward, backward


def _details(direction: _Direction, parameters: SearchParameters, shards: Sequence[Shard]) -> dict[str, Any]:
    searched_again = sum(shard.counts.get("searched_again", 0) for shard in shards)
    recall = {"target_recall": direction.target_recall, **asdict(parameters)}
    return {"factory": direction.index.factory, **recall, "searched_again": searched_again}


class SearchIndex(ShardTask):
    """Write the neighbours of one shard of queries."""

    def __init__(self, direction: _Direction, parameters: SearchParameters) -> None:
        self.queries = direction.queries
        self.side = direction.index
        self.parameters = parameters
        self.k = direction.search.k
        self.device = direction.search.device
        self.folder = direction.stage.folder
        self.uses_accelerator = tune.uses_accelerator(self.device, self.side.factory)

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
