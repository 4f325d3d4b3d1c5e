"""Many corpora, any pairs of them: each corpus is embedded once, indexed once where an index pays, and mined with the others.

What comes out for a pair is what `miner mine` gives of the folders that `miner embed` makes of its two texts.
"""

import functools
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from miner import languages, stages, storage
from miner.config.commands import (
    EmbedConfig,
    EncoderSettings,
    EngineSettings,
    IndexConfig,
    MatchSettings,
    MineConfig,
    SentenceSettings,
    TextSettings,
)
from miner.config.runs import RunConfig
from miner.corpus import Corpus
from miner.encoders import load_encoder
from miner.errors import ConfigError, MinerError
from miner.text import readers
from pipelines.beam import metrics
from pipelines.beam.runner import claim_output, uses_local_processes
from pipelines.corpus import embed
from pipelines.mining import inputs, mine
from pipelines.runs import scheduler, verify
from pipelines.runs.scheduler import ScheduledTask
from pipelines.search import build_index
from pipelines.search import engine as engine_module
from pipelines.search.exact import SearchRequest

CORPORA, INDEXES, PAIRS = "corpora", "indexes", "pairs"  # folders
SUMMARY = "run.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunStep:
    """One stage of a plan."""

    name: str
    made_from: str
    output: str
    done: bool


@dataclass(frozen=True)
class RunResult:
    """What `miner run` made."""

    output: str
    corpora: Mapping[str, Mapping[str, Any]]  # by name: language, sentences, seconds, and whether it was there already
    pairs: Mapping[str, Mapping[str, Any]]  # by name: the figures of `miner mine`, and whether they were there already
    seconds: float
    set_aside: Mapping[str, str]  # file, shard, or task -> why the rest was made without it
    counters: Mapping[str, Mapping[str, int]]  # by kind of stage, of what was made in this run
    stages: Sequence[Mapping[str, Any]]  # each stage that ran

    def figures(self) -> dict[str, Any]:
        """The same for a program."""
        return asdict(self)


def plan(config: RunConfig) -> list[RunStep]:
    """What `run` would do, in the order of the config. Raises what `run` raises before it begins."""
    job = _Job(config, ())
    steps = [
        RunStep(f"embed {name}", f"{len(readers.expand(made.inputs))} files", made.output, job.is_embedded(name))
        for name, made in job.texts.items()
    ]
    return steps + [RunStep(f"mine {name}", " and ".join(pair), job.folder(name), job.is_mined(name)) for name, pair in job.pairs.items()]


def run(config: RunConfig, options: Sequence[str] = ()) -> RunResult:
    """Embed every corpus that a pair needs, and mine every pair, each as soon as what it needs is there; what is complete is kept.

    Unless the config is strict, a corpus or pair that fails for its data's sake is set aside, as are files and shards of text. Raises
    ConfigError for corpora, pairs and options that cannot be, and what `embed.run` and `mine.run` raise where not one pair is left.
    """
    start = time.perf_counter()
    if uses_local_processes(options) and config.at_once > 1:
        raise ConfigError(f"at_once: {config.at_once}: worker processes of this machine take one stage at a time; leave at_once out")
    job = _Job(config, options)
    with claim_output(config.output), metrics.collect_records(config.output) as records:
        failed = scheduler.run(job.tasks(), config.at_once, skip_failed=not config.strict)
        if failed and not job.mined:
            raise next(iter(failed.values()))
        result = RunResult(
            output=config.output,
            corpora={name: job.embedded[name] for name in job.places if name in job.embedded},
            pairs={name: job.mined[name] for name in job.pairs if name in job.mined},
            seconds=round(time.perf_counter() - start, 3),
            set_aside={**job.set_aside, **{name: str(error) for name, error in failed.items()}},
            counters=metrics.sum_counters(records),
            stages=[record.figures() for record in records],
        )
        storage.write_json(storage.join(config.output, SUMMARY), result.figures())
    return result


class _Job:
    """The tasks of a run, and what came of them."""

    def __init__(self, config: RunConfig, options: Sequence[str]) -> None:
        self.config = config
        self.options = options
        self.pairs = config.named_pairs()
        self.texts: dict[str, EmbedConfig] = {}  # of the corpora that are not embedded yet
        self.places: dict[str, str] = {}  # corpus -> its folder
        self.embedded: dict[str, dict[str, Any]] = {}
        self.mined: dict[str, dict[str, Any]] = {}
        self.set_aside: dict[str, str] = {}
        self.indexing: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self.indexes: dict[str, str] = {}
        needed = {name for pair in self.pairs.values() for name in pair}
        for name in config.corpora:
            if name in needed:
                self._place(name)
        self.fingerprint = self._one_encoder()

    def _place(self, name: str) -> None:
        """Say where a corpus is, or from what it will be made."""
        told = self.config.corpora[name]
        if len(told.files) == 1 and inputs.is_folder(told.files[0]):
            corpus = inputs.open_folder(told.files[0])
            self.places[name] = told.files[0]
            self.embedded[name] = {"lang": corpus.lang, "unique": corpus.rows, "kept": True}
            self.set_aside |= corpus.set_aside
            return
        if readers.STDIN in told.files:
            raise ConfigError(f"corpora.{name}: standard input cannot be read again when a run goes on; write it to a file")
        readers.expand(told.files)  # DataError
        lang = name if told.lang is None else told.lang
        self.places[name] = storage.join(self.config.output, CORPORA, name)
        parts = (TextSettings, EncoderSettings, SentenceSettings)
        settings = {field: value for part in parts for field, value in self.config.part(part)}
        settings["text_column"] = told.text_column or settings["text_column"]
        try:
            languages.canonical(lang)
        except ConfigError as error:
            raise ConfigError(f"corpora.{name}: {error}; its language can be given as `lang`") from error
        self.texts[name] = EmbedConfig(inputs=told.files, output=self.places[name], lang=lang, **settings)

    def _one_encoder(self) -> str:
        """The encoder's fingerprint. DataError where a folder that was given is of another one."""
        given = [inputs.open_folder(place) for name, place in self.places.items() if name not in self.texts]
        for other in given[1:]:
            inputs.check_pair(given[0], other)
        if not self.texts:
            return given[0].fingerprint
        if given:
            inputs.check_encoder(given[0], self.config)
        return load_encoder(self.config.encoder, self.config.part(EncoderSettings)).fingerprint

    def folder(self, pair: str) -> str:
        return storage.join(self.config.output, PAIRS, pair)

    def tasks(self) -> list[ScheduledTask]:
        """Pairs come first, so that one is mined before the next corpus is embedded."""
        pairs = [
            ScheduledTask(f"mine {name}", functools.partial(self.mine, name), tuple(f"embed {side}" for side in pair if side in self.texts))
            for name, pair in self.pairs.items()
        ]
        return pairs + [ScheduledTask(f"embed {name}", functools.partial(self.embed, name)) for name in self.texts]

    def is_embedded(self, name: str) -> bool:
        return name not in self.texts or embed.is_done(self.texts[name], self.fingerprint)

    def embed(self, name: str) -> None:
        kept = self.is_embedded(name)
        logger.info("embed %s", name)
        result = embed.run(self.texts[name], self.options)
        self.embedded[name] = {"lang": result.lang, "unique": result.unique, "seconds": dict(result.seconds), "kept": kept}
        self.set_aside |= result.set_aside

    def is_mined(self, pair: str) -> bool:
        """Whether a pair was mined from its corpora as they are now. Looks at manifests only."""
        if not all(self.is_embedded(name) for name in self.pairs[pair]) or not storage.exists(f"{self.folder(pair)}.json"):
            return False
        return self._report(pair, self._key(*self._sides(pair))) is not None

    def mine(self, pair: str) -> None:
        logger.info("mine %s", pair)
        source, target = self._sides(pair)
        key = self._key(source, target)
        report = self._report(pair, key)
        if report is not None and not verify.check(self.folder(pair)).faults:
            self.mined[pair] = {**report, "kept": True}
            return
        figures = mine.run(self._mine_config(pair, source, target), self.options).figures()
        made = storage.checksum(storage.join(self.folder(pair), stages.MANIFEST))
        storage.write_json(f"{self.folder(pair)}.json", {"key": key, "manifest": made, "figures": figures})
        self.mined[pair] = {**figures, "kept": False}

    def _sides(self, pair: str) -> tuple[Corpus, Corpus]:
        source, target = (inputs.open_folder(self.places[name]) for name in self.pairs[pair])
        return source, target

    def _key(self, source: Corpus, target: Corpus) -> str:
        """A name for a pair that was mined: it changes when something does that the pairs depend on."""
        decided = {name: value for part in (EngineSettings, MatchSettings) for name, value in self.config.part(part).model_dump().items()}
        return storage.key([source.key, target.key, decided, self.config.k, self.config.threshold])

    def _report(self, pair: str, key: str) -> dict[str, Any] | None:
        """The figures of an earlier run, where its manifest is there still and its key is this one."""
        manifest = storage.join(self.folder(pair), stages.MANIFEST)
        if not storage.exists(f"{self.folder(pair)}.json") or not storage.exists(manifest):
            return None
        try:
            told = storage.read_json(f"{self.folder(pair)}.json")
            return dict(told["figures"]) if (told["key"], told["manifest"]) == (key, storage.checksum(manifest)) else None
        except (MinerError, KeyError, TypeError):
            return None

    def _mine_config(self, pair: str, source: Corpus, target: Corpus) -> MineConfig:
        """An index is built of a corpus when the first pair wants it."""
        config = self.config
        search = SearchRequest(source, target, config.k, config.device)
        engine, _ = engine_module.choose_engine(search, config.part(EngineSettings), (False, False), f"{self.folder(pair)}.engine.json")
        places = [self._indexed(name) if engine == "faiss" else self.places[name] for name in self.pairs[pair]]
        parts = (EncoderSettings, EngineSettings, MatchSettings)
        settings = {name: value for part in parts for name, value in config.part(part)}
        settings |= {"engine": engine, "k": config.k, "threshold": config.threshold}
        return MineConfig(source=places[0], target=places[1], output=self.folder(pair), **settings)

    def _indexed(self, name: str) -> str:
        """The index of a corpus."""
        with self.indexing[name]:
            if name not in self.indexes:
                self.indexes[name] = self.places[name] if build_index.is_index(self.places[name]) else self._index(name)
            return self.indexes[name]

    def _index(self, name: str) -> str:
        config, output = self.config, storage.join(self.config.output, INDEXES, name)
        asked = {"k": config.k, "target_recall": config.target_recall, "memory": config.memory, "device": config.device}
        build_index.run(IndexConfig(embeddings=self.places[name], output=output, **asked), self.options)
        return output
