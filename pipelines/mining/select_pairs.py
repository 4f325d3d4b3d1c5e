"""Selection: candidates -> the bitext and its manifest.

The filters and the matching work by ranges of sentences, sorting by ranges of margins; `write` joins the ranges.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from miner.arrays import spaced_rows
from miner.config.choices import MARGINS, RETRIEVALS, ThresholdChoice
from miner.config.commands import FromCandidatesConfig, MatchSettings, MineConfig
from miner.config.probability import ProbabilityBound
from miner.evaluation.marks import ReviewMarks
from miner.io import stages, storage, table_files
from miner.io.stages import MINE, Manifest, Shard
from miner.io.tables import DROPPED_PAIRS, PROBABILITY
from miner.mining import writers
from miner.mining.gold import GoldPairs, GoldScorer, GoldScores
from miner.mining.histogram import few_pair_quantiles
from miner.mining.review import MarkScorer, MarkScores
from miner.mining.thresholds import MIN_PROBABLE_PAIRS
from pipelines.beam.runner import Pipeline
from pipelines.beam.shuffle import ShuffleSteps
from pipelines.mining import deltas, filter_pairs, match, sort_pairs
from pipelines.mining.candidates import DEFAULT_LIMITS, MiningLimits, SearchResult
from pipelines.mining.deltas import BitextDelta
from pipelines.mining.filter_pairs import FilteredCandidates
from pipelines.mining.match import MatchedPairs
from pipelines.mining.pair_groups import GROUPS, write_groups
from pipelines.mining.sort_pairs import SortedPairs

SelectConfig = MineConfig | FromCandidatesConfig

STEPS = ".pairs"  # folder of intermediate steps
DROPPED = "dropped.parquet"
NUM_EXAMPLES = 10  # pairs in the summary


@dataclass(frozen=True)
class PairSelection:
    """The candidates of a search, and the settings that select pairs among them."""

    search_result: SearchResult
    settings: SelectConfig
    probability: ProbabilityBound
    choice: ThresholdChoice | None = None  # how the threshold was chosen, if no number is given
    options: Sequence[str] = ()  # Beam options, which describe the workers
    limits: MiningLimits = DEFAULT_LIMITS

    def with_choice(self, choice: ThresholdChoice) -> "PairSelection":
        """Return the selection with a threshold and the probability that belongs to it."""
        return replace(self, choice=choice, probability=replace(self.probability, minimum=choice.min_probability))

    @property
    def has_fitted_probabilities(self) -> bool:
        """Whether the mean probability of the pairs estimates their precision."""
        return self.probability.weights is not None and has_measured_probabilities(self.settings) and not self.has_few_right

    @property
    def has_few_right(self) -> bool:
        """Whether the corpora have so few translations that the precision of the pairs is unknown."""
        return self.probability.weights is not None and self.probability.weights.has_few_right

    @property
    def corpus_keys(self) -> dict[str, str]:
        return {"source": self.search_result.source.key, "target": self.search_result.target.key}

    def config(self, threshold: float | str | None) -> dict[str, Any]:
        """Return what the pairs depend on, besides the corpora, for the manifest."""
        settings, weights, rescoring = self.settings, self.probability.weights, self.search_result.rescoring
        has_model = settings.lang_id_model is not None and settings.pair_filters.languages is not None
        optional = {
            "lang_id_model": storage.checksum(str(settings.lang_id_model)) if has_model else None,
            "top": settings.top,
            "min_probability": self.probability.minimum,
            "probability_weights": None if weights is None else weights.model_dump(),
        }
        return {
            "k": self.search_result.k,
            "margin": settings.margin,
            "retrieval": settings.retrieval,
            "threshold": threshold,
            "filters": settings.pair_filters.bounds(),
            **{name: value for name, value in optional.items() if value is not None},
            **(rescoring.figures() if rescoring is not None else {}),
        }

    @property
    def threshold(self) -> float | None:
        """The chosen or given threshold, None if there is none: JSON has no infinity."""
        if self.choice is not None:
            return self.choice.threshold
        return None if self.settings.threshold in (None, -np.inf) else float(self.settings.threshold)

    def steps(self, threshold: float) -> ShuffleSteps:
        """Return the steps, under OUTPUT, that match the candidates above a threshold."""
        candidates = stages.read_manifest(self.search_result.folder)
        inputs = [[shard.checksum for shard in candidates.shards], *self.corpus_keys.values()]
        key = storage.key([inputs, self.config(str(threshold))])
        folder = storage.join(self.settings.output, STEPS)
        return ShuffleSteps("matching", folder, key, candidates.rows, self.limits.in_process_rows)

    def match(self, threshold: float, steps: ShuffleSteps) -> Pipeline[tuple[MatchedPairs, FilteredCandidates | None]]:
        """Return the pairs above a threshold, and the filtered candidates if a filter is on.

        The pairs above a threshold are the first of those above any lower one.
        """
        settings, limits = self.settings, self.limits
        filtered = yield from filter_pairs.filter_candidates(self.search_result, settings, self.probability, threshold, steps, limits)
        if filtered is not None:
            candidates = filtered.candidates
        else:
            candidates = yield from match.score_candidates(self.search_result, settings.margin, threshold, steps)
        target_ranges = len(self.search_result.target.shards)
        return (yield from match.match_candidates(candidates, target_ranges, settings.retrieval, steps, limits)), filtered


def has_measured_probabilities(settings: MatchSettings) -> bool:
    """Whether settings select pairs whose mean probability was compared with their precision: one-to-one, by a relative margin."""
    return MARGINS[settings.margin].is_relative and RETRIEVALS[settings.retrieval].one_to_one


@dataclass(frozen=True)
class WrittenBitext:
    """The outcome of a selection."""

    pairs: int
    threshold: float | None  # None: all pairs
    choice: ThresholdChoice | None  # how the threshold was chosen, if no number is given
    quantiles: Mapping[str, float]  # share -> best margin of the sources below which that share is; empty unless pairs are few
    dropped: Mapping[str, int]  # reason of a filter -> candidates above the threshold
    scores: GoldScores | MarkScores | None  # with gold or marks
    estimated_precision: float | None  # the mean probability of the pairs, if it estimates their precision
    has_few_right: bool  # the corpora have so few translations that it does not
    examples: Sequence[tuple[float, str, str]]  # margin, source, target: from the best pair to the last
    delta: BitextDelta | None  # if the corpora changed since the previous run

    @property
    def shows_precision(self) -> bool:
        """Whether gold, or at least one mark, scored the pairs."""
        return self.scores is not None and getattr(self.scores, "num_marked", 1) > 0

    def figures(self) -> dict[str, Any]:
        """Return what the manifest and --json have in common."""
        return {
            "pairs": self.pairs,
            "dropped": self.dropped,
            **({} if self.choice is None else {"choice": self.choice.figures()}),
            **({"best_margins": dict(self.quantiles)} if self.quantiles else {}),
            **({} if self.estimated_precision is None else {"estimated_precision": self.estimated_precision}),
            **(self.scores.figures() if self.scores else {}),
        }


def write(selection: PairSelection, gold: GoldPairs | ReviewMarks | None) -> Pipeline[WrittenBitext]:
    """Select the pairs, and write the bitext and, last, the manifest. These contain no times and no paths, so a rerun is identical.

    The pairs are scored by `gold`, if there is any.
    """
    output, threshold, top = selection.settings.output, selection.threshold, selection.settings.top
    lowest = -np.inf if threshold is None else threshold
    steps = selection.steps(lowest)
    matches, filtered = yield from selection.match(lowest, steps)
    weights, limits = selection.probability.weights, selection.limits
    sorted_pairs = yield from sort_pairs.sort_matches(matches, selection.search_result, weights, steps, limits)
    dropped = None
    if filtered is not None and selection.settings.keep_dropped:
        dropped = yield from sort_pairs.sort_rows(filtered.dropped_uris, sum(filtered.dropped.values()), steps, limits)
    choice = None if selection.choice is None else selection.choice.figures()
    delta_stage = deltas.stage_of(output, deltas.stable_config(selection.config(threshold), choice))
    before = deltas.begin(output, delta_stage, selection.corpus_keys)
    previous_checksum = _remove_manifest(output)
    num_pairs = min(matches.rows, top or matches.rows)
    reader = _BitextReader(num_pairs, gold.scorer() if gold is not None else None)
    writers.write_bitext(output, reader.read(sorted_pairs), weights is not None)
    storage.remove(storage.join(output, DROPPED))  # an earlier selection may have written it
    if selection.settings.keep_dropped:
        write_dropped(dropped.row_groups() if dropped else (), output)
    storage.remove(storage.join(output, GROUPS))
    num_grouped = write_groups(output) if selection.settings.groups else None
    written = WrittenBitext(
        pairs=num_pairs,
        threshold=threshold,
        choice=selection.choice,
        quantiles=_quantiles(selection, num_pairs),
        dropped=filtered.dropped if filtered else {},
        scores=reader.scorer.scores() if reader.scorer else None,
        estimated_precision=reader.mean_probability() if selection.has_fitted_probabilities and num_pairs >= MIN_PROBABLE_PAIRS else None,
        has_few_right=selection.has_few_right,
        examples=reader.examples,
        delta=(yield from deltas.write(before, output, delta_stage, limits)) if before else None,
    )
    manifest = _manifest(selection, written, num_grouped)
    if not before and previous_checksum not in (None, deltas.bitext_checksum(manifest)):
        deltas.move_away(delta_stage.folder, "other pairs of the same text: no delta leads to them")
    stages.write_manifest(output, manifest)
    deltas.end(delta_stage)
    steps.remove()
    return written


def _remove_manifest(output: str) -> str | None:
    """Remove the manifest, as the files that it lists will be overwritten. Return the checksum of its bitext, None if there is none."""
    uri = storage.join(output, stages.MANIFEST)
    checksum = deltas.bitext_checksum(stages.read_manifest(output)) if storage.exists(uri) else None
    storage.remove(uri)
    return checksum


def _quantiles(selection: PairSelection, num_pairs: int) -> dict[str, float]:
    """Return quantiles of the best margins of the sources, if the pairs are so few that the threshold may be wrong."""
    if selection.settings.top is not None:
        return {}
    search_result, settings = selection.search_result, selection.settings
    candidates = search_result.read_candidates(keeps_copies=settings.pair_filters.copies is None)
    return few_pair_quantiles(candidates, settings.margin, num_pairs, num_unique(search_result).values())


def write_dropped(row_groups: Iterable[pa.Table], output: str) -> None:
    """Write OUTPUT/dropped.parquet."""
    with table_files.parquet_writer(storage.join(output, DROPPED), DROPPED_PAIRS) as writer:
        for table in row_groups:
            writer.write_table(writers.rebuild_dictionaries(table, DROPPED_PAIRS))


def _manifest(selection: PairSelection, written: WrittenBitext, num_grouped: int | None) -> Manifest:
    search_result, output = selection.search_result, selection.settings.output
    rows = {writers.TSV: written.pairs, writers.PARQUET: written.pairs}
    if selection.settings.keep_dropped:
        rows[DROPPED] = sum(written.dropped.values())
    if num_grouped is not None:
        rows[GROUPS] = num_grouped
    files = [Shard(name, count, storage.checksum(storage.join(output, name))) for name, count in rows.items()]
    details = {
        "sentences": num_kept(search_result),
        "unique": num_unique(search_result),
        "languages": {"source": search_result.source.lang, "target": search_result.target.lang},
        "fingerprint": search_result.source.fingerprint,
        **written.figures(),
    }
    return Manifest(MINE, selection.config(written.threshold), selection.corpus_keys, files, details)


def num_kept(search_result: SearchResult) -> dict[str, int]:
    """Return the number of lines kept on each side."""
    return {"source": search_result.source.counts["kept"], "target": search_result.target.counts["kept"]}


def num_unique(search_result: SearchResult) -> dict[str, int]:
    """Return the number of unique sentences on each side."""
    return {"source": search_result.source.rows, "target": search_result.target.rows}


class _BitextReader:
    """Reads the first of sorted pairs once; on the way it scores them and takes examples, from the best pair to the last."""

    def __init__(self, num_pairs: int, scorer: GoldScorer | MarkScorer | None) -> None:
        self.num_pairs, self.scorer = num_pairs, scorer
        self.examples: list[tuple[float, str, str]] = []
        self._sum_probabilities = 0.0
        self._rows = spaced_rows(num_pairs, NUM_EXAMPLES)

    def mean_probability(self) -> float:
        return round(self._sum_probabilities / self.num_pairs, 4)

    def read(self, pairs: SortedPairs) -> Iterator[pa.Table]:
        start = 0
        for group in pairs.row_groups():
            table = group.slice(0, self.num_pairs - start)
            rows = self._rows[slice(*np.searchsorted(self._rows, [start, start + len(table)]))] - start
            examples = table.select(["margin", "source_text", "target_text"]).take(pa.array(rows))
            self.examples += [tuple(row.values()) for row in examples.to_pylist()]
            if PROBABILITY.name in table.column_names:
                self._sum_probabilities += float(table[PROBABILITY.name].to_numpy().astype(np.float64).sum())
            if self.scorer is not None:
                self.scorer.add(zip(*(table[name].to_pylist() for name in sort_pairs.IDS), strict=True))
            start += len(table)
            yield table
            if start == self.num_pairs:
                return
