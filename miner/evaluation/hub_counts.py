"""Hubs of a directory of `miner mine`: the sentences that occur in most candidates."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from miner.arrays import Floats, Ids
from miner.filters.hubs import OccurrenceCounts, count_occurrences
from miner.io import stages, storage, table_files
from miner.io.stages import CANDIDATES, Manifest

SIDES = ("source", "target")
NUM_TOP_HUBS = 5  # largest hubs that are shown of each side


@dataclass(frozen=True)
class HubCounts:
    """In how many candidates each sentence of either side occurs, whatever the margin."""

    sides: Mapping[str, OccurrenceCounts]
    k: int  # neighbours of each sentence that are candidates
    share: float  # sentences that are counted, drawn at random, among all

    def times_k(self, side: str, ids: Ids) -> Floats:
        """Return the number of candidates, divided by k, of sentences (n,); 0 for one that is not counted."""
        return self.sides[side].of(ids) / self.k

    def top(self, side: str, ids: Ids, uri: str) -> list[tuple[float, str]]:
        """Return the sentences (n,) of the pairs in a bitext that occur in most candidates: their number divided by k, and the text."""
        first_rows = np.unique(ids, return_index=True)[1]  # one row per sentence
        ranked = first_rows[np.lexsort((first_rows, -self.times_k(side, ids[first_rows])))][:NUM_TOP_HUBS]
        rows, column = np.sort(ranked), f"{side}_text"
        texts = dict(zip(rows.tolist(), table_files.read_rows(uri, rows, [column])[column].to_pylist(), strict=True))
        times_k = self.times_k(side, ids[ranked])
        return [(times, texts[row]) for times, row in zip(times_k.tolist(), ranked.tolist(), strict=True)]


def read_candidates(folder: str) -> Manifest | None:
    """Return the manifest of the candidates in a directory of `miner mine`; None without candidates, as after `--from-candidates`."""
    candidates = storage.join(folder, CANDIDATES)
    if not storage.exists(storage.join(candidates, stages.MANIFEST)):
        return None
    return stages.read_manifest(candidates, CANDIDATES)


def read_hub_counts(folder: str, max_candidates: int | None = None) -> HubCounts | None:
    """Count the candidates in a directory of `miner mine`, at most about `max_candidates` of a side; None without candidates."""
    manifest = read_candidates(folder)
    if manifest is None:
        return None
    step = 1 if max_candidates is None else max(1, -(-manifest.rows // max_candidates))
    samples = {side: [np.zeros(0, np.int64)] for side in SIDES}
    for shard in manifest.shards:
        table = table_files.read_table(storage.join(folder, CANDIDATES, shard.name), [f"{side}_id" for side in SIDES])
        for side in SIDES:
            ids = table[f"{side}_id"].to_numpy()
            samples[side].append(ids[ids % step == 0])  # ids are hashes: a random sample
    sides = {side: count_occurrences(np.concatenate(samples[side])) for side in SIDES}
    num_neighbours = max(int(manifest.details["k"]), int(manifest.config.get("rescore_candidates", 0)))
    return HubCounts(sides, num_neighbours, 1 / step)
