"""Deduplicate and filter: one id range of all scattered files becomes a shard of unique sentences, and one of dropped sentences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from miner.errors import DataError
from miner.filters.sentences import apply_sentence_filters
from miner.io import corpus, storage, table_files
from miner.io.corpus import Span
from miner.io.stages import Shard, Stage
from miner.io.tables import DROPPED_SENTENCES, check_ids
from miner.text.sharding import IngestSizes
from pipelines.beam.tasks import ShardTask
from pipelines.corpus.scatter import ScatteredFiles

DROPPED = "dropped"  # name of the stage and of its folder
SHARD_COUNTS = ("unique", "duplicate")  # of every shard; its other counts are reasons of filters


class DeduplicateTask(ShardTask):
    """Write the new sentences of one id range that pass the filters as a shard."""

    processed_counts = frozenset({"unique"})

    def __init__(
        self, scattered: ScatteredFiles, previous: "PreviousSentences", sentence_filter: "SentenceFilter", writer: "SentenceWriter"
    ) -> None:
        self.scattered = scattered
        self.previous = previous
        self.sentence_filter = sentence_filter
        self.writer = writer

    def setup(self) -> None:
        self.previous_spans = self.previous.id_spans()

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        new = self.previous.exclude_from(self.scattered.gather(name), self.previous_spans)
        filtered = self.sentence_filter.apply(new)
        return len(filtered.kept), {**self.writer.write(name, filtered.kept, filtered.dropped), **filtered.counts}


@dataclass(frozen=True)
class PreviousSentences:
    """The sentences of earlier increments, as the URIs of their shards."""

    uris: Sequence[str] = ()

    def id_spans(self) -> dict[str, Span]:
        """Return the first and the last id of every shard that is not empty."""
        return corpus.id_spans(self.uris)

    @staticmethod
    def exclude_from(table: pa.Table, spans: Mapping[str, Span]) -> pa.Table:
        """Remove earlier sentences from a table sorted by id, one of their row groups in memory at a time.

        Raises DataError if an earlier sentence has the same id, but another text.
        """
        ids = table["id"].to_numpy()
        is_new = np.ones(len(ids), dtype=bool)
        for uri, (first, last) in spans.items():
            if len(ids) and first <= ids[-1] and ids[0] <= last:
                for previous in table_files.read_row_groups(uri, ["id", "text"]):
                    previous = previous.filter(pa.array(np.isin(previous["id"].to_numpy(), ids)))
                    check_ids(uri, previous)
                    rows = np.searchsorted(ids, previous["id"].to_numpy())
                    is_new[rows] = False
                    _check_texts(previous["text"], table["text"].take(rows), uri)
        return table.filter(pa.array(is_new))


def _check_texts(previous: pa.ChunkedArray, texts: pa.ChunkedArray, uri: str) -> None:
    is_collision = ~pc.equal(previous, texts).to_numpy()
    if is_collision.any():
        previous_text, text = (str(column.filter(pa.array(is_collision))[0])[:60] for column in (previous, texts))
        raise DataError(f"{previous_text!r} ({uri}) and {text!r} have the same id; remove one of them")


@dataclass(frozen=True)
class FilteredTable:
    """The outcome of the filters for a table of sentences."""

    kept: pa.Table
    dropped: pa.Table  # of the schema DROPPED_SENTENCES
    counts: Mapping[str, int]  # reason -> dropped lines


@dataclass(frozen=True)
class SentenceFilter:
    """The filters of a corpus, and its language."""

    lang: str  # canonical code
    bounds: Mapping[str, float]  # filter -> bound
    lang_id_model: str | None  # file of a fastText model that identifies languages

    def apply(self, table: pa.Table) -> FilteredTable:
        """Split a table of sentences into those that pass the filters and those that do not."""
        if not self.bounds:  # the default: saves the conversion of texts to strings
            return FilteredTable(table, DROPPED_SENTENCES.empty_table(), {})
        decisions = apply_sentence_filters(table["text"].to_pylist(), self.lang, self.bounds, self.lang_id_model)
        reasons, scores = decisions.drop_reasons()
        dropped = table.filter(pa.array(~decisions.kept)).append_column(DROPPED_SENTENCES.field("reason"), pa.array(reasons, pa.string()))
        dropped = dropped.append_column(DROPPED_SENTENCES.field("score"), pa.array(scores, pa.float64()))
        counts = decisions.counts(table["count"].to_numpy().astype(np.int64))
        return FilteredTable(table.filter(pa.array(decisions.kept)), dropped.cast(DROPPED_SENTENCES), counts)


@dataclass(frozen=True)
class DroppedShards:
    """Where dropped sentences are written."""

    stage: Stage
    key: str  # of the inputs of the shards

    def write(self, name: str, dropped: pa.Table) -> None:
        """Write a shard of dropped sentences and its marker."""
        table_files.write_table(self.stage.path(name), dropped)
        self.stage.mark_done(name, len(dropped), self.key)


@dataclass(frozen=True)
class SentenceWriter:
    """Where the shards of sentences are written, and those of dropped sentences, if these are kept."""

    folder: str
    dropped: DroppedShards | None
    sizes: IngestSizes

    def write(self, name: str, kept: pa.Table, dropped: pa.Table) -> Mapping[str, int]:
        """Write both shards and return the SHARD_COUNTS. Dropped sentences come first: a finished shard has its dropped sentences."""
        if self.dropped is not None:
            self.dropped.write(name, dropped)
        with table_files.parquet_writer(storage.join(self.folder, name), kept.schema) as writer:
            self._write_row_groups(writer, kept)
        num_lines = int(np.sum(kept["count"].to_numpy(), dtype=np.int64))
        return dict(zip(SHARD_COUNTS, (len(kept), num_lines - len(kept)), strict=True))

    def _write_row_groups(self, writer: pq.ParquetWriter, table: pa.Table) -> None:
        """Write row groups of `row_group_rows`, or fewer rows if the average text is long."""
        text_bytes = pc.sum(pc.binary_length(table["text"]), min_count=0).as_py()
        writer.write_table(table, row_group_size=self.sizes.group_rows(len(table), text_bytes))


def count_dropped_lines(shards: Sequence[Shard]) -> Counter[str]:
    """Return how many lines the filters dropped, by reason."""
    total: Counter[str] = Counter()
    for shard in shards:
        total.update({name: count for name, count in shard.counts.items() if name not in SHARD_COUNTS})
    return total
