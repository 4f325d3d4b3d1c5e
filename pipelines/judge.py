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
from miner.filters import hubs
from miner.filters.pairs import PAIR_FILTERS, Pairs, judge_pairs
from miner.tables import DROPPED_PAIRS

DROPPED = "dropped.parquet"

Ids = npt.NDArray[np.int64]


class Judge:
    """Says why a pair is to be dropped; made by `judging`."""

    def __init__(self, bounds: dict[str, float], languages: tuple[str, str], record: pq.ParquetWriter | None) -> None:
        self.bounds = bounds
        self.languages = languages  # canonical codes
        self.record = record
        self.counts = Counter({known.reason: 0 for name, known in PAIR_FILTERS.items() if name in bounds})  # of pairs dropped
        self.crowds: tuple[hubs.Times, hubs.Times] | None = None

    def meet(self, source_ids: Ids, target_ids: Ids) -> None:
        """Take note of all candidates, by the ids of their sides, before any of them is judged."""
        self.crowds = hubs.times(source_ids), hubs.times(target_ids)

    def __call__(self, pairs: pa.Table) -> pa.Array:
        """n pairs of the schema BITEXT -> (n,) the reason to drop each, null where it stays."""
        assert self.crowds is not None, "`meet` comes first"
        crowds = [crowd.of(pairs[name].to_numpy()) for crowd, name in zip(self.crowds, ("source_id", "target_id"), strict=True)]
        texts = (pairs[name].to_pylist() for name in ("source_text", "target_text"))
        verdicts = judge_pairs(Pairs(*texts, self.languages, np.maximum(*crowds)), self.bounds)
        self.counts.update(verdicts.counts())
        reasons, scores = verdicts.why()
        if self.record is not None:
            dropped = pairs.filter(pa.array(~verdicts.kept))
            self.record.write_table(pa.table([*dropped.columns, pa.array(reasons, pa.string()), pa.array(scores)], schema=DROPPED_PAIRS))
        told = np.full(len(pairs), None, dtype=object)
        told[~verdicts.kept] = reasons
        return pa.array(told, pa.string())


@contextlib.contextmanager
def judging(settings: DecideSettings, languages: tuple[str, str], output: str) -> Iterator[Judge | None]:
    """The judge of these settings, None where no filter is on. What it drops is in OUTPUT/dropped.parquet afterwards, if it is kept:
    in rounds, and in each the best first."""
    bounds = settings.pair_filters.bounds()
    if not settings.keep_dropped:
        yield Judge(bounds, languages, None) if bounds else None
        storage.remove(storage.join(output, DROPPED))  # of another decision
        return
    with storage.parquet_writer(storage.join(output, DROPPED), DROPPED_PAIRS) as record:
        yield Judge(bounds, languages, record) if bounds else None
