"""Pair filters, applied before matching: a dropped candidate makes room for the next best one of its sentences.

Only candidates that can become pairs are filtered: those of each source, and of each target, down to the first one that passes. The
pairs are the same as if all candidates were filtered, at a fraction of the cost.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
from pipelines.mining.match import Written
from pipelines.mining.sort_pairs import SideTexts

FilterRange = Callable[[int, pa.Table], tuple[pa.Table, dict[str, int]]]  # index and candidates -> those that remain, counts by reason


@dataclass(frozen=True)
class FilteredCandidates:
    """The candidates that remain, by ranges of sources as `match.score_candidates` returns them, and the dropped ones."""

    candidates: StepOutput
    dropped: Mapping[str, int]  # reason -> candidates
    dropped_uris: Sequence[str]  # files with the columns of DROPPED_PAIRS, for `sort_pairs.sort_rows`


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
    sources, targets = (SideTexts.of(side, getattr(search_result, side)) for side in ("source", "target"))
    filter_sources, filter_targets = (
        partial(_filter_side, pair_filter, side, dropped_uris[side], limits.margin_samples) for side in ("source", "target")
    )
    num_targets = len(ranges["target"])
    hub_counts = yield from steps.apply("hub-counts", ranges["source"], _count_targets, uris, num_targets)
    scored = yield from steps.apply("scored", ranges["source"], _score_source_range, uris, settings.margin, threshold, sources, num_targets)
    by_source = yield from steps.apply(
        "filtered-targets", ranges["target"], _filter_target_range, filter_targets, targets, hub_counts, scored
    )
    filtered = yield from steps.apply("filtered-sources", ranges["source"], _filter_source_range, filter_sources, by_source)
    dropped = {reason: by_source.counts[reason] + filtered.counts[reason] for reason in pair_filter.reasons}
    return FilteredCandidates(filtered, dropped, [*dropped_uris["target"], *dropped_uris["source"]])


def _count_targets(index: int, uri: str, candidate_uris: Sequence[str], target_ranges: int) -> Written:
    """Count the candidates of each target in one range of sources, whatever their margin."""
    times = hubs.count_occurrences(table_files.read_table(candidate_uris[index])["target_id"].to_numpy())
    table = pa.table({"target_id": pa.array(times.ids), "count": pa.array(times.counts)})
    shuffle.scatter_by_id(uri, table, "target_id", target_ranges)
    return len(table), {}


def _score_source_range(
    index: int, uri: str, candidate_uris: Sequence[str], margin: str, threshold: float, sources: SideTexts, target_ranges: int
) -> Written:
    """Send the candidates of one range of sources that are above the threshold, with the sources' texts, to the ranges of targets."""
    table = table_files.read_table(candidate_uris[index])
    pairs = scoring.score(writers.candidates_from_arrow(table), margin, threshold)
    hub_counts = hubs.count_occurrences(table["source_id"].to_numpy()).of(pairs.source_ids)
    scored = writers.pairs_to_arrow(pairs, passed=np.zeros(len(pairs), dtype=bool)).append_column("source_hub_count", pa.array(hub_counts))
    scored = sources.add_to(scored)
    shuffle.scatter_by_id(uri, scored, "target_id", target_ranges)
    return len(scored), {}


def _filter_side(
    pair_filter: PairFilter, side: str, dropped_uris: Sequence[str], num_samples: int, index: int, candidates: pa.Table
) -> tuple[pa.Table, dict[str, int]]:
    """Filter the candidates of one range of a side, and write the dropped ones. Return the others, and counts by reason."""
    kept, dropped, counts = candidates, no_dropped(candidates), dict.fromkeys(pair_filter.reasons, 0)
    if pair_filter.applies_to(side):
        kept, dropped, counts = pair_filter.split(candidates, side)
    similarity = dropped.schema.get_field_index("similarity")
    dropped = dropped.set_column(similarity, "similarity", dropped["similarity"].cast(pa.float32())).select(DROPPED_PAIRS.names)
    sort_pairs.scatter_sampled(dropped_uris[index], dropped, num_samples)
    return kept, counts


def _filter_target_range(
    index: int, uri: str, filter_targets: FilterRange, targets: SideTexts, hub_counts: StepOutput, scored: StepOutput
) -> Written:
    """Filter the candidates of one range of targets, joined with the targets' texts, and send the others to the ranges of sources."""
    counts = hub_counts.gather(index)
    times = hubs.add_counts(counts["target_id"].to_numpy(), counts["count"].to_numpy())
    table = writers.sort_best_first(scored.gather(index))
    table = table.append_column("target_hub_count", pa.array(times.of(table["target_id"].to_numpy())))
    kept, num_dropped = filter_targets(index, targets.add_to(table))
    shuffle.scatter_by_id(uri, kept, "source_id", len(scored.shards))
    return len(kept), num_dropped


def _filter_source_range(index: int, uri: str, filter_sources: FilterRange, by_source: StepOutput) -> Written:
    """Filter the candidates of one range of sources, and send the others to the ranges of targets."""
    kept, num_dropped = filter_sources(index, writers.sort_best_first(by_source.gather(index)))
    shuffle.scatter_by_id(uri, match.with_source_best(writers.pairs_from_arrow(kept)), "target_id", len(by_source.shards))
    return len(kept), num_dropped
