"""`--threshold auto`: choose the threshold by gold pairs, by marks of a sample, by planted pairs, or else by the probabilities of pairs."""

from dataclasses import dataclass, replace

import numpy as np

from miner.arrays import Floats
from miner.config.choices import PROBABILITY, RETRIEVALS, DefaultThreshold
from miner.config.commands import DecideSettings, ThresholdSettings
from miner.encoders.mining_profile import MiningProfile
from miner.errors import ConfigError, DataError
from miner.evaluation.marks import ReviewMarks
from miner.io import tables
from miner.io.corpus import Corpus
from miner.mining import review, thresholds
from miner.mining.candidates import ScoredPairs
from miner.mining.gold import GoldPairs
from miner.mining.thresholds import ThresholdChoice
from pipelines.beam.runner import Pipeline
from pipelines.mining import inputs, planted_pairs, sort_pairs
from pipelines.mining.planted_pairs import PlantConfig, PlantedPairs
from pipelines.mining.select_pairs import PairSelection, has_measured_probabilities

NO_EVIDENCE = "--threshold auto needs pairs to choose by, or their probabilities: give --gold FILE, or --planted FILE"


def check(settings: DecideSettings) -> None:
    """Raise ConfigError if the settings cannot choose a threshold, or give evidence that nothing uses.

    DataError for a file of planted pairs without a pair.
    """
    is_auto = settings.threshold == "auto"
    if uses_probabilities(settings):
        check_probabilities(settings)
    if settings.planted is not None and not is_auto:
        raise ConfigError("--planted is only for --threshold auto; give both, or remove it")
    if settings.gold_sample and not settings.gold:
        raise ConfigError("--gold-sample describes --gold; give both, or remove it")
    if settings.planted is not None and RETRIEVALS[settings.retrieval].planted_weights is None:
        usable = [name for name, retrieval in RETRIEVALS.items() if retrieval.planted_weights is not None]
        raise ConfigError(f"--planted cannot estimate the precision of --retrieval {settings.retrieval}; use one of {', '.join(usable)}")
    if settings.planted is not None:
        planted_pairs.check(settings.planted)


def uses_probabilities(settings: DecideSettings) -> bool:
    """Whether the threshold is to be chosen without known pairs."""
    return settings.threshold == "auto" and not settings.gold and settings.planted is None


def check_probabilities(settings: ThresholdSettings, refusal: str = NO_EVIDENCE) -> None:
    """Raise ConfigError, which starts with `refusal`, if probabilities cannot choose the threshold of pairs with these settings."""
    if not has_measured_probabilities(settings):
        raise ConfigError(f"{refusal}; probabilities can be used with --retrieval max, and --margin ratio or distance")
    if settings.min_probability is not None:
        raise ConfigError("--threshold auto chooses the probability of pairs; give --min-probability or --threshold auto")


def check_profile(profile: MiningProfile, settings: ThresholdSettings, refusal: str = NO_EVIDENCE) -> None:
    """Raise ConfigError, which starts with `refusal`, if the encoder has no probabilities by the margin of these settings."""
    if settings.margin not in profile.probabilities:
        raise ConfigError(f"{refusal}; the encoder has no probabilities")


@dataclass(frozen=True)
class ThresholdChooser:
    """Chooses the threshold of a run. `prepare` makes it before the search, so that bad evidence fails early."""

    config: PlantConfig
    gold: GoldPairs | ReviewMarks | None
    planted: PlantedPairs | None

    def choose(self, selection: PairSelection, neighbours: str) -> Pipeline[ThresholdChoice | None]:
        """Return the choice by known pairs, None without them. `neighbours` is the folder of the neighbours of both sides.

        DataError if no threshold reaches the precision.
        """
        if self.config.threshold != "auto" or uses_probabilities(self.config):
            return None
        if self.planted is not None:
            return (yield from self._choose_by_planted(self.planted, selection, neighbours))
        assert self.gold is not None, "`check` comes first"
        pairs = yield from _all_pairs(selection)
        if isinstance(self.gold, ReviewMarks):
            return _choose_by_marks(self.gold, pairs, self.config.precision)
        is_gold = self.gold.is_gold(pairs.source_ids, pairs.target_ids)
        return thresholds.from_gold(pairs.margins, is_gold, len(self.gold), self.config.precision, self.gold.is_sample)

    def _choose_by_planted(self, planted: PlantedPairs, selection: PairSelection, neighbours: str) -> Pipeline[ThresholdChoice]:
        weights = RETRIEVALS[self.config.retrieval].planted_weights
        assert weights is not None, "`check` comes first"
        pairs = yield from _all_pairs(selection)
        mixed = yield from planted_pairs.plant(planted, selection, self.config, neighbours)
        margins = planted_pairs.planted_margins((yield from _all_pairs(mixed)), planted)
        sizes = float(selection.search_result.source.rows), float(selection.search_result.target.rows)
        return thresholds.from_planted(pairs.margins, margins, sizes, weights, self.config.precision)


def prepare(
    config: PlantConfig, profile: MiningProfile, source: Corpus, target: Corpus, gold: GoldPairs | ReviewMarks | None
) -> ThresholdChooser:
    """Read the planted pairs, if any, and check that they can be embedded as the corpora were.

    Raises ConfigError where there is no known pair, and the encoder has no probabilities.
    """
    if uses_probabilities(config):
        check_profile(profile, config)
    if config.planted is None:
        return ThresholdChooser(config, gold, None)
    inputs.check_encoder(source, config)
    return ThresholdChooser(config, gold, planted_pairs.read(config.planted, source, target))


def select_probable(selection: PairSelection) -> Pipeline[PairSelection]:
    """Return the selection with a bound of the probability, the lowest for which the mean of its pairs is the requested precision.

    The bound filters before the matching, which can then take less probable pairs, so it rises until the pairs have that precision.
    NoThresholdError if no bound reaches it, ConfigError if the encoder has no weights.
    """
    if selection.probability.weights is None:
        scoring = "not rescored" if selection.search_result.rescoring is None else "rescored"
        raise ConfigError(f"{NO_EVIDENCE}; the encoder has no probabilities of {scoring} candidates")
    weights, precision = selection.probability.weights, selection.settings.precision
    bound = float(thresholds.PROBABILITY_BOUNDS[0])
    while True:
        chosen = DefaultThreshold(weights.lowest_margin(bound), PROBABILITY, precision=precision, min_probability=bound)
        selection = replace(selection, probability=selection.probability.with_default(chosen), default=chosen)
        lowest = thresholds.lowest_probability((yield from _probabilities(selection, chosen.value)), precision)
        if lowest <= bound:
            return selection
        bound = lowest


def _probabilities(selection: PairSelection, threshold: float) -> Pipeline[Floats]:
    """Return the probabilities (n,) of the pairs above a threshold, in memory."""
    steps = selection.steps(threshold)
    matches, _ = yield from selection.match(threshold, steps)
    pairs = yield from sort_pairs.sort_matches(matches, selection.search_result, selection.probability.weights, steps, selection.limits)
    probabilities: Floats = np.concatenate([table[tables.PROBABILITY.name].to_numpy() for table in pairs.row_groups()])
    steps.remove()
    return probabilities


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
