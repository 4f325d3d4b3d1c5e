"""The search stage: two embedded corpora -> the k nearest neighbours of every sentence, in both directions.

An element is a block, a pair of shards: it is searched once for both directions. Then an element is a shard, whose partial
results are merged, before anything is made of them. So the neighbours do not depend on how the corpora are sharded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner import storage
from miner.corpus import EMBEDDINGS, Corpus
from miner.encoders.transformer_parts import choose_device
from miner.search import neighbours
from miner.search.exact import Block, search_block
from miner.search.neighbours import Ids, Neighbours
from miner.storage import Manifest, Stage
from miner.tables import neighbours_schema
from pipelines.runner import run_stage

BLOCKS, FORWARD, BACKWARD = "blocks", "forward", "backward"  # folders
BLOCK_BYTES = 64 << 20  # of the float16 vectors of one side that are held at a time


@dataclass(frozen=True)
class Search:
    """What is searched, and how."""

    source: Corpus
    target: Corpus
    k: int
    device: str = "auto"

    def stage(self, folder: str, name: str) -> Stage:
        """The stage of FOLDER/name."""
        config = {"k": self.k, "dim": self.source.dim, "fingerprint": self.source.fingerprint}
        kind = "search" if name == BLOCKS else "neighbours"
        return Stage(storage.join(folder, name), kind, config, {"source": self.source.key, "target": self.target.key})

    def block_names(self) -> dict[str, tuple[str, str]]:
        """Block -> its source shard and target shard."""
        rows, columns = enumerate(self.source.shards), list(enumerate(self.target.shards))
        return {f"block-{i:05d}-{j:05d}.parquet": (row.name, column.name) for i, row in rows for j, column in columns}


def run(search: Search, folder: str, options: Sequence[str] = ()) -> tuple[Manifest, Manifest]:
    """Fill FOLDER/forward with the neighbours of the source shards, and FOLDER/backward with those of the target shards.

    What is there already is kept. StorageError where it was found with another k or encoder.
    """
    blocks, forward, backward = (search.stage(folder, name) for name in (BLOCKS, FORWARD, BACKWARD))
    made_forward, made_backward = _made_from(forward, search.source, search.target), _made_from(backward, search.target, search.source)
    for stage in (forward, backward):
        stage.start()
    if not (_complete(forward, made_forward) and _complete(backward, made_backward)):
        sources, targets = ({shard.name: shard.checksum for shard in corpus.shards} for corpus in (search.source, search.target))
        made_blocks = {
            name: blocks.key({"source": sources[row], "target": targets[column]}) for name, (row, column) in search.block_names().items()
        }
        run_stage(blocks, made_blocks, _SearchBlock(search, blocks.folder), options)
    merged = [
        run_stage(forward, made_forward, _MergeBlocks(search, blocks.folder, forward.folder, FORWARD), options),
        run_stage(backward, made_backward, _MergeBlocks(search, blocks.folder, backward.folder, BACKWARD), options),
    ]
    storage.remove(blocks.folder)
    return merged[0], merged[1]


def _made_from(stage: Stage, queries: Corpus, keys: Corpus) -> dict[str, str]:
    """The neighbours of a shard are made from it and all of the other side."""
    return {shard.name: stage.key({"shard": shard.checksum, "among": keys.key}) for shard in queries.shards}


def _complete(stage: Stage, made_from: Mapping[str, str]) -> bool:
    manifest = storage.join(stage.folder, storage.MANIFEST)
    return storage.exists(manifest) and all(stage.finished(name, made) is not None for name, made in made_from.items())


class _SearchBlock:
    """One block: the neighbours its sources have among its targets, and the reverse, in one file."""

    def __init__(self, search: Search, folder: str) -> None:
        self.search = search
        self.folder = folder

    def setup(self) -> None:
        self.shards = self.search.block_names()
        self.device = str(choose_device(self.search.device))  # of the worker, which may have what the driver lacks

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        row, column = self.shards[name]
        forward, backward = self._neighbours(row, column)
        parts = ((FORWARD, self.search.source, row, forward), (BACKWARD, self.search.target, column, backward))
        schema = neighbours_schema(self.search.k).append(pa.field("direction", pa.string()))
        with storage.parquet_writer(storage.join(self.folder, name), schema) as writer:
            for direction, corpus, shard, found in parts:
                table = to_arrow(_ids(corpus, shard), found)
                writer.write_table(table.append_column("direction", pa.array([direction] * len(table), pa.string())))
        return sum(len(found.ids) for _, _, _, found in parts), {}

    def _neighbours(self, row: str, column: str) -> tuple[Neighbours, Neighbours]:
        """Both directions, a stretch of the one shard against a stretch of the other at a time."""
        forward, backward = [], []
        for source in _stretches(self.search.source, row):
            targets = _stretches(self.search.target, column)
            found, reverse = zip(*(search_block(source, target, self.search.k, self.device) for target in targets), strict=True)
            forward.append(neighbours.merge_all(found))
            backward = [neighbours.merge_all([*backward, neighbours.stack(reverse)])]
        return neighbours.stack(forward), backward[0]


def _stretches(corpus: Corpus, name: str) -> Iterator[Block]:
    """A shard in stretches of about BLOCK_BYTES; an empty one for an empty shard."""
    held: list[tuple[Ids, np.ndarray]] = []
    given = False
    for ids, vectors in corpus.vectors(name):
        held.append((ids, vectors))
        if sum(rows.nbytes for _, rows in held) >= BLOCK_BYTES:
            yield _join(held)
            held, given = [], True
    if held or not given:
        yield _join(held or [(np.zeros(0, dtype=np.int64), np.zeros((0, corpus.dim), dtype=np.float16))])


def _join(parts: list[tuple[Ids, np.ndarray]]) -> Block:
    return Block(np.concatenate([ids for ids, _ in parts]), np.concatenate([vectors for _, vectors in parts]))


class _MergeBlocks:
    """One shard: of the neighbours it has in each block, the nearest."""

    def __init__(self, search: Search, blocks: str, folder: str, direction: str) -> None:
        self.search = search
        self.blocks = blocks
        self.folder = folder
        self.direction = direction

    def setup(self) -> None:
        self.parts: dict[str, list[str]] = {}
        for block, (row, column) in self.search.block_names().items():
            self.parts.setdefault(row if self.direction == FORWARD else column, []).append(block)

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        parts = (self._part(block) for block in self.parts[name])
        ids, found = next(parts)
        for _, others in parts:
            found = found.merge(others)
        storage.write_table(storage.join(self.folder, name), to_arrow(ids, found))
        return len(ids), {}

    def _part(self, block: str) -> tuple[Ids, Neighbours]:
        table = storage.read_table(storage.join(self.blocks, block))
        return from_arrow(table.filter(pc.equal(table["direction"], self.direction)))


def _ids(corpus: Corpus, name: str) -> Ids:
    ids: Ids = storage.read_table(storage.join(corpus.folder, EMBEDDINGS, name), ["id"])["id"].to_numpy()
    return ids


def to_arrow(ids: Ids, found: Neighbours) -> pa.Table:
    """Sentences (n,) and their neighbours -> a table of `tables.neighbours_schema`."""
    columns = [
        pa.array(ids),
        pa.FixedSizeListArray.from_arrays(pa.array(found.ids.ravel()), found.k),
        pa.FixedSizeListArray.from_arrays(pa.array(found.similarities.ravel()), found.k),
    ]
    return pa.table(columns, schema=neighbours_schema(found.k))


def from_arrow(table: pa.Table) -> tuple[Ids, Neighbours]:
    """What `to_arrow` was given."""
    k = table.schema.field("neighbour_ids").type.list_size
    ids, similarities = (table[name].combine_chunks().flatten().to_numpy().reshape(-1, k) for name in ("neighbour_ids", "similarities"))
    return table["id"].to_numpy(), Neighbours(ids, similarities)


def read_neighbours(folder: str, name: str) -> tuple[Ids, Neighbours]:
    """One shard of FOLDER/forward or FOLDER/backward."""
    return from_arrow(storage.read_table(storage.join(folder, name)))
