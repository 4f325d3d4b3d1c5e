"""The search stage by FAISS: each side is searched for in the index of the other; the folders come out as those of `search`.

What an index proposes is scored again from the stored vectors, so the similarities are exact, and what is found is in the right
order; only what was never proposed is missed. How much that is, is measured with a sample of the queries themselves, and how
hard to look is tuned with it: those of another language lie otherwise than the vectors of the index.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from miner import stages, storage
from miner.corpus import Corpus
from miner.encoders.transformer_parts import choose_device
from miner.search.tuning import Setting
from miner.stages import Manifest, Shard
from miner.tables import neighbours_schema
from pipelines.beam.runner import ShardTask, run_stage
from pipelines.search.exact import BACKWARD, FORWARD, SearchRequest, to_arrow
from pipelines.search.open_index import SAMPLE, OpenIndex, draw

SEED = 2  # of the sample of queries


@dataclass(frozen=True)
class IndexedSide:
    """The index of one side, and what it is known by."""

    folder: str
    file: str
    checksum: str
    factory: str
    corpus: Corpus

    def opened(self, device: str) -> OpenIndex:
        return OpenIndex(self.folder, self.file, self.corpus, device)


def run(
    search: SearchRequest, indexes: tuple[IndexedSide, IndexedSide], target: float, folder: str, options: Sequence[str] = ()
) -> tuple[Manifest, Manifest]:
    """Fill FOLDER/forward and FOLDER/backward by the indexes of the sources and of the targets, at a recall of `target`.

    What is there already is kept. The manifests tell the recall of each direction.
    """
    ways = ((FORWARD, search.source, indexes[1]), (BACKWARD, search.target, indexes[0]))
    found = [_one_way(search, name, queries, keys, target, folder, options) for name, queries, keys in ways]
    return found[0], found[1]


def _one_way(
    search: SearchRequest, name: str, queries: Corpus, keys: IndexedSide, target: float, folder: str, options: Sequence[str]
) -> Manifest:
    stage = search.stage(folder, name)
    # All of the queries say how hard to look, so other queries are searched anew as a whole.
    how = {"engine": "faiss", "index": keys.checksum, "target_recall": str(target), "queries": queries.key}
    made = {shard.name: stage.key({**how, "shard": shard.checksum}) for shard in queries.shards}
    stage.start()
    if stage.complete(made):
        return stages.read_manifest(stage.folder)
    setting = _setting(search, queries, keys, target, storage.join(folder, f"{name}.json"))
    work = _SearchShard(queries, keys, setting, search, stage.folder)
    return run_stage(stage, made, work, options, lambda shards: _details(setting, target, keys, shards))


def _setting(search: SearchRequest, queries: Corpus, keys: IndexedSide, target: float, uri: str) -> Setting:
    """How to search for `queries`: tuned once and written down, so that a run that was stopped goes on as it began."""
    asked = storage.key([search.k, target, queries.key, keys.checksum])
    if storage.exists(uri):
        known = storage.read_json(uri)
        if isinstance(known, dict) and known.get("asked") == asked:
            return Setting(**known["setting"])
    sample = draw(queries, SAMPLE, SEED)[1]
    setting = keys.opened(str(choose_device(search.device))).tune(sample, search.k, target)
    storage.write_json(uri, {"asked": asked, "setting": asdict(setting)})
    return setting


def _details(setting: Setting, target: float, keys: IndexedSide, shards: Sequence[Shard]) -> dict[str, Any]:
    searched_again = sum(shard.counts.get("searched_again", 0) for shard in shards)
    return {"factory": keys.factory, "target_recall": target, **asdict(setting), "searched_again": searched_again}


class _SearchShard(ShardTask):
    """One shard of queries -> their neighbours."""

    def __init__(self, queries: Corpus, keys: IndexedSide, setting: Setting, search: SearchRequest, folder: str) -> None:
        self.queries = queries
        self.keys = keys
        self.setting = setting
        self.k = search.k
        self.device = search.device
        self.folder = folder

    def setup(self) -> None:
        self.index = self.keys.opened(str(choose_device(self.device)))  # of the worker, which may have what the driver lacks

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        rows = again = 0
        schema = neighbours_schema(self.k)
        with storage.parquet_writer(storage.join(self.folder, name), schema) as writer:
            writer.write_table(schema.empty_table())  # a shard of no sentences has a row group too
            for ids, vectors in self.queries.vectors(name):
                found, short = self.index.search(vectors, self.k, self.setting)
                writer.write_table(to_arrow(ids, found))
                rows, again = rows + len(ids), again + short
        return rows, {"searched_again": again}
