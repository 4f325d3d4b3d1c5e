"""`--threshold auto`: choose the threshold by gold pairs, by marks of a sample, or by planted pairs."""

from dataclasses import dataclass

import numpy as np

from miner.choices import RETRIEVALS
from miner.config.commands import DecideSettings
from miner.corpus import Corpus
from miner.errors import ConfigError, DataError
from miner.evaluation.marks import ReviewMarks
from miner.mining import review, thresholds
from miner.mining.candidates import ScoredPairs
from miner.mining.gold import ResolvedGold, is_gold
from miner.mining.thresholds import ThresholdChoice
from pipelines.beam.runner import Pipeline
from pipelines.mining import inputs, planted_pairs
from pipelines.mining.planted_pairs import PlantConfig, PlantedPairs
from pipelines.mining.select_pairs import PairSelection


def check(settings: DecideSettings) -> None:
    """Raise ConfigError if the settings cannot choose a threshold, or give evidence that nothing uses.

    DataError for a file of planted pairs without a pair.
    """
    is_auto = settings.threshold == "auto"
    if is_auto and not settings.gold and settings.planted is None:
        raise ConfigError("--threshold auto needs pairs to choose by: give --gold FILE, or --planted FILE")
    if settings.planted is not None and not is_auto:
        raise ConfigError("--planted is only for --threshold auto; give both, or remove it")
    if settings.gold_sample and not settings.gold:
        raise ConfigError("--gold-sample describes --gold; give both, or remove it")
    if settings.planted is not None and RETRIEVALS[settings.retrieval].planted_weights is None:
        usable = [name for name, retrieval in RETRIEVALS.items() if retrieval.planted_weights is not None]
        raise ConfigError(f"--planted cannot estimate the precision of --retrieval {settings.retrieval}; use one of {', '.join(usable)}")
    if settings.planted is not None:
        planted_pairs.check(settings.planted)


@dataclass(frozen=True)
class ThresholdChooser:
    """Chooses the threshold of a run. `prepare` makes it before the search, so that bad evidence fails early."""

    config: PlantConfig
    gold: ResolvedGold | ReviewMarks | None
    planted: PlantedPairs | None

    def choose(self, selection: PairSelection, neighbours: str) -> Pipeline[ThresholdChoice | None]:
        """Return the choice, None unless the threshold is `auto`. `neighbours` is the folder of the neighbours of both sides.

        DataError if no threshold reaches the precision.
        """
        if self.config.threshold != "auto":
            return None
        if self.planted is not None:
            return (yield from self._choose_by_planted(self.planted, selection, neighbours))
        assert self.gold is not None, "`check` comes first"
        pairs = yield from _all_pairs(selection)
        if isinstance(self.gold, ReviewMarks):
            return _choose_by_marks(self.gold, pairs, self.config.precision)
        num_gold = len(self.gold.pairs) + self.gold.num_missing
        return thresholds.from_gold(
            pairs.margins, is_gold(pairs, self.gold.pairs), num_gold, self.config.precision, self.config.gold_sample
        )

    def _choose_by_planted(self, planted: PlantedPairs, selection: PairSelection, neighbours: str) -> Pipeline[ThresholdChoice]:
        weights = RETRIEVALS[self.config.retrieval].planted_weights
        assert weights is not None, "`check` comes first"
        pairs = yield from _all_pairs(selection)
        mixed = yield from planted_pairs.plant(planted, selection, self.config, neighbours)
        margins = planted_pairs.planted_margins((yield from _all_pairs(mixed)), planted)
        sizes = float(selection.search_result.source.rows), float(selection.search_result.target.rows)
        return thresholds.from_planted(pairs.margins, margins, sizes, weights, self.config.precision)


def prepare(config: PlantConfig, source: Corpus, target: Corpus, gold: ResolvedGold | ReviewMarks | None) -> ThresholdChooser:
    """Read the planted pairs, if any, and check that they can be embedded as the corpora were."""
    if config.planted is None:
        return ThresholdChooser(config, gold, None)
    inputs.check_encoder(source, config)
    return ThresholdChooser(config, gold, planted_pairs.read(config.planted, source, target))


def _choose_by_marks(marks: ReviewMarks, pairs: ScoredPairs, min_precision: float) -> ThresholdChoice:
    marked = review.find_marked(marks.right, zip(pairs.source_ids.tolist(), pairs.target_ids.tolist(), strict=True))
    if not len(marked.rows):
        raise DataError(f"{marks.name}: none of its pairs is mined here; give marks of these corpora")
    return review.from_marks(pairs.margins, marked, min_precision)


def _all_pairs(selection: PairSelection) -> Pipeline[ScoredPairs]:
    """Return all pairs, whatever their margin, in memory."""
    steps = selection.steps(-np.inf)
    matches, _ = yield from selection.match(-np.inf, steps)
    pairs = matches.read()
    steps.remove()
    return pairs
