"""A mined bitext by itself: its margins, and how many of its pairs look wrong. See docs/evaluation.md for what each figure says.

It is read in parts; what stays in memory is about 130 bytes for each pair, and 32 for each candidate while hubs are counted.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner import stages, storage
from miner.config.commands import PairFilters
from miner.errors import ConfigError, DataError
from miner.evaluation.bitext_precision import GoldPairs, PrecisionReport, ReviewMarks
from miner.evaluation.scores import Floats, percent
from miner.filters import BLOCK_ROWS, hubs, language
from miner.filters.pairs import PAIR_FILTERS, PairTexts, apply_pair_filters
from miner.mining.writers import PARQUET
from miner.text.near_duplicates import skeleton_keys

Ids = npt.NDArray[np.int64]

STAGE = "mine"
CANDIDATES = "candidates"
SIDES = ("source", "target")
QUANTILES = {"min": 0.0, "5 %": 0.05, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "95 %": 0.95, "max": 1.0}
BINS = 50  # of the histogram of margins
LANGUAGE_SAMPLE = 20_000  # pairs, at most, whose languages are identified: that takes longer than all else
TOP = 5  # hubs told

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HubCounts:
    """In how many candidates the sentences of either side are, whatever the margin; and the k of the search."""

    sides: Mapping[str, hubs.OccurrenceCounts]
    k: int


@dataclass(frozen=True, eq=False)
class BitextPart:
    """The figures of n pairs, best first, and what is wrong with each."""

    ids: Mapping[str, Ids]  # by side: (n,)
    skeletons: Mapping[str, Ids]  # by side: (n,), equal for sentences that differ in case, punctuation and spaces alone
    margins: Floats  # (n,)
    suspicion: Mapping[str, Floats]  # by filter: (n,) its scores, NaN where it cannot tell or was not asked
    languages: tuple[str, str]

    def __len__(self) -> int:
        return len(self.margins)

    @cached_property
    def suspects(self) -> dict[str, dict[str, float]]:
        """By filter: how many pairs it could judge, and the share of those beyond its usual bound."""
        found = {}
        for name, scores in self.suspicion.items():
            judged = int((~np.isnan(scores)).sum())
            if judged:
                beyond = PAIR_FILTERS[name].drops(scores, PairFilters.USUAL[name])
                found[PAIR_FILTERS[name].reason] = {"judged": judged, "share": float(beyond.sum() / judged)}
        return found

    def repeats(self) -> dict[str, dict[str, float]]:
        """The shares of pairs of which a side stands in an earlier pair: the same, or but for case, punctuation and spaces."""
        kinds = {"same": self.ids, "near": self.skeletons}
        return {kind: {side: 1 - len(np.unique(keys[side])) / len(self) for side in SIDES} for kind, keys in kinds.items()}


@dataclass(frozen=True, eq=False)
class BitextResult:
    """What `miner eval bitext` found."""

    bitext: BitextPart
    hubs: Mapping[str, list[tuple[float, str]]] | None  # by side the sentences in most candidates, by k; None without candidates
    judgement: PrecisionReport | None

    def figures(self) -> dict[str, Any]:
        bitext = self.bitext
        counts, edges = np.histogram(bitext.margins, BINS)
        return {
            "pairs": len(bitext),
            "languages": dict(zip(SIDES, bitext.languages, strict=True)),
            "margin": {**_quantiles(bitext.margins), "mean": float(bitext.margins.mean())},
            "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
            "length_ratio": _quantiles(bitext.suspicion["length_ratio"]),
            "suspects": bitext.suspects,
            "repeats": bitext.repeats(),
            "hubs": self.hubs and {side: [{"times_k": times, "text": text} for times, text in top] for side, top in self.hubs.items()},
            **(self.judgement.figures() if self.judgement else {}),
        }

    def summary(self) -> str:
        figures = self.figures()
        lines = [f"{len(self.bitext):,} pairs, {' and '.join(self.bitext.languages)}"]
        lines += [
            f"{name:14}" + ", ".join(f"{at} {value:.3f}" for at, value in figures[name].items()) for name in ("margin", "length_ratio")
        ]
        told = (f"{reason} {percent(found['share'])} %" for reason, found in self.bitext.suspects.items())
        lines.append(f"{'suspects':14}{', '.join(told)}")
        for kind, shares in figures["repeats"].items():
            lines.append(f"{'repeats, ' + kind:14}" + ", ".join(f"{side} {percent(share)} %" for side, share in shares.items()))
        for side, top in (self.hubs or {}).items():
            lines += [f"{'hub, ' + side:14}{times:.1f} k  {text}" for times, text in top[:1]]
        return "\n".join([*lines, *([self.judgement.summary()] if self.judgement else [])])


def _quantiles(values: Floats) -> dict[str, float]:
    return dict(zip(QUANTILES, np.quantile(values, list(QUANTILES.values())).tolist(), strict=True))


def evaluate(folder: str, truth: GoldPairs | ReviewMarks | None = None) -> BitextResult:
    """A folder of `miner mine` -> what its pairs look like and, with gold or marks, how many of them are right.

    StorageError where it is none, DataError where it holds no pair.
    """
    manifest = stages.read_manifest(folder, STAGE)
    uri = storage.join(folder, PARQUET)
    languages = tuple(manifest.details["languages"][side] for side in SIDES)
    crowds = read_crowds(folder)
    parts = [_describe(part, (languages[0], languages[1]), crowds) for part in _parts(uri)]
    if not parts:
        raise DataError(f"{folder}: holds no pairs; mine with a lower --threshold")
    bitext = _concat(parts)
    bitext = BitextPart(bitext.ids, bitext.skeletons, bitext.margins, {**bitext.suspicion, **_languages(uri, bitext)}, bitext.languages)
    judgement = truth.judge(bitext.ids["source"], bitext.ids["target"], bitext.margins) if truth else None
    return BitextResult(bitext, _top_hubs(uri, bitext, crowds) if crowds else None, judgement)


def read_crowds(folder: str) -> HubCounts | None:
    """Of the candidates in a folder of `miner mine`; None where it has none, because it was decided from those of another."""
    place = storage.join(folder, CANDIDATES)
    if not storage.exists(storage.join(place, stages.MANIFEST)):
        return None
    manifest = stages.read_manifest(place, CANDIDATES)
    tables = [storage.read_table(storage.join(place, shard.name), [f"{side}_id" for side in SIDES]) for shard in manifest.shards]
    columns = {side: np.concatenate([table[f"{side}_id"].to_numpy() for table in tables]) for side in SIDES}
    return HubCounts({side: hubs.count_occurrences(ids) for side, ids in columns.items()}, int(manifest.details["k"]))


def _parts(uri: str) -> Iterator[pa.Table]:
    with storage.open_parquet(uri) as file:
        for batch in file.iter_batches(BLOCK_ROWS):
            if len(batch):
                yield pa.Table.from_batches([batch])


def _describe(part: pa.Table, languages: tuple[str, str], crowds: HubCounts | None) -> BitextPart:
    ids = {side: part[f"{side}_id"].to_numpy() for side in SIDES}
    texts = {side: part[f"{side}_text"].to_pylist() for side in SIDES}
    crowd = np.full(len(part), np.nan)
    if crowds is not None:
        crowd = np.maximum(*(crowds.sides[side].of(ids[side]) for side in SIDES)) / crowds.k
    bounds = {name: bound for name, bound in PairFilters.USUAL.items() if name != "languages"}
    verdicts = apply_pair_filters(PairTexts(texts["source"], texts["target"], languages, crowd), bounds)
    return BitextPart(ids, {side: skeleton_keys(texts[side]) for side in SIDES}, part["margin"].to_numpy(), verdicts.scores, languages)


def _concat(parts: list[BitextPart]) -> BitextPart:
    def joined(of: str) -> dict[str, Any]:
        return {name: np.concatenate([getattr(part, of)[name] for part in parts]) for name in getattr(parts[0], of)}

    margins = np.concatenate([part.margins for part in parts])
    return BitextPart(joined("ids"), joined("skeletons"), margins, joined("suspicion"), parts[0].languages)


def _languages(uri: str, bitext: BitextPart) -> dict[str, Floats]:
    """The scores of the filter of languages, of pairs evenly spread over the bitext; nothing where no identifier is installed."""
    try:
        language.load_identifier()
    except ConfigError as error:
        logger.warning("languages are not looked at: %s", error)
        return {}
    scores = np.full(len(bitext), np.nan)
    step = -(-len(bitext) // LANGUAGE_SAMPLE)
    start = 0
    for part in _parts(uri):
        rows = np.arange(-start % step, len(part), step)
        some = part.take(pa.array(rows))
        sources, targets = (some[f"{side}_text"].to_pylist() for side in SIDES)
        pairs = PairTexts(sources, targets, bitext.languages, np.full(len(rows), np.nan))
        scores[start + rows] = apply_pair_filters(pairs, {"languages": PairFilters.USUAL["languages"]}).scores["languages"]
        start += len(part)
    return {"languages": scores}


def _top_hubs(uri: str, bitext: BitextPart, crowds: HubCounts) -> dict[str, list[tuple[float, str]]]:
    """By side the sentences of the bitext that are in most candidates: how many, by k, and their text."""
    found = {}
    for side in SIDES:
        times = crowds.sides[side].of(bitext.ids[side]) / crowds.k
        first = np.unique(bitext.ids[side], return_index=True)[1]  # a row for each sentence
        rows = first[np.lexsort((first, -times[first]))][:TOP]
        texts = _texts(uri, f"{side}_text", rows)
        found[side] = [(float(times[row]), texts[row]) for row in rows.tolist()]
    return found


def _texts(uri: str, column: str, rows: npt.NDArray[np.intp]) -> dict[int, str]:
    texts: dict[int, str] = {}
    start = 0
    for part in _parts(uri):
        here = rows[(rows >= start) & (rows < start + len(part))]
        texts.update(zip(here.tolist(), part[column].take(pa.array(here - start)).to_pylist(), strict=True))
        start += len(part)
    return texts
