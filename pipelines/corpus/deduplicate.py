"""Gather: one id range of all that was scattered -> a shard of unique sentences that passed the filters, and those that did not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner import corpus, stages, storage
from miner.corpus import Span
from miner.errors import DataError
from miner.stages import Shard, Stage
from miner.text import sentences
from miner.text.filtering import sift
from pipelines.beam.runner import ShardTask

DROPPED = "dropped"  # the stage's name and its folder's
COUNTED = ("unique", "duplicate")  # of every shard; its other counts are reasons


@dataclass(frozen=True)
class ScatteredFiles:
    """Where the sentences of the inputs of one part lie, and in how many id ranges."""

    folder: str
    ranges: int
    part: int = 0  # the others came later

    def names(self) -> list[str]:
        """The shards they become."""
        suffix = f".{self.part}.parquet" if self.part else ".parquet"
        return [stages.shard_name(index, self.ranges, suffix) for index in range(self.ranges)]


@dataclass(frozen=True)
class PreviousSentences:
    """The sentences of the parts before."""

    uris: Sequence[str] = ()

    def spans(self) -> dict[str, Span]:
        """Where there are sentences, and the ids between which these are."""
        return {uri: ends for uri in self.uris if (ends := corpus.id_span(uri)) is not None}

    @staticmethod
    def leave_out(table: pa.Table, spans: Mapping[str, Span]) -> pa.Table:
        """Sentences by id without those that are known; a row group of these is held at a time. DataError where an id has two texts."""
        ids = table["id"].to_numpy()
        new = np.ones(len(ids), dtype=bool)
        for uri, (first, last) in spans.items():
            if len(ids) and first <= ids[-1] and ids[0] <= last:
                for held in corpus.row_groups(uri, ["id", "text"]):
                    held = held.filter(pa.array(np.isin(held["id"].to_numpy(), ids)))
                    places = np.searchsorted(ids, held["id"].to_numpy())
                    new[places] = False
                    texts = table["text"].take(places)
                    other = ~pc.equal(held["text"], texts).to_numpy()
                    if other.any():
                        one, two = (str(column.filter(pa.array(other))[0])[:60] for column in (held["text"], texts))
                        raise DataError(f"{one!r} ({uri}) and {two!r} have the same id; take one of them out")
        return table.filter(pa.array(new))


@dataclass(frozen=True)
class SentenceFilter:
    """What a sentence must be."""

    lang: str  # its canonical code
    bounds: Mapping[str, float]  # by filter

    def gather(
        self, scattered: ScatteredFiles, name: str, known: Mapping[str, Span] | None = None
    ) -> tuple[pa.Table, pa.Table, dict[str, int]]:
        """The sentences of a shard that are not known, those that were dropped, and how many lines were dropped for each reason."""
        table, _ = sentences.gather(scattered.folder, stages.shard_index(name), scattered.ranges)
        return sift(PreviousSentences.leave_out(table, known or {}), self.lang, self.bounds)


@dataclass(frozen=True)
class FilteredSentences:
    """Where the sentences of a shard are written, and those that were dropped, where they are kept at all."""

    folder: str
    dropped: tuple[Stage, str] | None  # and the key of what they are made from

    def write(self, name: str, kept: pa.Table, dropped: pa.Table) -> Mapping[str, int]:
        """Write both, what was dropped first: a shard that is done has all that belongs to it. Returns the counts of COUNTED."""
        if self.dropped is not None:
            stage, made_from = self.dropped
            storage.write_table(stage.path(name), dropped)
            stage.mark_done(name, len(dropped), made_from)
        with storage.parquet_writer(storage.join(self.folder, name), kept.schema) as writer:
            corpus.write_row_groups(writer, kept)
        seen = int(np.sum(kept["count"].to_numpy(), dtype=np.int64))
        return dict(zip(COUNTED, (len(kept), seen - len(kept)), strict=True))


class DeduplicateTask(ShardTask):
    """One range -> one shard."""

    processed_counts = frozenset({"unique"})

    def __init__(self, scattered: ScatteredFiles, sieve: SentenceFilter, sifted: FilteredSentences, known: PreviousSentences) -> None:
        self.scattered = scattered
        self.sieve = sieve
        self.sifted = sifted
        self.known = known

    def setup(self) -> None:
        self.spans = self.known.spans()

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        kept, dropped, reasons = self.sieve.gather(self.scattered, name, self.spans)
        return len(kept), {**self.sifted.write(name, kept, dropped), **reasons}


def reasons(shards: Sequence[Shard]) -> Counter[str]:
    """How many lines the filters dropped, by reason."""
    total: Counter[str] = Counter()
    for shard in shards:
        total.update({name: count for name, count in shard.counts.items() if name not in COUNTED})
    return total
