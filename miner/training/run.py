"""`miner train`: from a config to a trained encoder. Everything is read and checked before the first step."""

import contextlib
import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from typing_extensions import TypedDict

from miner.devices import choose_device
from miner.encoders import convert_damage, find_kind, pair, read_fingerprint
from miner.errors import ConfigError, DataError, MinerError, StorageError
from miner.io import checksums, lock, records, stages, storage
from miner.research.datasets.columns import file_fingerprints
from miner.training.config import TrainConfig, check_config
from miner.training.data.augment import load_code_switch
from miner.training.data.cleaning import Cleaning
from miner.training.data.datasets import Dataset, check_source, describe_dropped, open_dataset, read_dropped, read_source, source_key
from miner.training.data.strategies import build_strategy
from miner.training.data.strategy import Strategy
from miner.training.layout import CHECKPOINTS, CONFIG, ENCODER, OUTPUTS, RESULT, WORK, encoder_name
from miner.training.models.static import StaticModel
from miner.training.models.transformer import Transformer
from miner.training.settings import EvaluationSettings, StaticSettings, TransformerSettings
from miner.training.steps import checkpoints, distributed
from miner.training.steps.trainer import Trainer
from miner.training.steps.training_log import SourceCounts
from miner.training.steps.validation import Validation
from miner.training.stream_setup import build_streams, count_steps

CHANGEABLE_SETTINGS = ("checkpoint_every", "log_every")  # settings of `training` that may change when a run is resumed

logger = logging.getLogger(__name__)


class RecordedConfig(TypedDict, total=False):
    """The part of `train.json` that is compared setting by setting."""

    training: dict[str, Any]


@dataclass(frozen=True)
class TrainingResult:
    """The result of a finished run; the fields are the keys of result.json."""

    encoder: str  # path
    steps: int
    examples: int
    loss: float  # that of the last step
    score: float | None  # best on held-out data
    sources: Mapping[str, SourceCounts]  # how often each was seen, by title
    dropped: Mapping[str, Mapping[str, int]]  # source -> reason -> rows, where data is cleaned
    texts: int  # encoded in training, over all views
    cut_texts: int  # texts longer than the limit of training

    def summary(self) -> str:
        """Return a few lines to print."""
        score = "" if self.score is None else f", best score {self.score:.4f}"
        lines = [f"{self.steps:,} steps, {self.examples:,} examples, final loss {self.loss:.4f}{score}"]
        lines += [f"source {title}: {describe_dropped(counts)} dropped" for title, counts in self.dropped.items()]
        return "\n".join([*lines, self.encoder])


def train(config: TrainConfig, output: str, resume: bool = False) -> TrainingResult:
    """Train by `config` and write OUTPUT/encoder, OUTPUT/train.json and OUTPUT/log.jsonl.

    Raise a MinerError where config, data and model do not fit together, or where the loss becomes NaN or infinite.
    """
    check_config(config)
    folder = Path(output)
    _check_folder(folder)
    if lock.held_folder(output) is None:  # a round of `miner loop` has more than training
        stages.check_writer(output, stages.TRAIN)
    output_lock = lock.hold(output) if os.environ.get("RANK", "0") == "0" else contextlib.nullcontext()
    with output_lock, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse ", UserWarning)  # of torch, about its sparse tensors
        return _train(config, folder, resume)


def _check_folder(folder: Path) -> None:
    """Raise StorageError where the output is a file, or holds files of these names that no run wrote: a run would replace them."""
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder}: not a folder; choose another --output")
    config = folder / CONFIG
    if config.exists() and not (config.is_file() and records.has_checksum(str(config))):
        raise StorageError(f"{config}: not written by a training run, or damaged; choose another --output")
    foreign = [name for name in OUTPUTS if (folder / name).exists()]
    if foreign and not config.exists():
        raise StorageError(f"{folder}: contains {foreign[0]}, but no {CONFIG} of a training run; choose another --output")


def _train(config: TrainConfig, folder: Path, resume: bool) -> TrainingResult:
    """Train, or return the result of a finished run. A run that fails before its first checkpoint leaves nothing."""
    result = _read_result(folder, config, resume)
    if result is not None:
        return result
    try:
        trainer, validation = prepare(config, folder)
    except MinerError:
        if checkpoints.latest(folder / CHECKPOINTS) is None:  # with a checkpoint, the run can be resumed once the fault is fixed
            shutil.rmtree(folder / WORK, ignore_errors=True)
            (folder / CONFIG).unlink(missing_ok=True)
        raise
    cleaning, cleaned = _build_cleaning(config), config.data if config.cleaning else ()
    dropped = {source.title: read_dropped(folder / WORK / source_key(source, cleaning)) for source in cleaned}
    if resume:
        trainer.resume()
    progress = trainer.run(validation)
    counts = (progress.step, progress.examples, progress.loss, progress.best_scores.get(""))
    texts = (progress.texts, progress.cut_texts)
    result = TrainingResult(str(folder / ENCODER), *counts, trainer.count_examples(), dropped, *texts)
    if trainer.is_main_process:
        records.write(str(folder / RESULT), asdict(result))
        for name in (WORK, CHECKPOINTS):
            shutil.rmtree(folder / name, ignore_errors=True)
    return result


def _read_result(folder: Path, config: TrainConfig, resume: bool) -> TrainingResult | None:
    """Return the result of a finished run that is resumed, None where there is something to train.

    Raise ConfigError where the folder holds a run but `resume` is not set, or a run with another config.
    """
    has_run = (folder / RESULT).exists() or checkpoints.latest(folder / CHECKPOINTS) is not None
    if not has_run:
        return None
    if not resume:
        raise ConfigError(f"{folder}: already holds a run; continue it with --resume, delete it, or choose another --output")
    _check_same_config(config, folder / CONFIG)
    if (folder / RESULT).exists():
        remedy = f"delete {folder} and train again"
        for encoder in [folder / encoder_name(name) for name in (config.evaluation.dev_sets if config.evaluation else [""])]:
            if not encoder.is_dir():
                raise StorageError(f"{encoder}: missing, though the run is finished; {remedy}")
            checksums.check(encoder, remedy)
        logger.info("%s: this run is finished", folder)
        return replace(records.read(str(folder / RESULT), TrainingResult), encoder=str(folder / ENCODER))  # the folder may have been moved
    # Each input has a path in WORK that exists once it was read, and depends on the content of its files.
    work, cleaning = folder / WORK, _build_cleaning(config)
    markers = {f"source {source.title!r}": work / source_key(source, cleaning) for source in config.data}
    if config.evaluation is not None:
        markers["evaluation"] = _evaluation_marker(config.evaluation, work)
    markers |= _encoder_markers(config, work)
    for name, marker in markers.items():
        if not marker.exists():
            raise DataError(f"{folder}: files of {name} changed since the run started; delete the folder and train again")
    return None


def _check_same_config(config: TrainConfig, path: Path) -> None:
    remedy = f"delete {path.parent} and train again"
    ours, theirs = config.model_dump(mode="json"), records.read(str(path), dict[str, Any], remedy)
    records.parse(theirs, RecordedConfig, str(path), remedy)
    for values in (ours, theirs):
        for name in CHANGEABLE_SETTINGS:
            values.get("training", {}).pop(name, None)
    if difference := _find_difference(ours, theirs):
        raise ConfigError(f"{path}: the run was started with {difference}; resume it with the same config")


def _find_difference(ours: Any, theirs: Any, name: str = "") -> str | None:
    """Return the first setting in which two configs differ, with both values; None where they are equal."""
    pairs: Iterable[tuple[Any, Any, Any]] = ()
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs = ((key, ours.get(key), theirs.get(key)) for key in {**ours, **theirs})
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = ((index, *values) for index, values in enumerate(zip(ours, theirs, strict=True)))
    elif ours != theirs:
        return f"{name} {json.dumps(theirs)} instead of {json.dumps(ours)}"
    differences = (_find_difference(our, their, f"{name}.{key}" if name else str(key)) for key, our, their in pairs)
    return next((difference for difference in differences if difference), None)


def _encoder_markers(config: TrainConfig, work: Path) -> dict[str, Path]:
    """Map each encoder that the run starts from to an empty folder in WORK that is called after its fingerprint.

    The tokenizer and the settings are read from it again when the run resumes, and a folder made elsewhere has no checksums.
    """
    models = [config.encoder.model] if isinstance(config.encoder, StaticSettings) else _models(config.encoder)
    return {f"encoder {model}": work / f"{ENCODER}-{read_fingerprint(model)}" for model in models if model is not None}


def _build_cleaning(config: TrainConfig) -> Cleaning | None:
    return None if config.cleaning is None else Cleaning(config.cleaning)


def _evaluation_marker(evaluation: EvaluationSettings, work: Path) -> Path:
    """Return the path of an empty folder: evaluation files are kept in memory, not in WORK."""
    return work / f"evaluation-{storage.key(file_fingerprints(evaluation.all_files))}"


def prepare(config: TrainConfig, folder: Path) -> tuple[Trainer, Validation | None]:
    """Read data and model, and build the trainer and its validation."""
    validation = None if config.evaluation is None else Validation(config.evaluation, config.classes)
    accelerator = distributed.start(config.training, _choose_device(config))
    with accelerator.main_process_first():  # the main process reads the files, the others use what it wrote
        if accelerator.is_main_process:
            for path in (folder, folder / CHECKPOINTS, folder / WORK):
                checkpoints.remove_leftovers(path)
            records.write(str(folder / CONFIG), config.model_dump(mode="json"))  # first: it marks the folder as that of a run
        sources, towers = _read_inputs(config, folder / WORK)
    check_batch_sizes(config, accelerator.num_processes)
    streams = build_streams(config, sources, towers, accelerator.num_processes)
    return Trainer(towers, streams, count_steps(config, streams[0]), config.training, folder, accelerator), validation


def _read_inputs(config: TrainConfig, work: Path) -> tuple[dict[str, Strategy], list[Any]]:
    """Read the sources, by title, and load the encoders; transformers first, so that their faults show before data is read."""
    seed = config.training.seed
    for source in config.data:
        check_source(source)
    code_switches = [load_code_switch(source.code_switch) for source in config.data]
    torch.manual_seed(seed)
    towers: list[Any] = [] if isinstance(config.encoder, StaticSettings) else _load_transformers(config.encoder)
    cleaning = _build_cleaning(config)
    datasets = [_read_dataset(source, work, cleaning) for source in config.data]
    sources = {
        source.title: build_strategy(dataset, source, seed + number, code_switches[number])
        for number, (source, dataset) in enumerate(zip(config.data, datasets, strict=True))
    }
    if isinstance(config.encoder, StaticSettings):
        # Named after its inputs, so that a restarted run uses the trained pieces again.
        inputs = [config.encoder.vocabulary.model_dump(), seed, *(source_key(source, cleaning) for source in config.data)]
        towers = [StaticModel(datasets, config.encoder, seed, work / storage.key(inputs))]
    if config.evaluation is not None:
        _evaluation_marker(config.evaluation, work).mkdir(exist_ok=True)
    for marker in _encoder_markers(config, work).values():
        marker.mkdir(exist_ok=True)
    return sources, towers


def check_batch_sizes(config: TrainConfig, num_processes: int) -> None:
    """Raise ConfigError where a batch has fewer examples than there are processes."""
    for source in config.data:
        size = source.batch_size or config.training.batch_size
        if size < num_processes:
            raise ConfigError(f"source {source.title!r}: a batch of {size} for {num_processes} processes; raise batch_size")


def _choose_device(config: TrainConfig) -> torch.device:
    """Choose the device; a static encoder is trained on the CPU, since its work is lookups in sparse tables."""
    name = config.training.device
    if isinstance(config.encoder, StaticSettings):
        if name not in ("auto", "cpu"):
            raise ConfigError(f"training.device {name}: a static encoder is trained on the CPU; remove the setting")
        return torch.device("cpu")
    device = torch.device(choose_device(name))
    if device.type == "cpu" and config.training.dtype == "float16":
        raise ConfigError("training.dtype float16 needs a GPU, but the device is the CPU; choose bfloat16 or float32")
    return device


def _read_dataset(source: Any, work: Path, cleaning: Cleaning | None) -> Dataset:
    """Open the texts of a source; read its files only if they changed since they were last read."""
    folder = work / source_key(source, cleaning)
    if not (folder / checksums.FILE).exists():
        logger.info("reading source %s", source.title)
        with checkpoints.atomic_folder(folder) as temporary:
            read_source(source, temporary, cleaning)
    checksums.check(folder, f"delete {work} and train again")  # the files are mapped into memory
    return open_dataset(source, folder)


def _load_transformers(settings: TransformerSettings) -> list[Any]:
    """Load the encoder, or both; raise ConfigError where two encoders have different dimensions."""
    towers = []
    for model in _models(settings):
        with convert_damage(model):
            towers.append(Transformer(settings.model_copy(update={"model": model})))
    first, last = towers[0], towers[-1]
    if first.dim != last.dim:
        raise ConfigError(
            f"encoder: {first.settings.model} has {first.dim} dimensions and {last.settings.model} has {last.dim};"
            " choose two models with vectors of one length"
        )
    return towers


def _models(settings: TransformerSettings) -> list[str]:
    """Return the folder or hub id that each encoder starts from. A folder with two sides is the start of two encoders."""
    if settings.towers == "shared":
        return [settings.model]
    if settings.positive_model is None and Path(settings.model).is_dir() and find_kind(settings.model) == pair.KIND:
        return [str(folder) for folder in pair.read(Path(settings.model)).folders.values()]
    return [settings.model, settings.positive_model or settings.model]
