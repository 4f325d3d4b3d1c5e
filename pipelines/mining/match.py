"""Matching by ranges of ids: candidates -> pairs.

The candidates of a source are together in its range, those of a target in the target's range, so the steps alternate between ranges of
sources and of targets. One-to-one matching works in rounds (see `miner.mining.matching`) until one worker can match what remains.
For most corpora there is no round: at most as many candidates are selected as there are sentences, and a round leaves a fraction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from miner.config.choices import RETRIEVALS
from miner.io import table_files
from miner.io.tables import concat_tables
from miner.mining import candidates as scoring
from miner.mining import matching, writers
from miner.mining.candidates import ScoredPairs
from miner.mining.writers import pairs_from_arrow, pairs_to_arrow, sort_best_first
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline
from pipelines.beam.shuffle import ShuffleSteps, StepOutput
from pipelines.mining.candidates import MiningLimits, SearchResult

Written = tuple[int, Mapping[str, int]]  # rows and counts of a shard


@dataclass(frozen=True)
class MatchedPairs:
    """The pairs that several steps matched, cut by the ranges of their targets. Column `matched`: false for other candidates."""

    tables: Sequence[StepOutput]
    target_ranges: int
    rows: int

    def of_target_range(self, index: int) -> ScoredPairs:
        """Return the pairs of one range of targets, best first."""
        tables = [table.gather(index) for table in self.tables]
        return matching.rank(scoring.concat([pairs_from_arrow(table.filter(table["matched"])) for table in tables]))

    def read(self) -> ScoredPairs:
        """Return all pairs in memory, best first: 34 bytes each."""
        return matching.rank(scoring.concat([self.of_target_range(index) for index in range(self.target_ranges)]))


def with_source_best(ranked: ScoredPairs) -> pa.Table:
    """Return a table of the candidates of a range of sources, best first, with the column `source_best`."""
    return pairs_to_arrow(ranked, source_best=matching.best_of_sources(ranked))


def score_candidates(search_result: SearchResult, margin: str, threshold: float, steps: ShuffleSteps) -> Pipeline[StepOutput]:
    """Return the candidates above the threshold with column `source_best`: a file per range of sources, cut by the ranges of targets."""
    uris, target_ranges = search_result.candidate_uris(), len(search_result.target.shards)
    return (yield from steps.apply("scored", shuffle.names(len(uris)), _score_range, uris, margin, threshold, target_ranges))


def _score_range(index: int, uri: str, candidate_uris: Sequence[str], margin: str, threshold: float, target_ranges: int) -> Written:
    """Score the candidates of one range of sources."""
    candidates = writers.candidates_from_arrow(table_files.read_table(candidate_uris[index]))
    ranked = matching.rank(scoring.score(candidates, margin, threshold))
    shuffle.scatter_by_id(uri, with_source_best(ranked), "target_id", target_ranges)
    return len(ranked), {}


def match_candidates(
    candidates: StepOutput, target_ranges: int, retrieval: str, steps: ShuffleSteps, limits: MiningLimits
) -> Pipeline[MatchedPairs]:
    """Return the pairs among candidates of `score_candidates`; those that are best of their source, or `backward`, suffice."""
    sources, targets = candidates.shards, shuffle.names(target_ranges)
    remaining = yield from steps.apply("selected", targets, _select_range, candidates, retrieval, target_ranges)
    if not RETRIEVALS[retrieval].one_to_one:
        return MatchedPairs([remaining], len(targets), remaining.rows)
    tables: list[StepOutput] = []
    while remaining.rows > limits.matched_rows:
        number = len(tables) + 1
        tables.append((yield from steps.apply(f"matched-{number}", sources, _take_mutual_best, remaining, len(targets))))
        remaining = yield from steps.apply(f"remaining-{number}", targets, _drop_matched_targets, tables[-1], len(sources))
    tables.append((yield from steps.apply("matched", shuffle.names(1), _match_remaining, remaining, len(sources), len(targets))))
    return MatchedPairs(tables, len(targets), sum(table.rows for table in tables))


def _select_range(index: int, uri: str, candidates: StepOutput, retrieval: str, target_ranges: int) -> Written:
    """Select the candidates of one range of targets that are pairs or, one-to-one, may become pairs.

    One-to-one, they go to the ranges of sources; column `target_best` marks the best candidate of each target. Otherwise they are
    pairs and stay in the range of targets.
    """
    table = sort_best_first(candidates.gather(index))
    pairs, source_best = pairs_from_arrow(table), table["source_best"].to_numpy()
    target_best = matching.best_of_targets(pairs)
    rows = matching.select(source_best, target_best, retrieval)
    selected = replace(pairs, forward=source_best, backward=target_best).take(rows)
    if RETRIEVALS[retrieval].one_to_one:
        table = pairs_to_arrow(selected, target_best=matching.mark_first(selected.target_ids))
        shuffle.scatter_by_id(uri, table, "source_id", len(candidates.shards))
    else:
        table = pairs_to_arrow(selected, matched=np.ones(len(selected), dtype=bool))
        shuffle.scatter_by_id(uri, table, "target_id", target_ranges)
    return len(selected), {}


def _take_mutual_best(index: int, uri: str, remaining: StepOutput, target_ranges: int) -> Written:
    """Match the pairs of one range of sources that are the best of both sentences; the counted rows are these pairs."""
    table = sort_best_first(remaining.gather(index))
    candidates = pairs_from_arrow(table)
    matched, others = matching.take_mutual_best(candidates, table["target_best"].to_numpy())
    rows = matched | others
    shuffle.scatter_by_id(uri, pairs_to_arrow(candidates.take(rows), matched=matched[rows]), "target_id", target_ranges)
    return int(matched.sum()), {}


def _drop_matched_targets(index: int, uri: str, matched: StepOutput, source_ranges: int) -> Written:
    """Drop the candidates of matched targets in one range of targets."""
    table = sort_best_first(matched.gather(index))
    candidates = pairs_from_arrow(table)
    rows, target_best = matching.drop_matched_targets(candidates, table["matched"].to_numpy())
    shuffle.scatter_by_id(uri, pairs_to_arrow(candidates.take(rows), target_best=target_best[rows]), "source_id", source_ranges)
    return int(rows.sum()), {}


def _match_remaining(index: int, uri: str, remaining: StepOutput, source_ranges: int, target_ranges: int) -> Written:  # noqa: ARG001
    """Match all remaining candidates in memory."""
    table = concat_tables([remaining.gather(source_range) for source_range in range(source_ranges)])
    ranked = matching.rank(pairs_from_arrow(table))
    pairs = ranked.take(matching.match_one_to_one(ranked))
    shuffle.scatter_by_id(uri, pairs_to_arrow(pairs, matched=np.ones(len(pairs), dtype=bool)), "target_id", target_ranges)
    return len(pairs), {}
