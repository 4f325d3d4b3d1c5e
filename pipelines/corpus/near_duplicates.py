"""Collapse near-duplicates across id ranges: group the filtered sentences by key range, resolve each key range, write by id range.

Intermediate files are in `OUTPUT/.keyed` and `OUTPUT/.changes` until the sentences are complete.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from miner import stages, storage, table_files
from miner.stages import Shard, Stage
from miner.tables import DROPPED_SENTENCES
from miner.text import near_duplicates
from miner.text.sharding import ARROW_SUFFIX
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline, ShardTask, run_stage
from pipelines.corpus.deduplicate import DROPPED, SentenceFilter, SentenceWriter
from pipelines.corpus.scatter import ScatteredFiles

NEAR_DUPLICATE = "near_duplicate"
KEYED, CHANGES = ".keyed", ".changes"


class NearDuplicateCollapse(ShardTask):
    """Write one id range of the collapsed sentences as a shard. `prepare` must have resolved all near-duplicates before."""

    processed_counts = frozenset({"unique"})

    def __init__(self, output: str, scattered: ScatteredFiles, writer: SentenceWriter) -> None:
        self.keyed_folder, self.changes_folder = storage.join(output, KEYED), storage.join(output, CHANGES)
        self.scattered = scattered
        self.writer = writer

    def prepare(self, sentence_filter: SentenceFilter, inputs_key: str) -> Pipeline[Sequence[Shard]]:
        """Filter every id range and resolve every key range; return the filtered shards."""
        names = [shuffle.arrow_name(name) for name in self.scattered.shard_names()]
        keyed = Stage(self.keyed_folder, "keyed", {}, {"sentences": inputs_key})
        key_task = _KeyTask(self.keyed_folder, self.scattered, sentence_filter)
        filtered = yield from run_stage(keyed, dict.fromkeys(names, keyed.key()), key_task)
        changes = Stage(self.changes_folder, "changes", {}, {shard.name: shard.checksum for shard in filtered.shards})
        resolve_task = _ResolveTask(self.keyed_folder, self.changes_folder, names)
        yield from run_stage(changes, dict.fromkeys(names, changes.key()), resolve_task)
        return filtered.shards

    def remove_intermediates(self) -> None:
        """Remove the intermediate files."""
        for folder in (self.keyed_folder, self.changes_folder):
            storage.remove(folder)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        keyed_file = storage.join(self.keyed_folder, shuffle.arrow_name(name))
        change_files = [storage.join(self.changes_folder, shuffle.arrow_name(shard)) for shard in self.scattered.shard_names()]
        kept, removed = near_duplicates.apply_changes(keyed_file, change_files, stages.shard_index(name), self.scattered.num_ranges)
        filtered_out = table_files.read_table(storage.join(self.keyed_folder, DROPPED, name))
        dropped = pa.concat_tables([filtered_out, _as_dropped(removed)]).unify_dictionaries().combine_chunks()
        return len(kept), {**self.writer.write(name, kept, dropped), NEAR_DUPLICATE: len(removed)}


def _as_dropped(removed: pa.Table) -> pa.Table:
    """Add reason and score to near-duplicates."""
    reasons, scores = pa.array([NEAR_DUPLICATE] * len(removed), pa.string()), pa.array(np.full(len(removed), np.nan))
    return removed.append_column("reason", reasons).append_column("score", scores).cast(DROPPED_SENTENCES)


class _KeyTask(ShardTask):
    """Filter one id range; write the sentences that pass grouped by key range, and the dropped ones beside them."""

    def __init__(self, folder: str, scattered: ScatteredFiles, sentence_filter: SentenceFilter) -> None:
        self.folder = folder
        self.scattered = scattered
        self.sentence_filter = sentence_filter

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        shard = name.removesuffix(ARROW_SUFFIX) + ".parquet"
        filtered = self.sentence_filter.apply(self.scattered.gather(shard))
        table_files.write_table(storage.join(self.folder, DROPPED, shard), filtered.dropped)
        near_duplicates.write_keyed(storage.join(self.folder, name), filtered.kept, self.scattered.num_ranges)
        return len(filtered.kept), filtered.counts


class _ResolveTask(ShardTask):
    """Resolve the near-duplicates of one key range; write the changes grouped by id range."""

    def __init__(self, keyed_folder: str, folder: str, names: Sequence[str]) -> None:
        self.keyed_files = [storage.join(keyed_folder, name) for name in names]
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        uri, num_ranges = storage.join(self.folder, name), len(self.keyed_files)
        return near_duplicates.resolve_key_range(self.keyed_files, stages.shard_index(name), uri, num_ranges), {}
