"""What an encoder's folder says about mining with it, in `mining.json`: its languages, its thresholds, and the weights of probabilities.

{"languages": ["eng_Latn", "deu_Latn"], "accuracies": {"deu_Latn": 97.6}, "thresholds": {"ratio": {"embedding": 1.17, "rescored": 1.15}},
 "probabilities": {"ratio": {"rescored": {"intercept": -23.4, "margin": 21.7, "length_ratio": -6.5, "numbers": -4.5}}}}

`line_pair_probabilities`, for `miner score`, is like `probabilities`. All are optional, and any encoder may have the file. It changes no
vector, so it is not part of the fingerprint.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pydantic

from miner import languages
from miner.config.base import Settings
from miner.config.choices import MARGINS, MarginName, ThresholdChoice
from miner.config.commands import EncoderSettings, MatchSettings, Threshold
from miner.config.probability import DEFAULT_MIN_PROBABILITY, ProbabilityBound, ProbabilityWeights
from miner.encoders import BUILTIN, find_folder, identify, with_recorded_dtype
from miner.encoders.base import Encoder, StoredEncoder
from miner.errors import ConfigError, ModelError, StorageError
from miner.io import host_copies, outputs, storage

FILE = "mining.json"

MEASURED = {"rescoring_pays", "thresholds", "probabilities", "line_pair_probabilities"}  # what mining needs to know
POOR_ACCURACY = 80  # percent, below which mining warns

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
    accuracies: Mapping[str, float] = pydantic.Field({})  # percent, of retrieval from and to English, by canonical code; measured ones
    rescoring_pays: bool = True  # whether `--rescore auto` rescores
    thresholds: Mapping[MarginName, ScoringThresholds] = pydantic.Field({})
    probabilities: Mapping[MarginName, ScoringProbabilities] = pydantic.Field({})
    line_pair_probabilities: Mapping[MarginName, ScoringProbabilities] = pydantic.Field({})

    def measured(self) -> dict[str, Any]:
        """Return what was measured, for manifests."""
        return self.model_dump(mode="json", include=MEASURED, exclude_defaults=True, exclude_none=True)

    def threshold(self, settings: MatchSettings, is_rescored: bool) -> ThresholdChoice | None:
        """Return the threshold that is recommended for these settings: where there are weights, the lowest margin of a probable pair."""
        weights = self.weights(settings.margin, is_rescored)
        if weights is not None:
            minimum = DEFAULT_MIN_PROBABILITY if settings.min_probability is None else settings.min_probability
            return ThresholdChoice(weights.lowest_margin(minimum), "probability", min_probability=minimum)
        thresholds = self.thresholds.get(settings.margin, ScoringThresholds())
        value = thresholds.rescored if is_rescored else thresholds.embedding
        return None if value is None else ThresholdChoice(value, "recommended")

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


def _measured_path(fingerprint: str) -> Path:
    """Return the file of the profile of an encoder whose folder cannot be written."""
    return host_copies.cache_folder("profiles") / fingerprint / FILE


def claim(folder: Path, fingerprint: str) -> Path:
    """Return the file for what is measured of an encoder, in its folder or, if that cannot be written, in the cache.

    Raises StorageError where neither can be written or the folder has a file that hides that of the cache, ConfigError if it is no file.
    """
    path = folder / FILE
    if not os.access(folder, os.W_OK):
        if path.exists():
            raise StorageError(f"{path}: cannot be written; copy the encoder with `miner fetch`, and calibrate the copy")
        path = _measured_path(fingerprint)
    storage.make_folder(str(path.parent))
    outputs.claim_file(str(path), [], lambda _: bool(read(path.parent)), other="move it")
    return path


def write_measured(path: Path, measured: MiningProfile) -> None:
    """Add what was measured to the profile in a file."""
    profile = read(path.parent).model_copy(update={name: getattr(measured, name) for name in measured.model_fields_set})
    storage.write_json(str(path), profile.model_dump(mode="json", exclude_defaults=True, exclude_none=True))


def of_folder(folder: Path, fingerprint: str) -> MiningProfile:
    """Return the profile in an encoder's folder, else the one that was measured for its fingerprint."""
    return read(folder if (folder / FILE).exists() else _measured_path(fingerprint).parent)


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
        entries = "`languages`, `accuracies`, `thresholds`, `probabilities` and `line_pair_probabilities`"
        raise ModelError(f"{path}: expected a mapping with {entries} ({', '.join(MARGINS)})")
    return profile.model_copy(update={"languages": canonical})


def of_encoder(encoder: Encoder, fingerprint: str) -> MiningProfile:
    """Return the profile of an encoder, an empty one if it has no folder or another fingerprint."""
    has_folder = isinstance(encoder, StoredEncoder) and encoder.fingerprint == fingerprint
    return of_folder(Path(encoder.folder), fingerprint) if has_folder else NO_PROFILE  # type: ignore[attr-defined]


def find(settings: EncoderSettings, fingerprint: str) -> MiningProfile:
    """Return the profile of the encoder with this fingerprint, if that is the encoder of the settings or the built-in one.

    Other encoders have embedded a corpus elsewhere; their folder is not known, so the profile is empty.
    """
    for name in dict.fromkeys((settings.encoder, BUILTIN)):
        try:
            profile = of_folder(find_folder(name), fingerprint)
        except ModelError:
            if name == BUILTIN or (Path(name) / FILE).exists():
                raise
            continue  # corpora that are embedded do not need the encoder
        own_settings = EncoderSettings() if name == BUILTIN else with_recorded_dtype(settings, [fingerprint])
        if profile != NO_PROFILE and identify(own_settings.model_copy(update={"encoder": name, "side": None})).fingerprint == fingerprint:
            return profile
    return NO_PROFILE


def warn_of_languages(profile: MiningProfile, languages_of_sides: Iterable[str]) -> None:
    """Warn of languages, by canonical code, that an encoder was not trained on or retrieves poorly, as far as its profile says so."""
    codes = list(dict.fromkeys(languages_of_sides))
    unknown = [code for code in codes if code != languages.UNDETERMINED and code not in profile.languages]
    if profile.languages and unknown:
        names = ", ".join(unknown)
        logger.warning("the encoder was not trained on %s; its vectors may be poor: check some pairs, or choose another --encoder", names)
    poor = [code for code in codes if profile.accuracies.get(code, 100) < POOR_ACCURACY]
    if poor:
        accuracies = ", ".join(f"{profile.accuracies[code]:.0f} % of the lines in {code}" for code in poor)
        logger.warning("the encoder retrieved the translation of only %s: check some pairs, or choose another --encoder", accuracies)
