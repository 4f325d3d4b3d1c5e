"""The exact search stage: two embedded corpora -> the k nearest neighbours of every sentence, in both directions.

First an element is a pair of groups of shards, which is searched once for both directions. Then an element is a shard, whose partial
neighbours are merged. So the neighbours do not depend on how the corpora are sharded or grouped. A group has about the square root of the
number of shards, so each shard is read as many times, not once for each shard of the other side.

Where corpora grew by further shards, only pairs with a new shard are searched, and merged with the previous neighbours. Many target groups
are processed as if the target grew, `target_groups_per_pass` at a time: otherwise the partial neighbours of all pairs of groups would be on
disk at once, one entry for each sentence and group of the other side.
"""

import itertools
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from miner.arrays import Ids, Vectors
from miner.devices import CPU, choose_device, has_torch
from miner.io import storage, table_files
from miner.io.corpus import Corpus
from miner.io.stages import EMBEDDINGS, NEIGHBOURS, Manifest, Stage
from miner.io.tables import neighbours_schema
from miner.progress import add_work
from miner.search import dense
from miner.search.cost_model import shards_per_group
from miner.search.neighbours import Neighbours
from miner.search.readers import ShardReader
from pipelines.beam.runner import Pipeline, run_stage, run_stages
from pipelines.beam.tasks import READ_BYTES, ShardTask, StageRun
from pipelines.search import previous_neighbours
from pipelines.search.previous_neighbours import PreviousNeighbours

if TYPE_CHECKING:
    from miner.search.blocks import BlockCache

PARTIAL, FORWARD, BACKWARD = "blocks", "forward", "backward"  # folders

TARGET_GROUPS_PER_PASS = 32
FIRST_SHARE = 0.01  # of the pairs of groups, by which the expected time of a search is checked
MAX_FIRST_SHARE = 0.1  # of the comparisons that these pairs may have

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchRequest:
    """What to search, and how."""

    source: Corpus
    target: Corpus
    k: int
    device: str = "auto"
    block_bytes: int | None = None  # of the float16 vectors of one side that are searched at a time; None: by the device
    shards_per_group: int | None = None  # None: by the numbers of shards
    target_groups_per_pass: int = TARGET_GROUPS_PER_PASS

    def stage(self, folder: str, name: str) -> Stage:
        """Return the stage of FOLDER/name."""
        config = {"k": self.k, "dim": self.source.dim, "fingerprint": self.source.fingerprint}
        kind = "search" if name == PARTIAL else NEIGHBOURS
        return Stage(storage.join(folder, name), kind, config, {"source": self.source.key, "target": self.target.key})

    def sides(self) -> dict[str, tuple[Corpus, Corpus]]:
        """Return the queries and keys of each direction."""
        return {FORWARD: (self.source, self.target), BACKWARD: (self.target, self.source)}

    @property
    def group_shards(self) -> int:
        """The shards of a group."""
        shards = len(self.source.shards), len(self.target.shards)
        return self.shards_per_group or shards_per_group(shards, (self.source.rows, self.target.rows))


@dataclass(frozen=True)
class GroupPair:
    """Shards of both sides that are searched together, into one file: a row group for each source shard, then for each target shard."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]

    def sides(self) -> dict[str, tuple[str, ...]]:
        """Return the shards of each side."""
        return {"source": self.sources, "target": self.targets}

    def row_groups(self, direction: str) -> dict[str, int]:
        """Return the row group of each shard of a direction."""
        first, shards = (0, self.sources) if direction == FORWARD else (len(self.sources), self.targets)
        return {shard: first + number for number, shard in enumerate(shards)}


ShardOfSide = tuple[str, str]  # source or target, and the name of the shard
GroupPairs = Mapping[str, GroupPair]  # by the file of their partial neighbours


def plan_group_pairs(search: SearchRequest, previous: PreviousNeighbours) -> dict[str, GroupPair]:
    """Return the pairs of groups that the previous neighbours do not cover. A group has new shards only, or none."""
    sources = _groups(search.source, previous.source, search.group_shards)
    targets = _groups(search.target, previous.target, search.group_shards)
    return {
        f"block-{i:05d}-{j:05d}.parquet": GroupPair(source, target)
        for i, source in sources.items()
        for j, target in targets.items()
        if not previous.covers(source[0], target[0])
    }


def _groups(corpus: Corpus, previous: Container[str], size: int) -> dict[int, tuple[str, ...]]:
    """Return groups of shards by the number of their first shard."""
    groups = {}
    for is_new in (False, True):
        shards = [(number, shard.name) for number, shard in enumerate(corpus.shards) if (shard.name not in previous) == is_new]
        for start in range(0, len(shards), size):
            group = shards[start : start + size]
            groups[group[0][0]] = tuple(name for _, name in group)
    return groups


def run(search: SearchRequest, folder: str) -> Pipeline[tuple[Manifest, Manifest]]:
    """Write the neighbours of the source shards to FOLDER/forward and those of the target shards to FOLDER/backward.

    Complete shards are kept. Raises StorageError if they were searched with another k or encoder.
    """
    search = replace(search, shards_per_group=search.group_shards)  # of all shards, in every pass
    previous = previous_neighbours.previous_targets(folder, search.source, search.target)
    new = [shard.name for shard in search.target.shards if shard.name not in previous]
    step = search.target_groups_per_pass * search.group_shards
    for end in range(step, len(new), step):
        names = previous.union(new[:end])
        logger.info("search: %d of %d target shards", len(names), len(search.target.shards))
        shards = tuple(shard for shard in search.target.shards if shard.name in names)
        yield from _search_pass(replace(search, target=replace(search.target, shards=shards)), folder)
    return (yield from _search_pass(search, folder))


@dataclass(frozen=True)
class FirstPairs:
    """What the first pairs of groups took."""

    seconds: float
    share: float  # of all comparisons


def search_first_pairs(search: SearchRequest, folder: str) -> Pipeline[FirstPairs | None]:
    """Search the first per cent of the pairs of groups, which `run` keeps; None, and nothing is searched, if one pair is a large part."""
    search = replace(search, shards_per_group=search.group_shards)
    pairs = plan_group_pairs(search, PreviousNeighbours(folder, {}, {}, {}))
    count = min(math.ceil(FIRST_SHARE * len(pairs)), search.target_groups_per_pass)
    first = dict(itertools.islice(pairs.items(), count))
    rows = [search.source.count_rows(pair.sources) * search.target.count_rows(pair.targets) for pair in first.values()]
    share = sum(rows) / (search.source.rows * search.target.rows)
    if share > MAX_FIRST_SHARE:
        return None
    start = time.perf_counter()
    yield from _search_pairs(search, first, folder)
    return FirstPairs(time.perf_counter() - start, share)


def _search_pass(search: SearchRequest, folder: str) -> Pipeline[tuple[Manifest, Manifest]]:
    """Search the pairs of shards that the previous neighbours do not cover, and merge them for each direction."""
    stages = {direction: search.stage(folder, direction) for direction in search.sides()}
    inputs = {direction: _shard_inputs(stages[direction], *sides) for direction, sides in search.sides().items()}
    for stage in stages.values():
        stage.start()
    previous = previous_neighbours.keep_previous(folder, search.source, search.target)
    pairs = plan_group_pairs(search, previous)
    if not all(stage.is_complete(inputs[direction]) for direction, stage in stages.items()):
        yield from _search_pairs(search, pairs, folder)
    details = previous_neighbours.manifest_details(search.source, search.target)
    forward, backward = yield from run_stages(
        [
            StageRun(stage, inputs[direction], MergePartialNeighbours(direction, pairs, previous, folder), lambda _: details)
            for direction, stage in stages.items()
        ]
    )
    storage.remove(storage.join(folder, PARTIAL))
    previous.remove()
    return forward, backward


def _search_pairs(search: SearchRequest, pairs: GroupPairs, folder: str) -> Pipeline[None]:
    """Search these pairs of groups into FOLDER/blocks."""
    stage = search.stage(folder, PARTIAL)
    corpora = {"source": search.source, "target": search.target}
    checksums = {side: {shard.name: shard.checksum for shard in corpus.shards} for side, corpus in corpora.items()}
    inputs = {
        file: stage.key({f"{side}/{name}": checksums[side][name] for side, names in pair.sides().items() for name in names})
        for file, pair in pairs.items()
    }
    num_searched = sum(len(pair.sources) * len(pair.targets) for pair in pairs.values())
    num_pairs = len(search.source.shards) * len(search.target.shards)
    if num_searched < num_pairs:
        logger.info("search: %d of %d pairs of shards", num_searched, num_pairs)
    if pairs:
        yield from run_stage(stage, inputs, SearchGroupPair(search, pairs, stage.folder))


def _shard_inputs(stage: Stage, queries: Corpus, keys: Corpus) -> dict[str, str]:
    """Return what the neighbours of each shard depend on: the shard and all keys."""
    return {shard.name: stage.key({"shard": shard.checksum, "keys": keys.key}) for shard in queries.shards}


class SearchGroupPair(ShardTask):
    """Write one file with the neighbours of a group of source shards in a group of target shards, and the reverse."""

    row_unit = None
    shard_unit = "blocks"
    work_unit = "comparison"
    processed_counts = frozenset({READ_BYTES})

    def __init__(self, search: SearchRequest, pairs: GroupPairs, folder: str) -> None:
        self.search = search
        self.pairs = pairs
        self.folder = folder
        self.uses_accelerator = search.device != CPU

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        sources, targets = ({shard.name: shard.rows for shard in corpus.shards} for corpus in (self.search.source, self.search.target))
        return {
            name: sum(sources[shard] for shard in self.pairs[name].sources) * sum(targets[shard] for shard in self.pairs[name].targets)
            for name in names
        }

    def setup(self) -> None:
        self.device = choose_device(self.search.device)  # the worker may have a device that the driver lacks

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        pair, read_bytes, ids = self.pairs[name], Counter[str](), dict[ShardOfSide, Ids]()
        shards: dict[str, list[ShardOfSide]] = {side: [(side, shard) for shard in names] for side, names in pair.sides().items()}
        sources, targets = ([self._reader(shard, read_bytes, ids) for shard in side] for side in shards.values())
        neighbours = dict(zip(shards, self._search_shards(name, sources, targets), strict=True))
        num_rows = 0
        with table_files.parquet_writer(storage.join(self.folder, name), neighbours_schema(self.search.k)) as writer:
            for side, parts in neighbours.items():
                for shard, part in zip(shards[side], parts, strict=True):
                    is_read = shard in ids  # not if its vectors were still on the device
                    table = to_arrow(ids[shard] if is_read else _read_ids(self._corpus(shard), shard[1]), part)
                    writer.write_table(table, row_group_size=max(1, len(table)))
                    num_rows += len(table)
        return num_rows, read_bytes

    def _search_shards(
        self, name: str, sources: Sequence[ShardReader], targets: Sequence[ShardReader]
    ) -> tuple[list[Neighbours], list[Neighbours]]:
        """Search the shards of a pair of groups, without torch where they are small or it is not installed."""
        pair = self.pairs[name]
        num_sources, num_targets = self.search.source.count_rows(pair.sources), self.search.target.count_rows(pair.targets)
        is_small = dense.is_small(num_sources, num_targets, self.search.source.dim)
        if not has_torch() or (is_small and self.device == CPU and self.search.block_bytes is None):
            return dense.search_shards(sources, targets, self.search.k, add_work)
        from miner.search.blocks import search_shards

        return search_shards(sources, targets, self.search.k, self.cache, add_work)

    @cached_property
    def cache(self) -> "BlockCache":
        """The blocks on the device of the worker."""
        import torch

        from miner.search.blocks import BlockCache

        return BlockCache.of(torch.device(self.device), self.search.block_bytes)

    def _corpus(self, shard: ShardOfSide) -> Corpus:
        return self.search.source if shard[0] == "source" else self.search.target

    def _reader(self, shard: ShardOfSide, read_bytes: Counter[str], ids: dict[ShardOfSide, Ids]) -> ShardReader:
        """Return the reader of a shard, which counts the bytes of the vectors that it reads, and records their ids."""
        corpus = self._corpus(shard)

        def read() -> Iterator[tuple[Ids, Vectors]]:
            parts = [np.zeros(0, dtype=np.int64)]
            for group_ids, vectors in corpus.vectors(shard[1]):
                read_bytes[READ_BYTES] += vectors.nbytes
                parts.append(group_ids)
                yield group_ids, vectors
            ids[shard] = np.concatenate(parts)

        return ShardReader(shard, corpus.dim, read)


class MergePartialNeighbours(ShardTask):
    """Merge the neighbours of one shard from all pairs of groups it is in, and its previous neighbours."""

    def __init__(self, direction: str, pairs: GroupPairs, previous: PreviousNeighbours, folder: str) -> None:
        self.direction = direction
        self.pairs = pairs
        self.previous = previous
        self.folder = folder

    def setup(self) -> None:
        self.parts = defaultdict[str, list[tuple[str, int]]](list)  # shard -> file and row group
        for file, pair in self.pairs.items():
            for shard, row_group in pair.row_groups(self.direction).items():
                self.parts[shard].append((file, row_group))

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        parts = self._read_parts(name)
        ids, merged = next(parts)
        for _, neighbours in parts:
            merged = merged.merge(neighbours)
        table_files.write_table(storage.join(self.folder, self.direction, name), to_arrow(ids, merged))
        return len(ids), {}

    def _read_parts(self, shard: str) -> Iterator[tuple[Ids, Neighbours]]:
        path = self.previous.path(self.direction, shard)
        if path is not None:
            yield from_arrow(table_files.read_table(path))
        for file, row_group in self.parts[shard]:
            # A pass reads each row group once: its pages have checksums, and those of the other shards are not read.
            yield from_arrow(table_files.read_row_group(storage.join(self.folder, PARTIAL, file), row_group))


def _read_ids(corpus: Corpus, shard: str) -> Ids:
    ids: Ids = table_files.read_table(storage.join(corpus.folder, EMBEDDINGS, shard), ["id"])["id"].to_numpy()
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
    return from_arrow(table_files.read_table(storage.join(folder, shard)))
