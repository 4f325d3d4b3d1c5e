"""Plan a run: what `miner run` would take of time, memory, disk and money. The machine is measured for some seconds; nothing is kept."""

import itertools
import math
import os
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import psutil

from miner import languages
from miner.config.commands import TextSettings
from miner.config.messages import TOP_LEVEL, name_keys
from miner.config.planning import HERE, Hardware
from miner.config.runs import RunConfig
from miner.devices import available_cores, choose_device, device_type
from miner.errors import ConfigError, DataError
from miner.io.corpus import Corpus
from miner.plan import corpus_size
from miner.plan.hardware import find_hardware, scale_speeds
from miner.search import faiss_index
from miner.text import readers
from miner.text.sharding import MAX_RANGES, RANGE_BYTES, InputFile, num_ranges_for
from pipelines.mining import inputs as inputs_module
from pipelines.mining import rescore_choice
from pipelines.runs import measure_speed, run, stage_costs
from pipelines.runs.measure_speed import DEFAULT_PROBE, Calibration, ProbeSettings
from pipelines.runs.stage_costs import CorpusSize, EngineChoice, EngineRequest, StageCost, WorkerPool
from pipelines.search import build_index, engine, index_files

MAX_DISK_RATIO = 5  # peak disk to final disk, above which fewer shards are advised
MAX_LOAD_PER_CORE = 1.5  # above, a plan warns that the machine is busy
SEED = 4


@dataclass(frozen=True)
class CorpusSample:
    """A corpus of a run, and a sample of its sentences."""

    lines: float  # lines to read, or the sentences of a corpus that is embedded
    reason: str  # how the number was determined
    lang: str
    sentence_share: float  # share of the lines that become sentences, before filters
    texts: Sequence[str]
    shards: int
    files: int = 0  # files to read; 0 where the corpus is embedded
    corpus: Corpus | None = None  # the corpus where it is embedded
    is_indexed: bool = False

    @property
    def text_bytes(self) -> float:
        """Mean length of a text in UTF-8."""
        return sum(len(text.encode()) for text in self.texts) / max(1, len(self.texts))


@dataclass(frozen=True)
class RunPlan:
    """The result of `miner plan`."""

    machine: str
    pool: WorkerPool
    calibration: Calibration
    corpora: Mapping[str, CorpusSize]
    pairs: Mapping[str, EngineChoice]
    stages: Sequence[StageCost]
    done: Sequence[str]  # stages that are complete
    price: float | None  # price of one machine for an hour
    machine_memory: float  # bytes
    load_per_core: float  # load of this machine when the plan began
    at_once: int | None  # corpora or pairs that share jobs; None: all
    worker_disk: float  # bytes in the cache of each machine, for copies of remote indexes

    def figures(self) -> dict[str, Any]:
        """Return the plan for --json: bytes, seconds and hours."""
        names = ("price", "seconds", "cost", "memory", "disk", "peak_disk", "worker_disk", "done", "advice")
        return {
            "machine": self.machine,
            "workers": self.pool.workers,
            **{name: getattr(self, name) for name in names},
            "hours": self.seconds / 3600,
            "corpora": {name: asdict(corpus) for name, corpus in self.corpora.items()},
            "pairs": {name: asdict(choice) for name, choice in self.pairs.items()},
            "stages": [stage.figures() for stage in self.stages],
            "speeds": asdict(self.pool.speeds),
            "calibration": asdict(self.calibration),
        }

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.price * self.pool.workers * self.seconds / 3600

    @property
    def memory(self) -> float:
        """Bytes of one process."""
        return max((stage.need.memory for stage in self.stages), default=0.0)

    @property
    def disk(self) -> float:
        """Bytes of all outputs."""
        return sum(stage.need.disk for stage in self.stages)

    @property
    def peak_disk(self) -> float:
        """Peak bytes, with the temporary files of the stages that share jobs: those of one kind, of `at_once` corpora or pairs."""
        kinds = defaultdict[str, list[StageCost]](list)
        for stage in self.stages:
            kinds[stage.name.partition(" ")[0]].append(stage)
        disk, peak = 0.0, 0.0
        for stages in kinds.values():
            disk += sum(stage.need.disk for stage in stages)
            temporary = sorted((stage.need.temporary_disk for stage in stages), reverse=True)
            peak = max(peak, disk + sum(temporary[: self.at_once]))
        return peak

    @property
    def advice(self) -> list[str]:
        """Problems of this plan, and how to fix them."""
        advice = [
            f"{stage.name} takes {stage.need.memory / 1e9:,.0f} GB of memory, a machine has {self.machine_memory / 1e9:,.0f}"
            for stage in self.stages
            if stage.need.memory > self.machine_memory
        ]
        if self.peak_disk > MAX_DISK_RATIO * self.disk:
            advice.append("most of the disk is for what pairs of shards leave until they are merged; fewer `shards` leave less")
        larger = {name: corpus for name, corpus in self.corpora.items() if corpus.shards > 1}  # one shard is read in seconds
        if undivided := [name for name, corpus in larger.items() if 0 < corpus.files < self.pool.workers]:
            advice.append(f"a file is read by one worker, so split {', '.join(undivided)} into at least as many files as there are workers")
        if self.load_per_core > MAX_LOAD_PER_CORE:
            advice.append(
                f"this machine has {self.load_per_core:.0f} times as much load as cores; every stage takes longer until that ends"
            )
        return advice


@name_keys({TOP_LEVEL: RunConfig})
def make_plan(config: RunConfig, probe: ProbeSettings = DEFAULT_PROBE) -> RunPlan:
    """Sample the corpora, measure this machine with their sentences, and estimate every stage.

    Raises what `run.run` raises before it starts, and ConfigError for an unknown machine or where no index fits into its memory.
    """
    name, load_per_core = config.plan.machine, os.getloadavg()[0] / available_cores()
    machine = None if name is None else find_hardware(name, config.plan.rates)
    local_config = config if machine is None else config.model_copy(update={"device": "cpu"})
    steps = run.plan_steps(local_config)
    done = [] if config.plan.sentences else [step.name for step in steps if step.done]
    embedded = {step.name.removeprefix("embed "): step.output for step in steps if step.name in done and step.name.startswith("embed ")}
    for name in config.plan.sentences:
        if name not in config.corpora:
            raise ConfigError(f"plan.sentences: no corpus is called {name!r}; one of {', '.join(config.corpora)}")
    sides = config.named_pairs()
    samples = {name: _sample_corpus(config, name, embedded.get(name)) for name in dict.fromkeys(itertools.chain(*sides.values()))}
    calibration = _calibrate(samples, local_config, probe)
    speeds = calibration.speeds
    if machine is not None:
        speeds = scale_speeds(speeds, available_cores(), machine, calibration.encoding)
    corpora = {name: _plan_corpus(local_config, name, sample, calibration) for name, sample in samples.items()}
    pool, request = WorkerPool(config.plan.workers, speeds), _engine_request(config, machine)
    pairs = {}
    for name, (source, target) in sides.items():
        if f"mine {name}" not in done:
            pair_request = replace(request, k=_num_neighbours(config, (corpora[source], corpora[target])))
            pairs[name] = stage_costs.plan_engine(corpora[source], corpora[target], pair_request, speeds)
    return RunPlan(
        machine=config.plan.machine or HERE,
        pool=pool,
        calibration=calibration,
        corpora=corpora,
        pairs=pairs,
        stages=_stage_costs(config, samples, corpora, pairs, pool),
        done=done,
        price=config.plan.price if config.plan.price is not None or machine is None else machine.price,
        machine_memory=psutil.virtual_memory().total if machine is None else machine.memory * 1e9,
        load_per_core=load_per_core,
        at_once=config.at_once,
        worker_disk=_copied_bytes(config, samples, corpora, pairs),
    )


def _copied_bytes(
    config: RunConfig, samples: Mapping[str, CorpusSample], corpora: Mapping[str, CorpusSize], pairs: Mapping[str, EngineChoice]
) -> float:
    """Return the bytes of the remote indexes that FAISS searches, each once. Those of a local or shared disk are mapped in place."""
    sides = config.named_pairs()
    factories = {
        name: factory for pair, choice in pairs.items() for name, factory in zip(sides[pair], choice.factories or (), strict=False)
    }
    folders = {name: config.corpora[name].files[0] if samples[name].is_indexed else config.output for name in factories}
    return sum(
        stage_costs.index_copy_bytes(corpora[name], factory)
        for name, factory in factories.items()
        if not index_files.is_local(folders[name])
    )


def _sample_corpus(config: RunConfig, name: str, embeddings: str | None) -> CorpusSample:
    """Sample a corpus; `embeddings` is the directory that an earlier run left for it, if any."""
    settings = config.corpora[name]
    if embeddings is None and len(settings.files) == 1 and inputs_module.is_folder(settings.files[0]):
        embeddings = settings.files[0]
    if embeddings is not None:
        corpus = inputs_module.open_folder(embeddings)
        shard = next(shard for shard in corpus.shards if shard.rows)
        texts = next(corpus.sentences(shard.name, ["text"]))["text"].to_pylist()
        is_indexed = build_index.is_index(embeddings)
        return CorpusSample(
            corpus.rows, "embedded already", corpus.lang, 1.0, texts, len(corpus.shards), corpus=corpus, is_indexed=is_indexed
        )
    files = readers.expand(settings.files)
    text_settings = config.part(TextSettings).model_copy(update={"text_column": settings.text_column or config.text_column})
    count = corpus_size.count_lines(files, text_settings)
    split_lang = languages.canonical(settings.lang or name) if config.split else None
    num_lines, texts = corpus_size.sample_sentences(count, text_settings, split_lang)
    if not texts:
        raise DataError(f"corpora.{name}: not one sentence in the {num_lines:,} lines that were sampled; give a text with sentences")
    shards = num_ranges_for([InputFile(uri, uri) for uri in files], text_settings)
    return CorpusSample(count.lines, count.reason, settings.lang or name, len(texts) / num_lines, texts, shards, len(files))


def _calibrate(samples: Mapping[str, CorpusSample], config: RunConfig, probe: ProbeSettings) -> Calibration:
    """Measure with texts of all corpora that are not embedded, in proportion to their lines; if there is none, with stored vectors."""
    unread = [sample for sample in samples.values() if sample.files]
    if not unread:
        corpus = next(sample.corpus for sample in samples.values() if sample.corpus is not None)
        _, vectors = next(corpus.vectors(next(shard.name for shard in corpus.shards if shard.rows)))
        return measure_speed.calibrate_search(vectors, config, probe)
    lines = sum(sample.lines for sample in unread)
    max_texts = corpus_size.MAX_SAMPLED_SENTENCES
    texts = [text for sample in unread for text in sample.texts[: math.ceil(max_texts * sample.lines / lines)]]
    random.Random(SEED).shuffle(texts)
    largest = max(unread, key=lambda sample: sample.lines)
    return measure_speed.calibrate(texts, largest.lang, config, largest.files, probe)


def _plan_corpus(config: RunConfig, name: str, sample: CorpusSample, calibration: Calibration) -> CorpusSize:
    dim, row_bytes = calibration.encoding.dim, calibration.compression * sample.text_bytes
    token_bytes = measure_speed.measure_token_bytes(sample.texts, sample.lang, config)
    encoder_bytes = calibration.encoder_bytes if sample.files else 0.0
    sentences = config.plan.sentences.get(name)
    if sentences is not None:
        shards = config.shards or min(MAX_RANGES, math.ceil(sentences * sample.text_bytes / RANGE_BYTES))
        files = shards if sample.files else 0
        return CorpusSize(sentences, sample.text_bytes, row_bytes, shards, dim, "as you said", sentences, files, token_bytes, encoder_bytes)
    kept_share = measure_speed.measure_kept_share(sample.texts, sample.lang, config) if sample.files else 1.0
    sentences = max(1, round(sample.lines * sample.sentence_share * kept_share))
    return CorpusSize(
        sentences, sample.text_bytes, row_bytes, sample.shards, dim, sample.reason, sample.lines, sample.files, token_bytes, encoder_bytes
    )


def _engine_request(config: RunConfig, machine: Hardware | None) -> EngineRequest:
    device = device_type(choose_device(config.device)) if machine is None else "cpu" if machine.flops is None else "a GPU"
    return EngineRequest(
        k=config.k,
        is_rescored=rescore_choice.is_planned(config, config.encoder),
        target_recall=config.target_recall,
        max_index_bytes=config.memory_bytes,
        cores=available_cores() if machine is None else machine.cores,
        fixed_engine=engine.fixed_engine(config, device),
        has_gpu=device != "cpu" and (machine is not None or faiss_index.num_gpus() > 0),
    )


def _stage_costs(
    config: RunConfig,
    samples: Mapping[str, CorpusSample],
    corpora: Mapping[str, CorpusSize],
    pairs: Mapping[str, EngineChoice],
    pool: WorkerPool,
) -> list[StageCost]:
    """Return the cost of every stage: a corpus is read and embedded once, and indexed for the first pair that needs the index."""
    costs: list[StageCost] = []
    indexed = {name for name, sample in samples.items() if sample.is_indexed}
    for name, corpus in corpora.items():
        if corpus.files:
            costs += stage_costs.corpus_costs(name, corpus, pool, shares_jobs=bool(costs))
    for pair, choice in pairs.items():
        names = config.named_pairs()[pair]
        for name, factory, build_seconds in zip(names, choice.factories or (), choice.build_seconds, strict=False):
            if name not in indexed:
                indexed.add(name)
                costs.append(stage_costs.index_cost(name, corpora[name], factory, build_seconds, pool))
        source, target = (corpora[name] for name in names)
        costs += stage_costs.pair_costs(pair, (source, target), choice, _num_neighbours(config, (source, target)), pool)
    return costs


def _num_neighbours(config: RunConfig, sizes: Sequence[CorpusSize]) -> int:
    return rescore_choice.num_neighbours(config, config.k, config.encoder, [size.sentences for size in sizes])
