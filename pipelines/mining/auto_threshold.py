"""`--threshold auto`: the threshold by what gold, or planted pairs, let one expect of the pairs above it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miner.config.commands import DecideSettings
from miner.corpus import Corpus
from miner.errors import ConfigError
from miner.mining import thresholds
from miner.mining.candidates import ScoredPairs
from miner.mining.gold import are_right
from miner.mining.thresholds import ThresholdChoice
from pipelines.mining import inputs, planted_pairs, select_pairs
from pipelines.mining.candidates import SearchResult
from pipelines.mining.planted_pairs import PlantConfig, PlantedPairs
from pipelines.mining.select_pairs import MatchedCount

# What the sentences of each side count that are paired wrongly: where each has one pair at most, either side tells of all the pairs.
WEIGHTS = {"max": (0.5, 0.5), "intersection": (0.5, 0.5), "forward": (1.0, 0.0), "backward": (0.0, 1.0)}


def check(settings: DecideSettings) -> None:
    """ConfigError where a threshold cannot be chosen as the settings say, or what is for choosing one is given without need.

    DataError for a file of planted pairs that has none.
    """
    auto = settings.threshold == "auto"
    if auto and settings.gold is None and settings.planted is None:
        raise ConfigError("--threshold auto needs pairs to choose by: give --gold FILE, or --planted FILE")
    if settings.planted is not None and not auto:
        raise ConfigError("--planted is for --threshold auto; give both, or leave it out")
    if settings.gold_sample and settings.gold is None:
        raise ConfigError("--gold-sample tells of what is in --gold; give both, or leave it out")
    if settings.planted is not None and settings.retrieval not in WEIGHTS:
        raise ConfigError(f"--planted cannot tell the precision of --retrieval {settings.retrieval}; one of {', '.join(WEIGHTS)}")
    if settings.planted is not None:
        planted_pairs.check(settings.planted)


@dataclass(frozen=True)
class ThresholdChooser:
    """Chooses the threshold of a run; made by `prepare`, before the long part."""

    config: PlantConfig
    wanted: MatchedCount | None
    seeds: PlantedPairs | None

    def choose(self, found: SearchResult, neighbours: str, options: Sequence[str] = ()) -> ThresholdChoice | None:
        """None where the threshold is not to be chosen. `neighbours` are those of both sides; DataError where no threshold will do."""
        config = self.config
        if config.threshold != "auto":
            return None
        pairs = _all_pairs(found, config, options)
        if self.seeds is not None:
            field = planted_pairs.sow(self.seeds, found, config, neighbours, options)
            fate = planted_pairs.harvest(_all_pairs(field, config, options), self.seeds)
            sizes = float(found.source.rows), float(found.target.rows)
            return thresholds.from_planted(pairs.margins, fate, sizes, WEIGHTS[config.retrieval], config.precision)
        assert self.wanted is not None, "`check` comes first"
        gold, missing = self.wanted
        right = are_right(pairs, gold)
        return thresholds.from_gold(pairs.margins, right, len(gold) + missing, config.precision, config.gold_sample)


def prepare(config: PlantConfig, source: Corpus, target: Corpus, wanted: MatchedCount | None) -> ThresholdChooser:
    """Read the planted pairs, if there are any, and see that they can be embedded as the sides were."""
    if config.planted is None:
        return ThresholdChooser(config, wanted, None)
    inputs.check_encoder(source, config)
    return ThresholdChooser(config, wanted, planted_pairs.read(config.planted, source, target))


def _all_pairs(found: SearchResult, config: PlantConfig, options: Sequence[str]) -> ScoredPairs:
    """All pairs whatever their margin, as numbers: one process compares them with what is known."""
    steps = select_pairs.steps_of(found, config, -np.inf, config.output, options)
    pairs, _ = select_pairs.pairs_above(found, config, -np.inf, steps)
    read = pairs.read()
    steps.remove()
    return read
