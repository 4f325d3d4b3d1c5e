"""Classifiers of pairs of texts that training left beside an encoder: how they label pairs. See docs/evaluation.md for the protocol."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from miner.encoders import Encoder
from miner.encoders.base import FineTunable, StoredEncoder
from miner.encoders.model_folder import read_recipe
from miner.errors import ConfigError
from miner.evaluation.inputs import CHUNK, encode
from miner.progress import Progress, report_progress
from miner.training.heads import FirstTokenHead, NliHead, load_head
from miner.training.settings import TransformerSettings
from miner.training.transformer import Transformer
from miner.training.validation import encode_texts

FILES = ("classification*.safetensors", "nli_head*.safetensors")  # those that read a pair as one come first
LONGEST = 512  # tokens of a pair, where nothing limits them
PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}

Labels = npt.NDArray[np.str_]
Texts = Sequence[str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Classifier:
    """The labels a classifier knows, and what gives n pairs their logits (n, labels)."""

    labels: tuple[str, ...]
    logits: Callable[[Texts, Texts], Tensor]

    def predict(self, first: Texts, second: Texts) -> Labels:
        """n first and n second texts -> (n,) labels."""
        chosen = []
        for start in range(0, len(first), CHUNK):
            of = slice(start, start + CHUNK)
            with torch.inference_mode():
                chosen.append(self.logits(first[of], second[of]).argmax(dim=1).cpu().numpy())
            done = min(start + CHUNK, len(first))
            report_progress(logger, Progress("classify", done, len(first), "pair"))
        predicted: Labels = np.array(self.labels)[np.concatenate(chosen)]
        return predicted


def beside(encoder: Encoder) -> Classifier:
    """The classifier in the folder of an encoder. ConfigError where there is none."""
    folder = encoder.folder if isinstance(encoder, StoredEncoder) else None
    found = [path for pattern in FILES for path in sorted(folder.glob(pattern))] if folder else []
    if not found:
        raise ConfigError(
            f"{folder or 'this encoder'}: no classifier there; give --train to make one, or the encoder of a run of"
            " `miner train` with the loss classification or nli_head"
        )
    head, labels = load_head(found[0])
    if isinstance(head, NliHead):
        return Classifier(labels, lambda first, second: _apart(encoder, head, first, second))
    if not isinstance(encoder, FineTunable):
        raise ConfigError(f"{found[0]}: reads two texts as one, which a static encoder cannot; choose another --encoder")
    return Classifier(labels, _as_one(encoder, head))


def _apart(encoder: Encoder, head: nn.Module, first: Texts, second: Texts) -> Tensor:
    """By the vectors of both texts, at length 1."""
    rows = torch.from_numpy(encode(encoder, [*first, *second], np.float32))
    logits: Tensor = head(rows[: len(first)], rows[len(first) :])
    return logits


def _as_one(encoder: FineTunable, head: FirstTokenHead) -> Callable[[Texts, Texts], Tensor]:
    """By the vector of both as one sequence, as in training: its length says something, too."""
    recipe = read_recipe(encoder.folder)
    settings = TransformerSettings(
        kind="transformer",
        model=str(encoder.folder),
        pooling=", ".join(recipe.pooling),
        head="mlp" if any(layer.kind == "Dense" for layer in recipe.layers) else "none",
        max_tokens=encoder.max_tokens or LONGEST,
    )
    tower, head = Transformer(settings).to(encoder.device).eval(), head.to(encoder.device)

    def context() -> contextlib.AbstractContextManager[object]:
        dtype = PRECISIONS.get(encoder.precision)
        return torch.autocast(encoder.device.type, dtype) if dtype else contextlib.nullcontext()

    def logits(first: Texts, second: Texts) -> Tensor:
        found: Tensor = head(encode_texts(tower, context, list(first), list(second)))
        return found

    return logits
