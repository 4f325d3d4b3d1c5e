"""Classifiers of text pairs that training saved beside an encoder. See docs/evaluation.md for the protocol."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from miner.config.choices import INT8
from miner.encoders import Encoder
from miner.encoders.base import FineTunable, StoredEncoder
from miner.encoders.model_folder import read_recipe
from miner.errors import ConfigError
from miner.evaluation.inputs import CHUNK_TEXTS, encode
from miner.evaluation.probe import Labels
from miner.progress import Progress, report_progress
from miner.training.models.heads import FirstTokenHead, NliHead, load_head
from miner.training.models.transformer import Transformer
from miner.training.settings import TransformerSettings
from miner.training.steps.validation import encode_texts

FILES = ("classification*.safetensors", "nli_head*.safetensors")  # cross-encoders, which read a pair as one sequence, come first
MAX_PAIR_TOKENS = 512  # of encoders without a limit
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
