"""The threshold of a run that was given none: the one that the encoder recommends, or one that is calibrated on the candidates.

A calibration samples the sources, so it holds the candidates of at most MAX_SAMPLED_SOURCES of them and their targets.
"""

import logging

from miner.config.choices import DefaultThreshold
from miner.encoders import mining_profile
from miner.encoders.mining_profile import MiningProfile
from miner.mining import leave_out
from miner.mining.leave_out import SampledSources
from pipelines.mining.candidates import SearchResult
from pipelines.mining.planted_pairs import PlantConfig

logger = logging.getLogger(__name__)


def find(search_result: SearchResult, config: PlantConfig, profile: MiningProfile, warns: bool = True) -> DefaultThreshold | None:
    """Return the default threshold, None if the settings have another one or none. `warns`: where the encoder recommends none."""
    if not mining_profile.uses_default(config, config.threshold, config.top):
        return None
    recommended = profile.threshold(config, search_result.rescoring is not None)
    if recommended is not None:
        return recommended
    sources = SampledSources(search_result.source.rows, search_result.k)
    chosen = leave_out.choose_by_sample(search_result.read_candidates, config.margin, sources, config.precision)
    if warns:
        logger.warning("%s", mining_profile.describe(chosen, search_result.source.fingerprint))
    return chosen
