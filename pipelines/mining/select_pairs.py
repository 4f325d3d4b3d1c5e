"""What happens after candidates: which of them are pairs, with their texts, and what a manifest says of it.

It goes by ranges of sentences (`judge`, `matched`) and of margins (`ordered`); what is left to do here is to put the ranges together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from miner import stages, storage
from miner.config.commands import DecideSettings
from miner.mining import gold as evaluation
from miner.mining import writers
from miner.mining.gold import GoldScores, Pairs
from miner.mining.margin import THRESHOLDS
from miner.mining.thresholds import ThresholdChoice
from miner.stages import Manifest, Shard
from miner.tables import DROPPED_PAIRS
from pipelines.beam.shuffle import ShuffleSteps
from pipelines.mining import deltas, filter_pairs, match, sort_pairs
from pipelines.mining.candidates import SearchResult
from pipelines.mining.deltas import BitextDelta
from pipelines.mining.filter_pairs import FilteredPairs
from pipelines.mining.match import MatchedPairs
from pipelines.mining.sort_pairs import SortedPairs

STAGE = "mine"
STEPS = ".pairs"  # folder of what is on its way
DROPPED = "dropped.parquet"
EXAMPLES = 10  # pairs in the summary

MatchedCount = tuple[Pairs, int]  # gold pairs, and how many more there are that cannot be found


def steps_of(
    found: SearchResult, settings: DecideSettings, threshold: float, output: str, options: Sequence[str], wanted: Pairs = frozenset()
) -> ShuffleSteps:
    """Where the pairs above a threshold are made, and counted that are wanted, under OUTPUT."""
    manifest = stages.read_manifest(found.folder)
    parts = [shard.checksum for shard in manifest.shards], found.source.key, found.target.key
    key = storage.key([parts, settings.margin, settings.retrieval, settings.pair_filters.bounds(), str(threshold), sorted(wanted)])
    return ShuffleSteps("matching", storage.join(output, STEPS), key, manifest.rows, options)


def pairs_above(
    found: SearchResult, settings: DecideSettings, threshold: float, steps: ShuffleSteps
) -> tuple[MatchedPairs, FilteredPairs | None]:
    """The pairs above a threshold, by margin, retrieval and the judge of their texts, and what he said of the others.

    They are the first of those above any lower threshold.
    """
    by = filter_pairs.judge_of(found, settings)
    if by is None:
        scored = match.score(found.folder, settings.margin, threshold, len(found.target.shards), steps)
        return match.match(scored, settings.retrieval), None
    judged = filter_pairs.judge(found, settings.margin, threshold, by, steps)
    return match.match(judged.candidates, settings.retrieval), judged


def _threshold(settings: DecideSettings, choice: ThresholdChoice | None) -> float | None:
    if choice is not None:
        return choice.threshold
    if settings.threshold is not None:
        return None if settings.threshold == -np.inf else settings.threshold  # JSON has no infinity
    return None if settings.retrieval == "all" else THRESHOLDS[settings.margin]


@dataclass(frozen=True)
class WrittenBitext:
    """What came of a decision."""

    pairs: int
    threshold: float | None
    choice: ThresholdChoice | None  # of the threshold, with `auto`
    dropped: Mapping[str, int]  # reason -> candidates
    scores: GoldScores | None  # with gold
    examples: list[tuple[float, str, str]]  # margin, source, target: from the best pair to the last
    delta: BitextDelta | None  # where corpora changed since the run before


def write(
    found: SearchResult,
    settings: DecideSettings,
    output: str,
    wanted: MatchedCount | None,
    choice: ThresholdChoice | None = None,
    options: Sequence[str] = (),
) -> WrittenBitext:
    """Decide, and write the pairs and, last, the manifest. It tells no times and no places, so that a rerun gives the same bytes.

    `wanted` is gold, to compare with, and `choice` the threshold, where it was chosen.
    """
    threshold = _threshold(settings, choice)
    gold = wanted[0] if wanted else frozenset()
    steps = steps_of(found, settings, -np.inf if threshold is None else threshold, output, options, gold)
    pairs, judged = pairs_above(found, settings, -np.inf if threshold is None else threshold, steps)
    rows = sort_pairs.order(pairs, found, gold, steps)
    dropped = judged.ordered(steps) if judged is not None and settings.keep_dropped else None
    changes = deltas.stage_of(output, {**_decided(found, settings, threshold), **({"threshold": "auto"} if choice else {})})
    before, manifest = deltas.begin(output, changes, _inputs(found)), storage.join(output, stages.MANIFEST)
    known = deltas.pairs_of(stages.read_manifest(output)) if storage.exists(manifest) else None
    storage.remove(manifest)  # of what is written over from here on
    examples = _Examples(pairs.rows)
    writers.write_bitext(output, examples.watch(rows.parts()))
    _write_dropped(dropped, settings, output)
    scores = evaluation.scores(sum(shard.counts["right"] for shard in rows.manifest.shards), pairs.rows, *wanted) if wanted else None
    delta = deltas.write(before, output, changes, options) if before else None
    written = WrittenBitext(pairs.rows, threshold, choice, dict(judged.dropped) if judged else {}, scores, examples.found, delta)
    told = _manifest(found, settings, output, written)
    if not before and known not in (None, deltas.pairs_of(told)):
        storage.remove(changes.folder)  # other pairs of the same text, to which no delta leads
    storage.write_json(manifest, asdict(told))
    deltas.end(changes)
    steps.remove()
    return written


def _write_dropped(dropped: SortedPairs | None, settings: DecideSettings, output: str) -> None:
    """OUTPUT/dropped.parquet, where it is to be kept; one of another decision is removed."""
    if not settings.keep_dropped:
        storage.remove(storage.join(output, DROPPED))
        return
    with storage.parquet_writer(storage.join(output, DROPPED), DROPPED_PAIRS) as writer:
        for part in dropped.parts() if dropped else ():
            writer.write_table(writers.same_bytes(part, DROPPED_PAIRS))


def _manifest(found: SearchResult, settings: DecideSettings, output: str, written: WrittenBitext) -> Manifest:
    rows = {writers.TSV: written.pairs, writers.PARQUET: written.pairs}
    if settings.keep_dropped:
        rows[DROPPED] = sum(written.dropped.values())
    files = [Shard(name, count, storage.checksum(storage.join(output, name))) for name, count in rows.items()]
    details = {
        **dict(zip(("sentences", "unique"), sizes(found), strict=True)),
        "pairs": written.pairs,
        "dropped": written.dropped,
        "languages": {"source": found.source.lang, "target": found.target.lang},
        "fingerprint": found.source.fingerprint,
        **({"choice": asdict(written.choice)} if written.choice else {}),
        **(asdict(written.scores) if written.scores else {}),
    }
    return Manifest(STAGE, _decided(found, settings, written.threshold), _inputs(found), files, details)


def _decided(found: SearchResult, settings: DecideSettings, threshold: float | None) -> dict[str, Any]:
    filters = settings.pair_filters.bounds()
    return {"k": found.k, "margin": settings.margin, "retrieval": settings.retrieval, "threshold": threshold, "filters": filters}


def _inputs(found: SearchResult) -> dict[str, str]:
    return {"source": found.source.key, "target": found.target.key}


def sizes(found: SearchResult) -> tuple[dict[str, int], dict[str, int]]:
    """The lines kept and the unique sentences of each side."""
    corpora = {"source": found.source, "target": found.target}
    return {side: corpus.counts["kept"] for side, corpus in corpora.items()}, {side: corpus.rows for side, corpus in corpora.items()}


class _Examples:
    """Up to EXAMPLES pairs, evenly spread from the first to the last, of those that come by."""

    def __init__(self, pairs: int) -> None:
        self.rows = np.unique(np.linspace(0, pairs - 1, EXAMPLES).round().astype(int)) if pairs else np.zeros(0, int)
        self.found: list[tuple[float, str, str]] = []

    def watch(self, parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
        start = 0
        for part in parts:
            here = self.rows[slice(*np.searchsorted(self.rows, [start, start + len(part)]))] - start
            table = part.select(["margin", "source_text", "target_text"]).take(pa.array(here))
            self.found += [tuple(row.values()) for row in table.to_pylist()]
            start += len(part)
            yield part
