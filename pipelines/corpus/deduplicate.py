"""Deduplicate and filter: one id range of all scattered files becomes a shard of unique sentences, and one of dropped sentences.

Optionally, near-duplicates are collapsed across id ranges: the keys of the filtered sentences are sent to key ranges, each is resolved, and
the changes are sent back to the id ranges. The files of these steps are in `OUTPUT/.near_duplicates` until the sentences are complete.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner.arrays import Floats
from miner.errors import DataError
from miner.filters.sentences import apply_sentence_filters
from miner.io import corpus, stages, storage, table_files
from miner.io.corpus import Span
from miner.io.stages import Shard, Stage
from miner.io.tables import DROPPED_SENTENCES, check_ids
from miner.text import near_duplicates
from miner.text.sharding import IngestSizes
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline
from pipelines.beam.shuffle import ShuffleSteps, StepOutput
from pipelines.beam.tasks import ShardTask
from pipelines.corpus.scatter import ScatteredFiles

DROPPED = "dropped"  # name of the stage and of its folder
KEPT = "kept"  # folder of the steps that collapse near-duplicates
NEAR_DUPLICATE = "near_duplicate"  # a reason
SHARD_COUNTS = ("unique", "duplicate")  # counts that every shard has; the others are reasons of filters


@dataclass(frozen=True)
class SentenceFilter:
    """The filters of a corpus, and its language."""

    lang: str  # canonical code
    bounds: Mapping[str, float]  # filter -> bound
    lang_id_model: str | None  # file of a fastText model that identifies languages

    def apply(self, table: pa.Table) -> tuple[pa.Table, pa.Table, Mapping[str, int]]:
        """Return the sentences that pass the filters, the others as DROPPED_SENTENCES, and the dropped lines by reason."""
        if not self.bounds:  # the default: saves the conversion of texts to strings
            return table, DROPPED_SENTENCES.empty_table(), {}
        decisions = apply_sentence_filters(table["text"].to_pylist(), self.lang, self.bounds, self.lang_id_model)
        dropped = _add_reasons(table.filter(pa.array(~decisions.kept)), *decisions.drop_reasons())
        return table.filter(pa.array(decisions.kept)), dropped, decisions.counts(table["count"].to_numpy().astype(np.int64))


def _add_reasons(dropped: pa.Table, reasons: Sequence[str], scores: Floats) -> pa.Table:
    """Return n sentences with the reasons (n,) and scores (n,) for which they were dropped, as DROPPED_SENTENCES."""
    dropped = dropped.append_column("reason", pa.array(reasons, pa.string()))
    return dropped.append_column("score", pa.array(scores, pa.float64())).cast(DROPPED_SENTENCES)


@dataclass(frozen=True)
class SentenceWriter:
    """Where the shards of sentences are written, and those of dropped sentences, if these are kept."""

    folder: str
    dropped: Stage | None
    dropped_key: str  # fingerprint of the inputs of the shards of dropped sentences
    sizes: IngestSizes

    def write(self, name: str, kept: pa.Table, dropped: pa.Table) -> Mapping[str, int]:
        """Write both shards and return the SHARD_COUNTS. Dropped sentences come first: a finished shard has its dropped sentences."""
        if self.dropped is not None:
            table_files.write_table(self.dropped.path(name), dropped)
            self.dropped.mark_done(name, len(dropped), self.dropped_key)
        text_bytes = pc.sum(pc.binary_length(kept["text"]), min_count=0).as_py()
        with table_files.parquet_writer(storage.join(self.folder, name), kept.schema) as writer:
            writer.write_table(kept, row_group_size=self.sizes.group_rows(len(kept), text_bytes))
        num_lines = int(np.sum(kept["count"].to_numpy(), dtype=np.int64))
        return dict(zip(SHARD_COUNTS, (len(kept), num_lines - len(kept)), strict=True))


class DeduplicateTask(ShardTask):
    """Write the new sentences of one id range that pass the filters as a shard."""

    processed_counts = frozenset({"unique"})

    def __init__(self, scattered: ScatteredFiles, previous: Sequence[str], sentence_filter: SentenceFilter, writer: SentenceWriter) -> None:
        self.scattered = scattered
        self.previous = previous  # URIs of the shards of earlier increments
        self.sentence_filter = sentence_filter
        self.writer = writer

    def setup(self) -> None:
        self.previous_spans = corpus.id_spans(self.previous)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        new = _exclude_previous(self.scattered.gather(name), self.previous_spans)
        kept, dropped, counts = self.sentence_filter.apply(new)
        return len(kept), {**self.writer.write(name, kept, dropped), **counts}


def _exclude_previous(table: pa.Table, spans: Mapping[str, Span]) -> pa.Table:
    """Remove earlier sentences {shard: first and last id} from a table sorted by id, one of their row groups in memory at a time.

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


class CollapseTask(ShardTask):
    """Write one id range of the sentences without near-duplicates as a shard."""

    processed_counts = frozenset({"unique"})

    def __init__(self, filtered: tuple[str, str], changes: StepOutput, writer: SentenceWriter) -> None:
        self.filtered = filtered  # folders of the sentences that passed the filters, and of the others
        self.changes = changes
        self.writer = writer

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        passed, filtered_out = (table_files.read_table(storage.join(folder, name)) for folder in self.filtered)
        kept, removed = near_duplicates.apply_changes(passed, self.changes.gather(stages.shard_index(name)))
        removed = _add_reasons(removed, [NEAR_DUPLICATE] * len(removed), np.full(len(removed), np.nan))
        dropped = pa.concat_tables([filtered_out, removed]).unify_dictionaries().combine_chunks()
        return len(kept), {**self.writer.write(name, kept, dropped), NEAR_DUPLICATE: len(removed)}


def collapse(
    scattered: ScatteredFiles, sentence_filter: SentenceFilter, writer: SentenceWriter, steps: ShuffleSteps
) -> Pipeline[tuple[CollapseTask, Mapping[str, int]]]:
    """Filter every id range and resolve every key range. Return the task that writes the shards, and the lines that the filters dropped."""
    filtered = steps.place(KEPT), steps.place(DROPPED)
    ranges = shuffle.names(scattered.num_ranges)
    keyed = yield from steps.apply("by-key", ranges, _filter_range, scattered, sentence_filter, filtered)
    changes = yield from steps.apply("changes-by-id", ranges, _resolve_key_range, keyed)
    return CollapseTask(filtered, changes, writer), keyed.counts


def _filter_range(
    index: int, uri: str, scattered: ScatteredFiles, sentence_filter: SentenceFilter, folders: tuple[str, str]
) -> tuple[int, Mapping[str, int]]:
    """Filter one id range, and send the keys of the sentences that pass to the key ranges."""
    name = scattered.shard_names()[index]
    kept, dropped, counts = sentence_filter.apply(scattered.gather(name))
    for folder, table in zip(folders, (kept, dropped), strict=True):
        table_files.write_table(storage.join(folder, name), table)
    shuffle.scatter_by_id(uri, near_duplicates.add_keys(kept), "key", scattered.num_ranges)
    return len(kept), counts


def _resolve_key_range(index: int, uri: str, keyed: StepOutput) -> tuple[int, Mapping[str, int]]:
    """Resolve the near-duplicates of one key range, and send the changes to the id ranges."""
    changes = near_duplicates.find_changes(keyed.gather(index))
    shuffle.scatter_by_id(uri, changes, "id", len(keyed.shards))
    return len(changes), {}


def count_dropped_lines(shards: Sequence[Shard]) -> Counter[str]:
    """Return how many lines the filters dropped, by reason."""
    total: Counter[str] = Counter()
    for shard in shards:
        total.update({name: count for name, count in shard.counts.items() if name not in SHARD_COUNTS})
    return total
