"""The filters of pairs between candidates and pairs: those they drop make room for what comes next, and are counted.

Only candidates that contend are judged: of each source, and of each target, down to the first that stays. What is matched is
therefore the same as if all had been judged, without what that takes for the many that no one would miss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner import stages, storage
from miner.config.commands import DecideSettings
from miner.filters import hubs, language
from miner.filters.pairs import PAIR_FILTERS, PairTexts, apply_pair_filters
from miner.mining import candidates as scoring
from miner.mining import matching, writers
from miner.tables import DROPPED_PAIRS
from pipelines.beam import shuffle
from pipelines.beam.runner import ShardTask
from pipelines.beam.shuffle import ShuffleSteps
from pipelines.mining import match, sort_pairs
from pipelines.mining.candidates import SearchResult
from pipelines.mining.match import RankedCandidates
from pipelines.mining.sort_pairs import SortedPairs

# By what the best of a source, and of a target, are judged: `all` judges whatever there is, from one side.
SIDES = {"max": (True, True), "forward": (True, False), "backward": (False, True), "intersection": (True, True), "all": (False, True)}

Bools = npt.NDArray[np.bool_]


def check(settings: DecideSettings) -> None:
    """ConfigError where a filter that is on needs what is not installed."""
    if settings.pair_filters.languages is not None:
        language.load_identifier()


@dataclass(frozen=True)
class PairFilter:
    """What a pair must be."""

    bounds: Mapping[str, float]
    languages: tuple[str, str]
    k: int
    retrieval: str

    def reasons(self) -> list[str]:
        return [known.reason for name, known in PAIR_FILTERS.items() if name in self.bounds]

    def sift(self, found: pa.Table, side: str) -> tuple[pa.Table, pa.Table, dict[str, int]]:
        """Candidates with texts, best first -> those that stay for a side, those that are dropped, and how many for each reason.

        The column `judged` tells which stay for certain, before and after.
        """
        ids = found[f"{side}_id"].to_numpy()
        eligible = found["forward" if side == "source" else "backward"].to_numpy()
        judged, alive = found["judged"].to_numpy().copy(), np.ones(len(found), dtype=bool)
        counts = dict.fromkeys(self.reasons(), 0)
        dropped: list[pa.Table] = []
        while (new := self._next(ids, eligible & alive, alive) & ~judged).any():
            rows = np.flatnonzero(new)
            table = found.take(pa.array(rows))
            verdicts = apply_pair_filters(self._pairs(table), dict(self.bounds))
            for reason, count in verdicts.counts().items():
                counts[reason] += count
            judged[rows], alive[rows[~verdicts.kept]] = True, False
            reasons, scores = verdicts.drop_reasons()
            gone = table.filter(pa.array(~verdicts.kept))
            dropped.append(gone.append_column("reason", pa.array(reasons, pa.string())).append_column("score", pa.array(scores)))
        at = found.schema.get_field_index("judged")
        kept = found.set_column(at, "judged", pa.array(judged)).filter(pa.array(alive))
        return kept, shuffle.together([_none_dropped(found), *dropped]), counts

    def _next(self, ids: npt.NDArray[np.int64], eligible: Bools, alive: Bools) -> Bools:
        return alive if self.retrieval == "all" else matching.first(ids, eligible)

    def _pairs(self, table: pa.Table) -> PairTexts:
        texts = (table[f"{side}_text"].to_pylist() for side in ("source", "target"))
        return PairTexts(*texts, self.languages, np.maximum(*(table[f"{side}_crowd"].to_numpy() for side in ("source", "target"))) / self.k)


def _none_dropped(found: pa.Table) -> pa.Table:
    return found.slice(0, 0).append_column("reason", pa.array([], pa.string())).append_column("score", pa.array([], pa.float64()))


def judge_of(found: SearchResult, settings: DecideSettings) -> PairFilter | None:
    """The judge of these settings, None where no filter is on."""
    bounds = settings.pair_filters.bounds()
    return PairFilter(bounds, (found.source.lang, found.target.lang), found.k, settings.retrieval) if bounds else None


@dataclass(frozen=True)
class FilteredPairs:
    """What the filters left, and what they dropped."""

    candidates: RankedCandidates
    dropped: Mapping[str, int]  # by reason
    record: Sequence[str]  # folders of what was dropped, by range of targets and of sources

    def ordered(self, steps: ShuffleSteps) -> SortedPairs:
        """What was dropped, of the schema DROPPED_PAIRS, best first."""
        sources, targets = self.candidates.sources, self.candidates.targets
        places = [(self.record[0], name) for name in shuffle.names(targets)] + [(self.record[1], name) for name in shuffle.names(sources)]
        return sort_pairs.order_rows([storage.join(*place) for place in places], sum(self.dropped.values()), steps)


def judge(found: SearchResult, margin: str, threshold: float, by: PairFilter, steps: ShuffleSteps) -> FilteredPairs:
    """The candidates above the threshold that stay or do not contend."""
    shards = [shard.name for shard in stages.read_manifest(found.folder).shards]
    sources, targets = shuffle.names(len(shards)), shuffle.names(len(found.target.shards))
    sides = _Sides(found, shards, by)
    steps.run("crowds", sources, _Crowds(sides, steps.place("crowds")))
    steps.run("told", sources, _Tell(sides, margin, threshold, steps.place("told")))
    at = {name: steps.place(name) for name in ("crowds", "told", "sifted", "dropped-1", "judged", "dropped-2")}
    first = steps.run("sifted", targets, _SiftTargets(sides, at)).shards
    second = steps.run("judged", sources, _SiftSources(sides, at)).shards
    dropped = {reason: sum(shard.counts[reason] for shard in (*first, *second)) for reason in by.reasons()}
    return FilteredPairs(RankedCandidates(steps, at["judged"], len(sources), len(targets)), dropped, (at["dropped-1"], at["dropped-2"]))


@dataclass(frozen=True)
class _Sides:
    """What is judged: the candidates of both sides, in shards, and by whom."""

    found: SearchResult
    shards: Sequence[str]
    judge: PairFilter

    @property
    def sources(self) -> int:
        return len(self.shards)

    @property
    def targets(self) -> int:
        return len(self.found.target.shards)

    def candidates(self, name: str) -> pa.Table:
        return storage.read_table(storage.join(self.found.folder, self.shards[stages.shard_index(name)]))


class _Crowds(ShardTask):
    """One range of sources -> in how many of its candidates each target is, whatever the margin, by the range of the targets."""

    row_unit = None

    def __init__(self, sides: _Sides, folder: str) -> None:
        self.sides = sides
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        times = hubs.count_occurrences(self.sides.candidates(name)["target_id"].to_numpy())
        table = pa.table({"target_id": pa.array(times.ids), "count": pa.array(times.counts)})
        shuffle.scatter_by_id(storage.join(self.folder, name), table, "target_id", self.sides.targets)
        return len(table), {}


class _Tell(ShardTask):
    """One range of sources -> its candidates above the threshold with the sources' texts, by the range of the targets."""

    row_unit = None

    def __init__(self, sides: _Sides, margin: str, threshold: float, folder: str) -> None:
        self.sides = sides
        self.margin = margin
        self.threshold = threshold
        self.folder = folder

    def setup(self) -> None:
        self.spans = self.sides.found.source.spans()

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        held = self.sides.candidates(name)
        found = scoring.score(writers.candidates_from_arrow(held), self.margin, self.threshold)
        crowd = hubs.count_occurrences(held["source_id"].to_numpy()).of(found.source_ids)
        table = match.to_arrow(found, judged=np.zeros(len(found), dtype=bool)).append_column("source_crowd", pa.array(crowd))
        table = sort_pairs.with_texts(table, "source", self.sides.found.source, self.spans)
        shuffle.scatter_by_id(storage.join(self.folder, name), table, "target_id", self.sides.targets)
        return len(table), {}


class _SiftTargets(ShardTask):
    """One range of targets -> its candidates with all texts, without those that its targets drop, by the range of the sources."""

    row_unit = None

    def __init__(self, sides: _Sides, at: Mapping[str, str]) -> None:
        self.sides = sides
        self.at = at

    def setup(self) -> None:
        self.spans = self.sides.found.target.spans()

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        index, names = stages.shard_index(name), shuffle.names(self.sides.sources)
        crowds = shuffle.gather(self.at["crowds"], names, index).group_by("target_id").aggregate([("count", "sum")])
        crowds = crowds.sort_by("target_id")
        table = match.best_first(shuffle.gather(self.at["told"], names, index))
        times = hubs.OccurrenceCounts(crowds["target_id"].to_numpy(), crowds["count_sum"].to_numpy())
        table = table.append_column("target_crowd", pa.array(times.of(table["target_id"].to_numpy())))
        table = sort_pairs.with_texts(table, "target", self.sides.found.target, self.spans)
        kept, counts = _sifted(self.sides.judge, table, "target", storage.join(self.at["dropped-1"], name))
        shuffle.scatter_by_id(storage.join(self.at["sifted"], name), kept, "source_id", self.sides.sources)
        return len(kept), counts


class _SiftSources(ShardTask):
    """One range of sources -> its candidates without those that its sources drop, by the range of the targets."""

    row_unit = None

    def __init__(self, sides: _Sides, at: Mapping[str, str]) -> None:
        self.sides = sides
        self.at = at

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        table = shuffle.gather(self.at["sifted"], shuffle.names(self.sides.targets), stages.shard_index(name))
        kept, counts = _sifted(self.sides.judge, match.best_first(table), "source", storage.join(self.at["dropped-2"], name))
        shuffle.scatter_by_id(storage.join(self.at["judged"], name), match.offered(match.from_arrow(kept)), "target_id", self.sides.targets)
        return len(kept), counts


def _sifted(judge: PairFilter, table: pa.Table, side: str, record: str) -> tuple[pa.Table, dict[str, int]]:
    """What stays for a side, and the counts of what does not, which is written to `record`."""
    kept, dropped, counts = judge.sift(table, side) if SIDES[judge.retrieval][side == "target"] else (table, _none_dropped(table), {})
    dropped = dropped.set_column(dropped.schema.get_field_index("similarity"), "similarity", dropped["similarity"].cast(pa.float32()))
    dropped = dropped.select(DROPPED_PAIRS.names)
    shuffle.scatter(record, dropped, np.zeros(len(dropped), dtype=np.int64), 1, sort_pairs.sample(dropped))
    return kept, {**dict.fromkeys(judge.reasons(), 0), **counts}
