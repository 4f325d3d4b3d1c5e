"""The search stage: two embedded corpora -> the k nearest neighbours of every sentence, in both directions.

An element is a block, a pair of shards: it is searched once for both directions. Then an element is a shard, whose partial
results are merged, before anything is made of them. So the neighbours do not depend on how the corpora are sharded.

Where corpora grew by further shards, only blocks with one of these are searched, and merged with what was found before. Many
targets are treated as if they grew, GROUP shards at a time: else the partial results of all blocks would lie on disk at once,
and there are as many of them for a sentence as the other side has shards.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner import storage
from miner.corpus import EMBEDDINGS, Corpus
from miner.encoders.transformer_parts import choose_device
from miner.search import neighbours
from miner.search.exact import VectorBlock, search_block, search_self
from miner.search.neighbours import Ids, Neighbours
from miner.stages import Manifest, Stage
from miner.tables import neighbours_schema
from pipelines.beam.runner import ShardTask, run_stage
from pipelines.search import reuse
from pipelines.search.reuse import PreviousNeighbours

BLOCKS, FORWARD, BACKWARD = "blocks", "forward", "backward"  # folders
logger = logging.getLogger(__name__)

GROUP = 32  # shards of targets whose partial results are on disk at a time
BLOCK_BYTES = 32 << 20  # of the float16 vectors of one side that are held at a time


@dataclass(frozen=True)
class SearchRequest:
    """What is searched, and how."""

    source: Corpus
    target: Corpus
    k: int
    device: str = "auto"
    within: bool = False  # source and target are one corpus, whose sentences are to be compared with the others

    def stage(self, folder: str, name: str) -> Stage:
        """The stage of FOLDER/name."""
        config = {"k": self.k, "dim": self.source.dim, "fingerprint": self.source.fingerprint, **({"within": True} if self.within else {})}
        kind = "search" if name == BLOCKS else "neighbours"
        return Stage(storage.join(folder, name), kind, config, {"source": self.source.key, "target": self.target.key})

    def sides(self) -> dict[str, tuple[Corpus, Corpus]]:
        """Direction -> whose neighbours, among which."""
        forward = {FORWARD: (self.source, self.target)}
        return forward if self.within else {**forward, BACKWARD: (self.target, self.source)}

    def block_names(self) -> dict[str, tuple[str, str]]:
        """Block -> its source shard and target shard. Within one corpus a pair of shards is one block, either way round."""
        rows, columns = enumerate(self.source.shards), list(enumerate(self.target.shards))
        pairs = ((i, j, row.name, column.name) for i, row in rows for j, column in columns if not self.within or i <= j)
        return {f"block-{i:05d}-{j:05d}.parquet": (row, column) for i, j, row, column in pairs}

    def parts(self, shard: str, direction: str, blocks: Mapping[str, tuple[str, str]]) -> list[tuple[str, str]]:
        """Where the neighbours of a shard of FORWARD or BACKWARD are: blocks, and the direction in them."""
        found = []
        for block, (row, column) in blocks.items():
            if row == shard and (self.within or direction == FORWARD):
                found.append((block, FORWARD))
            elif column == shard and (self.within or direction == BACKWARD):
                found.append((block, BACKWARD))
        return found


def run(search: SearchRequest, folder: str, options: Sequence[str] = ()) -> tuple[Manifest, Manifest]:
    """Fill FOLDER/forward with the neighbours of the source shards, and FOLDER/backward with those of the target shards.

    What is there already is kept. StorageError where it was found with another k or encoder.
    """
    known = reuse.targets(folder, search.source, search.target)
    new = [shard.name for shard in search.target.shards if shard.name not in known]
    for end in range(GROUP, len(new), GROUP):
        wanted = known.union(new[:end])
        logger.info("search: %d of %d shards of targets", len(wanted), len(search.target.shards))
        some = tuple(shard for shard in search.target.shards if shard.name in wanted)
        _grown(replace(search, target=replace(search.target, shards=some)), folder, options)
    forward, backward = _grown(search, folder, options)
    return forward, backward


def run_within(corpus: Corpus, k: int, folder: str, device: str = "auto", options: Sequence[str] = ()) -> Manifest:
    """Fill FOLDER/forward with the neighbours that every sentence of a corpus has among its others."""
    search = SearchRequest(corpus, corpus, k, device, within=True)
    (manifest,) = _grown(search, folder, options)
    return manifest


def _grown(search: SearchRequest, folder: str, options: Sequence[str]) -> list[Manifest]:
    """Search the blocks that were not yet, unless all is there, and merge them for each direction."""
    sides = search.sides()
    stages = {name: search.stage(folder, name) for name in sides}
    made_from = {name: _made_from(stages[name], *pair) for name, pair in sides.items()}
    for stage in stages.values():
        stage.start()
    known = reuse.nothing(folder) if search.within else reuse.keep(folder, search.source, search.target)
    blocks = {name: pair for name, pair in search.block_names().items() if not known.has(*pair)}
    if not all(stage.complete(made_from[name]) for name, stage in stages.items()):
        _search(search, blocks, folder, options)
    merging = {name: _MergeBlocks(search, blocks, known, folder, name) for name in stages}
    details = reuse.details(search.source, search.target)
    merged = [run_stage(stage, made_from[name], merging[name], options, lambda _: details) for name, stage in stages.items()]
    storage.remove(storage.join(folder, BLOCKS))
    known.remove()
    return merged


def _search(search: SearchRequest, wanted: Mapping[str, tuple[str, str]], folder: str, options: Sequence[str]) -> None:
    """Search some blocks into FOLDER/blocks."""
    blocks = search.stage(folder, BLOCKS)
    sources, targets = ({shard.name: shard.checksum for shard in corpus.shards} for corpus in (search.source, search.target))
    made_from = {name: blocks.key({"source": sources[row], "target": targets[column]}) for name, (row, column) in wanted.items()}
    if len(wanted) < len(search.block_names()):
        logger.info("search: %d of %d blocks; the others were searched before", len(wanted), len(search.block_names()))
    if wanted:
        run_stage(blocks, made_from, _SearchBlock(search, blocks.folder), options)


def _made_from(stage: Stage, queries: Corpus, keys: Corpus) -> dict[str, str]:
    """The neighbours of a shard are made from it and all of the other side."""
    return {shard.name: stage.key({"shard": shard.checksum, "among": keys.key}) for shard in queries.shards}


class _SearchBlock(ShardTask):
    """One block: the neighbours its sources have among its targets, and the reverse, in one file."""

    uses_accelerator = True
    row_unit = None
    shard_unit = "blocks"

    def __init__(self, search: SearchRequest, folder: str) -> None:
        self.search = search
        self.folder = folder

    def setup(self) -> None:
        self.shards = self.search.block_names()
        self.device = str(choose_device(self.search.device))  # of the worker, which may have what the driver lacks

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        row, column = self.shards[name]
        parts = [(self.search.source, row), (self.search.target, column)]
        if self.search.within and row == column:
            found = {FORWARD: self._within(row)}
        else:
            found = dict(zip((FORWARD, BACKWARD), self._between(row, column), strict=True))
        schema = neighbours_schema(self.search.k).append(pa.field("direction", pa.string()))
        with storage.parquet_writer(storage.join(self.folder, name), schema) as writer:
            for (corpus, shard), (direction, nearest) in zip(parts, found.items(), strict=False):
                table = to_arrow(_ids(corpus, shard), nearest)
                writer.write_table(table.append_column("direction", pa.array([direction] * len(table), pa.string())))
        return sum(len(each.ids) for each in found.values()), {}

    def _between(self, row: str, column: str) -> tuple[Neighbours, Neighbours]:
        """Both directions, a stretch of the one shard against a stretch of the other at a time."""
        k, forward, backward = self.search.k, [], []
        for source in _stretches(self.search.source, row):
            found = neighbours.none(len(source.ids), k)
            for number, target in enumerate(_stretches(self.search.target, column)):
                if number == len(backward):
                    backward.append(neighbours.none(len(target.ids), k))
                found, backward[number] = search_block(source, target, k, self.device, known=(found, backward[number]))
            forward.append(found)
        return neighbours.stack(forward), neighbours.stack(backward)

    def _within(self, shard: str) -> Neighbours:
        """One direction, which is both: every stretch of the shard against itself and those before it."""
        k, found = self.search.k, []
        for one in _stretches(self.search.source, shard):
            own = search_self(one, k, self.device)
            for number, other in zip(range(len(found)), _stretches(self.search.source, shard), strict=False):
                found[number], own = search_block(other, one, k, self.device, known=(found[number], own))
            found.append(own)
        return neighbours.stack(found)


def _stretches(corpus: Corpus, name: str) -> Iterator[VectorBlock]:
    """A shard in stretches of about BLOCK_BYTES; an empty one for an empty shard."""
    held: list[tuple[Ids, np.ndarray]] = []
    given = False
    for ids, vectors in corpus.vectors(name):
        held.append((ids, vectors))
        if sum(rows.nbytes for _, rows in held) >= BLOCK_BYTES:
            block, held, given = _join(held), [], True
            yield block  # and nothing else is held meanwhile
    if held or not given:
        block, held = _join(held or [(np.zeros(0, dtype=np.int64), np.zeros((0, corpus.dim), dtype=np.float16))]), []
        yield block


def _join(parts: list[tuple[Ids, np.ndarray]]) -> VectorBlock:
    return VectorBlock(np.concatenate([ids for ids, _ in parts]), np.concatenate([vectors for _, vectors in parts]))


class _MergeBlocks(ShardTask):
    """One shard: of the neighbours it has in each block, the nearest."""

    def __init__(
        self, search: SearchRequest, blocks: Mapping[str, tuple[str, str]], known: PreviousNeighbours, folder: str, direction: str
    ) -> None:
        self.search = search
        self.blocks = blocks
        self.known = known  # before these were searched
        self.folder = folder
        self.direction = direction

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        blocks = self.search.parts(name, self.direction, self.blocks)
        known = self.known.file(self.direction, name)
        parts = chain(
            [from_arrow(storage.read_table(known))] if known else [],
            (self._part(*part) for part in blocks),
        )
        ids, nearest = next(parts)
        for _, others in parts:
            nearest = nearest.merge(others)
        storage.write_table(storage.join(self.folder, self.direction, name), to_arrow(ids, nearest))
        return len(ids), {}

    def _part(self, block: str, direction: str) -> tuple[Ids, Neighbours]:
        table = storage.read_table(storage.join(self.folder, BLOCKS, block))
        return from_arrow(table.filter(pc.equal(table["direction"], direction)))


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
