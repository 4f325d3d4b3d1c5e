"""`miner mine`: embed the sides that are text, search both directions, compute candidates, select pairs.

Finished stages are kept, so a run with another margin, retrieval, threshold or gold only selects again.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from miner.config.commands import EncoderSettings, FromCandidatesConfig, MineConfig, PairFilters
from miner.encoders import mining_profile
from miner.evaluation.marks import ReviewMarks
from miner.filters import language
from miner.filters.characters import CharacterTable, letter_equivalents
from miner.io import stages, storage
from miner.mining import writers
from pipelines.beam import workers
from pipelines.beam.runner import Pipeline, claim_output, run_pipeline
from pipelines.mining import candidates, choose_threshold, corpus_probability, gold_pairs, rescore_choice, select_pairs
from pipelines.mining.candidates import DEFAULT_LIMITS, MiningLimits, SearchResult
from pipelines.mining.choose_threshold import KnownEvidence
from pipelines.mining.gold_pairs import GoldFile
from pipelines.mining.inputs import CorpusPair, open_sides
from pipelines.mining.pair_groups import GROUPS
from pipelines.mining.select_pairs import PairSelection, SelectConfig, WrittenBitext
from pipelines.search import engine as engine_module
from pipelines.search.exact import FORWARD, SearchRequest

HINT_ROWS, HINT_RATIO = 1000, 2.0  # sentences of each side whose lengths are compared, and the ratio that is odd

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MineResult:
    """The outcome of `miner mine`."""

    output: str
    lines: Mapping[str, Mapping[str, int]]  # side -> outcome -> lines, as counted when the text was read
    unique: Mapping[str, int]  # side -> sentences
    bitext: WrittenBitext
    seconds: Mapping[str, float]  # by stage
    engine: Mapping[str, Any]  # of the search, with the reason for it
    skipped: Mapping[str, str]  # skipped file or shard of a side -> reason
    has_groups: bool = False

    @property
    def sentences(self) -> dict[str, int]:
        """Lines kept, by side."""
        return {side: counts["kept"] for side, counts in self.lines.items()}

    @property
    def files(self) -> list[str]:
        names = [writers.TSV, writers.PARQUET, *([GROUPS] if self.has_groups else []), stages.MANIFEST]
        return [storage.join(self.output, name) for name in names]

    def figures(self) -> dict[str, Any]:
        """Return the result for --json."""
        figures = {name: getattr(self, name) for name in ("lines", "sentences", "unique", "engine", "seconds", "skipped")}
        delta = {"delta": self.bitext.delta.figures()} if self.bitext.delta else {}
        return {**figures, "threshold": self.bitext.threshold, **self.bitext.figures(), **delta}


def run(config: MineConfig, options: Sequence[str] = (), limits: MiningLimits = DEFAULT_LIMITS, warns: bool = True) -> MineResult:
    """Mine `config.source` and `config.target` into `config.output`. Finished stages of an earlier run there are kept.

    Raises the MinerError of invalid sides, encoder, gold or output, or of another k than in an earlier run there. `warns`: of a threshold
    that the encoder does not recommend, and of languages that it does not know.
    """
    with claim_output(config.output, stages.MINE):
        return run_pipeline(pipeline(config, options, limits, warns), options)


def pipeline(
    config: MineConfig,
    options: Sequence[str] = (),
    limits: MiningLimits = DEFAULT_LIMITS,
    warns: bool = True,
    engine_reason: str = engine_module.REQUESTED,
) -> Pipeline[MineResult]:
    """Return the pipeline of `run`, for an output whose lock the caller holds. `options` describe the workers.

    `engine_reason` is that for `config.engine`, if it is not `auto`.
    """
    gold_file = _check(config)
    workers.describe(options).device_type(config.device)  # raises for an unknown one
    sides = yield from open_sides(config, options)
    if not config.replace:
        candidates.check_corpora(config.output, sides.source, sides.target)
    evidence = choose_threshold.read_evidence(config, gold_file, sides.source, sides.target)
    start = time.perf_counter()
    search_result = yield from _search(config, sides, options, limits, engine_reason)
    seconds = {**sides.seconds, "search": time.perf_counter() - start}
    return (yield from _select(search_result, config, evidence, config.output, seconds, options, limits, warns))


def run_from_candidates(config: FromCandidatesConfig, options: Sequence[str] = (), limits: MiningLimits = DEFAULT_LIMITS) -> MineResult:
    """Select pairs from the candidates that an earlier run left in `config.candidates`, into `config.output`.

    Raises also what `candidates.open_search_result` raises.
    """
    gold_file = _check(config)
    search_result = candidates.open_search_result(config.candidates)
    with claim_output(config.output, stages.MINE):
        evidence = choose_threshold.read_evidence(config, gold_file, search_result.source, search_result.target)
        return run_pipeline(_select(search_result, config, evidence, config.candidates, {}, options, limits), options)


def _check(config: SelectConfig) -> GoldFile | ReviewMarks | None:
    """Read gold or marks. Raises MinerError for invalid settings or gold, and for an output folder of another stage."""
    choose_threshold.check(config)
    language.check_identifier(config.pair_filters.bounds(), config.lang_id_model)
    gold_file = gold_pairs.read(config.gold, config.gold_sample)
    if storage.exists(storage.join(config.output, stages.MANIFEST)):
        stages.read_manifest(config.output, stages.MINE)
    return gold_file


def _hint_at_longer_lines(sides: CorpusPair) -> None:
    """Warn if the lines of one side hold several sentences of the other, by the median length of its first ones."""
    if not (sides.source.has_texts and sides.target.has_texts and sides.source.rows and sides.target.rows):
        return
    lengths = []
    for side in (sides.source, sides.target):
        texts = next(side.sentences(side.shards[0].name, ["text"]))["text"].slice(0, HINT_ROWS).to_pylist()
        lengths.append(max(1.0, float(np.median(letter_equivalents(CharacterTable(texts))))))
    if max(lengths) >= HINT_RATIO * min(lengths):
        longer = sides.source if lengths[0] > lengths[1] else sides.target
        ratio = max(lengths) / min(lengths)
        logger.warning(
            "%s: its lines are %.1f times as long as those of the other side; --split cuts them into sentences", longer.folder, ratio
        )


def _search(
    config: MineConfig, sides: CorpusPair, options: Sequence[str], limits: MiningLimits, engine_reason: str
) -> Pipeline[SearchResult]:
    """Fill OUTPUT/neighbours and OUTPUT/candidates."""
    _hint_at_longer_lines(sides)
    folder = storage.join(config.output, stages.CANDIDATES)
    encoder, neighbours = config.part(EncoderSettings), storage.join(config.output, stages.NEIGHBOURS)
    rescoring = rescore_choice.choose(config, config.k, encoder, (sides.source, sides.target), (storage.join(neighbours, FORWARD), folder))
    search_result = SearchResult(sides.source, sides.target, folder, config.k, {}, rescoring, config.paraphrases)
    request = SearchRequest(sides.source, sides.target, search_result.num_neighbours + config.paraphrases, config.device)
    paths = config.source, config.target
    engine = yield from engine_module.find_neighbours(request, paths, config, config.output, options, engine_reason)
    search_result = replace(search_result, engine=engine)
    yield from candidates.run(neighbours, search_result, encoder, search_result.details(config.output), limits)
    return search_result


def _select(
    search_result: SearchResult,
    config: SelectConfig,
    evidence: KnownEvidence,
    searched: str,
    seconds: Mapping[str, float],
    options: Sequence[str],
    limits: MiningLimits,
    warns: bool = True,
) -> Pipeline[MineResult]:
    """Choose the threshold and write the bitext. `searched` is the output of the search, `seconds` what the earlier stages took."""
    start = time.perf_counter()
    source, target = search_result.source, search_result.target
    if not source.has_texts and "pair_filters" not in config.model_fields_set:
        config = config.model_copy(update={"pair_filters": PairFilters.none()})
    language.warn_if_unrated(config.pair_filters.bounds(), (source.lang, target.lang), config.lang_id_model)
    if warns:
        mining_profile.warn_of_languages(evidence.profile, (source.lang, target.lang))
    profile = yield from corpus_probability.fit_profile(evidence.profile, config, search_result, config.output, limits)
    bound = profile.probability_bound(config.margin, search_result.rescoring is not None, config.min_probability)
    selection = PairSelection(search_result, config, bound, options=options, limits=limits)
    evidence = replace(evidence, profile=profile)
    selection = yield from choose_threshold.choose(selection, evidence, storage.join(searched, stages.NEIGHBOURS))
    if warns:
        choose_threshold.warn(selection)
    written = yield from select_pairs.write(selection, evidence.gold)
    seconds = {**seconds, "mine": time.perf_counter() - start}
    return MineResult(
        output=config.output,
        lines={"source": source.counts, "target": target.counts},
        unique=select_pairs.num_unique(search_result),
        bitext=written,
        seconds={name: round(value, 3) for name, value in seconds.items()},
        engine=search_result.engine,
        skipped={**source.skipped, **target.skipped},
        has_groups=config.groups,
    )
