"""Statistics of a mined bitext: margins, and shares of pairs that look wrong. See docs/evaluation.md for each figure.

The bitext is read in batches; memory is about 130 bytes per pair, and 32 per candidate while hubs are counted.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from miner.arrays import Floats, Ids
from miner.config.commands import PairFilters
from miner.config.probability import PROBABILITY
from miner.errors import ConfigError, DataError
from miner.evaluation.bitext_precision import KnownPairs, measure_precision
from miner.evaluation.hub_counts import SIDES, HubCounts, read_hub_counts
from miner.evaluation.scores import EvaluationResult, percent
from miner.filters import BLOCK_ROWS, language
from miner.filters.pairs import PAIR_FILTERS, PairTexts, apply_pair_filters
from miner.io import stages, storage, table_files
from miner.mining.writers import PARQUET
from miner.text.near_duplicates import skeleton_keys

QUANTILES = {"min": 0.0, "5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95, "max": 1.0}
HISTOGRAM_BINS = 50
MAX_LANGUAGE_PAIRS = 20_000  # pairs whose languages are identified; this is the slowest part

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class BitextPart:
    """n pairs of a bitext, best first, without their texts."""

    ids: Mapping[str, Ids]  # by side: (n,)
    skeletons: Mapping[str, Ids]  # by side: (n,), equal for sentences that differ only in case, punctuation and spaces
    margins: Floats  # (n,)
    probabilities: Floats | None  # (n,), None if the encoder has none
    filter_scores: Mapping[str, Floats]  # by pair filter: (n,), NaN where the filter gives no score or was not run
    languages: tuple[str, str]

    def __len__(self) -> int:
        return len(self.margins)

    def suspects(self) -> dict[str, dict[str, float]]:
        """By filter reason, the number of judged pairs, and the share of these that the filter drops at its usual bound."""
        suspects = {}
        for name, scores in self.filter_scores.items():
            num_judged = int((~np.isnan(scores)).sum())
            if num_judged:
                is_dropped = PAIR_FILTERS[name].drops(scores, PairFilters.usual()[name])
                suspects[PAIR_FILTERS[name].reason] = {"n": num_judged, "share": float(is_dropped.sum() / num_judged)}
        return suspects

    def repeats(self) -> dict[str, dict[str, float]]:
        """Return by side the share of pairs whose sentence is in an earlier pair: identical, or equal but for case, punctuation, spaces."""
        keys_by_kind = {"exact": self.ids, "near": self.skeletons}
        return {kind: {side: 1 - len(np.unique(keys[side])) / len(self) for side in SIDES} for kind, keys in keys_by_kind.items()}


def _quantiles(values: Floats) -> dict[str, float]:
    return dict(zip(QUANTILES, np.quantile(values, list(QUANTILES.values())).tolist(), strict=True))


def evaluate(
    folder: str,
    known_pairs: KnownPairs | None = None,
    max_language_pairs: int = MAX_LANGUAGE_PAIRS,
    batch_rows: int = BLOCK_ROWS,
) -> EvaluationResult:
    """Describe the pairs in a directory of `miner mine`; with gold or marks, measure their precision.

    Raise StorageError if it is not such a directory, DataError if it has no pairs.
    """
    manifest = stages.read_manifest(folder, stages.MINE)
    uri = storage.join(folder, PARQUET)
    source, target = (manifest.details["languages"][side] for side in SIDES)
    hub_counts = read_hub_counts(folder)
    parts = [_describe(batch, (source, target), hub_counts) for batch in _batches(uri, batch_rows)]
    if not parts:
        raise DataError(f"{folder}: no pairs; mine with a lower --threshold")
    bitext = _concatenate(parts, _language_scores(uri, parts, max_language_pairs, batch_rows))
    ids = bitext.ids["source"], bitext.ids["target"]
    precision = measure_precision(known_pairs, ids, bitext.margins, bitext.probabilities) if known_pairs else None
    top_hubs = {side: hub_counts.top(side, bitext.ids[side], uri) for side in SIDES} if hub_counts else None
    figures, summary = _describe_bitext(bitext, top_hubs)
    if precision is None:
        return EvaluationResult(figures, summary)
    return EvaluationResult({**figures, **precision.figures()}, f"{summary}\n{precision.summary()}")


def _describe_bitext(bitext: BitextPart, hubs: Mapping[str, list[tuple[float, str]]] | None) -> tuple[dict[str, Any], str]:
    """Return the figures and the summary of a bitext and, by side, of its hubs: the number of candidates / k, and the text."""
    counts, edges = np.histogram(bitext.margins, HISTOGRAM_BINS)
    quantiles = {"margin": _quantiles(bitext.margins), "length_ratio": _quantiles(bitext.filter_scores["length_ratio"])}
    quantiles["margin"]["mean"] = float(bitext.margins.mean())
    suspects, repeats = bitext.suspects(), bitext.repeats()
    figures: dict[str, Any] = {
        "pairs": len(bitext),
        "languages": dict(zip(SIDES, bitext.languages, strict=True)),
        **quantiles,
        "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
        "suspects": suspects,
        "repeats": repeats,
        "hubs": hubs and {side: [{"times_k": times, "text": text} for times, text in top] for side, top in hubs.items()},
    }
    lines = {name: [f"{quantile} {value:.3f}" for quantile, value in values.items()] for name, values in quantiles.items()}
    lines["suspects"] = [f"{reason} {percent(suspect['share'])} %" for reason, suspect in suspects.items()]
    lines |= {f"repeats, {kind}": [f"{side} {percent(share)} %" for side, share in shares.items()] for kind, shares in repeats.items()}
    lines |= {f"hub, {side}": [f"{times:.1f} k  {text}" for times, text in top[:1]] for side, top in (hubs or {}).items() if top}
    rows = (f"{name:15}{', '.join(cells)}" for name, cells in lines.items())
    return figures, "\n".join([f"{len(bitext):,} pairs, {' and '.join(bitext.languages)}", *rows])


def _batches(uri: str, batch_rows: int) -> Iterator[pa.Table]:
    with table_files.open_parquet(uri) as file:
        for batch in file.iter_batches(batch_rows):
            if len(batch):
                yield pa.Table.from_batches([batch])


def _describe(batch: pa.Table, languages: tuple[str, str], hub_counts: HubCounts | None) -> BitextPart:
    ids = {side: batch[f"{side}_id"].to_numpy() for side in SIDES}
    texts = {side: batch[f"{side}_text"].to_pylist() for side in SIDES}
    candidates_by_k = np.full(len(batch), np.nan)
    if hub_counts is not None:
        candidates_by_k = np.maximum(*(hub_counts.times_k(side, ids[side]) for side in SIDES))
    bounds = {name: bound for name, bound in PairFilters.usual().items() if name != "languages"}
    verdicts = apply_pair_filters(PairTexts(texts["source"], texts["target"], languages, candidates_by_k), bounds)
    skeletons = {side: skeleton_keys(texts[side]) for side in SIDES}
    probabilities = batch[PROBABILITY].to_numpy() if PROBABILITY in batch.column_names else None
    return BitextPart(ids, skeletons, batch["margin"].to_numpy(), probabilities, verdicts.scores, languages)


def _concatenate(parts: list[BitextPart], language_scores: Mapping[str, Floats]) -> BitextPart:
    def concatenate(field: str) -> dict[str, Any]:
        return {name: np.concatenate([getattr(part, field)[name] for part in parts]) for name in getattr(parts[0], field)}

    margins = np.concatenate([part.margins for part in parts])
    by_part = [part.probabilities for part in parts if part.probabilities is not None]
    probabilities = np.concatenate(by_part) if by_part else None
    filter_scores = {**concatenate("filter_scores"), **language_scores}
    return BitextPart(concatenate("ids"), concatenate("skeletons"), margins, probabilities, filter_scores, parts[0].languages)


def _language_scores(uri: str, parts: list[BitextPart], max_pairs: int, batch_rows: int) -> dict[str, Floats]:
    """Return the scores of the language filter for evenly spaced pairs; nothing if py3langid is not installed."""
    try:
        language.load_identifier()
    except ConfigError as error:
        logger.warning("languages are not checked: %s", error)
        return {}
    num_pairs = sum(map(len, parts))
    scores = np.full(num_pairs, np.nan)
    step = -(-num_pairs // max_pairs)
    start = 0
    for batch in _batches(uri, batch_rows):
        rows = np.arange(-start % step, len(batch), step)
        sample = batch.take(pa.array(rows))
        sources, targets = (sample[f"{side}_text"].to_pylist() for side in SIDES)
        pairs = PairTexts(sources, targets, parts[0].languages, np.full(len(rows), np.nan))
        scores[start + rows] = apply_pair_filters(pairs, {"languages": PairFilters.usual()["languages"]}).scores["languages"]
        start += len(batch)
    return {"languages": scores}
