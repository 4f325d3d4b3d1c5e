"""Collapse near-duplicates across id ranges: send the keys of the filtered sentences to key ranges, resolve each, write by id range.

Intermediate files are in `OUTPUT/.near_duplicates` until the sentences are complete.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from miner.io import stages, storage, table_files
from miner.io.tables import DROPPED_SENTENCES
from miner.text import near_duplicates
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline
from pipelines.beam.shuffle import ShuffleSteps, StepOutput
from pipelines.beam.tasks import ShardTask
from pipelines.corpus.deduplicate import DROPPED, SentenceFilter, SentenceWriter
from pipelines.corpus.scatter import ScatteredFiles

NEAR_DUPLICATE = "near_duplicate"
STEPS = ".near_duplicates"
KEPT = "kept"


@dataclass(frozen=True)
class FilteredFolders:
    """The sentences of each id range that pass the filters, and those that do not, in a Parquet file each."""

    kept: str
    dropped: str

    def write(self, name: str, kept: pa.Table, dropped: pa.Table) -> None:
        for folder, table in ((self.kept, kept), (self.dropped, dropped)):
            table_files.write_table(storage.join(folder, name), table)

    def read(self, name: str) -> tuple[pa.Table, pa.Table]:
        kept, dropped = (table_files.read_table(storage.join(folder, name)) for folder in (self.kept, self.dropped))
        return kept, dropped


class NearDuplicateCollapse(ShardTask):
    """Write one id range of the collapsed sentences as a shard."""

    processed_counts = frozenset({"unique"})

    def __init__(self, filtered: FilteredFolders, changes: StepOutput, writer: SentenceWriter) -> None:
        self.filtered = filtered
        self.changes = changes
        self.writer = writer

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        passed, filtered_out = self.filtered.read(name)
        kept, removed = near_duplicates.apply_changes(passed, self.changes.gather(stages.shard_index(name)))
        dropped = pa.concat_tables([filtered_out, _as_dropped(removed)]).unify_dictionaries().combine_chunks()
        return len(kept), {**self.writer.write(name, kept, dropped), NEAR_DUPLICATE: len(removed)}


def collapse(
    scattered: ScatteredFiles, sentence_filter: SentenceFilter, writer: SentenceWriter, steps: ShuffleSteps
) -> Pipeline[tuple[NearDuplicateCollapse, Mapping[str, int]]]:
    """Filter every id range and resolve every key range. Return the task that writes the shards, and the lines that the filters dropped."""
    filtered = FilteredFolders(steps.place(KEPT), steps.place(DROPPED))
    ranges = shuffle.names(scattered.num_ranges)
    keyed = yield from steps.apply("keyed", ranges, _filter_range, scattered, sentence_filter, filtered)
    changes = yield from steps.apply("changes", ranges, _resolve_key_range, keyed)
    return NearDuplicateCollapse(filtered, changes, writer), keyed.counts


def _filter_range(
    index: int, uri: str, scattered: ScatteredFiles, sentence_filter: SentenceFilter, folders: FilteredFolders
) -> tuple[int, Mapping[str, int]]:
    """Filter one id range, and send the keys of the sentences that pass to the key ranges."""
    name = scattered.shard_names()[index]
    filtered = sentence_filter.apply(scattered.gather(name))
    folders.write(name, filtered.kept, filtered.dropped)
    shuffle.scatter_by_id(uri, near_duplicates.add_keys(filtered.kept), "key", scattered.num_ranges)
    return len(filtered.kept), filtered.counts


def _resolve_key_range(index: int, uri: str, keyed: StepOutput) -> tuple[int, Mapping[str, int]]:
    """Resolve the near-duplicates of one key range, and send the changes to the id ranges."""
    changes = near_duplicates.find_changes(keyed.gather(index))
    shuffle.scatter_by_id(uri, changes, "id", len(keyed.shards))
    return len(changes), {}


def _as_dropped(removed: pa.Table) -> pa.Table:
    """Add reason and score to near-duplicates."""
    reasons, scores = pa.array([NEAR_DUPLICATE] * len(removed), pa.string()), pa.array(np.full(len(removed), np.nan))
    return removed.append_column("reason", reasons).append_column("score", scores).cast(DROPPED_SENTENCES)
