"""Classifiers of text pairs: those that training saved beside an encoder, and fine-tuned copies of an encoder, by `miner train`."""

import contextlib
import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from miner.config.choices import INT8
from miner.config.commands import EncoderSettings
from miner.encoders import Encoder, load_encoder
from miner.encoders.base import FineTunable, StoredEncoder
from miner.encoders.model_folder import read_recipe
from miner.errors import ConfigError
from miner.evaluation.inputs import CHUNK_TEXTS, encode
from miner.progress import Progress, report_progress
from miner.research.tasks.probe import LabelledRows
from miner.training.config import TrainConfig
from miner.training.models.heads import FirstTokenHead, NliHead, load_head
from miner.training.models.transformer import Transformer
from miner.training.run import train
from miner.training.settings import TransformerSettings
from miner.training.steps.few_shot import Labels
from miner.training.steps.validation import encode_texts

if TYPE_CHECKING:
    from miner.research.tasks.pair_classification import PairClassificationTask

FILES = ("classification*.safetensors", "nli_head*.safetensors")  # cross-encoders, which read a pair as one sequence, come first
MAX_PAIR_TOKENS = 512  # tokens of a pair, where the encoder has no limit
COLUMNS = {"first": "first", "second": "second", "label": "label"}
WARMUP_SHARE, MAX_GRADIENT_NORM = 0.1, 1.0  # without these, large transformers may diverge
NO_CHECKPOINT_STEPS = 1 << 40  # the run is never resumed
AUTOCAST_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}

Texts = Sequence[str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Classifier:
    """Labels, and the function from n first and n second texts to logits (n, labels)."""

    labels: tuple[str, ...]
    logits: Callable[[Texts, Texts], Tensor]

    def predict(self, first: Texts, second: Texts) -> Labels:
        """n first and n second texts -> (n,) labels."""
        predictions = []
        for start in range(0, len(first), CHUNK_TEXTS):
            chunk = slice(start, start + CHUNK_TEXTS)
            with torch.inference_mode():
                predictions.append(self.logits(first[chunk], second[chunk]).argmax(dim=1).cpu().numpy())
            done = min(start + CHUNK_TEXTS, len(first))
            report_progress(logger, Progress("classify", done, len(first), "pair"))
        labels: Labels = np.array(self.labels)[np.concatenate(predictions)]
        return labels


def load_saved(encoder: Encoder) -> Classifier:
    """Load the classifier in the directory of an encoder. Raise ConfigError if there is none."""
    folder = encoder.folder if isinstance(encoder, StoredEncoder) else None
    paths = [path for pattern in FILES for path in sorted(folder.glob(pattern))] if folder else []
    if not paths:
        raise ConfigError(
            f"{folder or 'this encoder'}: no classifier beside the encoder; give --train to train one, or the encoder of a run of"
            " `miner train` with the loss classification or nli_head"
        )
    head, labels = load_head(paths[0])
    if isinstance(head, NliHead):
        return Classifier(labels, lambda first, second: _bi_encoder_logits(encoder, head, first, second))
    if not isinstance(encoder, FineTunable):
        raise ConfigError(f"{paths[0]}: reads two texts as one sequence, which a static encoder cannot; choose another --encoder")
    if encoder.precision == INT8:
        raise ConfigError(f"{paths[0]}: classifiers of two texts as one sequence do not run in {INT8}; choose another --dtype")
    return Classifier(labels, _cross_encoder_logits(encoder, head))


def _bi_encoder_logits(encoder: Encoder, head: nn.Module, first: Texts, second: Texts) -> Tensor:
    """Classify by the unit vectors of both texts."""
    rows = torch.from_numpy(encode(encoder, [*first, *second], np.float32))
    logits: Tensor = head(rows[: len(first)], rows[len(first) :])
    return logits


def _cross_encoder_logits(encoder: FineTunable, head: FirstTokenHead) -> Callable[[Texts, Texts], Tensor]:
    """Classify by the vector of both texts as one sequence. As in training it is not normalised: its length carries information."""
    recipe = read_recipe(encoder.folder)
    settings = TransformerSettings(
        kind="transformer",
        model=str(encoder.folder),
        pooling=", ".join(recipe.pooling),
        head="mlp" if any(layer.kind == "Dense" for layer in recipe.layers) else "none",
        inference_max_tokens=encoder.max_tokens or MAX_PAIR_TOKENS,
    )
    tower, head = Transformer(settings).to(encoder.device).eval(), head.to(encoder.device)

    def autocast() -> contextlib.AbstractContextManager[object]:
        dtype = AUTOCAST_DTYPES.get(encoder.precision)
        return torch.autocast(encoder.device.type, dtype) if dtype else contextlib.nullcontext()

    def logits(first: Texts, second: Texts) -> Tensor:
        batch_logits: Tensor = head(encode_texts(tower, autocast, list(first), list(second)))
        return batch_logits

    return logits


def fine_tune(encoder: Encoder, task: "PairClassificationTask", train_rows: LabelledRows, test_rows: LabelledRows) -> Labels:
    """Train a copy of the encoder with a linear layer on the training rows -> (n,) predicted labels of the test rows.

    The copy is deleted afterwards; it needs the disk space of the model. Raise ConfigError if the encoder is not a transformer.
    """
    if not isinstance(encoder, FineTunable):
        raise ConfigError("--fine-tune: only transformers can be fine-tuned; leave it out for a probe, or choose another --encoder")
    if encoder.precision == INT8:
        raise ConfigError(f"--fine-tune: weights cannot be trained in {INT8}; choose another --dtype")
    with tempfile.TemporaryDirectory(prefix="miner-") as name:
        folder = Path(name)
        _write(folder / "train.tsv", train_rows)
        config = _config(encoder, task, train_rows, folder / "train.tsv")
        trained = train(config, str(folder / "run"))
        settings = EncoderSettings(device=str(encoder.device), dtype=encoder.precision, max_tokens=_max_tokens(encoder, task))
        return load_saved(load_encoder(trained.encoder, settings)).predict(*test_rows.texts)


def _config(encoder: FineTunable, task: "PairClassificationTask", rows: LabelledRows, path: Path) -> TrainConfig:
    labels = sorted(set(rows.labels))
    config: TrainConfig = TrainConfig.check(
        encoder={
            "kind": "transformer",
            "model": str(encoder.folder),
            "pooling": ", ".join(encoder.recipe.pooling),
            "max_tokens": _max_tokens(encoder, task),
            "inference_max_tokens": _max_tokens(encoder, task),
        },
        data=[{"strategy": "labelled_pairs", "files": [str(path)], "columns": COLUMNS, "labels": labels}],
        objective=[{"loss": "classification"}],
        training={
            "epochs": task.epochs,
            "lr": task.lr,
            "batch_size": task.batch_size,
            "seed": task.seed,
            "warmup": WARMUP_SHARE,
            "clip": MAX_GRADIENT_NORM,
            "dtype": encoder.precision,
            "device": str(encoder.device),
            "checkpoint_every": NO_CHECKPOINT_STEPS,
        },
    )
    return config


def _max_tokens(encoder: FineTunable, task: "PairClassificationTask") -> int:
    """Return the limit of a pair. It does not depend on that of the encoder, which may have been trained on short sentences."""
    return task.pair_tokens or min(MAX_PAIR_TOKENS, encoder.num_positions or MAX_PAIR_TOKENS)


def _write(path: Path, rows: LabelledRows) -> None:
    """Write TSV. Cleaned texts contain no tabs and no line ends."""
    lines = zip(*rows.texts, rows.labels, strict=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines("\t".join(line) + "\n" for line in (COLUMNS, *lines))
