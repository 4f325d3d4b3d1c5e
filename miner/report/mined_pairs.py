"""What a report needs of a folder of `miner mine`, read in parts.

Of all pairs the margins stay in memory, 8 bytes each, and with gold or marks the ids too; of texts those of a sample.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner import stages, storage
from miner.evaluation.bitext import CANDIDATES, SIDES
from miner.evaluation.bitext_precision import LEVELS, GoldPairs, ReviewMarks
from miner.evaluation.precision_recall import Bools
from miner.filters import hubs
from miner.mining import candidates as scoring
from miner.mining.writers import PARQUET, candidates_from_arrow
from miner.stages import Manifest

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

PER_LEVEL = 10  # pairs shown of each level of margin
SCATTER = 1000  # pairs, at most, whose lengths are shown
STEP = 0.002  # of margin: the finest bins
HUBS = 1 << 22  # candidates, at most, that hubs are counted in: of more, those of a random part of the sentences

Truth = GoldPairs | ReviewMarks


@dataclass(frozen=True)
class MarginBins:
    """How many margins lie in each bin [edges[i], edges[i + 1])."""

    edges: Floats  # (n + 1,)
    counts: Ids  # (n,)


class Histogram:
    """Margins in bins of STEP, however many come."""

    def __init__(self) -> None:
        self.bins: dict[int, int] = {}

    def add(self, margins: Floats) -> None:
        places, counts = np.unique(np.floor(margins[np.isfinite(margins)] / STEP).astype(np.int64), return_counts=True)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            self.bins[place] = self.bins.get(place, 0) + count

    def bounds(self) -> tuple[float, float]:
        """Between which all margins lie."""
        return min(self.bins) * STEP, (max(self.bins) + 1) * STEP

    def by(self, edges: Floats) -> MarginBins:
        """In these bins, a fine bin counting where its middle lies."""
        middles = (np.array(list(self.bins), dtype=np.float64) + 0.5) * STEP
        return MarginBins(
            edges, np.histogram(middles, edges, weights=np.array(list(self.bins.values()), dtype=np.int64))[0].astype(np.int64)
        )


@dataclass(frozen=True, eq=False)
class NeighbourCounts:
    """In how many candidates, by k, sentences are: all of either side or, by `share`, a random part of them."""

    times: Mapping[str, hubs.OccurrenceCounts]
    k: int
    share: float


@dataclass(frozen=True, eq=False)
class MinedBitext:
    """A folder of `miner mine`."""

    folder: str
    manifest: Manifest

    @property
    def uri(self) -> str:
        return storage.join(self.folder, PARQUET)

    @property
    def languages(self) -> tuple[str, str]:
        told = self.manifest.details["languages"]
        return told["source"], told["target"]

    @cached_property
    def margins(self) -> Floats:
        """(n,) of all pairs, best first."""
        parts = [part["margin"].to_numpy() for part in self.parts(["margin"])]
        return np.concatenate(parts) if parts else np.zeros(0)

    def parts(self, columns: list[str]) -> Iterator[pa.Table]:
        with storage.open_parquet(self.uri) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=columns)

    def ids(self) -> tuple[Ids, Ids]:
        """(n,) twice: of sources and targets."""
        table = storage.read_table(self.uri, [f"{side}_id" for side in SIDES])
        return table["source_id"].to_numpy(), table["target_id"].to_numpy()

    def texts(self, rows: Rows) -> tuple[list[str], list[str]]:
        """(m,) rows, ascending -> the sentences of these pairs."""
        found: list[pa.Table] = []
        start = 0
        for part in self.parts([f"{side}_text" for side in SIDES]):
            here = rows[(rows >= start) & (rows < start + len(part))] - start
            found.append(part.take(pa.array(here)))
            start += len(part)
        table = pa.concat_tables(found)
        return table["source_text"].to_pylist(), table["target_text"].to_pylist()

    def right(self, gold: GoldPairs) -> Bools:
        """(n,) which pairs gold has."""
        return np.array([pair in gold.pairs for pair in zip(*(ids.tolist() for ids in self.ids()), strict=True)], dtype=bool)

    def nearest(self) -> Histogram | None:
        """Of each source sentence the largest margin among its candidates; None where the folder has no candidates."""
        folder = storage.join(self.folder, CANDIDATES)
        if not storage.exists(storage.join(folder, stages.MANIFEST)):
            return None
        found = Histogram()
        for shard in stages.read_manifest(folder, CANDIDATES).shards:
            pairs = scoring.score(
                candidates_from_arrow(storage.read_table(storage.join(folder, shard.name))), self.manifest.config["margin"]
            )
            if len(pairs):  # by source id, ascending
                starts = np.flatnonzero(np.append(True, pairs.source_ids[1:] != pairs.source_ids[:-1]))
                found.add(np.maximum.reduceat(pairs.margins, starts))
        return found if found.bins else None

    def crowds(self) -> NeighbourCounts | None:
        """None where the folder has no candidates."""
        folder = storage.join(self.folder, CANDIDATES)
        if not storage.exists(storage.join(folder, stages.MANIFEST)):
            return None
        manifest = stages.read_manifest(folder, CANDIDATES)
        every = max(1, -(-manifest.rows // HUBS))
        times = {}
        for side in SIDES:
            columns = (storage.read_table(storage.join(folder, shard.name), [f"{side}_id"])[f"{side}_id"] for shard in manifest.shards)
            kept = [ids[ids % every == 0] for ids in (column.to_numpy() for column in columns)]  # ids are hashes: as good as drawn
            times[side] = hubs.count_occurrences(np.concatenate([np.zeros(0, np.int64), *kept]))
        return NeighbourCounts(times, int(manifest.details["k"]), 1 / every)


def sample(pairs: int, seed: int) -> list[Rows]:
    """By level of margin, as `miner eval bitext` cuts them, PER_LEVEL of its rows drawn by chance, ascending."""
    chance = np.random.default_rng(seed)
    levels = np.array_split(np.arange(pairs), min(LEVELS, pairs)) if pairs else []
    return [np.sort(chance.choice(level, min(PER_LEVEL, len(level)), replace=False)) for level in levels]
