"""Pair filters, applied before matching: a dropped candidate makes room for the next best one of its sentences.

Only candidates that can become pairs are filtered: those of each source, and of each target, down to the first one that passes. The
pairs are the same as if all candidates were filtered, at a fraction of the cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from miner.config.commands import DecideSettings
from miner.config.probability import ProbabilityBound
from miner.filters import hubs
from miner.filters.candidates import PairFilter, no_dropped
from miner.io import storage, table_files
from miner.io.tables import DROPPED_PAIRS
from miner.mining import candidates as scoring
from miner.mining import writers
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline
from pipelines.beam.shuffle import ShuffleSteps, StepOutput
from pipelines.mining import match, sort_pairs
from pipelines.mining.candidates import MiningLimits, SearchResult
from pipelines.mining.match import RankedCandidates, Written
from pipelines.mining.sort_pairs import SideTexts, SortedPairs


@dataclass(frozen=True)
class FilteredCandidates:
    """The candidates that remain, and the dropped ones."""

    candidates: RankedCandidates
    dropped: Mapping[str, int]  # reason -> candidates
    dropped_uris: Sequence[str]

    def sort_dropped(self, steps: ShuffleSteps, limits: MiningLimits) -> Pipeline[SortedPairs]:
        """Return the dropped candidates with the columns of DROPPED_PAIRS, best first."""
        return sort_pairs.sort_rows(self.dropped_uris, sum(self.dropped.values()), steps, limits)


@dataclass(frozen=True)
class _FilterRun:
    """The candidates to filter, and by what."""

    candidate_uris: Sequence[str]
    margin: str
    threshold: float
    pair_filter: PairFilter
    target_ranges: int
    dropped_uris: Mapping[str, Sequence[str]]  # side -> a file per range
    num_samples: int

    @property
    def source_ranges(self) -> int:
        return len(self.candidate_uris)

    def read(self, index: int) -> pa.Table:
        return table_files.read_table(self.candidate_uris[index])

    def filter(self, index: int, side: str, candidates: pa.Table) -> tuple[pa.Table, dict[str, int]]:
        """Filter the candidates of one range of a side, and write the dropped ones. Return the others, and counts by reason."""
        kept, dropped, counts = candidates, no_dropped(candidates), dict.fromkeys(self.pair_filter.reasons, 0)
        if self.pair_filter.applies_to(side):
            kept, dropped, counts = self.pair_filter.split(candidates, side)
        similarity = dropped.schema.get_field_index("similarity")
        dropped = dropped.set_column(similarity, "similarity", dropped["similarity"].cast(pa.float32())).select(DROPPED_PAIRS.names)
        sort_pairs.scatter_sampled(self.dropped_uris[side][index], dropped, self.num_samples)
        return kept, counts


def filter_candidates(
    search_result: SearchResult,
    settings: DecideSettings,
    probability: ProbabilityBound,
    threshold: float,
    steps: ShuffleSteps,
    limits: MiningLimits,
) -> Pipeline[FilteredCandidates | None]:
    """Return the candidates above the threshold that pass the filters or cannot become pairs. None if all filters are off."""
    langs = search_result.source.lang, search_result.target.lang
    usual_counts = hubs.usual_counts(search_result.num_neighbours, search_result.source.rows, search_result.target.rows)
    pair_filter = PairFilter.of(settings, langs, usual_counts, probability)
    if pair_filter is None:
        return None
    uris = search_result.candidate_uris()
    ranges = {"source": shuffle.names(len(uris)), "target": shuffle.names(len(search_result.target.shards))}
    dropped_uris = {side: [storage.join(steps.place(f"dropped-{side}"), name) for name in names] for side, names in ranges.items()}
    run = _FilterRun(uris, settings.margin, threshold, pair_filter, len(ranges["target"]), dropped_uris, limits.margin_samples)
    sources, targets = (SideTexts.of(side, getattr(search_result, side)) for side in ("source", "target"))
    hub_counts = yield from steps.apply("hub-counts", ranges["source"], _count_targets, run)
    scored = yield from steps.apply("scored", ranges["source"], _score_source_range, run, sources)
    halfway = yield from steps.apply("filtered-targets", ranges["target"], _filter_target_range, run, targets, hub_counts, scored)
    filtered = yield from steps.apply("filtered-sources", ranges["source"], _filter_source_range, run, halfway)
    dropped = {reason: halfway.counts[reason] + filtered.counts[reason] for reason in pair_filter.reasons}
    candidates = RankedCandidates(filtered, len(ranges["source"]), len(ranges["target"]))
    return FilteredCandidates(candidates, dropped, [*dropped_uris["target"], *dropped_uris["source"]])


def _count_targets(index: int, uri: str, run: _FilterRun) -> Written:
    """Count the candidates of each target in one range of sources, whatever their margin."""
    times = hubs.count_occurrences(run.read(index)["target_id"].to_numpy())
    table = pa.table({"target_id": pa.array(times.ids), "count": pa.array(times.counts)})
    shuffle.scatter_by_id(uri, table, "target_id", run.target_ranges)
    return len(table), {}


def _score_source_range(index: int, uri: str, run: _FilterRun, sources: SideTexts) -> Written:
    """Send the candidates of one range of sources that are above the threshold, with the sources' texts, to the ranges of targets."""
    table = run.read(index)
    pairs = scoring.score(writers.candidates_from_arrow(table), run.margin, run.threshold)
    hub_counts = hubs.count_occurrences(table["source_id"].to_numpy()).of(pairs.source_ids)
    scored = writers.pairs_to_arrow(pairs, passed=np.zeros(len(pairs), dtype=bool)).append_column("source_hub_count", pa.array(hub_counts))
    scored = sources.add_to(scored)
    shuffle.scatter_by_id(uri, scored, "target_id", run.target_ranges)
    return len(scored), {}


def _filter_target_range(index: int, uri: str, run: _FilterRun, targets: SideTexts, hub_counts: StepOutput, scored: StepOutput) -> Written:
    """Filter the candidates of one range of targets, joined with the targets' texts, and send the others to the ranges of sources."""
    counts = hub_counts.gather(index)
    times = hubs.add_counts(counts["target_id"].to_numpy(), counts["count"].to_numpy())
    table = writers.sort_best_first(scored.gather(index))
    table = table.append_column("target_hub_count", pa.array(times.of(table["target_id"].to_numpy())))
    kept, num_dropped = run.filter(index, "target", targets.add_to(table))
    shuffle.scatter_by_id(uri, kept, "source_id", run.source_ranges)
    return len(kept), num_dropped


def _filter_source_range(index: int, uri: str, run: _FilterRun, halfway: StepOutput) -> Written:
    """Filter the candidates of one range of sources, and send the others to the ranges of targets."""
    kept, num_dropped = run.filter(index, "source", writers.sort_best_first(halfway.gather(index)))
    shuffle.scatter_by_id(uri, match.with_source_best(writers.pairs_from_arrow(kept)), "target_id", run.target_ranges)
    return len(kept), num_dropped
