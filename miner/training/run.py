"""`miner train`: from a config to a trained encoder. Everything is read and checked before the first step."""

import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from miner import storage
from miner.encoders.transformer_parts import choose_device
from miner.errors import ConfigError, MinerError, StorageError
from miner.training import checkpoints, checks, processes
from miner.training.augmentation import change
from miner.training.bags import Bags
from miner.training.columns import expand, fingerprint
from miner.training.corpora import Corpus, files_of, open_corpus, read_source
from miner.training.examples import Strategy, strategy
from miner.training.held_out import HeldOut
from miner.training.objectives import term
from miner.training.settings import StaticSettings, TrainConfig
from miner.training.steps import Place, Term
from miner.training.trainer import CHECKPOINTS, ENCODER, Stream, Trainer
from miner.training.transformer import Transformer

WORK, CONFIG, RESULT = "work", "train.json", "result.json"
MAY_CHANGE = {"checkpoint_every", "log_every"}  # settings of a run that may differ when it is resumed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """What a training run came to."""

    encoder: str  # its folder
    steps: int
    examples: int
    loss: float  # of the last step
    score: float | None  # the best on held-out data


def train(config: TrainConfig, output: str, resume: bool = False) -> Training:
    """Train by `config` and write OUTPUT/encoder, OUTPUT/train.json and OUTPUT/log.jsonl.

    Raises a MinerError where config, data or model do not fit each other, and where the loss stops being a number.
    """
    checks.check(config)
    folder = Path(output)
    finished = _claim(folder, config, resume)
    if finished is not None:
        return finished
    there = folder.exists()
    try:
        trainer, held_out = _prepare(config, folder)
    except MinerError:
        shutil.rmtree(folder if not there else folder / WORK, ignore_errors=True)
        raise
    if trainer.main:
        storage.write_json(str(folder / CONFIG), config.model_dump(mode="json"))
    if resume:
        trainer.resume()
    progress = trainer.run(held_out)
    done = Training(str(folder / ENCODER), progress.step, progress.examples, progress.loss, progress.best)
    if trainer.main:
        storage.write_json(str(folder / RESULT), asdict(done))
        for left in (WORK, CHECKPOINTS):
            shutil.rmtree(folder / left, ignore_errors=True)
    return done


def _claim(folder: Path, config: TrainConfig, resume: bool) -> Training | None:
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
        different = [name for name in ours if ours[name] != theirs.get(name)]
        if different:
            raise ConfigError(f"{folder / CONFIG}: the run was begun with another {different[0]}; resume it with its own config")
    if not (folder / RESULT).exists():
        return None
    logger.info("%s: this run has ended", folder)
    return Training(**storage.read_json(str(folder / RESULT)))


def _prepare(config: TrainConfig, folder: Path) -> tuple[Trainer, HeldOut | None]:
    """Read data and model, and put together what trains them."""
    held_out = None if config.evaluation is None else HeldOut(config.evaluation, checks.labels(config))
    accelerator = processes.start(config.training, _device(config))
    with accelerator.main_process_first():  # which reads the files; the others find them read
        if accelerator.is_main_process:
            for place in (folder, folder / CHECKPOINTS, folder / WORK):
                checkpoints.mend(place)
        corpora = {source.title: _corpus(source, folder / WORK) for source in config.data}
        sources = {
            source.title: strategy(corpora[source.title], source, config.training.seed + place, change(source))
            for place, source in enumerate(config.data)
        }
        torch.manual_seed(config.training.seed)
        towers = _towers(config, list(corpora.values()), folder)
    streams = [_stream(config, titles, sources, towers) for titles in checks.streams(config)]
    steps = config.training.steps or _steps(config, streams[0])
    return Trainer(towers, streams, steps, config.training, folder, accelerator), held_out


def _device(config: TrainConfig) -> torch.device:
    """A static encoder is trained on the CPU: its work is to look up rows, and its tables are sparse."""
    name = config.training.device
    if isinstance(config.encoder, StaticSettings):
        if name not in ("auto", "cpu"):
            raise ConfigError(f"training.device {name}: a static encoder is trained on the CPU; leave it out")
        return torch.device("cpu")
    return choose_device(name)


def _corpus(source: Any, work: Path) -> Corpus:
    """The texts of a source; files that did not change since they were read are not read again."""
    seen = [[uri, *fingerprint(uri)] for uri in expand(files_of(source))]
    folder = work / storage.key([source.model_dump(mode="json"), seen])
    if not folder.exists():
        logger.info("reading source %s", source.title)
        with checkpoints.atomic_folder(folder) as aside:
            read_source(source, aside)
    return open_corpus(source, folder)


def _towers(config: TrainConfig, corpora: Sequence[Corpus], folder: Path) -> list[Any]:
    settings = config.encoder
    if isinstance(settings, StaticSettings):
        return [Bags(corpora, settings, config.training.seed, folder / WORK)]
    return [Transformer(settings) for _ in range(2 if settings.towers == "pair" else 1)]


def _stream(config: TrainConfig, titles: Sequence[str], sources: Mapping[str, Strategy], towers: Sequence[Any]) -> Stream:
    """The sources of these titles, with the losses that are of just them."""
    chosen = [source for source in config.data if source.title in titles]
    weights = np.array([source.weight for source in chosen])
    terms: dict[str, tuple[float, Term]] = {}
    for objective in config.objective:
        if [source.title for source in checks.sources_of(config, objective.data)] == list(titles):
            name = objective.loss if objective.loss not in terms else f"{objective.loss}_{len(terms)}"
            terms[name] = objective.weight, term(objective, Place(towers, checks.labels(config, objective.data)))
    sizes = [source.batch_size or config.training.batch_size for source in chosen]
    return Stream([sources[title] for title in titles], weights / weights.sum(), sizes, terms)


def _steps(config: TrainConfig, stream: Stream) -> int:
    """How many steps draw as many examples as the epochs of the first stream's sources have."""
    examples = sum(source.count for source in stream.sources)
    drawn = float(np.dot(stream.shares, stream.sizes)) * config.training.accumulation
    return max(1, math.ceil((config.training.epochs or 1) * examples / drawn))
