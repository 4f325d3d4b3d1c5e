"""Mine many corpora with one another: embed each corpus once, build its index once if needed, and mine the pairs.

The output of a pair is the same as that of `miner mine` on the embeddings directories of its two corpora.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from miner import languages
from miner.config.choices import AUTO, FAISS, LATE, NONE
from miner.config.commands import (
    EmbedConfig,
    EncoderSettings,
    EngineSettings,
    IndexSettings,
    MineConfig,
    RescoreSettings,
    ThresholdSettings,
)
from miner.config.messages import TOP_LEVEL, name_keys
from miner.config.runs import RunConfig
from miner.encoders import choose_side, mining_profile, with_recorded_dtype
from miner.errors import ConfigError, DataError, StorageError
from miner.io import records, stages, storage
from miner.io.corpus import Corpus
from miner.text import readers
from miner.units import counted
from pipelines.beam import reporting
from pipelines.beam.reporting import StageRecord
from pipelines.beam.runner import Pipeline, claim_output, discard_if_empty, run_pipeline, together
from pipelines.corpus import embed
from pipelines.mining import calibrate, choose_threshold, inputs, mine, rescore_choice
from pipelines.runs import verify
from pipelines.search import build_index
from pipelines.search import engine as engine_module
from pipelines.search.exact import FORWARD, SearchRequest

CORPORA, INDEXES, PAIRS = "corpora", "indexes", "pairs"  # subdirectories of the output
SUMMARY = "run.json"
AUTO_REFUSAL = "threshold: auto chooses by the probabilities of pairs"

logger = logging.getLogger(__name__)


@with_config(ConfigDict(extra="allow"))
class PairFigures(TypedDict):
    """The figures of a pair, as far as the summary reads them."""

    pairs: int
    threshold: float | None
    unique: dict[str, int]
    seconds: dict[str, float]


class PairRecord(TypedDict):
    """The content of `pairs/PAIR.json`: what the bitext was mined from, the checksum of its manifest, and its figures."""

    key: str
    manifest: str
    figures: PairFigures


@dataclass(frozen=True)
class RunStep:
    """One stage of a dry run."""

    name: str
    inputs: str
    output: str
    done: bool


@dataclass(frozen=True)
class RunResult:
    """What `miner run` did."""

    output: str
    corpora: Mapping[str, Mapping[str, Any]]  # by name: language, sentences, seconds, and whether an earlier run finished it
    pairs: Mapping[str, Mapping[str, Any]]  # by name: the figures of `miner mine`, and whether an earlier run finished it
    seconds: float
    skipped: Mapping[str, str]  # file, shard or task -> reason
    counters: Mapping[str, Mapping[str, int]]  # by kind of stage, of the shards that this run wrote
    stages: Sequence[Mapping[str, Any]]  # the record of each stage that ran


@name_keys({TOP_LEVEL: RunConfig})
def plan_steps(config: RunConfig) -> list[RunStep]:
    """List the steps of `run` in the order of the config. Raises the errors that `run` raises before it starts."""
    tasks = _RunTasks(config, ())
    embed_steps = [
        RunStep(f"embed {name}", counted(len(readers.expand(settings.inputs)), "file"), settings.output, tasks.is_embedded(name))
        for name, settings in tasks.texts.items()
    ]
    mine_steps = [
        RunStep(f"mine {name}", " and ".join(pair), tasks.pair_folder(name), tasks.is_mined(name)) for name, pair in tasks.pairs.items()
    ]
    return embed_steps + mine_steps


@name_keys({TOP_LEVEL: RunConfig})
def run(config: RunConfig, options: Sequence[str] = ()) -> RunResult:
    """Embed every corpus that a pair needs, then mine every pair. Corpora share jobs, as do pairs. Results that are up to date are kept.

    Unless the config is strict, corpora and pairs with invalid data are skipped, as are files and shards of text. Raises ConfigError for
    invalid corpora, pairs and options, and the errors of `embed.run` and `mine.run` if no pair can be mined.
    """
    start = time.perf_counter()
    tasks = _RunTasks(config, options)
    with claim_output(config.output, stages.RUN):
        if config.calibrate == AUTO and calibrate.run_before_first_use(list(tasks.texts.values()), options):
            tasks = _RunTasks(config, options)  # by the new profile
        stage_records: list[StageRecord] = []
        failed = run_pipeline(tasks.pipeline(), options, stage_records)
        if failed and not tasks.mined:
            raise next(iter(failed.values()))
        result = RunResult(
            output=config.output,
            corpora={name: tasks.embedded[name] for name in tasks.folders if name in tasks.embedded},
            pairs={name: tasks.mined[name] for name in tasks.pairs if name in tasks.mined},
            seconds=round(time.perf_counter() - start, 3),
            skipped={**tasks.skipped, **{name: str(error) for name, error in failed.items()}},
            counters=reporting.sum_counters(stage_records),
            stages=[asdict(record) for record in stage_records],
        )
        records.write(storage.join(config.output, SUMMARY), asdict(result))
    return result


class _RunTasks:
    """The tasks of a run and their results."""

    def __init__(self, config: RunConfig, options: Sequence[str]) -> None:
        self.config = config
        self.options = options  # Beam options, which describe the workers
        self.pairs = config.named_pairs()
        self.texts: dict[str, EmbedConfig] = {}  # corpus -> how to embed it, for the corpora that are given as text
        self.folders: dict[str, str] = {}  # corpus -> its embeddings directory
        self.embedded: dict[str, dict[str, Any]] = {}  # corpus -> its figures
        self.mined: dict[str, dict[str, Any]] = {}  # pair -> its figures
        self.skipped: dict[str, str] = {}  # file or shard -> reason
        self.indexes: dict[str, str] = {}  # corpus -> its index directory
        self.building: set[str] = set()  # corpora whose index a pair builds
        needed = {name for pair in self.pairs.values() for name in pair}
        for name in config.corpora:
            if name in needed:
                self._add_corpus(name)
        self.fingerprint = self._check_encoder()
        self.config = config = with_recorded_dtype(config, [self.fingerprint])
        is_rescored = rescore_choice.is_planned(config, config.encoder)
        profile = embed.find_profile(config, self.fingerprint)
        if config.threshold == "auto":
            choose_threshold.check_probabilities(config, AUTO_REFUSAL)
            choose_threshold.check_profile(profile, config, AUTO_REFUSAL)
        choose_threshold.warn_of_corpora(config, profile, is_rescored)
        canonical = [languages.canonical(settings.lang) for settings in self.texts.values()]
        mining_profile.warn_of_languages(profile, [*canonical, *(str(figures["lang"]) for figures in self.embedded.values())])
        self.recommended = profile.threshold(config, is_rescored)

    def _add_corpus(self, name: str) -> None:
        """Open a corpus that is given as an embeddings directory, or prepare the settings to embed one given as text."""
        corpus_settings = self.config.corpora[name]
        files = corpus_settings.files
        if len(files) == 1 and inputs.is_folder(files[0]):
            corpus = inputs.open_folder(files[0])
            self.folders[name] = files[0]
            self.embedded[name] = {"lang": corpus.lang, "unique": corpus.rows, "reused": True}
            self.skipped |= corpus.skipped
            return
        if readers.STDIN in files:
            raise ConfigError(f"corpora.{name}: standard input cannot be read again when a run resumes; write it to a file")
        readers.expand(files)  # raises DataError if a file is missing
        lang = name if corpus_settings.lang is None else corpus_settings.lang
        self.folders[name] = storage.join(self.config.output, CORPORA, name)
        settings = {**self.config.shared(EmbedConfig), "inputs": files, "output": self.folders[name], "lang": lang}
        settings["text_column"] = corpus_settings.text_column or settings["text_column"]
        try:
            settings["side"] = choose_side(self.config, languages.canonical(lang)).side
        except ConfigError as error:
            raise ConfigError(f"corpora.{name}: {error}; its language can be given as `lang`") from error
        self.texts[name] = EmbedConfig(**settings)

    def _check_encoder(self) -> str:
        """Return the encoder's fingerprint. Raises DataError if an embeddings directory is from another encoder."""
        corpora = [inputs.open_folder(folder) for name, folder in self.folders.items() if name not in self.texts]
        for corpus in corpora[1:]:
            inputs.check_pair(corpora[0], corpus)
        if not self.texts:
            return corpora[0].fingerprint
        if corpora:
            inputs.check_encoder(corpora[0], self.config, self.options)
        recorded = [corpus.fingerprint for corpus in corpora] + [embed.recorded_fingerprint(text.output) for text in self.texts.values()]
        encoder = embed.identify_encoder(with_recorded_dtype(self.config, recorded), self.options)
        self.texts = {name: with_recorded_dtype(text, [encoder.fingerprint]) for name, text in self.texts.items()}
        return encoder.fingerprint

    def pair_folder(self, pair: str) -> str:
        return storage.join(self.config.output, PAIRS, pair)

    def pipeline(self) -> Pipeline[dict[str, DataError]]:
        """Embed all corpora, then mine all pairs. Return the errors of those that were skipped, by name of the task."""
        at_once, skips = self.config.at_once, not self.config.strict
        _, failed = yield from together({f"embed {name}": self.embed(name) for name in self.texts}, at_once, skips)
        mine_tasks = {}
        for name, pair in self.pairs.items():
            missing = [f"embed {corpus}" for corpus in pair if f"embed {corpus}" in failed]
            if missing:
                failed[f"mine {name}"] = DataError(f"needs {missing[0]}, which was skipped")
            else:
                mine_tasks[f"mine {name}"] = self.mine(name)
        _, failed_pairs = yield from together(mine_tasks, at_once, skips)
        return failed | failed_pairs

    def is_embedded(self, name: str) -> bool:
        return name not in self.texts or embed.is_done(self.texts[name], self.fingerprint)

    def embed(self, name: str) -> Pipeline[None]:
        is_reused = self.is_embedded(name)
        logger.info("embed %s", name)
        with discard_if_empty(self.folders[name]):
            result = yield from embed.pipeline(self.texts[name], self.options)
        self.embedded[name] = {"lang": result.lang, "unique": result.unique, "lines": dict(result.counts)}
        self.embedded[name] |= {"seconds": dict(result.seconds), "reused": is_reused}
        self.skipped |= result.skipped

    def is_mined(self, pair: str) -> bool:
        """Whether a pair was mined from the current state of its corpora. Reads manifests only."""
        if not all(self.is_embedded(name) for name in self.pairs[pair]) or not storage.exists(f"{self.pair_folder(pair)}.json"):
            return False
        return self._read_figures(pair, self._pair_key(*self._open_sides(pair))) is not None

    def mine(self, pair: str) -> Pipeline[None]:
        logger.info("mine %s", pair)
        source, target = self._open_sides(pair)
        key = self._pair_key(source, target)
        figures = self._read_figures(pair, key)
        if figures is not None and not verify.check(self.pair_folder(pair)).faults:
            self.mined[pair] = {**figures, "reused": True}
            return
        with discard_if_empty(self.pair_folder(pair)):
            settings, engine_reason = yield from self._mine_config(pair, source, target)
            result = yield from mine.pipeline(settings, self.options, warns=False, engine_reason=engine_reason)
        figures = result.figures()
        manifest = storage.checksum(storage.join(self.pair_folder(pair), stages.MANIFEST))
        records.write(f"{self.pair_folder(pair)}.json", {"key": key, "manifest": manifest, "figures": figures})
        self.mined[pair] = {**figures, "reused": False}

    def _open_sides(self, pair: str) -> tuple[Corpus, Corpus]:
        source, target = (inputs.open_folder(self.folders[name]) for name in self.pairs[pair])
        return source, target

    def _pair_key(self, source: Corpus, target: Corpus) -> str:
        """Return a fingerprint of everything that the bitext of a pair depends on."""
        names = {name for part in (EngineSettings, RescoreSettings, ThresholdSettings) for name in part.model_fields}
        settings = self.config.model_dump(include=names)
        recommended = None if self.recommended is None or self.config.threshold is not None else self.recommended.threshold
        return storage.key([source.key, target.key, settings, self.config.k, recommended])

    def _read_figures(self, pair: str, key: str) -> dict[str, Any] | None:
        """Return the figures of an earlier run with this key, if its manifest is unchanged; otherwise None."""
        manifest = storage.join(self.pair_folder(pair), stages.MANIFEST)
        if not storage.exists(f"{self.pair_folder(pair)}.json") or not storage.exists(manifest):
            return None
        try:
            record = records.read(f"{self.pair_folder(pair)}.json", PairRecord)
            return dict(record["figures"]) if (record["key"], record["manifest"]) == (key, storage.checksum(manifest)) else None
        except StorageError:
            return None  # the pair is mined again

    def _mine_config(self, pair: str, source: Corpus, target: Corpus) -> Pipeline[tuple[MineConfig, str]]:
        """Return the settings of `miner mine` for a pair, and the reason for its engine. If that is FAISS, build the indexes first."""
        config = self.config
        output = self.pair_folder(pair)
        folders = storage.join(output, stages.NEIGHBOURS, FORWARD), storage.join(output, stages.CANDIDATES)
        rescoring = rescore_choice.choose(config, config.k, config.part(EncoderSettings), (source, target), folders)
        num_neighbours = config.k if rescoring is None else rescoring.num_neighbours(config.k)
        search = SearchRequest(source, target, num_neighbours, config.device)
        engine_file = f"{output}.engine.json"
        folder = storage.join(output, stages.NEIGHBOURS)
        engine, reason = yield from engine_module.choose_engine(search, config, (False, False), folder, engine_file, self.options)
        folders_of = {name: self.folders[name] for name in self.pairs[pair]}
        if engine == FAISS:
            folders_of, _ = yield from together({name: self._find_index(name) for name in self.pairs[pair]})
        source_folder, target_folder = (folders_of[name] for name in self.pairs[pair])
        settings = {**config.shared(MineConfig), "source": source_folder, "target": target_folder, "output": output, "engine": engine}
        settings |= {"rescore": NONE if rescoring is None else LATE, "token_layer": None if rescoring is None else rescoring.token_layer}
        return MineConfig(**settings), reason

    def _find_index(self, name: str) -> Pipeline[str]:
        """Return the index directory of a corpus, which is built for the first pair that needs it."""
        while name in self.building:
            yield []  # until the other pair has built it
        if name not in self.indexes:
            config, folder = self.config, self.folders[name]
            self.building.add(name)
            try:
                if not build_index.is_index(folder):
                    settings = IndexSettings(target_recall=config.target_recall, memory=config.memory, device=config.device)
                    corpus, folder = inputs.open_folder(folder), storage.join(config.output, INDEXES, name)
                    with discard_if_empty(folder):
                        yield from build_index.build(corpus, folder, settings, config.k, self.options)
                self.indexes[name] = folder
            finally:
                self.building.remove(name)
        return self.indexes[name]
