"""Pairs with their texts, best first, from ranges of sentences to ranges of margins: a worker holds the texts of one.

Where one range of margins ends and the next begins is told by samples of the pairs.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from miner import stages, storage
from miner.corpus import Corpus, Span
from miner.mining import writers
from miner.mining.gold import Pairs
from miner.stages import Manifest
from miner.tables import BITEXT
from pipelines.beam import shuffle
from pipelines.beam.runner import ShardTask
from pipelines.beam.shuffle import Numbers, ShuffleSteps
from pipelines.mining.candidates import SearchResult
from pipelines.mining.match import MatchedPairs, best_first

RANGE = 1 << 19  # pairs in one range of margins, about
SAMPLE = 256  # of the pairs of one element
KEY = ("margin", "source_id", "target_id")
IDS = ("source_id", "target_id")


@dataclass(frozen=True)
class SortedPairs:
    """Rows of the schema BITEXT, or of one that begins so, best first in the order of the shards."""

    folder: str
    manifest: Manifest

    def parts(self) -> Iterator[pa.Table]:
        """Tables of `writers.ROWS` rows, but for the last: one that is empty where there are none."""
        held: list[pa.Table] = []
        for shard in self.manifest.shards:
            with storage.open_parquet(storage.join(self.folder, shard.name)) as file:
                held.append(file.schema_arrow.empty_table())
                for group in range(file.num_row_groups):
                    held.append(file.read_row_group(group))
                    while sum(map(len, held)) > writers.ROWS:
                        table = pa.concat_tables(held)
                        yield table.slice(0, writers.ROWS)
                        held = [table.slice(writers.ROWS)]
        yield pa.concat_tables(held)


def order(pairs: MatchedPairs, found: SearchResult, wanted: Pairs, steps: ShuffleSteps) -> SortedPairs:
    """The pairs with their texts. The shards count under `right` which of them are wanted."""
    targets, sources = shuffle.names(pairs.targets), shuffle.names(len(found.source.shards))
    steps.run("targets", targets, _TargetTexts(pairs, found.target, len(sources), steps.place("targets")))
    ranks = ranks_of([storage.join(steps.place("targets"), name) for name in targets], pairs.rows)
    steps.run("sources", sources, _SourceTexts(steps.place("targets"), targets, found.source, ranks, steps.place("sources")))
    return _sorted("pairs", steps.place("sources"), sources, ranks, wanted, steps)


def order_rows(uris: Sequence[str], rows: int, steps: ShuffleSteps) -> SortedPairs:
    """Rows that have their texts, of files of one batch that `exchange.scatter` wrote with a `sample`."""
    ranks, names = ranks_of(uris, rows), shuffle.names(len(uris))
    steps.run("dealt", names, _Deal(uris, ranks, steps.place("dealt")))
    return _sorted("ordered", steps.place("dealt"), names, ranks, frozenset(), steps)


def _sorted(name: str, folder: str, shards: Sequence[str], ranks: "MarginRanges", wanted: Pairs, steps: ShuffleSteps) -> SortedPairs:
    parts = [stages.shard_name(index, ranks.count) for index in range(ranks.count)]
    return SortedPairs(steps.place(name), steps.run(name, parts, _Sort(folder, shards, wanted, steps.place(name))))


def with_texts(table: pa.Table, side: str, corpus: Corpus, spans: Mapping[str, Span]) -> pa.Table:
    """Append the sentences of one side, and where they come from, to a table with their ids."""
    ids = table[f"{side}_id"].to_numpy()
    found = corpus.find(ids, spans).of(ids)
    for column, name in (("text", "text"), ("file", "source"), ("line", "line")):
        table = table.append_column(f"{side}_{column}", found[name])
    return table


def sample(table: pa.Table) -> dict[str, str]:
    """Some rows by which the ranges are chosen, as metadata of a file."""
    rows = np.linspace(0, len(table) - 1, min(len(table), SAMPLE)).astype(int)
    picked = table.select(KEY).sort_by([("margin", "descending")]).take(pa.array(rows))
    return {"sample": json.dumps([picked[name].to_pylist() for name in KEY])}


@dataclass(frozen=True)
class MarginRanges:
    """Where each range of the order but the first begins: margins, source ids and target ids (n,)."""

    margins: Sequence[float]
    sources: Sequence[int]
    targets: Sequence[int]

    @property
    def count(self) -> int:
        return len(self.margins) + 1

    def of(self, table: pa.Table) -> Numbers:
        """(m,) the ranges of the rows of a table, from 0."""
        starts = (self.margins, self.sources, self.targets)
        kinds = (np.float64, np.int64, np.int64)
        keys = [
            np.concatenate([np.array(start, kind), table[name].to_numpy()]) for start, kind, name in zip(starts, kinds, KEY, strict=True)
        ]
        rows = np.lexsort((keys[2], keys[1], -keys[0]))  # stable: a start stands before a row that is equal to it
        numbers = np.empty(len(rows), dtype=np.int64)
        numbers[rows] = np.cumsum(rows < len(self.margins))
        return numbers[len(self.margins) :]


def ranks_of(uris: Sequence[str], rows: int) -> MarginRanges:
    """Ranges of about RANGE rows, by the samples in files that hold so many."""
    samples = [json.loads(shuffle.metadata_of(uri)["sample"]) for uri in uris]
    margins, sources, targets = (
        np.array([value for found in samples for value in found[at]], kind) for at, kind in enumerate((np.float64, np.int64, np.int64))
    )
    order = np.lexsort((targets, sources, -margins))
    count = min(math.ceil(rows / RANGE), len(order) + 1)
    starts = order[np.arange(1, count) * len(order) // max(1, count)]
    return MarginRanges(margins[starts].tolist(), sources[starts].tolist(), targets[starts].tolist())


class _TargetTexts(ShardTask):
    """One range of targets -> its pairs with the targets' texts, by the range of the sources."""

    row_unit = None

    def __init__(self, pairs: MatchedPairs, corpus: Corpus, ranges: int, folder: str) -> None:
        self.pairs = pairs
        self.corpus = corpus
        self.ranges = ranges
        self.folder = folder

    def setup(self) -> None:
        self.spans = self.corpus.spans()

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        pairs = self.pairs.of_target(stages.shard_index(name))
        columns = [pairs.source_ids, pairs.target_ids, pairs.margins, pairs.similarities.astype("f4")]
        table = pa.table([pa.array(column) for column in columns], names=[*IDS, "margin", "similarity"])
        table = with_texts(table, "target", self.corpus, self.spans)
        shuffle.scatter_by_id(storage.join(self.folder, name), table, "source_id", self.ranges, sample(table))
        return len(table), {}


class _SourceTexts(ShardTask):
    """One range of sources -> its pairs with all texts, by the range of the margins."""

    row_unit = None

    def __init__(self, others: str, shards: Sequence[str], corpus: Corpus, ranks: MarginRanges, folder: str) -> None:
        self.others = others
        self.shards = shards
        self.corpus = corpus
        self.ranks = ranks
        self.folder = folder

    def setup(self) -> None:
        self.spans = self.corpus.spans()

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        table = shuffle.gather(self.others, self.shards, stages.shard_index(name))
        table = with_texts(table, "source", self.corpus, self.spans).select(BITEXT.names)
        shuffle.scatter(storage.join(self.folder, name), table, self.ranks.of(table), self.ranks.count)
        return len(table), {}


class _Deal(ShardTask):
    """Rows in any order -> the same, by the range of the margins."""

    row_unit = None

    def __init__(self, uris: Sequence[str], ranks: MarginRanges, folder: str) -> None:
        self.uris = uris
        self.ranks = ranks
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        table = shuffle.read(self.uris[stages.shard_index(name)], 0)
        shuffle.scatter(storage.join(self.folder, name), table, self.ranks.of(table), self.ranks.count)
        return len(table), {}


class _Sort(ShardTask):
    """One range of margins -> its rows, best first."""

    row_unit = None
    processed_counts = frozenset({"right"})

    def __init__(self, others: str, shards: Sequence[str], wanted: Pairs, folder: str) -> None:
        self.others = others
        self.shards = shards
        self.wanted = wanted
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        table = best_first(shuffle.gather(self.others, self.shards, stages.shard_index(name)))
        with storage.parquet_writer(storage.join(self.folder, name), table.schema) as writer:
            writer.write_table(table, row_group_size=writers.ROWS)
        pairs = zip(*(table[column].to_pylist() for column in IDS), strict=True) if self.wanted else ()
        right = sum(pair in self.wanted for pair in pairs)
        return len(table), {"right": right}
