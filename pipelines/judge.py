"""What the filters of pairs say of candidates, and a record of those they drop."""

import contextlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from miner import storage
from miner.config import DecideSettings
from miner.filters import hubs, language
from miner.filters.pairs import PAIR_FILTERS, Pairs, judge_pairs
from miner.tables import DROPPED_PAIRS
from pipelines.candidates import Searched

DROPPED = "dropped.parquet"

IDS = ("source_id", "target_id")


class Judge:
    """Says why a pair is to be dropped; made by `judge_of`."""

    def __init__(self, found: Searched, bounds: dict[str, float], record: pq.ParquetWriter | None) -> None:
        self.bounds = bounds
        self.languages = found.source.lang, found.target.lang
        self.record = record
        self.counts = Counter({known.reason: 0 for name, known in PAIR_FILTERS.items() if name in bounds})  # of pairs dropped
        self.k = found.k
        self.crowds = _crowds(found) if "hubs" in bounds else None

    def __call__(self, pairs: pa.Table) -> pa.Array:
        """n pairs of the schema BITEXT -> (n,) the reason to drop each, null where it stays."""
        texts = (pairs[name].to_pylist() for name in ("source_text", "target_text"))
        verdicts = judge_pairs(Pairs(*texts, self.languages, self._crowd_of(pairs)), self.bounds)
        self.counts.update(verdicts.counts())
        reasons, scores = verdicts.why()
        if self.record is not None:
            dropped = pairs.filter(pa.array(~verdicts.kept))
            self.record.write_table(pa.table([*dropped.columns, pa.array(reasons, pa.string()), pa.array(scores)], schema=DROPPED_PAIRS))
        told = np.full(len(pairs), None, dtype=object)
        told[~verdicts.kept] = reasons
        return pa.array(told, pa.string())

    def _crowd_of(self, pairs: pa.Table) -> npt.NDArray[np.float64]:
        if self.crowds is None:
            return np.full(len(pairs), np.nan)
        return np.maximum(*(crowd.of(pairs[name].to_numpy()) for crowd, name in zip(self.crowds, IDS, strict=True))) / self.k


def _crowds(found: Searched) -> list[hubs.Times]:
    """In how many candidates the sentences of each side are, whatever the margin."""
    shards = storage.read_manifest(found.folder).shards
    tables = [storage.read_table(storage.join(found.folder, shard.name), IDS) for shard in shards]
    return [hubs.times(np.concatenate([table[name].to_numpy() for table in tables])) for name in IDS]


def check(settings: DecideSettings) -> None:
    """ConfigError where a filter that is on needs what is not installed."""
    if settings.pair_filters.languages is not None:
        language.check()


def judge_of(found: Searched, settings: DecideSettings, record: pq.ParquetWriter | None = None) -> Judge | None:
    """The judge of these settings, None where no filter is on."""
    bounds = settings.pair_filters.bounds()
    return Judge(found, bounds, record) if bounds else None


@contextlib.contextmanager
def judging(found: Searched, settings: DecideSettings, output: str) -> Iterator[Judge | None]:
    """As `judge_of`. What it drops is in OUTPUT/dropped.parquet afterwards, if it is kept: in rounds, and in each the best first."""
    if not settings.keep_dropped:
        yield judge_of(found, settings)
        storage.remove(storage.join(output, DROPPED))  # of another decision
        return
    with storage.parquet_writer(storage.join(output, DROPPED), DROPPED_PAIRS) as record:
        yield judge_of(found, settings, record)
