"""Filter candidates, best first, until one of each sentence passes: the pair filters as mining applies them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from miner.arrays import Bools, Ints
from miner.config.choices import RETRIEVALS
from miner.config.commands import MatchSettings
from miner.config.probability import ProbabilityBound, ProbabilityWeights
from miner.filters.pairs import PAIR_FILTERS, PairTexts, apply_pair_filters
from miner.io.tables import concat_tables
from miner.mining import matching


@dataclass(frozen=True)
class PairFilter:
    """The bounds of the filters and what they need to know of the candidates."""

    bounds: Mapping[str, float]
    languages: tuple[str, str]
    usual_counts: tuple[float, float]  # candidates of a usual source and of a usual target, by `hubs.usual_counts`
    retrieval: str
    lang_id_model: str | None
    weights: ProbabilityWeights | None  # if there is a bound of the probability

    @classmethod
    def of(
        cls, settings: MatchSettings, languages: tuple[str, str], usual_counts: tuple[float, float], probability: ProbabilityBound
    ) -> "PairFilter | None":
        """Return the filter of these settings, None if all filters are off."""
        bounds = {**settings.pair_filters.bounds(), **probability.bounds()}
        if not bounds:
            return None
        return cls(bounds, languages, usual_counts, settings.retrieval, settings.lang_id_model, probability.weights)

    @property
    def reasons(self) -> list[str]:
        return [pair_filter.reason for name, pair_filter in PAIR_FILTERS.items() if name in self.bounds]

    def applies_to(self, side: str) -> bool:
        """Return whether the best candidates of this side are filtered."""
        retrieval = RETRIEVALS[self.retrieval]
        return retrieval.filter_source_best if side == "source" else retrieval.filter_target_best

    def split(self, candidates: pa.Table, side: str) -> tuple[pa.Table, pa.Table, dict[str, int]]:
        """Filter candidates with texts, best first, until one of each sentence of a side passes.

        Returns the candidates that remain, those that are dropped, and the counts of the latter by reason. The column `passed` marks
        the candidates that have passed the filters, before and after.
        """
        ids = candidates[f"{side}_id"].to_numpy()
        is_neighbour = candidates["forward" if side == "source" else "backward"].to_numpy()
        is_scored, remains = candidates["passed"].to_numpy().copy(), np.ones(len(candidates), dtype=bool)
        counts = dict.fromkeys(self.reasons, 0)
        dropped: list[pa.Table] = [no_dropped(candidates)]
        while (new := self._best(ids, is_neighbour & remains, remains) & ~is_scored).any():
            rows = np.flatnonzero(new)
            table = candidates.take(pa.array(rows))
            decisions = apply_pair_filters(self._texts(table), dict(self.bounds))
            for reason, count in decisions.counts().items():
                counts[reason] += count
            is_scored[rows], remains[rows[~decisions.kept]] = True, False
            reasons, scores = decisions.drop_reasons()
            table = table.filter(pa.array(~decisions.kept))
            dropped.append(table.append_column("reason", pa.array(reasons, pa.string())).append_column("score", pa.array(scores)))
        column = candidates.schema.get_field_index("passed")
        kept = candidates.set_column(column, "passed", pa.array(is_scored)).filter(pa.array(remains))
        return kept, concat_tables(dropped), counts

    def _best(self, ids: Ints, eligible: Bools, remains: Bools) -> Bools:
        return remains if RETRIEVALS[self.retrieval].filter_all else matching.mark_first(ids, eligible)

    def _texts(self, table: pa.Table) -> PairTexts:
        sources, targets = (table[f"{side}_text"].to_pylist() for side in ("source", "target"))
        counts = (table[f"{side}_hub_count"].to_numpy() for side in ("source", "target"))
        hub_counts = np.maximum(*(count / usual for count, usual in zip(counts, self.usual_counts, strict=True)))
        return PairTexts(sources, targets, self.languages, hub_counts, self.lang_id_model, table["margin"].to_numpy(), self.weights)


def no_dropped(candidates: pa.Table) -> pa.Table:
    """Return a table without rows, with the columns of candidates and those of dropped ones."""
    return candidates.slice(0, 0).append_column("reason", pa.array([], pa.string())).append_column("score", pa.array([], pa.float64()))
