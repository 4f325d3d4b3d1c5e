"""The threshold of a run that was given none: the one that the encoder recommends, or one that is calibrated on the candidates.

A calibration samples the sources, so it holds the candidates of at most MAX_SAMPLED_SOURCES of them and their targets.
"""

import logging

import pyarrow as pa

from miner import table_files
from miner.choices import DefaultThreshold
from miner.encoders import mining_profile
from miner.encoders.mining_profile import MiningProfile
from miner.mining import leave_out
from miner.mining.candidates import sample_step
from miner.mining.leave_out import BestMargins, SampledSources
from miner.mining.writers import candidates_from_arrow
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
    chosen = _calibrate(search_result, config)
    if warns:
        logger.warning("%s", mining_profile.describe(chosen, search_result.source.fingerprint))
    return chosen


def _calibrate(search_result: SearchResult, config: PlantConfig) -> DefaultThreshold:
    """Calibrate a threshold in two passes over the candidates: those of the sampled sources, then the best margins of their targets."""
    step = sample_step(search_result.source.rows, leave_out.MAX_SAMPLED_SOURCES)
    uris = search_result.candidate_uris()
    sampled = []
    for uri in uris:
        table = table_files.read_table(uri)
        sampled.append(table.filter(pa.array(table["source_id"].to_numpy() % step == 0)))
    candidates = candidates_from_arrow(pa.concat_tables(sampled))
    best = BestMargins.of_none(candidates.target_ids)
    for uri in uris:
        best.update(candidates_from_arrow(table_files.read_table(uri)), config.margin)
    sources = SampledSources(search_result.source.rows, search_result.k)
    return leave_out.choose(candidates, config.margin, best, sources, config.precision)
