"""What `miner run` would take: sentences, time, memory, disk, index and money. Some seconds of trying things out; nothing is kept of it."""

import math
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import torch

from miner.config.commands import EngineSettings, TextSettings
from miner.config.planning import HERE, Hardware
from miner.config.runs import RunConfig
from miner.corpus import Corpus
from miner.encoders.transformer_parts import choose_device
from miner.errors import ConfigError, DataError
from miner.plan import corpus_size, hardware, speeds, stage_costs
from miner.plan.resources import CorpusSize
from miner.plan.speeds import Speeds
from miner.plan.stage_costs import EngineChoice, EngineRequest, StageCost, WorkerPool
from miner.search import precision
from miner.storage import available_cores
from miner.text import readers
from miner.text.sharding import MAX_RANGES, RANGE_BYTES, num_ranges_for
from pipelines.mining import inputs as inputs_module
from pipelines.runs import measure_speed, run
from pipelines.runs.measure_speed import Calibration
from pipelines.search import build_index, engine

LAVISH = 5  # times as much disk on the way as in the end
BUSY = 1.5  # processes for each core
SEED = 4


@dataclass(frozen=True)
class CorpusSample:
    """What is known of a corpus before its sentences are."""

    lines: float  # that are to be read, or the sentences of one that is embedded
    why: str  # how that is known
    lang: str
    kept: float  # share of the lines that are sentences, as far as filters have no say
    text: float  # bytes of a sentence
    texts: Sequence[str]  # some of them
    shards: int
    inputs: int  # to be read; none where it is embedded
    corpus: Corpus | None = None  # where it is embedded
    indexed: bool = False


@dataclass(frozen=True)
class PlannedCorpus:
    """A corpus as large as it will be, and how that is known."""

    sized: CorpusSize
    why: str
    lines: float  # to read
    inputs: int  # files that hold them; of a corpus whose size is only said, as many as shards; none where it is embedded


@dataclass(frozen=True)
class RunPlan:
    """What `miner plan` tells."""

    machine: str
    workers: int
    speeds: Speeds
    calibration: Calibration
    corpora: Mapping[str, PlannedCorpus]
    pairs: Mapping[str, EngineChoice]
    stages: Sequence[StageCost]
    done: Sequence[str]  # what is complete, and no stage any more
    price: float | None  # of an hour of one machine
    room: float  # bytes of memory of one machine
    busy: float  # processes of this machine that wanted a core when the plan began, for each core

    def figures(self) -> dict[str, Any]:
        """The same for a program; bytes, and hours beside seconds."""
        names = ("machine", "workers", "price", "seconds", "money", "memory", "disk", "most_disk", "done", "advice")
        return {
            **{name: getattr(self, name) for name in names},
            "hours": self.seconds / 3600,
            "corpora": {name: {**asdict(corpus.sized), "why": corpus.why} for name, corpus in self.corpora.items()},
            "pairs": {name: asdict(chosen) for name, chosen in self.pairs.items()},
            "stages": [
                {"name": stage.name, "seconds": stage.seconds, "hours": stage.seconds / 3600, **asdict(stage.need)} for stage in self.stages
            ],
            "speeds": asdict(self.speeds),
            "calibration": asdict(self.calibration),
        }

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def money(self) -> float | None:
        return None if self.price is None else self.price * self.workers * self.seconds / 3600

    @property
    def memory(self) -> float:
        """Of one process, in bytes."""
        return max((stage.need.memory for stage in self.stages), default=0.0)

    @property
    def disk(self) -> float:
        """Bytes that are left."""
        return sum(stage.need.disk for stage in self.stages)

    @property
    def advice(self) -> list[str]:
        """What stands in the way, and what could be done about it."""
        told = [
            f"{stage.name} takes {stage.need.memory / 1e9:,.0f} GB of memory, a machine has {self.room / 1e9:,.0f}"
            for stage in self.stages
            if stage.need.memory > self.room
        ]
        if self.most_disk > LAVISH * self.disk:
            told.append("most of the disk is for what pairs of shards leave until they are merged; fewer `shards` leave less")
        if alone := [name for name, corpus in self.corpora.items() if 0 < corpus.inputs < self.workers]:
            told.append(f"a file is read by one worker, so cut {', '.join(alone)} into as many as there are workers")
        if self.busy > BUSY:
            told.append(f"this machine has {self.busy:.0f} times as much to do as it can; all takes longer while that lasts")
        return told

    @property
    def most_disk(self) -> float:
        """The most bytes at a time, with those that are gone when a stage is done."""
        before, most = 0.0, 0.0
        for stage in self.stages:
            before += stage.need.disk
            most = max(most, before + stage.need.passing)
        return most


def make(config: RunConfig) -> RunPlan:
    """Look into the corpora, try out some of their sentences, and reckon.

    Raises what `run.run` raises before it begins, ConfigError for a machine that is not known, and where no index fits its memory.
    """
    machine, busy = _machine(config), os.getloadavg()[0] / available_cores()
    local = config if machine is None else config.model_copy(update={"device": "cpu"})
    steps = run.plan(local)
    done = [] if config.plan.sentences else [step.name for step in steps if step.done]
    places = {step.name.removeprefix("embed "): step.output for step in steps if step.name in done and step.name.startswith("embed ")}
    names = {name: None for pair in config.named_pairs().values() for name in pair}
    _check_names(config)
    found = {name: _look(config, name, places.get(name)) for name in names}
    calibration = _calibrate(found, local)
    corpora = {name: _planned(config, name, each, calibration) for name, each in found.items()}
    told = calibration.speeds
    if machine is not None:
        told = speeds.elsewhere(told, available_cores(), machine, calibration.encoding)
    crew = WorkerPool(config.plan.workers, told)
    asked = _asked(config, machine, calibration.encoding.dim)
    pairs = {
        name: stage_costs.choose(corpora[source].sized, corpora[target].sized, asked, told)
        for name, (source, target) in config.named_pairs().items()
        if f"mine {name}" not in done
    }
    return RunPlan(
        machine=config.plan.machine or HERE,
        workers=crew.workers,
        speeds=told,
        calibration=calibration,
        corpora=corpora,
        pairs=pairs,
        stages=_stages(config, found, corpora, pairs, crew),
        done=done,
        price=config.plan.price if config.plan.price is not None or machine is None else machine.price,
        room=psutil.virtual_memory().total if machine is None else machine.memory * 1e9,
        busy=busy,
    )


def _machine(config: RunConfig) -> Hardware | None:
    """The machine that is planned for; None for this one."""
    name = config.plan.machine
    return None if name is None else hardware.find(name, config.plan.rates)


def _check_names(config: RunConfig) -> None:
    for name in config.plan.sentences:
        if name not in config.corpora:
            raise ConfigError(f"plan.sentences: no corpus is called {name!r}; one of {', '.join(config.corpora)}")


def _look(config: RunConfig, name: str, place: str | None) -> CorpusSample:
    """Look into a corpus; `place` is where it is embedded, if a run has done that."""
    told = config.corpora[name]
    if place is None and len(told.files) == 1 and inputs_module.is_folder(told.files[0]):
        place = told.files[0]
    if place is not None:
        corpus = inputs_module.open_folder(place)
        shard = next(shard for shard in corpus.shards if shard.rows)
        texts = next(corpus.sentences(shard.name, ["text"]))["text"].to_pylist()
        return CorpusSample(
            corpus.rows,
            "embedded already",
            corpus.lang,
            1.0,
            _bytes(texts),
            texts,
            len(corpus.shards),
            0,
            corpus,
            build_index.is_index(place),
        )
    inputs = readers.expand(told.files)
    settings = config.part(TextSettings).model_copy(update={"text_column": told.text_column or config.text_column})
    count = corpus_size.count(inputs)
    lines, texts = corpus_size.sample(count, settings)
    if not texts:
        raise DataError(f"corpora.{name}: not one sentence in {lines:,} lines that were looked at; give a text with sentences")
    kept = len(texts) / lines
    return CorpusSample(
        count.lines, count.why, told.lang or name, kept, _bytes(texts), texts, num_ranges_for(inputs, settings), len(inputs)
    )


def _bytes(texts: Sequence[str]) -> float:
    """Of UTF-8, of one text."""
    return sum(len(text.encode()) for text in texts) / max(1, len(texts))


def _calibrate(found: Mapping[str, CorpusSample], config: RunConfig) -> Calibration:
    """With texts of all corpora that are to be embedded, of each as large a share as of the lines; or with vectors that are there."""
    left = [each for each in found.values() if each.inputs]
    if not left:
        corpus = next(each.corpus for each in found.values() if each.corpus is not None)
        return measure_speed.compare(next(corpus.vectors(next(shard.name for shard in corpus.shards if shard.rows)))[1], config)
    lines = sum(each.lines for each in left)
    texts = [text for each in left for text in each.texts[: math.ceil(corpus_size.TEXTS * each.lines / lines)]]
    random.Random(SEED).shuffle(texts)
    return measure_speed.calibrate(texts, max(left, key=lambda each: each.lines).lang, config)


def _planned(config: RunConfig, name: str, found: CorpusSample, calibration: Calibration) -> PlannedCorpus:
    given, dim, row = config.plan.sentences.get(name), calibration.encoding.dim, calibration.packed * found.text
    if given is None:
        sentences = max(1, round(found.lines * found.kept * (calibration.passed if found.inputs else 1.0)))
        return PlannedCorpus(CorpusSize(sentences, found.text, row, found.shards, dim), found.why, found.lines, found.inputs)
    shards = config.shards or min(MAX_RANGES, math.ceil(given * found.text / RANGE_BYTES))
    return PlannedCorpus(CorpusSize(given, found.text, row, shards, dim), "as you said", given, shards if found.inputs else 0)


def _asked(config: RunConfig, machine: Hardware | None, dim: int) -> EngineRequest:
    device = choose_device(config.device).type if machine is None else "cpu" if machine.flops is None else "a GPU"
    fastest = precision.fastest_precision(torch.device("cpu"), dim)
    cores = available_cores() if machine is None else machine.cores
    known = engine.fixed_engine(config.part(EngineSettings), device)
    return EngineRequest(config.k, config.target_recall, config.memory_bytes, fastest, cores, known)


def _stages(
    config: RunConfig,
    found: Mapping[str, CorpusSample],
    corpora: Mapping[str, PlannedCorpus],
    pairs: Mapping[str, EngineChoice],
    crew: WorkerPool,
) -> list[StageCost]:
    """Every corpus is read and embedded once, and indexed when the first pair wants it."""
    made: list[StageCost] = []
    ready = {name for name, each in found.items() if each.indexed}
    for name, corpus in corpora.items():
        if corpus.inputs:
            made += stage_costs.of_corpus(name, corpus.sized, corpus.lines, corpus.inputs, crew)
    for name, chosen in pairs.items():
        sides_ = config.named_pairs()[name]
        for side, factory, seconds in zip(sides_, chosen.index or (), chosen.building, strict=False):
            if side not in ready:
                ready.add(side)
                made.append(stage_costs.of_index(side, corpora[side].sized, factory, seconds, crew))
        made += stage_costs.of_pair(name, [corpora[side].sized for side in sides_], chosen, config.k, crew)
    return made
