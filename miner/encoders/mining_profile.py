"""What an encoder's folder says about mining with it, in `mining.json`: its languages, its thresholds, and the weights of probabilities.

{"languages": ["eng_Latn", "deu_Latn"], "thresholds": {"ratio": {"embedding": 1.17, "rescored": 1.15}},
 "probabilities": {"ratio": {"rescored": {"intercept": -23.4, "margin": 21.7, "length_ratio": -6.5, "numbers": -4.5}}}}

`line_pair_probabilities`, for `miner score`, is like `probabilities`. All are optional, and any encoder may have the file. It changes no
vector, so it is not part of the fingerprint.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import pydantic

from miner import languages
from miner.config.base import Settings
from miner.config.choices import CALIBRATED, MARGINS, PROBABILITY, RECOMMENDED, RETRIEVALS, DefaultThreshold, MarginName
from miner.config.commands import EncoderSettings, MatchSettings, Threshold
from miner.config.probability import DEFAULT_MIN_PROBABILITY, ProbabilityBound, ProbabilityWeights
from miner.encoders import BUILTIN, find_folder, identify
from miner.encoders.base import Encoder, StoredEncoder
from miner.errors import ConfigError, ModelError
from miner.io import storage

FILE = "mining.json"
REMEDY = "choose one by known pairs with `--threshold auto --planted known.tsv`"

logger = logging.getLogger(__name__)


class ScoringThresholds(Settings):
    """The thresholds of a margin."""

    embedding: Threshold | None = None  # of the margin of the embeddings
    rescored: Threshold | None = None  # of the blended margin, if candidates are rescored


class ScoringProbabilities(Settings):
    """The weights of the probability by a margin."""

    embedding: ProbabilityWeights | None = None  # by the margin of the embeddings
    rescored: ProbabilityWeights | None = None  # by the blended margin, if candidates are rescored


class MiningProfile(Settings):
    """The content of `mining.json`."""

    languages: tuple[str, ...] = ()  # canonical codes of those in training; empty: not stated
    thresholds: Mapping[MarginName, ScoringThresholds] = pydantic.Field({})
    probabilities: Mapping[MarginName, ScoringProbabilities] = pydantic.Field({})
    line_pair_probabilities: Mapping[MarginName, ScoringProbabilities] = pydantic.Field({})

    def threshold(self, settings: MatchSettings, is_rescored: bool) -> DefaultThreshold | None:
        """Return the threshold that is recommended for these settings: where there are weights, the lowest margin of a probable pair."""
        weights = self.weights(settings.margin, is_rescored)
        if weights is not None:
            minimum = DEFAULT_MIN_PROBABILITY if settings.min_probability is None else settings.min_probability
            return DefaultThreshold(weights.lowest_margin(minimum), PROBABILITY, min_probability=minimum)
        thresholds = self.thresholds.get(settings.margin, ScoringThresholds())
        value = thresholds.rescored if is_rescored else thresholds.embedding
        return None if value is None else DefaultThreshold(value, RECOMMENDED)

    def weights(self, margin: MarginName, is_rescored: bool) -> ProbabilityWeights | None:
        """Return the weights of the probability of a pair by its margin."""
        weights = self.probabilities.get(margin, ScoringProbabilities())
        return weights.rescored if is_rescored else weights.embedding

    def of_line_pairs(self) -> "MiningProfile":
        """Return the profile for pairs that were not chosen by their margin. Those of mined pairs are the best of many wrong ones."""
        return self.model_copy(update={"probabilities": self.line_pair_probabilities or self.probabilities})

    def with_weights(self, margin: MarginName, is_rescored: bool, weights: ProbabilityWeights) -> "MiningProfile":
        """Return the profile with other weights for one margin and scoring."""
        scoring = {"rescored" if is_rescored else "embedding": weights}
        changed = self.probabilities.get(margin, ScoringProbabilities()).model_copy(update=scoring)
        return self.model_copy(update={"probabilities": {**self.probabilities, margin: changed}})

    def probability_bound(self, margin: MarginName, is_rescored: bool, minimum: float | None) -> ProbabilityBound:
        """Return the least probability and its weights. Raises ConfigError where there are no weights for it."""
        weights = self.weights(margin, is_rescored)
        if minimum is not None and weights is None:
            scores = f"--margin {margin}, {'rescored' if is_rescored else 'not rescored'}"
            raise ConfigError(f"--min-probability: the encoder has no probabilities with {scores}; give --threshold instead")
        return ProbabilityBound(weights, minimum)


NO_PROFILE = MiningProfile()


def read(folder: Path) -> MiningProfile:
    """Read the profile in an encoder's folder. Raises ModelError if it is invalid."""
    path = folder / FILE
    if not path.exists():
        return NO_PROFILE
    content = storage.read_json(str(path))
    try:
        profile = MiningProfile.check(**content) if isinstance(content, dict) else None
        canonical = () if profile is None else tuple(languages.canonical(code) for code in profile.languages)
    except ConfigError as error:
        raise ModelError(f"{path}: {error}") from error
    if profile is None:
        entries = "`languages`, `thresholds`, `probabilities` and `line_pair_probabilities`"
        raise ModelError(f"{path}: expected a mapping with {entries} ({', '.join(MARGINS)})")
    return profile.model_copy(update={"languages": canonical})


def of_encoder(encoder: Encoder, fingerprint: str) -> MiningProfile:
    """Return the profile of an encoder, an empty one if it has no folder or another fingerprint."""
    has_folder = isinstance(encoder, StoredEncoder) and encoder.fingerprint == fingerprint
    return read(Path(encoder.folder)) if has_folder else NO_PROFILE  # type: ignore[attr-defined]


def find(settings: EncoderSettings, fingerprint: str) -> MiningProfile:
    """Return the profile of the encoder with this fingerprint, if that is the encoder of the settings or the built-in one.

    Other encoders have embedded a corpus elsewhere; their folder is not known, so the profile is empty.
    """
    for name in dict.fromkeys((settings.encoder, BUILTIN)):
        try:
            profile = read(find_folder(name))
        except ModelError:
            if name == BUILTIN or (Path(name) / FILE).exists():
                raise
            continue  # corpora that are embedded do not need the encoder
        own_settings = EncoderSettings() if name == BUILTIN else settings
        if profile != NO_PROFILE and identify(own_settings.model_copy(update={"encoder": name, "side": None})).fingerprint == fingerprint:
            return profile
    return NO_PROFILE


def uses_default(settings: MatchSettings, threshold: float | str | None, top: int | None = None) -> bool:
    """Return whether pairs are selected by a default threshold: there is no other bound, and not any probability will do."""
    is_open = threshold is None and top is None and settings.min_probability != 0
    return is_open and RETRIEVALS[settings.retrieval].uses_default_threshold


def describe(threshold: DefaultThreshold, fingerprint: str) -> str:
    """Return the warning of a threshold that the encoder does not recommend."""
    origin = "the ratio of CRISS or its equal, as there are too few pairs to calibrate on"
    if threshold.by == CALIBRATED:
        origin = f"calibrated on {threshold.num_pairs:,} pairs of these corpora: about {threshold.precision:.0%} are right"
    return f"the default threshold {threshold.value:.4g} is {origin}; {fingerprint} recommends none: check some pairs, or {REMEDY}"


def warn_of_corpora(settings: MatchSettings, threshold: float | str | None, profile: MiningProfile, is_rescored: bool) -> None:
    """Warn, once for many pairs of corpora, that each gets a threshold of its own because the encoder recommends none."""
    minimum = settings.min_probability
    if uses_default(settings, threshold):
        recommended = profile.threshold(settings, is_rescored)
        if recommended is None:
            logger.warning("the default threshold is calibrated on each pair of corpora, as the encoder recommends none: %s", REMEDY)
        else:
            minimum = recommended.min_probability
    warn_of_margin(settings, minimum)


def warn_of_margin(settings: MatchSettings, minimum: float | None) -> None:
    """Warn of a least probability by a margin that the neighbours do not correct: it is not fitted to the corpora."""
    if minimum and not MARGINS[settings.margin].is_relative:
        logger.warning(
            "by --margin %s, probabilities are not fitted to the corpora and may be too high: check some pairs, or choose --margin ratio",
            settings.margin,
        )


def warn_of_languages(profile: MiningProfile, codes: Iterable[str]) -> None:
    """Warn of languages, by canonical code, that an encoder was not trained on, as far as its profile states its languages."""
    unknown = [code for code in dict.fromkeys(codes) if code != languages.UNDETERMINED and code not in profile.languages]
    if profile.languages and unknown:
        names = ", ".join(unknown)
        logger.warning("the encoder was not trained on %s; its vectors may be poor: check some pairs, or choose another --encoder", names)
