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
class TuningRequest:
    """What the search of an index is tuned for."""

    side: IndexedSide
    queries: Corpus
    has_own_queries: bool  # whether the queries are sentences of the index: a sentence is not its own neighbour
    seed: int
    k: int
    target_recall: float
    device: str


@dataclass(frozen=True)
class TunedSearch:
    """The content of FILE."""

    effort_name: str | None  # nprobe or efSearch; None where the index has no such parameter
    parameters: SearchParameters


def uses_accelerator(device: str, factory: str) -> bool:
    """Whether a GPU makes the search of an index with this factory string faster."""
    return device != CPU and faiss_index.has_gpu_search(factory)


def plan_tuning(request: TuningRequest, folder: str) -> StageRun:
    """Return the stage that writes FOLDER/FILE, which `read` reads."""
    stage = Stage(folder, STAGE, {}, {"index": request.side.checksum, "queries": request.queries.key})
    values = (request.has_own_queries, request.seed, request.k, request.target_recall)
    return StageRun(stage, {FILE: stage.key({**stage.inputs, "values": storage.key(values)})}, TuneSearch(request, folder))


def read(folder: str) -> TunedSearch:
    """Return the parameters that the stage in FOLDER has written."""
    return records.read(storage.join(folder, FILE), TunedSearch)


class TuneSearch(ShardTask):
    """Tune the search of an index."""

    row_unit = None

    def __init__(self, request: TuningRequest, folder: str) -> None:
        self.request = request
        self.folder = folder
        self.uses_accelerator = uses_accelerator(request.device, request.side.factory)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        request = self.request
        ids, vectors = draw_sample(request.queries, SAMPLE_ROWS, request.seed)
        index = OpenIndex(request.side, choose_device(request.device))
        parameters = index.tune(vectors, request.k, request.target_recall, ids if request.has_own_queries else None)
        tuned = TunedSearch(index.index.effort_name, parameters)
        records.write(storage.join(self.folder, name), asdict(tuned))
        return len(ids), {}
