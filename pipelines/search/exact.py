"""The exact search stage: two embedded corpora -> the k nearest neighbours of every sentence, in both directions.

First an element is a pair of shards, which is searched once for both directions. Then an element is a shard, whose partial neighbours are
merged. So the neighbours do not depend on how the corpora are sharded.

Where corpora grew by further shards, only pairs with a new shard are searched, and merged with the previous neighbours. Many target shards
are processed as if the target grew, `target_shards_per_pass` at a time: otherwise the partial neighbours of all pairs of shards would be on
disk at once, one entry for each sentence and shard of the other side.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from miner import storage
from miner.corpus import EMBEDDINGS, Corpus
from miner.encoders.transformer_parts import choose_device
from miner.progress import add_work
from miner.search.neighbours import Ids, Neighbours
from miner.stages import Manifest, Stage
from miner.tables import neighbours_schema
from pipelines.beam.runner import ShardTask, run_stage
from pipelines.beam.workers import CPU
from pipelines.search import previous_neighbours
from pipelines.search.previous_neighbours import PreviousNeighbours

PARTIAL, FORWARD, BACKWARD = "blocks", "forward", "backward"  # folders

TARGET_SHARDS_PER_PASS = 32

ShardPairs = Mapping[str, tuple[str, str]]  # file of partial neighbours -> source shard and target shard

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchRequest:
    """What to search, and how."""

    source: Corpus
    target: Corpus
    k: int
    device: str = "auto"
    block_bytes: int | None = None  # of the float16 vectors of one side that are searched at a time; None: by the device
    target_shards_per_pass: int = TARGET_SHARDS_PER_PASS

    def stage(self, folder: str, name: str) -> Stage:
        """Return the stage of FOLDER/name."""
        config = {"k": self.k, "dim": self.source.dim, "fingerprint": self.source.fingerprint}
        kind = "search" if name == PARTIAL else "neighbours"
        return Stage(storage.join(folder, name), kind, config, {"source": self.source.key, "target": self.target.key})

    def sides(self) -> dict[str, tuple[Corpus, Corpus]]:
        """Return the queries and keys of each direction."""
        return {FORWARD: (self.source, self.target), BACKWARD: (self.target, self.source)}

    def shard_pairs(self) -> dict[str, tuple[str, str]]:
        """Return all pairs of a source shard and a target shard, by the file of their partial neighbours."""
        return {
            f"block-{i:05d}-{j:05d}.parquet": (source.name, target.name)
            for i, source in enumerate(self.source.shards)
            for j, target in enumerate(self.target.shards)
        }


def run(search: SearchRequest, folder: str, options: Sequence[str] = ()) -> tuple[Manifest, Manifest]:
    """Write the neighbours of the source shards to FOLDER/forward and those of the target shards to FOLDER/backward.

    Complete shards are kept. Raises StorageError if they were searched with another k or encoder.
    """
    previous = previous_neighbours.previous_targets(folder, search.source, search.target)
    new = [shard.name for shard in search.target.shards if shard.name not in previous]
    for end in range(search.target_shards_per_pass, len(new), search.target_shards_per_pass):
        names = previous.union(new[:end])
        logger.info("search: %d of %d target shards", len(names), len(search.target.shards))
        shards = tuple(shard for shard in search.target.shards if shard.name in names)
        _search_pass(replace(search, target=replace(search.target, shards=shards)), folder, options)
    return _search_pass(search, folder, options)


def _search_pass(search: SearchRequest, folder: str, options: Sequence[str]) -> tuple[Manifest, Manifest]:
    """Search the pairs of shards that the previous neighbours do not cover, and merge them for each direction."""
    stages = {direction: search.stage(folder, direction) for direction in search.sides()}
    inputs = {direction: _shard_inputs(stages[direction], *sides) for direction, sides in search.sides().items()}
    for stage in stages.values():
        stage.start()
    previous = previous_neighbours.keep_previous(folder, search.source, search.target)
    pairs = {file: shards for file, shards in search.shard_pairs().items() if not previous.covers(*shards)}
    if not all(stage.is_complete(inputs[direction]) for direction, stage in stages.items()):
        _search_pairs(search, pairs, folder, options)
    details = previous_neighbours.manifest_details(search.source, search.target)
    forward, backward = (
        run_stage(stage, inputs[direction], MergePartialNeighbours(direction, pairs, previous, folder), options, lambda _: details)
        for direction, stage in stages.items()
    )
    storage.remove(storage.join(folder, PARTIAL))
    previous.remove()
    return forward, backward


def _search_pairs(search: SearchRequest, pairs: ShardPairs, folder: str, options: Sequence[str]) -> None:
    """Search these pairs of shards into FOLDER/blocks."""
    stage = search.stage(folder, PARTIAL)
    sources, targets = ({shard.name: shard.checksum for shard in corpus.shards} for corpus in (search.source, search.target))
    inputs = {file: stage.key({"source": sources[source], "target": targets[target]}) for file, (source, target) in pairs.items()}
    num_pairs = len(search.source.shards) * len(search.target.shards)
    if len(pairs) < num_pairs:
        logger.info("search: %d of %d pairs of shards; the others were searched before", len(pairs), num_pairs)
    if pairs:
        run_stage(stage, inputs, SearchShardPair(search, stage.folder), options)


def _shard_inputs(stage: Stage, queries: Corpus, keys: Corpus) -> dict[str, str]:
    """Return what the neighbours of each shard depend on: the shard and all keys."""
    return {shard.name: stage.key({"shard": shard.checksum, "among": keys.key}) for shard in queries.shards}


class SearchShardPair(ShardTask):
    """Write one file with the neighbours of a source shard in a target shard, and the reverse."""

    row_unit = None
    shard_unit = "blocks"
    work_unit = "comparison"

    def __init__(self, search: SearchRequest, folder: str) -> None:
        self.search = search
        self.folder = folder
        self.uses_accelerator = search.device != CPU

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        sources, targets = ({shard.name: shard.rows for shard in corpus.shards} for corpus in (self.search.source, self.search.target))
        pairs = self.search.shard_pairs()
        return {name: sources[pairs[name][0]] * targets[pairs[name][1]] for name in names}

    def setup(self) -> None:
        from miner.search.blocks import BlockCache

        self.pairs = self.search.shard_pairs()
        device = choose_device(self.search.device)  # the worker may have a device that the driver lacks
        self.cache = BlockCache.of(device, self.search.block_bytes)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        source, target = self.pairs[name]
        forward, backward = self._search(source, target)
        schema = neighbours_schema(self.search.k).append(pa.field("direction", pa.string()))
        with storage.parquet_writer(storage.join(self.folder, name), schema) as writer:
            for corpus, shard, direction, neighbours in (
                (self.search.source, source, FORWARD, forward),
                (self.search.target, target, BACKWARD, backward),
            ):
                table = to_arrow(_read_ids(corpus, shard), neighbours)
                writer.write_table(table.append_column("direction", pa.array([direction] * len(table), pa.string())))
        return len(forward.ids) + len(backward.ids), {}

    def _search(self, source_shard: str, target_shard: str) -> tuple[Neighbours, Neighbours]:
        """Search every block of the source shard against every block of the target shard."""
        from miner.search.blocks import ShardReader, search_shards

        def reader(corpus: Corpus, side: str, shard: str) -> ShardReader:
            return ShardReader((side, shard), corpus.dim, lambda: corpus.vectors(shard))

        source, target = reader(self.search.source, "source", source_shard), reader(self.search.target, "target", target_shard)
        return search_shards(source, target, self.search.k, self.cache, add_work)


class MergePartialNeighbours(ShardTask):
    """Merge the neighbours of one shard from all pairs it is in, and its previous neighbours."""

    def __init__(self, direction: str, pairs: ShardPairs, previous: PreviousNeighbours, folder: str) -> None:
        self.direction = direction
        self.pairs = pairs
        self.previous = previous
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        parts = self._read_parts(name)
        ids, merged = next(parts)
        for _, neighbours in parts:
            merged = merged.merge(neighbours)
        storage.write_table(storage.join(self.folder, self.direction, name), to_arrow(ids, merged))
        return len(ids), {}

    def _read_parts(self, shard: str) -> Iterator[tuple[Ids, Neighbours]]:
        path = self.previous.path(self.direction, shard)
        if path is not None:
            yield from_arrow(storage.read_table(path))
        side = 0 if self.direction == FORWARD else 1
        for file, shards in self.pairs.items():
            if shards[side] == shard:
                table = storage.read_table(storage.join(self.folder, PARTIAL, file))
                yield from_arrow(table.filter(pc.equal(table["direction"], self.direction)))


def _read_ids(corpus: Corpus, shard: str) -> Ids:
    ids: Ids = storage.read_table(storage.join(corpus.folder, EMBEDDINGS, shard), ["id"])["id"].to_numpy()
    return ids


def to_arrow(ids: Ids, neighbours: Neighbours) -> pa.Table:
    """Return sentences (n,) and their neighbours as a table of `tables.neighbours_schema`."""
    columns = [
        pa.array(ids),
        pa.FixedSizeListArray.from_arrays(pa.array(neighbours.ids.ravel()), neighbours.k),
        pa.FixedSizeListArray.from_arrays(pa.array(neighbours.similarities.ravel()), neighbours.k),
    ]
    return pa.table(columns, schema=neighbours_schema(neighbours.k))


def from_arrow(table: pa.Table) -> tuple[Ids, Neighbours]:
    """Return the sentences (n,) and their neighbours from a table of `to_arrow`."""
    k = table.schema.field("neighbour_ids").type.list_size
    ids, similarities = (table[name].combine_chunks().flatten().to_numpy().reshape(-1, k) for name in ("neighbour_ids", "similarities"))
    return table["id"].to_numpy(), Neighbours(ids, similarities)


def read_neighbours(folder: str, shard: str) -> tuple[Ids, Neighbours]:
    """Return one shard of FOLDER/forward or FOLDER/backward."""
    return from_arrow(storage.read_table(storage.join(folder, shard)))
