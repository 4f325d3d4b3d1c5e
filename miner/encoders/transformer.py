"""The transformer encoder: Hugging Face and sentence-transformers folders, and hub ids, on CPU or CUDA.

Weights come from safetensors where there are any, pickles are read without running what they hold, and code that comes with
a model is never run. Texts are sorted by length and cut into batches of `batch_tokens` tokens, padding included, so that
little is spent on padding and a batch's memory is bounded.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from miner.config.commands import EncoderSettings
from miner.encoders import hub
from miner.encoders import transformer_parts as parts
from miner.encoders.base import EncodeCounts
from miner.encoders.model_folder import ModelRecipe, fingerprint, read_recipe
from miner.encoders.pooling import CHOICES, highest_layer, pooler
from miner.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]

WINDOW = 16384  # texts that are tokenised and sorted together, so that memory does not grow with the number of texts

logger = logging.getLogger(__name__)


def load(name: str, settings: EncoderSettings) -> TransformerEncoder:
    """The transformer in a folder, or of a hub id.

    Raises ModelError where it is missing, broken or of an unsupported kind, ConfigError where the settings do not fit it.
    """
    folder = Path(name) if Path(name).is_dir() else hub.fetch(name)
    recipe = read_recipe(folder)
    if settings.pooling is not None:
        recipe = replace(recipe, pooling=(settings.pooling,))
    if not recipe.pooling:
        raise ConfigError(f"{name}: the folder does not say how to pool token vectors; choose with --pooling, one of {CHOICES}")
    for pooling in recipe.pooling:
        pooler(pooling)
    return TransformerEncoder(folder, recipe, settings)


class TransformerEncoder:
    """A transformer, its pooling and the layers after it. `pooling` and `max_tokens` of the settings are already decided.

    Rows do not depend on what else is encoded with them, beyond the rounding of the arithmetic (1e-5 in float32).
    """

    def __init__(self, folder: Path, recipe: ModelRecipe, settings: EncoderSettings) -> None:
        self.folder, self.recipe = folder, recipe
        self.batch_tokens = settings.batch_tokens
        self.device = parts.choose_device(settings.device)
        self.precision = parts.choose_precision(settings.dtype, self.device)
        self._model = parts.load_model(recipe.folder)
        self._tokenizer = parts.load_tokenizer(recipe)
        self.max_tokens = parts.token_limit(recipe, settings.max_tokens, self._tokenizer, self._model)
        self._poolers = [pooler(name) for name in recipe.pooling]
        self._every_state = self._wants_every_state()
        self._layers = [parts.load_layer(layer, self.device) for layer in recipe.layers]
        self.dim = self._width()
        self.fingerprint = fingerprint(recipe, self.max_tokens)
        parts.move(self._model, self.device, self.precision)
        self._inputs = tuple(inspect.signature(self._model.forward).parameters)
        self.tally = EncodeCounts()
        self._lock = threading.Lock()  # threads take turns: two batches at once would need twice the memory

    def encode(self, texts: Sequence[str]) -> Floats:
        """n texts -> (n, dim) float32 unit rows, in the order of the texts; a text of nothing but spaces or of no tokens is a zero row."""
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        filled = [row for row, text in enumerate(texts) if text.strip()]
        with self._lock:
            for start in range(0, len(filled), WINDOW):
                window = filled[start : start + WINDOW]
                tokens = self._tokenise([texts[row] for row in window])
                lengths = [len(ids) for ids in tokens["input_ids"]]
                self.tally.tokens += sum(lengths)
                for batch in token_batches(lengths, self.batch_tokens):
                    rows[[window[place] for place in batch]] = self._encode_batch(tokens, batch)
        return rows

    def operations(self, tokens: float) -> float:
        """Floating point operations that a text of so many tokens takes: two for each weight that is no embedding, and attention's."""
        import torch

        config = self._model.config
        embeddings = {id(module.weight) for module in self._model.modules() if isinstance(module, torch.nn.Embedding)}
        weights = sum(weight.numel() for weight in self._model.parameters() if id(weight) not in embeddings)
        return float(2 * weights * tokens + 4 * config.num_hidden_layers * config.hidden_size * tokens**2)

    def _tokenise(self, texts: Sequence[str]) -> dict[str, list[list[int]]]:
        """What the model wants of the texts: `input_ids`, and perhaps `token_type_ids`, as lists of different lengths."""
        prompted = [self.recipe.prompt + text for text in texts] if self.recipe.prompt else list(texts)
        limits = {"truncation": True, "max_length": self.max_tokens} if self.max_tokens else {"truncation": False}
        tokens = self._tokenizer(prompted, padding=False, return_attention_mask=False, **limits)
        return {name: tokens[name] for name in ("input_ids", "token_type_ids") if name in tokens and name in self._inputs}

    def _encode_batch(self, tokens: dict[str, list[list[int]]], batch: Sequence[int]) -> Floats:
        """The rows of one batch; where a CUDA device has no room for it, of its halves."""
        import torch

        try:
            return self._forward(tokens, batch)
        except torch.cuda.OutOfMemoryError:
            longest = max(len(tokens["input_ids"][place]) for place in batch)
        # Outside the handler, whose traceback keeps the failed batch's tensors alive.
        torch.cuda.empty_cache()
        if len(batch) == 1:
            raise ModelError(
                f"{self.device}: out of memory on one sentence of {longest} tokens; lower --max-tokens, or choose another --device"
            )
        logger.warning("out of memory on %d x %d tokens; going on in halves, a lower --batch-tokens is faster", len(batch), longest)
        half = len(batch) // 2
        return np.concatenate([self._encode_batch(tokens, batch[:half]), self._encode_batch(tokens, batch[half:])])

    def _forward(self, tokens: dict[str, list[list[int]]], batch: Sequence[int]) -> Floats:
        import torch

        inputs = {name: self._pad([values[place] for place in batch], name) for name, values in tokens.items()}
        lengths = torch.tensor([len(tokens["input_ids"][place]) for place in batch])
        mask = (torch.arange(inputs["input_ids"].shape[1]) < lengths[:, None]).long().to(self.device)
        with torch.inference_mode():
            output = self._model(**inputs, attention_mask=mask, output_hidden_states=self._every_state)
            states = output.hidden_states if self._every_state else [output.last_hidden_state]
            vectors = torch.cat([pool(states, mask) for pool in self._poolers], dim=1)
            for layer in self._layers:
                vectors = layer(vectors)
            vectors = torch.nn.functional.normalize(vectors, dim=1)
            result: Floats = vectors.cpu().numpy()
        if not np.isfinite(result).all():
            raise ModelError(f"{self.recipe.folder}: gives NaN or infinite vectors in {self.precision}; try --dtype float32")
        return result

    def _pad(self, values: Sequence[Sequence[int]], name: str) -> torch.Tensor:
        """Lists of token numbers -> (batch, longest), padded on the right, on the device."""
        import torch

        fill = self._tokenizer.pad_token_type_id if name == "token_type_ids" else self._tokenizer.pad_token_id
        padded = np.full((len(values), max(map(len, values))), fill or 0, dtype=np.int64)
        for row, value in zip(padded, values, strict=True):
            row[: len(value)] = value
        return torch.from_numpy(padded).to(self.device)

    def _wants_every_state(self) -> bool:
        """Whether the pooling needs every hidden state; ConfigError where it names a layer the model lacks."""
        highest = highest_layer(self.recipe.pooling)
        last = int(self._model.config.num_hidden_layers)
        if highest is not None and highest > last:
            raise ConfigError(f"pooling {', '.join(self.recipe.pooling)}: {self.recipe.folder} has layers 0 to {last}; choose one of them")
        return highest is not None

    def _width(self) -> int:
        """The width of a vector after the pooling and every layer; ConfigError where they do not fit together."""
        width = int(self._model.config.hidden_size) * len(self._poolers)
        for layer in self.recipe.layers:
            if layer.config.get("in_features", width) != width:
                raise ConfigError(
                    f"{layer.folder}: takes vectors of {layer.config['in_features']}, pooling {', '.join(self.recipe.pooling)}"
                    f" gives {width}; choose another --pooling"
                )
            width = int(layer.config.get("out_features", width))
        return width


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Positions of sentences of these lengths, in batches of at most `budget` tokens with padding; longest first.

    A sentence longer than the budget is a batch of its own, one without tokens is in none. Memory runs out on the first
    batch or not at all.
    """
    batch: list[int] = []
    for place in sorted(filter(lengths.__getitem__, range(len(lengths))), key=lambda place: -lengths[place]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
