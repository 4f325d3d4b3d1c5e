"""Collapse near-duplicates among sentences of all id ranges: gather by range, meet by key, and come back by range.

What is on its way lies under `OUTPUT/.keyed` and `OUTPUT/.changes` until the sentences are complete.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from miner import stages, storage
from miner.stages import Shard, Stage
from miner.tables import DROPPED_SENTENCES
from miner.text import near_duplicates
from pipelines.beam.runner import ShardTask, run_stage
from pipelines.corpus.deduplicate import DROPPED, FilteredSentences, ScatteredFiles, SentenceFilter

NEAR_DUPLICATE = "near_duplicate"
SUFFIX = ".arrow"
KEYED, CHANGES = ".keyed", ".changes"


class NearDuplicateCollapse(ShardTask):
    """One id range of the collapsed sentences -> one shard. `prepare` makes what all ranges need of each other."""

    processed_counts = frozenset({"unique"})

    def __init__(self, output: str, scattered: ScatteredFiles, sifted: FilteredSentences) -> None:
        self.keyed, self.changes = storage.join(output, KEYED), storage.join(output, CHANGES)
        self.scattered = scattered
        self.sifted = sifted

    def prepare(self, sieve: SentenceFilter, made_from: str, options: Sequence[str]) -> Sequence[Shard]:
        """Gather and sift every range, and compare the keys of all; returns the shards that were sifted."""
        names = [_arrow(name) for name in self.scattered.names()]
        keyed = Stage(self.keyed, "keyed", {}, {"sentences": made_from})
        done = run_stage(keyed, dict.fromkeys(names, keyed.key()), _Key(self.keyed, self.scattered, sieve), options)
        changes = Stage(self.changes, "changes", {}, {shard.name: shard.checksum for shard in done.shards})
        run_stage(changes, dict.fromkeys(names, changes.key()), _Change(self.keyed, self.changes, names), options)
        return done.shards

    def remove(self) -> None:
        """Clear away what lay on the way."""
        for folder in (self.keyed, self.changes):
            storage.remove(folder)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        told = [storage.join(self.changes, _arrow(other)) for other in self.scattered.names()]
        index, ranges = stages.shard_index(name), self.scattered.ranges
        kept, gone = near_duplicates.apply(storage.join(self.keyed, _arrow(name)), told, index, ranges)
        dropped = pa.concat_tables([storage.read_table(storage.join(self.keyed, DROPPED, name)), _told_of(gone)]).unify_dictionaries()
        return len(kept), {**self.sifted.write(name, kept, dropped.combine_chunks()), NEAR_DUPLICATE: len(gone)}


def _arrow(name: str) -> str:
    return name.removesuffix(".parquet") + SUFFIX


def _told_of(gone: pa.Table) -> pa.Table:
    columns = {"reason": pa.array([NEAR_DUPLICATE] * len(gone), pa.string()), "score": pa.array(np.full(len(gone), np.nan))}
    for name, column in columns.items():
        gone = gone.append_column(name, column)
    return gone.cast(DROPPED_SENTENCES)


class _Key(ShardTask):
    """One id range -> its sentences that passed the filters, by key range; and those that did not."""

    def __init__(self, folder: str, scattered: ScatteredFiles, sieve: SentenceFilter) -> None:
        self.folder = folder
        self.scattered = scattered
        self.sieve = sieve

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        shard = name.removesuffix(SUFFIX) + ".parquet"
        kept, dropped, reasons = self.sieve.gather(self.scattered, shard)
        storage.write_table(storage.join(self.folder, DROPPED, shard), dropped)
        near_duplicates.write_keyed(storage.join(self.folder, name), kept, self.scattered.ranges)
        return len(kept), reasons


class _Change(ShardTask):
    """One key range of all sentences -> what becomes of them, by id range."""

    def __init__(self, keyed: str, folder: str, names: Sequence[str]) -> None:
        self.files = [storage.join(keyed, name) for name in names]
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        return near_duplicates.changes(self.files, stages.shard_index(name), storage.join(self.folder, name), len(self.files)), {}
