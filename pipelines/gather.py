"""Gather: one id range of all that was scattered -> a shard of unique sentences that passed the filters, and those that did not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from miner import corpus, storage
from miner.storage import Shard, Stage
from miner.text import sentences
from miner.text.sifting import sift

DROPPED = "dropped"  # the stage's name and its folder's
COUNTED = ("unique", "duplicate")  # of every shard; its other counts are reasons


@dataclass(frozen=True)
class Scattered:
    """Where the sentences of all inputs lie, and in how many id ranges."""

    folder: str
    ranges: int

    def names(self) -> list[str]:
        """The shards they become."""
        return [storage.shard_name(index, self.ranges) for index in range(self.ranges)]


@dataclass(frozen=True)
class Sieve:
    """What a sentence must be."""

    lang: str  # its canonical code
    bounds: Mapping[str, float]  # by filter

    def gather(self, scattered: Scattered, name: str) -> tuple[pa.Table, pa.Table, dict[str, int]]:
        """The sentences of a shard, those that were dropped, and how many lines were dropped for each reason."""
        table, _ = sentences.gather(scattered.folder, storage.shard_index(name), scattered.ranges)
        return sift(table, self.lang, self.bounds)


@dataclass(frozen=True)
class Sifted:
    """Where the sentences of a shard are written, and those that were dropped, where they are kept at all."""

    folder: str
    dropped: Stage | None

    def write(self, name: str, kept: pa.Table, dropped: pa.Table) -> Mapping[str, int]:
        """Write both, what was dropped first: a shard that is done has all that belongs to it. Returns the counts of COUNTED."""
        if self.dropped is not None:
            storage.write_table(self.dropped.path(name), dropped)
            self.dropped.done(name, len(dropped), self.dropped.key())
        with storage.parquet_writer(storage.join(self.folder, name), kept.schema) as writer:
            corpus.write_row_groups(writer, kept)
        seen = int(np.sum(kept["count"].to_numpy(), dtype=np.int64))
        return dict(zip(COUNTED, (len(kept), seen - len(kept)), strict=True))


class Gather:
    """One range -> one shard."""

    def __init__(self, scattered: Scattered, sieve: Sieve, sifted: Sifted) -> None:
        self.scattered = scattered
        self.sieve = sieve
        self.sifted = sifted

    def setup(self) -> None:
        pass

    def make(self, name: str) -> tuple[int, Mapping[str, int]]:
        kept, dropped, reasons = self.sieve.gather(self.scattered, name)
        return len(kept), {**self.sifted.write(name, kept, dropped), **reasons}


def reasons(shards: Sequence[Shard]) -> Counter[str]:
    """How many lines the filters dropped, by reason."""
    total: Counter[str] = Counter()
    for shard in shards:
        total.update({name: count for name, count in shard.counts.items() if name not in COUNTED})
    return total
