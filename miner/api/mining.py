"""`miner.mine`: the stages of `miner mine` on sentences or vectors in memory."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import pyarrow as pa

from miner import encoders
from miner.api.embedding import EncoderLike, check_encoder, find_profile, named
from miner.api.rescoring import InMemoryRescoring, choose_rescoring, num_neighbours
from miner.api.results import TableResult
from miner.api.settings import InMemoryMining, MiningOptions, check_names
from miner.api.sides import OpenSide, Side, SideOpener, check_encoders
from miner.config.choices import DefaultThreshold, MarginName
from miner.config.commands import PairFilters, SentenceFilters
from miner.config.filters import choose
from miner.config.probability import ProbabilityBound
from miner.devices import choose_device
from miner.encoders import mining_profile
from miner.encoders.mining_profile import MiningProfile
from miner.errors import ConfigError
from miner.filters import hubs, language
from miner.filters.candidates import PairFilter, no_dropped
from miner.filters.pairs import probabilities_of
from miner.filters.probability import fit_to_corpora
from miner.io.tables import PROBABILITY, concat_tables
from miner.mining import leave_out
from miner.mining.candidates import Candidates, ScoredPairs, join_neighbours, score
from miner.mining.histogram import describe_quantiles, few_pair_quantiles
from miner.mining.late_scores import TokenSides, rescore
from miner.mining.margin_sample import MarginSample
from miner.mining.matching import match, rank
from miner.mining.writers import pairs_from_arrow, pairs_to_arrow, sort_best_first
from miner.search import exact

logger = logging.getLogger(__name__)

SIDES = ("source", "target")
COLUMNS = ("source_id", "target_id", "margin", "similarity", "source_row", "target_row", "source_text", "target_text")
DROPPED_COLUMNS = ("source_id", "target_id", "margin", "source_text", "target_text", "reason", "score")


@dataclass(frozen=True, eq=False)
class Bitext(TableResult):
    """Mined pairs, best first.

    Columns: source_id, target_id, margin (float64), similarity (float32), source_row and target_row (row in the input, the first one of a
    repeated sentence) and, if the input has texts, source_text and target_text, and probability where the encoder has weights for it.
    """

    table: pa.Table
    threshold: float | None  # None: all pairs
    default: DefaultThreshold | None  # the threshold, if none was given
    unique: Mapping[str, int]  # side -> sentences
    quantiles: Mapping[str, float]  # share -> best margin of the sources below which that share is; empty unless pairs are few
    dropped: Mapping[str, int]  # reason of a filter -> sentences or candidates
    dropped_pairs: pa.Table | None  # candidates that the pair filters dropped, with `keep_dropped`

    def __len__(self) -> int:
        return len(self.table)

    def to_arrow(self) -> pa.Table:
        """Return the table of pairs."""
        return self.table


def mine(source: Side, target: Side, encoder: EncoderLike = encoders.BUILTIN, **options: Unpack[MiningOptions]) -> Bitext:
    """Mine pairs of sentences that are translations of each other, as `miner mine` does, by exact search.

    Args:
        source: Sentences, the result of `miner.embed`, or a tuple of ids (n,) and unit vectors (n, dim).
        target: The other side, in any of these forms.
        encoder: Name of an encoder, or an encoder of `miner.load_encoder`. Vectors need none.
        **options: Those of `miner mine` by name: `k`, `margin`, `retrieval`, `threshold`, `min_probability`, `top`, `source_lang`,
            `target_lang`, `max_chars`, `keep_dropped`, `device` and so on; `filters` is a list of values of `--filter`.

    Raises a MinerError for invalid sides or options.

    Example:
        >>> bitext = miner.mine(english, german, source_lang="en", target_lang="de", filters=["recommended"])
        >>> bitext.to_pandas()[["margin", "source_text", "target_text"]]
    """
    encoder = check_encoder(encoder)
    check_names(options, MiningOptions.__annotations__)
    chosen = choose(options.pop("filters", ()), sentence_filters=SentenceFilters, pair_filters=PairFilters)
    settings = InMemoryMining.check(**named(encoder), **options, **chosen)
    language.check_identifier([*settings.sentence_filters.bounds(), *settings.pair_filters.bounds()], settings.lang_id_model)
    opener = SideOpener(encoder, settings)
    sides = opener.open(source, SIDES[0]), opener.open(target, SIDES[1])
    check_encoders(*sides)
    language.warn_if_unrated(settings.pair_filters.bounds(), [side.lang for side in sides], settings.lang_id_model)
    rescoring = choose_rescoring(sides, encoder, settings)
    candidates = search(sides, settings, rescoring)
    profile = find_profile(encoder, sides[0].fingerprint, settings, [side.lang for side in sides])
    profile = fit_profile(profile, candidates, sides, settings.margin)
    bound = profile.probability_bound(settings.margin, rescoring is not None, settings.min_probability)
    default = find_threshold(candidates, sides, profile, settings)
    bound = bound.with_default(default)
    mining_profile.warn_of_margin(settings, bound.minimum)
    threshold = settings.threshold if default is None else default.value
    lowest, per_sentence = -np.inf if threshold is None else float(threshold), num_neighbours(rescoring, settings)
    return _CandidateSelection(sides, settings, lowest, per_sentence, bound).bitext(candidates, default)


def fit_profile(profile: MiningProfile, candidates: Candidates, sides: tuple[OpenSide, OpenSide], margin: MarginName) -> MiningProfile:
    """Return a profile with the weights for these candidates; the same where there are no weights."""
    is_rescored = candidates.late is not None
    weights = profile.weights(margin, is_rescored)
    if weights is None:
        return profile
    sample = MarginSample.of(candidates, margin, (len(sides[0].ids), len(sides[1].ids)))
    return profile.with_weights(margin, is_rescored, fit_to_corpora(weights, margin, sample))


def find_threshold(
    candidates: Candidates, sides: tuple[OpenSide, OpenSide], profile: MiningProfile, settings: InMemoryMining
) -> DefaultThreshold | None:
    """Return the default threshold, None if the settings have another one or none; warn if the encoder recommends none."""
    if not mining_profile.uses_default(settings, settings.threshold, settings.top):
        return None
    recommended = profile.threshold(settings, candidates.late is not None)
    if recommended is not None:
        return recommended
    sources = leave_out.SampledSources(len(sides[0].ids), settings.k)
    chosen = leave_out.choose_by_sample(lambda: [candidates], settings.margin, sources, settings.precision)
    logger.warning("%s", mining_profile.describe(chosen, sides[0].fingerprint))
    return chosen


def search(sides: tuple[OpenSide, OpenSide], settings: InMemoryMining, rescoring: InMemoryRescoring | None) -> Candidates:
    """Return the candidates of both sides."""
    options = exact.SearchOptions(choose_device(settings.device))
    ids = sides[0].ids, sides[1].ids
    neighbours = exact.search_block(sides[0].block, sides[1].block, num_neighbours(rescoring, settings), options)
    candidates = join_neighbours(*ids, *neighbours, settings.k)
    if rescoring is None:
        return candidates
    source, target = (rescoring.tokens(role, side.texts or ()) for role, side in zip(SIDES, sides, strict=True))
    return rescore(candidates, *ids, TokenSides(source, target, rescoring.candidates), settings.k, rescoring.options())


@dataclass(frozen=True)
class _CandidateSelection:
    """Both sides, and how pairs are selected among their candidates."""

    sides: tuple[OpenSide, OpenSide]
    settings: InMemoryMining
    threshold: float
    num_neighbours: int
    probability: ProbabilityBound

    def bitext(self, candidates: Candidates, default: DefaultThreshold | None) -> Bitext:
        """Select the pairs among candidates."""
        ranked, dropped, counts = self.rank(candidates)
        pairs = match(ranked, self.settings.retrieval)
        pairs = pairs.take(np.arange(min(len(pairs), self.settings.top or len(pairs))))
        for side in self.sides:
            counts |= {reason: counts.get(reason, 0) + len(rows) for reason, rows in side.dropped_rows.items()}
        unique = {name: len(side.ids) for name, side in zip(SIDES, self.sides, strict=True)}
        quantiles = {}
        if self.settings.top is None:
            quantiles = few_pair_quantiles([candidates], self.settings.margin, len(pairs), unique.values())
        if quantiles:
            logger.warning("few pairs (%d); best margins of the source sentences: %s", len(pairs), describe_quantiles(quantiles))
        dropped_pairs = dropped.select(DROPPED_COLUMNS) if self.settings.keep_dropped else None
        threshold = None if np.isneginf(self.threshold) else self.threshold
        return Bitext(self.table(pairs), threshold, default, unique, quantiles, counts, dropped_pairs)

    def rank(self, candidates: Candidates) -> tuple[ScoredPairs, pa.Table, dict[str, int]]:
        """Return the candidates above the threshold that pass the filters, best first; the dropped ones; and their counts by reason."""
        scored = score(candidates, self.settings.margin, self.threshold)
        pair_filter = PairFilter.of(self.settings, (self.sides[0].lang, self.sides[1].lang), self.num_neighbours, self.probability)
        if pair_filter is None:
            empty = self._add_texts(pairs_to_arrow(scored.take(np.zeros(0, np.intp))))
            return rank(scored), no_dropped(empty), {}
        if any(side.texts is None for side in self.sides) and set(pair_filter.bounds) != {"hubs"}:
            raise ConfigError("pair filters read texts; give sentences or the result of `miner.embed`, or leave `hubs` only")
        kept = pairs_to_arrow(scored, passed=np.zeros(len(scored), dtype=bool))
        for name, ids in zip(SIDES, (candidates.source_ids, candidates.target_ids), strict=True):
            counts = hubs.count_occurrences(ids).of(kept[f"{name}_id"].to_numpy())
            kept = kept.append_column(f"{name}_hub_count", pa.array(counts))
        kept = sort_best_first(self._add_texts(kept))
        dropped, reasons = [], dict.fromkeys(pair_filter.reasons, 0)
        for name in filter(pair_filter.applies_to, reversed(SIDES)):
            kept, dropped_here, counts_here = pair_filter.split(kept, name)
            dropped.append(dropped_here)
            reasons = {reason: count + counts_here[reason] for reason, count in reasons.items()}
        return rank(pairs_from_arrow(kept)), sort_best_first(concat_tables(dropped)), reasons

    def table(self, pairs: ScoredPairs) -> pa.Table:
        """Return the table of a Bitext."""
        table = self._add_texts(pairs_to_arrow(pairs))
        for name, side in zip(SIDES, self.sides, strict=True):
            rows = side.first_rows[np.searchsorted(side.ids, table[f"{name}_id"].to_numpy())]
            table = table.append_column(f"{name}_row", pa.array(rows))
        similarity = table.schema.get_field_index("similarity")
        table = table.set_column(similarity, "similarity", table["similarity"].cast(pa.float32()))
        table = table.select([name for name in COLUMNS if self._has_texts or not name.endswith("_text")])
        if self.probability.weights is None or not self._has_texts:
            return table
        return table.append_column(PROBABILITY, pa.array(probabilities_of(table, self.probability.weights)))

    @property
    def _has_texts(self) -> bool:
        return all(side.texts is not None for side in self.sides)

    def _add_texts(self, table: pa.Table) -> pa.Table:
        """Append the texts of both sides, "" where there are none."""
        for name, side in zip(SIDES, self.sides, strict=True):
            rows = np.searchsorted(side.ids, table[f"{name}_id"].to_numpy())
            texts = [side.texts[row] if side.texts is not None else "" for row in rows]
            table = table.append_column(f"{name}_text", pa.array(texts, pa.string()))
        return table
