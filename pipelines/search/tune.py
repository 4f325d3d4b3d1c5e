"""The tuning stage: an index and a sample of queries -> the parameters of its search, with their recall, in a JSON file.

It runs on a worker, because it maps the index and compares the sample with every vector.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from miner.devices import CPU, choose_device
from miner.io import records, stages, storage
from miner.io.corpus import Corpus
from miner.io.stages import Stage
from miner.search import faiss_index
from miner.search.tuning import SearchParameters
from pipelines.beam.tasks import ShardTask, StageRun
from pipelines.search.index_files import IndexedSide
from pipelines.search.open_index import SAMPLE_ROWS, OpenIndex, draw_sample

STAGE = "tuning"
FILE = stages.shard_name(0, 1, ".json")


@dataclass(frozen=True)
class TunedSearch:
    """The content of FILE."""

    effort_name: str | None  # nprobe or efSearch; None where the index has no such parameter
    parameters: SearchParameters


def uses_accelerator(device: str, factory: str) -> bool:
    """Whether a GPU makes the search of an index with this factory string faster."""
    return device != CPU and faiss_index.has_gpu_search(factory)


def read(folder: str) -> TunedSearch:
    """Return the parameters that the stage in FOLDER has written."""
    return records.read(storage.join(folder, FILE), TunedSearch)


class TuneSearch(ShardTask):
    """Tune the search of an index, by a sample of queries. With `has_own_queries`, these are in the index: none is its own neighbour."""

    row_unit = None

    def __init__(
        self, side: IndexedSide, queries: Corpus, has_own_queries: bool, seed: int, k: int, target_recall: float, device: str, folder: str
    ) -> None:
        self.side = side
        self.queries = queries
        self.has_own_queries = has_own_queries
        self.seed = seed  # for the sample
        self.k = k
        self.target_recall = target_recall
        self.device = device
        self.folder = folder
        self.uses_accelerator = uses_accelerator(device, side.factory)

    def stage_run(self) -> StageRun:
        """Return the stage that writes FOLDER/FILE, which `read` reads."""
        stage = Stage(self.folder, STAGE, {}, {"index": self.side.checksum, "queries": self.queries.key})
        values = (self.has_own_queries, self.seed, self.k, self.target_recall)
        return StageRun(stage, {FILE: stage.key({**stage.inputs, "values": storage.key(values)})}, self)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        ids, vectors = draw_sample(self.queries, SAMPLE_ROWS, self.seed)
        index = OpenIndex(self.side, choose_device(self.device))
        parameters = index.tune(vectors, self.k, self.target_recall, ids if self.has_own_queries else None)
        records.write(storage.join(self.folder, name), asdict(TunedSearch(index.index.effort_name, parameters)))
        return len(ids), {}
