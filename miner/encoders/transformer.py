"""The transformer encoder: Hugging Face and sentence-transformers folders, and hub ids, on CPU or CUDA.

Weights are read from safetensors if there are any; pickles are loaded without executing code, and code in a model folder is never
run. Texts are sorted by length and split into batches of `batch_tokens` tokens, padding included: that keeps padding low and
bounds the memory of a batch.
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
from miner.encoders import transformer_parts as parts
from miner.encoders.base import EncodeCounts, check_texts
from miner.encoders.model_folder import ModelRecipe, fingerprint, read_recipe
from miner.encoders.pooling import CHOICES, highest_layer, pooler
from miner.errors import ConfigError, ModelError
from miner.progress import add_work

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]

WINDOW_TEXTS = 16384  # tokenized and sorted together, which bounds the memory of their tokens

logger = logging.getLogger(__name__)


def load(name: str, settings: EncoderSettings) -> TransformerEncoder:
    """Load the transformer in a folder.

    Raise ModelError where it is missing, damaged or unsupported, ConfigError where the settings do not fit it.
    """
    folder = Path(name)
    recipe = read_recipe(folder)
    if settings.pooling is not None:
        recipe = replace(recipe, pooling=(settings.pooling,))
    if not recipe.pooling:
        raise ConfigError(f"{name}: the folder specifies no pooling; choose one with --pooling: {CHOICES}")
    for pooling in recipe.pooling:
        pooler(pooling)
    return TransformerEncoder(folder, recipe, settings)


class TransformerEncoder:
    """A transformer, its pooling and the layers after it.

    The vector of a text does not depend on the other texts, beyond rounding errors (1e-5 in float32).
    """

    def __init__(self, folder: Path, recipe: ModelRecipe, settings: EncoderSettings, window_texts: int = WINDOW_TEXTS) -> None:
        """`recipe` decides the pooling, not `settings`."""
        self.folder, self.recipe = folder, recipe
        self.batch_tokens, self.window_texts = settings.batch_tokens, window_texts
        self.device = parts.choose_device(settings.device)
        self.precision = parts.choose_precision(settings.dtype, self.device)
        self._model = parts.load_model(recipe.folder)
        self._tokenizer = parts.load_tokenizer(recipe)
        self.max_tokens = parts.token_limit(recipe, settings.max_tokens, self._tokenizer, self._model)
        self._poolers = [pooler(name) for name in recipe.pooling]
        self._needs_hidden_states = self._check_layers()
        self._layers = [parts.load_layer(layer, self.device) for layer in recipe.layers]
        self.dim = self._output_width()
        self.num_positions = parts.count_positions(self._model)
        self.fingerprint = fingerprint(recipe, self.max_tokens)
        parts.move(self._model, self.device, self.precision)
        self._input_names = tuple(inspect.signature(self._model.forward).parameters)
        self.tally = EncodeCounts()
        self._lock = threading.Lock()  # one batch at a time: two would need twice the memory

    def encode(self, texts: Sequence[str]) -> Floats:
        """n texts -> (n, dim) float32 unit rows in the order of the texts; a zero row for a text without tokens or of spaces only."""
        check_texts(texts)
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        with self._lock:
            for start in range(0, len(rows), self.window_texts):
                window = rows[start : start + self.window_texts]
                tokens = self._tokenize([texts[row] for row in window])
                lengths = [len(ids) for ids in tokens["input_ids"]]
                self.tally.tokens += sum(lengths)
                for batch in token_batches(lengths, self.batch_tokens):
                    vectors[[window[index] for index in batch]] = self._encode_batch(tokens, batch)
                    add_work(len(batch))
        return vectors

    def operations(self, tokens: float) -> float:
        """Return the floating point operations for a text: two per weight and token except embeddings, plus attention."""
        import torch

        config = self._model.config
        embeddings = {id(module.weight) for module in self._model.modules() if isinstance(module, torch.nn.Embedding)}
        num_weights = sum(weight.numel() for weight in self._model.parameters() if id(weight) not in embeddings)
        return float(2 * num_weights * tokens + 4 * config.num_hidden_layers * config.hidden_size * tokens**2)

    def _tokenize(self, texts: Sequence[str]) -> dict[str, list[list[int]]]:
        """Return the inputs of the model, `input_ids` and maybe `token_type_ids`, as lists of different lengths."""
        prompted = [self.recipe.prompt + text for text in texts] if self.recipe.prompt else list(texts)
        truncation = {"truncation": True, "max_length": self.max_tokens} if self.max_tokens else {"truncation": False}
        tokens = self._tokenizer(prompted, padding=False, return_attention_mask=False, **truncation)
        self.tally.truncated_texts += sum(parts.find_truncated(tokens, self.max_tokens))
        return {name: tokens[name] for name in ("input_ids", "token_type_ids") if name in tokens and name in self._input_names}

    def _encode_batch(self, tokens: dict[str, list[list[int]]], batch: Sequence[int]) -> Floats:
        """Return the vectors of one batch; split it in halves where CUDA memory runs out."""
        import torch

        try:
            return self._forward(tokens, batch)
        except torch.cuda.OutOfMemoryError:
            longest = max(len(tokens["input_ids"][index]) for index in batch)
        # After the handler, whose traceback keeps the tensors of the failed batch alive.
        torch.cuda.empty_cache()
        if len(batch) == 1:
            raise ModelError(
                f"{self.device}: out of memory on one sentence of {longest} tokens; lower --max-tokens, or choose another --device"
            )
        logger.warning("out of memory on %d x %d tokens; retrying in halves, a lower --batch-tokens is faster", len(batch), longest)
        half = len(batch) // 2
        return np.concatenate([self._encode_batch(tokens, batch[:half]), self._encode_batch(tokens, batch[half:])])

    def _forward(self, tokens: dict[str, list[list[int]]], batch: Sequence[int]) -> Floats:
        import torch

        inputs = {name: self._pad([values[index] for index in batch], name) for name, values in tokens.items()}
        lengths = torch.tensor([len(tokens["input_ids"][index]) for index in batch])
        mask = (torch.arange(inputs["input_ids"].shape[1]) < lengths[:, None]).long().to(self.device)
        with torch.inference_mode():
            output = self._model(**inputs, attention_mask=mask, output_hidden_states=self._needs_hidden_states)
            states = output.hidden_states if self._needs_hidden_states else [output.last_hidden_state]
            vectors = torch.cat([pool(states, mask) for pool in self._poolers], dim=1)
            for layer in self._layers:
                vectors = layer(vectors)
            vectors = torch.nn.functional.normalize(vectors, dim=1)
            result: Floats = vectors.cpu().numpy()
        if not np.isfinite(result).all():
            raise ModelError(f"{self.recipe.folder}: NaN or infinite vectors in {self.precision}; try --dtype float32")
        return result

    def _pad(self, values: Sequence[Sequence[int]], name: str) -> torch.Tensor:
        """Lists of token ids -> (batch, longest), padded on the right, on the device."""
        import torch

        fill = self._tokenizer.pad_token_type_id if name == "token_type_ids" else self._tokenizer.pad_token_id
        padded = np.full((len(values), max(map(len, values))), fill or 0, dtype=np.int64)
        for row, value in zip(padded, values, strict=True):
            row[: len(value)] = value
        return torch.from_numpy(padded).to(self.device)

    def _check_layers(self) -> bool:
        """Return whether the pooling needs all hidden states; raise ConfigError for a layer that the model lacks."""
        highest = highest_layer(self.recipe.pooling)
        last = int(self._model.config.num_hidden_layers)
        if highest is not None and highest > last:
            raise ConfigError(f"pooling {', '.join(self.recipe.pooling)}: {self.recipe.folder} has layers 0 to {last}; choose one of them")
        return highest is not None

    def _output_width(self) -> int:
        """Return the dimension after pooling and all layers; raise ConfigError where they do not fit together."""
        width = int(self._model.config.hidden_size) * len(self._poolers)
        for layer in self.recipe.layers:
            if layer.config.get("in_features", width) != width:
                raise ConfigError(
                    f"{layer.folder}: takes vectors of {layer.config['in_features']} dimensions, pooling {', '.join(self.recipe.pooling)}"
                    f" gives {width}; choose another --pooling"
                )
            width = int(layer.config.get("out_features", width))
        return width


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield indices of texts with these lengths in batches of at most `budget` tokens, padding included; longest first.

    A text longer than the budget is a batch of its own; a text without tokens is in no batch. Since the first batch is the
    largest, memory runs out there or not at all.
    """
    batch: list[int] = []
    for index in sorted(filter(lengths.__getitem__, range(len(lengths))), key=lambda index: -lengths[index]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
