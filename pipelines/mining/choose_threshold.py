"""The threshold of a run that is given no number: `choose` picks the evidence, one of `miner.config.choices.EVIDENCE`.

With `--threshold auto`: gold pairs, marks of a sample, planted pairs, or else the probabilities of pairs. Without a threshold: the
probabilities or the threshold that the encoder recommends, or else a calibration on the candidates. It samples the sources, so it holds the
candidates of at most `leave_out.MAX_SAMPLED_SOURCES` of them and their targets.
"""

import logging
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from miner.arrays import Floats
from miner.config.choices import MARGINS, RETRIEVALS, ThresholdChoice
from miner.config.commands import DecideSettings, MatchSettings, ThresholdSettings
from miner.encoders.mining_profile import MiningProfile
from miner.errors import ConfigError, DataError
from miner.evaluation.marks import ReviewMarks
from miner.io import tables
from miner.io.corpus import Corpus
from miner.mining import leave_out, review, thresholds
from miner.mining.candidates import ScoredPairs
from miner.mining.gold import GoldPairs
from miner.mining.leave_out import SampledSources
from pipelines.beam.runner import Pipeline
from pipelines.corpus import embed
from pipelines.mining import gold_pairs, inputs, planted_pairs, sort_pairs
from pipelines.mining.gold_pairs import GoldFile
from pipelines.mining.planted_pairs import PlantedPairs
from pipelines.mining.select_pairs import PairSelection, SelectConfig, has_measured_probabilities

AUTO = "auto"
NO_EVIDENCE = "--threshold auto needs pairs to choose by, or their probabilities: give --gold FILE, or --planted FILE"
REMEDY = "choose one by known pairs with `--threshold auto --planted known.tsv`"

logger = logging.getLogger(__name__)


def check(settings: DecideSettings) -> None:
    """Raise ConfigError if the settings cannot choose a threshold, or give evidence that nothing uses.

    DataError for a file of planted pairs without a pair.
    """
    if uses_probabilities(settings):
        check_probabilities(settings)
    if settings.gold_sample and not settings.gold:
        raise ConfigError("--gold-sample describes --gold; give both, or remove it")
    if settings.planted is None:
        return
    if settings.threshold != AUTO:
        raise ConfigError("--planted is only for --threshold auto; give both, or remove it")
    if RETRIEVALS[settings.retrieval].planted_weights is None:
        usable = [name for name, retrieval in RETRIEVALS.items() if retrieval.planted_weights is not None]
        raise ConfigError(f"--planted cannot estimate the precision of --retrieval {settings.retrieval}; use one of {', '.join(usable)}")
    planted_pairs.check(settings.planted)


def uses_probabilities(settings: DecideSettings) -> bool:
    """Whether the threshold is to be chosen without known pairs."""
    return settings.threshold == AUTO and not settings.gold and settings.planted is None


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
class KnownEvidence:
    """What is known of the pairs before the search."""

    profile: MiningProfile
    gold: GoldPairs | ReviewMarks | None
    planted: PlantedPairs | None


def read_evidence(config: SelectConfig, gold_file: GoldFile | ReviewMarks | None, source: Corpus, target: Corpus) -> KnownEvidence:
    """Raise ConfigError where nothing can choose the threshold, or embed planted pairs; DataError for evidence of other corpora."""
    gold, planted = gold_pairs.resolve(gold_file, source, target), None
    profile = embed.profile_of(config, source)
    if uses_probabilities(config):
        check_profile(profile, config)
    if config.planted is not None:
        inputs.check_encoder(source, config)
        planted = planted_pairs.read(config.planted, source, target)
    return KnownEvidence(profile, gold, planted)


def choose(selection: PairSelection, evidence: KnownEvidence, neighbours: str) -> Pipeline[PairSelection]:
    """Return the selection with its threshold, if none is given. `neighbours` is the folder of the neighbours of both sides.

    NoThresholdError if no threshold reaches the precision.
    """
    settings, search_result = selection.settings, selection.search_result
    if uses_probabilities(settings):
        return (yield from _choose_probability(selection))
    if settings.threshold == AUTO:
        if evidence.planted is not None:
            choice = yield from _choose_by_planted(evidence.planted, selection, neighbours)
        else:
            assert evidence.gold is not None, "`check` comes first"
            choice = _choose_by_gold(evidence.gold, (yield from _all_pairs(selection)), settings.precision)
        return replace(selection, choice=choice)
    if not uses_default(settings, settings.top):
        return selection
    recommended = evidence.profile.threshold(settings, search_result.rescoring is not None)
    if recommended is not None:
        return selection.with_choice(recommended)
    sources = SampledSources(search_result.source.rows, search_result.k)
    read_blocks = partial(search_result.read_candidates, keeps_copies=settings.pair_filters.copies is None)
    return selection.with_choice(leave_out.choose_by_sample(read_blocks, settings.margin, sources, settings.precision))


def _choose_by_gold(gold: GoldPairs | ReviewMarks, pairs: ScoredPairs, min_precision: float) -> ThresholdChoice:
    """Choose by gold pairs or marks. DataError if no marked pair is mined."""
    if isinstance(gold, GoldPairs):
        is_gold = gold.is_gold(pairs.source_ids, pairs.target_ids)
        return thresholds.from_gold(pairs.margins, is_gold, len(gold), min_precision, gold.is_sample)
    marked = review.find_marked(gold.right, zip(pairs.source_ids.tolist(), pairs.target_ids.tolist(), strict=True))
    if not len(marked.rows):
        raise DataError(f"{gold.name}: none of its pairs is mined here; give marks of these corpora")
    return review.from_marks(pairs.margins, marked, min_precision)


def _choose_by_planted(planted: PlantedPairs, selection: PairSelection, neighbours: str) -> Pipeline[ThresholdChoice]:
    weights = RETRIEVALS[selection.settings.retrieval].planted_weights
    assert weights is not None, "`check` comes first"
    pairs = yield from _all_pairs(selection)
    mixed = yield from planted_pairs.plant(planted, selection, neighbours)
    margins = planted_pairs.planted_margins((yield from _all_pairs(mixed)), planted)
    sizes = float(selection.search_result.source.rows), float(selection.search_result.target.rows)
    return thresholds.from_planted(pairs.margins, margins, sizes, weights, selection.settings.precision)


def _choose_probability(selection: PairSelection) -> Pipeline[PairSelection]:
    """Return the selection with a bound of the probability, the lowest for which the mean of its pairs is the requested precision.

    The bound filters before the matching, which can then take less probable pairs, so it rises until the pairs have that precision.
    NoThresholdError if no bound reaches it, ConfigError if the encoder has no weights.
    """
    weights, precision = selection.probability.weights, selection.settings.precision
    if weights is None:
        scoring = "not rescored" if selection.search_result.rescoring is None else "rescored"
        raise ConfigError(f"{NO_EVIDENCE}; the encoder has no probabilities of {scoring} candidates")
    bound = float(thresholds.PROBABILITY_BOUNDS[0])
    while True:
        choice = ThresholdChoice(weights.lowest_margin(bound), "probability", min_precision=precision, min_probability=bound)
        selection = selection.with_choice(choice)
        lowest = thresholds.lowest_probability((yield from _probabilities(selection, choice.threshold)), precision)
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


def _all_pairs(selection: PairSelection) -> Pipeline[ScoredPairs]:
    """Return all pairs, whatever their margin, in memory."""
    steps = selection.steps(-np.inf)
    matches, _ = yield from selection.match(-np.inf, steps)
    pairs = matches.read()
    steps.remove()
    return pairs


def uses_default(settings: ThresholdSettings, top: int | None = None) -> bool:
    """Return whether pairs are selected by a default threshold: there is no other bound, and not any probability will do."""
    is_open = settings.threshold is None and top is None and settings.min_probability != 0
    return is_open and RETRIEVALS[settings.retrieval].uses_default_threshold


def warn(selection: PairSelection) -> None:
    """Warn of a threshold that the encoder does not recommend or that disregards `precision`, and of probabilities of another margin."""
    if "precision" in selection.settings.model_fields_set and (selection.choice is None or selection.choice.min_precision is None):
        logger.warning("the precision %g has no effect on this threshold; threshold auto chooses one for it", selection.settings.precision)
    choice, fingerprint = selection.choice, selection.search_result.source.fingerprint
    if choice is not None and choice.by in ("calibrated", "fallback"):
        text = "the default threshold %.4g is %s; %s recommends none: check some pairs, or %s"
        logger.warning(text, choice.threshold, choice.describe(), fingerprint, REMEDY)
    _warn_of_margin(selection.settings, selection.probability.minimum)


def warn_of_corpora(settings: ThresholdSettings, profile: MiningProfile, is_rescored: bool) -> None:
    """Warn, once for many pairs of corpora, that each gets a threshold of its own because the encoder recommends none."""
    minimum = settings.min_probability
    if uses_default(settings):
        recommended = profile.threshold(settings, is_rescored)
        if recommended is None:
            logger.warning("the default threshold is calibrated on each pair of corpora, as the encoder recommends none: %s", REMEDY)
        else:
            minimum = recommended.min_probability
    _warn_of_margin(settings, minimum)


def _warn_of_margin(settings: MatchSettings, minimum: float | None) -> None:
    """Warn if a minimum probability is used with the absolute margin, whose probabilities are not fitted to the corpora."""
    if minimum and not MARGINS[settings.margin].is_relative:
        logger.warning(
            "by --margin %s, probabilities are not fitted to the corpora and may be too high: check some pairs, or choose --margin ratio",
            settings.margin,
        )
