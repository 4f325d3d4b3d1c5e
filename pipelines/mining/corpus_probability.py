"""The weights of probabilities for the corpora of a run, by a sample of their candidates (see `miner.mining.mixture`)."""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner.config.choices import MARGINS
from miner.config.commands import MatchSettings
from miner.encoders.mining_profile import MiningProfile
from miner.filters.pairs import fit_to_corpora
from miner.io import storage, table_files
from miner.io.stages import read_manifest
from miner.mining.candidates import concat
from miner.mining.margin_sample import MarginSample, SampledCandidates, sample_candidates
from miner.mining.writers import candidates_from_arrow
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline
from pipelines.beam.shuffle import ShuffleSteps
from pipelines.mining.candidates import MiningLimits, SearchResult
from pipelines.mining.match import Written

STEPS = ".sample"


def fit_profile(
    profile: MiningProfile, settings: MatchSettings, search_result: SearchResult, output: str, limits: MiningLimits
) -> Pipeline[MiningProfile]:
    """Return a profile with the weights for the candidates of a search, by steps under OUTPUT; the same where there are no weights."""
    margin, drops_copies = settings.margin, settings.pair_filters.copies is not None
    is_rescored = search_result.rescoring is not None
    weights = profile.weights(margin, is_rescored)
    if weights is None or not MARGINS[margin].is_relative:
        return profile
    candidates = read_manifest(search_result.folder)
    key = storage.key([[shard.checksum for shard in candidates.shards], margin, drops_copies])
    steps = ShuffleSteps("sampling", storage.join(output, STEPS), key, candidates.rows, limits.in_process_rows)
    uris, sizes = search_result.candidate_uris(), (search_result.source.rows, search_result.target.rows)
    sampled = yield from steps.apply("sampled", shuffle.names(len(uris)), _sample_range, uris, margin, sizes, drops_copies)
    table = sampled.gather(0)
    steps.remove()
    samples = [
        SampledCandidates(**{column.name: part[column.name].to_numpy() for column in fields(SampledCandidates)})
        for part in (table.filter(pc.equal(table["is_source"], is_source)) for is_source in (True, False))
    ]
    weights = fit_to_corpora(weights, margin, MarginSample.merge(samples[:1], samples[1:]))
    return profile.with_weights(margin, is_rescored, weights)


def _sample_range(index: int, uri: str, candidate_uris: Sequence[str], margin: str, sizes: tuple[int, int], drops_copies: bool) -> Written:
    """Sample the candidates of one range of sources."""
    candidates = candidates_from_arrow(table_files.read_table(candidate_uris[index]))
    sources, targets = sample_candidates(candidates, margin, sizes, drops_copies=drops_copies)
    table = pa.table(vars(concat([sources, targets])))
    table = table.append_column("is_source", pa.array(np.arange(len(table)) < len(sources.ids)))
    shuffle.scatter(uri, table, np.zeros(len(table), dtype=np.int64), 1)
    return len(table), {}
