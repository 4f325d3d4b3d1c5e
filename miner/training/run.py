"""`miner train`: from a config to a trained encoder. Everything is read and checked before the first step."""

import json
import logging
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from miner import storage
from miner.encoders.transformer_parts import choose_device
from miner.errors import ConfigError, DataError, MinerError, StorageError
from miner.training import checkpoints, config_checks, distributed
from miner.training.augment import load_code_switch
from miner.training.columns import file_fingerprints
from miner.training.datasets import Dataset, check_source, open_dataset, read_source, source_key
from miner.training.loss_terms import term
from miner.training.settings import EvaluationSettings, StaticSettings, TrainConfig, TransformerSettings
from miner.training.static import StaticModel
from miner.training.steps import LossContext, LossTerm
from miner.training.strategies import Strategy, build_strategy
from miner.training.trainer import CHECKPOINTS, ENCODER, Stream, Trainer
from miner.training.transformer import Transformer
from miner.training.validation import ValidationSet

WORK, CONFIG, RESULT = "work", "train.json", "result.json"
MAY_CHANGE = {"checkpoint_every", "log_every"}  # settings of a run that may differ when it is resumed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedRun:
    """What a training run came to."""

    encoder: str  # its folder
    steps: int
    examples: int
    loss: float  # of the last step
    score: float | None  # the best on held-out data


def train(config: TrainConfig, output: str, resume: bool = False) -> PreparedRun:
    """Train by `config` and write OUTPUT/encoder, OUTPUT/train.json and OUTPUT/log.jsonl.

    Raises a MinerError where config, data or model do not fit each other, and where the loss stops being a number.
    """
    config_checks.check(config)
    folder = Path(output)
    finished = _claim(folder, config, resume)
    if finished is not None:
        return finished
    there = folder.exists()
    try:
        trainer, held_out = _prepare(config, folder)
    except MinerError:
        if checkpoints.latest(folder / CHECKPOINTS) is None:  # a run that has begun is wanted with its data, once the fault is gone
            shutil.rmtree(folder if not there else folder / WORK, ignore_errors=True)
        raise
    if trainer.main:
        storage.write_json(str(folder / CONFIG), config.model_dump(mode="json"))
    if resume:
        trainer.resume()
    progress = trainer.run(held_out)
    done = PreparedRun(str(folder / ENCODER), progress.step, progress.examples, progress.loss, progress.best)
    if trainer.main:
        storage.write_json(str(folder / RESULT), asdict(done))
        for left in (WORK, CHECKPOINTS):
            shutil.rmtree(folder / left, ignore_errors=True)
    return done


def _claim(folder: Path, config: TrainConfig, resume: bool) -> PreparedRun | None:
    """What the folder's run came to, where it is to be resumed and had ended; ConfigError where it holds another, or is not to be."""
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder}: not a folder; choose another --output")
    begun = (folder / RESULT).exists() or checkpoints.latest(folder / CHECKPOINTS) is not None
    if begun and not resume:
        raise ConfigError(f"{folder}: holds a run already; go on with it by --resume, delete it, or choose another --output")
    if begun:
        ours, theirs = config.model_dump(mode="json"), storage.read_json(str(folder / CONFIG))
        for name in MAY_CHANGE:
            ours["training"].pop(name, None), theirs.get("training", {}).pop(name, None)
        if different := _different(ours, theirs):
            raise ConfigError(f"{folder / CONFIG}: the run was begun with {different}; resume it with its own config")
    if not (folder / RESULT).exists():
        changed = [what for what, place in _places(config, folder / WORK).items() if not place.exists()] if begun else []
        if changed:
            raise DataError(f"{folder}: files of {changed[0]} changed since the run began; delete the folder and train again")
        return None
    logger.info("%s: this run has ended", folder)
    return PreparedRun(**storage.read_json(str(folder / RESULT)))


def _places(config: TrainConfig, work: Path) -> dict[str, Path]:
    """What is read -> a place in WORK that is there as soon as it was read, and is another where its files are others."""
    places = {f"source {source.title!r}": work / source_key(source) for source in config.data}
    if config.evaluation is not None:
        places["evaluation"] = _evaluation_place(config.evaluation, work)
    return places


def _evaluation_place(evaluation: EvaluationSettings, work: Path) -> Path:
    """An empty folder: what is read of the evaluation is held in memory."""
    return work / f"evaluation-{storage.key(file_fingerprints(evaluation.files))}"


def _different(ours: Any, theirs: Any, name: str = "") -> str | None:
    """The first setting in which two configs differ, with both values; None where they do not."""
    pairs: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs = ((key, ours.get(key), theirs.get(key)) for key in {**ours, **theirs})
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = ((place, *both) for place, both in enumerate(zip(ours, theirs, strict=True)))
    elif ours != theirs:
        return f"{name} {json.dumps(theirs)} instead of {json.dumps(ours)}"
    found = (_different(one, other, f"{name}.{key}" if name else str(key)) for key, one, other in pairs)
    return next((difference for difference in found if difference), None)


def _prepare(config: TrainConfig, folder: Path) -> tuple[Trainer, ValidationSet | None]:
    """Read data and model, and put together what trains them."""
    held_out = None if config.evaluation is None else ValidationSet(config.evaluation, config_checks.classes(config))
    accelerator = distributed.start(config.training, _device(config))
    with accelerator.main_process_first():  # which reads the files; the others find them read
        if accelerator.is_main_process:
            for place in (folder, folder / CHECKPOINTS, folder / WORK):
                checkpoints.mend(place)
        for source in config.data:
            check_source(source)
        changes = [load_code_switch(source) for source in config.data]
        torch.manual_seed(config.training.seed)
        towers = _transformers(config.encoder)
        corpora = [_corpus(source, folder / WORK) for source in config.data]
        sources = {
            source.title: build_strategy(corpus, source, config.training.seed + place, changes[place])
            for place, (source, corpus) in enumerate(zip(config.data, corpora, strict=True))
        }
        towers = towers or [_bags(config, corpora, folder / WORK)]
        if config.evaluation is not None:
            _evaluation_place(config.evaluation, folder / WORK).mkdir(exist_ok=True)
    _check_processes(config, accelerator.num_processes)
    streams = [_stream(config, titles, sources, towers) for titles in config_checks.streams(config)]
    steps = config.training.steps or _steps(config, streams[0])
    return Trainer(towers, streams, steps, config.training, folder, accelerator), held_out


def _check_processes(config: TrainConfig, processes: int) -> None:
    """ConfigError where a process would have nothing of a batch."""
    for source in config.data:
        size = source.batch_size or config.training.batch_size
        if size < processes:
            raise ConfigError(f"source {source.title!r}: a batch of {size} for {processes} processes; raise batch_size")


def _device(config: TrainConfig) -> torch.device:
    """A static encoder is trained on the CPU: its work is to look up rows, and its tables are sparse."""
    name = config.training.device
    if isinstance(config.encoder, StaticSettings):
        if name not in ("auto", "cpu"):
            raise ConfigError(f"training.device {name}: a static encoder is trained on the CPU; leave it out")
        return torch.device("cpu")
    device = choose_device(name)
    if device.type == "cpu" and config.training.dtype == "float16":
        raise ConfigError("training.dtype float16 is for a GPU, and this runs on the CPU; choose bfloat16 or float32")
    return device


def _corpus(source: Any, work: Path) -> Dataset:
    """The texts of a source; files that did not change since they were read are not read again."""
    folder = work / source_key(source)
    if not folder.exists():
        logger.info("reading source %s", source.title)
        with checkpoints.atomic_folder(folder) as aside:
            read_source(source, aside)
    return open_dataset(source, folder)


def _transformers(settings: StaticSettings | TransformerSettings) -> list[Any]:
    """The encoders, where they are transformers; they are loaded, and so checked, before the data is read."""
    if isinstance(settings, StaticSettings):
        return []
    return [Transformer(settings) for _ in range(2 if settings.towers == "pair" else 1)]


def _bags(config: TrainConfig, corpora: Sequence[Dataset], work: Path) -> StaticModel:
    """The static encoder. Its pieces are kept under a name of what they are learned from, for a run that is killed and begun again."""
    settings: Any = config.encoder
    told = [settings.vocabulary.model_dump(), config.training.seed, *map(source_key, config.data)]
    return StaticModel(corpora, settings, config.training.seed, work / storage.key(told))


def _stream(config: TrainConfig, titles: Sequence[str], sources: Mapping[str, Strategy], towers: Sequence[Any]) -> Stream:
    """The sources of these titles, with the losses that are of just them."""
    chosen = [source for source in config.data if source.title in titles]
    weights = np.array([source.weight for source in chosen])
    terms: dict[str, tuple[float, LossTerm]] = {}
    for place, objective in enumerate(config.objective):
        if [source.title for source in config_checks.sources_of(config, objective.data)] == list(titles):
            earlier = [other.loss for other in config.objective[:place]]
            name = f"{objective.loss}_{place}" if objective.loss in earlier else objective.loss
            terms[name] = objective.weight, term(objective, LossContext(towers, config_checks.labels(config, objective.data)))
    sizes = [source.batch_size or config.training.batch_size for source in chosen]
    for source, size in zip(chosen, sizes, strict=True):
        if sources[source.title].num_examples < size:
            few = "source %r: fewer examples (%d) than a batch takes (%d), so that it holds some twice; lower batch_size"
            logger.warning(few, source.title, sources[source.title].num_examples, size)
    return Stream([sources[title] for title in titles], weights / weights.sum(), sizes, terms)


def _steps(config: TrainConfig, stream: Stream) -> int:
    """How many steps draw as many examples as the epochs of the first stream's sources have."""
    examples = sum(source.num_examples for source in stream.sources)
    drawn = float(np.dot(stream.shares, stream.sizes)) * config.training.accumulation
    return max(1, math.ceil((config.training.epochs or 1) * examples / drawn))
