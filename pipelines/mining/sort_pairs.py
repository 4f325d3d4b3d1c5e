"""Pairs with their texts, best first: ranges of sentences -> ranges of margins. A worker holds the texts of one range.

Samples of the pairs decide where one range of margins ends and the next begins.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from miner.arrays import Ints
from miner.config.probability import ProbabilityWeights
from miner.filters.pairs import probabilities_of
from miner.io import stages, table_files
from miner.io.corpus import Corpus, Span
from miner.io.tables import BITEXT, PROBABILITY
from miner.mining import writers
from miner.mining.writers import sort_best_first
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline
from pipelines.beam.shuffle import ShuffleSteps, StepOutput
from pipelines.mining.candidates import MiningLimits, SearchResult
from pipelines.mining.match import MatchedPairs, Written

ORDER = ("margin", "source_id", "target_id")
IDS = ("source_id", "target_id")
SAMPLE = "sample"  # metadata of a shuffled file


@dataclass(frozen=True)
class SortedPairs:
    """Parquet files of pairs, best first in the order of the files. The columns of BITEXT come first."""

    table: StepOutput

    def row_groups(self) -> Iterator[pa.Table]:
        """Yield tables of `writers.ROW_GROUP_PAIRS` rows, the last one smaller: an empty one if there are no rows."""
        pending: list[pa.Table] = []
        for uri in self.table.uris:
            with table_files.open_parquet(uri) as file:
                pending.append(file.schema_arrow.empty_table())
                for group in range(file.num_row_groups):
                    pending.append(file.read_row_group(group))
                    while sum(map(len, pending)) > writers.ROW_GROUP_PAIRS:
                        table = pa.concat_tables(pending)
                        yield table.slice(0, writers.ROW_GROUP_PAIRS)
                        pending = [table.slice(writers.ROW_GROUP_PAIRS)]
        yield pa.concat_tables(pending)


@dataclass(frozen=True)
class SideTexts:
    """The sentences of one side, to be joined to tables with their ids. Picklable."""

    side: str  # source or target
    corpus: Corpus
    spans: Mapping[str, Span]  # shard -> its first and last id

    @classmethod
    def of(cls, side: str, corpus: Corpus) -> "SideTexts":
        return cls(side, corpus, corpus.spans())

    def add_to(self, table: pa.Table) -> pa.Table:
        """Append the columns text, file and line of this side."""
        ids = table[f"{self.side}_id"].to_numpy()
        sentences = self.corpus.find(ids, self.spans).of(ids)
        for column, name in (("text", "text"), ("file", "source"), ("line", "line")):
            table = table.append_column(f"{self.side}_{column}", sentences[name])
        return table


def sort_matches(
    matches: MatchedPairs, search_result: SearchResult, weights: ProbabilityWeights | None, steps: ShuffleSteps, limits: MiningLimits
) -> Pipeline[SortedPairs]:
    """Join the pairs with their texts and, by `weights`, their probabilities, and sort them."""
    targets, sources = (SideTexts.of(side, getattr(search_result, side)) for side in ("target", "source"))
    target_ranges, source_ranges = shuffle.names(matches.target_ranges), shuffle.names(len(search_result.source.shards))
    pairs = yield from steps.apply(
        "target-texts", target_ranges, _add_target_texts, matches, targets, len(source_ranges), limits.margin_samples
    )
    ranges = choose_ranges(pairs.uris, matches.rows, limits)
    pairs = yield from steps.apply("source-texts", source_ranges, _add_source_texts, pairs, sources, ranges, weights)
    return (yield from _sort_ranges("pairs", pairs, ranges, steps))


def sort_rows(uris: Sequence[str], num_rows: int, steps: ShuffleSteps, limits: MiningLimits) -> Pipeline[SortedPairs]:
    """Sort rows that have their texts, from files of one range that `scatter_sampled` wrote."""
    ranges = choose_ranges(uris, num_rows, limits)
    rows = yield from steps.apply("by-margin", shuffle.names(len(uris)), _scatter_by_margin, uris, ranges)
    return (yield from _sort_ranges("ordered", rows, ranges, steps))


def scatter_sampled(uri: str, rows: pa.Table, num_samples: int) -> None:
    """Write rows that have their texts as a file of one range, for `sort_rows`."""
    shuffle.scatter(uri, rows, np.zeros(len(rows), dtype=np.int64), 1, _sample(rows, num_samples))


def _sample(table: pa.Table, num_samples: int) -> dict[str, str]:
    """Return evenly spaced rows of the sorted table, as metadata of a file."""
    rows = np.linspace(0, len(table) - 1, min(len(table), num_samples)).astype(int)
    samples = table.select(ORDER).sort_by([("margin", "descending")]).take(pa.array(rows))
    return {SAMPLE: json.dumps([samples[name].to_pylist() for name in ORDER])}


@dataclass(frozen=True)
class MarginRanges:
    """The first row of each range but the first: margins, source ids and target ids (n,)."""

    margins: Sequence[float]
    sources: Sequence[int]
    targets: Sequence[int]

    @property
    def count(self) -> int:
        return len(self.margins) + 1

    def of(self, table: pa.Table) -> Ints:
        """Return the ranges (m,), from 0, of the rows (m,) of a table."""
        starts = (self.margins, self.sources, self.targets)
        dtypes = (np.float64, np.int64, np.int64)
        margins, sources, targets = (
            np.concatenate([np.array(start, dtype), table[name].to_numpy()])
            for start, dtype, name in zip(starts, dtypes, ORDER, strict=True)
        )
        rows = np.lexsort((targets, sources, -margins))  # stable: a start comes before a row that is equal to it
        ranges = np.empty(len(rows), dtype=np.int64)
        ranges[rows] = np.cumsum(rows < len(self.margins))
        return ranges[len(self.margins) :]


def choose_ranges(uris: Sequence[str], num_rows: int, limits: MiningLimits) -> MarginRanges:
    """Choose ranges of about `margin_range_rows` rows, by the samples in the files that hold the rows."""
    samples = [json.loads(metadata[SAMPLE]) for metadata in shuffle.metadata_of(uris)]
    margins, sources, targets = (
        np.array([value for sample in samples for value in sample[column]], dtype)
        for column, dtype in enumerate((np.float64, np.int64, np.int64))
    )
    order = np.lexsort((targets, sources, -margins))
    count = min(math.ceil(num_rows / limits.margin_range_rows), len(order) + 1)
    starts = order[np.arange(1, count) * len(order) // max(1, count)]
    return MarginRanges(margins[starts].tolist(), sources[starts].tolist(), targets[starts].tolist())


def _add_target_texts(index: int, uri: str, matches: MatchedPairs, targets: SideTexts, source_ranges: int, num_samples: int) -> Written:
    """Join the pairs of one range of targets with the targets' texts, and send them to the ranges of sources."""
    pairs = matches.of_target_range(index)
    columns = [pairs.source_ids, pairs.target_ids, pairs.margins, pairs.similarities.astype("f4")]
    table = pa.table([pa.array(column) for column in columns], names=[*IDS, "margin", "similarity"])
    table = targets.add_to(table)
    shuffle.scatter_by_id(uri, table, "source_id", source_ranges, _sample(table, num_samples))
    return len(table), {}


def _add_source_texts(
    index: int, uri: str, pairs: StepOutput, sources: SideTexts, ranges: MarginRanges, weights: ProbabilityWeights | None
) -> Written:
    """Join the pairs of one range of sources with the sources' texts, and send them to the ranges of margins."""
    table = sources.add_to(pairs.gather(index)).select(BITEXT.names)
    if weights is not None:
        table = table.append_column(PROBABILITY, pa.array(probabilities_of(table, weights)))
    shuffle.scatter(uri, table, ranges.of(table), ranges.count)
    return len(table), {}


def _scatter_by_margin(index: int, uri: str, uris: Sequence[str], ranges: MarginRanges) -> Written:
    """Send the rows of one file to the ranges of margins."""
    table = shuffle.read(uris[index], 0)
    shuffle.scatter(uri, table, ranges.of(table), ranges.count)
    return len(table), {}


def _sort_ranges(name: str, rows: StepOutput, ranges: MarginRanges, steps: ShuffleSteps) -> Pipeline[SortedPairs]:
    shards = [stages.shard_name(index, ranges.count) for index in range(ranges.count)]
    return SortedPairs((yield from steps.apply(name, shards, _sort_range, rows)))


def _sort_range(index: int, uri: str, rows: StepOutput) -> Written:
    """Sort the rows of one range of margins."""
    table = sort_best_first(rows.gather(index))
    with table_files.parquet_writer(uri, table.schema) as writer:
        writer.write_table(table, row_group_size=writers.ROW_GROUP_PAIRS)
    return len(table), {}
