"""The transformer in training: tokens, hidden states, pooling and an optional head."""

import inspect
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from miner.devices import attention_kernels, upload
from miner.encoders import hub
from miner.encoders import transformer_parts as parts
from miner.encoders.model_folder import ModelRecipe, read_recipe
from miner.encoders.pooling import LAYER, POOLINGS, SIMCSE_NAMES, pooler
from miner.errors import ConfigError
from miner.training.data.batches import Ints, MixedView, View
from miner.training.models import export
from miner.training.settings import TransformerSettings

CPU_CHUNK_TEXTS = 64  # few enough for similar lengths, enough to keep the CPU busy
# A tokenizer stores its limit, and batches may be tokenised in a background thread during an evaluation.
_tokenizing = threading.Lock()

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tokens:
    """n tokenised texts, not padded."""

    inputs: dict[str, list[list[int]]]  # input_ids and, for some models, token_type_ids
    lengths: Ints  # (n,)
    is_cut: npt.NDArray[np.bool_]  # (n,) whether a text was longer than the limit

    def __len__(self) -> int:
        return len(self.lengths)


class Transformer(nn.Module):
    """Texts -> pooled vectors, not normalised."""

    # Ends the out-of-memory error.
    LENGTH_SETTING = "encoder.max_tokens"
    MEMORY_ADVICE = "set training.gradient_cache (texts held at once) or lower it, or lower training.batch_size or encoder.max_tokens"

    def __init__(self, settings: TransformerSettings) -> None:
        """Raises ModelError if the model cannot be loaded, ConfigError if pooling or length do not fit it."""
        super().__init__()
        self.settings = settings
        folder = Path(settings.model) if Path(settings.model).is_dir() else hub.fetch(settings.model)
        self.recipe = read_recipe(folder)
        model = parts.load_whole_model(self.recipe.folder)
        if parts.encoder_of(model) is not model:  # a folder of its encoder alone would lack the weights of the decoder
            raise ConfigError(f"encoder.model {settings.model}: the encoder of an encoder-decoder cannot be trained alone; choose another")
        self.model = model.float()
        self.tokenizer = parts.load_tokenizer(self.recipe)
        if self.tokenizer.pad_token_id is None:
            raise ConfigError(f"{settings.model}: its tokenizer has no padding token; choose another encoder.model")
        self.max_length = parts.token_limit(self.recipe, settings.max_tokens, self.tokenizer, self.model)
        self._inference_max_length = parts.token_limit(self.recipe, settings.inference_max_tokens, self.tokenizer, self.model)
        pooling = settings.pooling or "+".join(self.recipe.pooling) or "cls"
        self.pooling, layer = self._resolve_pooling("pooling", pooling)
        if layer is not None:
            self._remove_layers(layer)
        self._inference_pooling, self._inference_layer = self.pooling, None
        if settings.inference_pooling is not None:
            self._inference_pooling, self._inference_layer = self._resolve_pooling("inference_pooling", settings.inference_pooling)
        self.dim = int(self.model.config.hidden_size)
        self.head = self._load_head()
        self._model_inputs = tuple(inspect.signature(self.model.forward).parameters)

    def _resolve_pooling(self, setting: str, pooling: str) -> tuple[str, int | None]:
        """Return the pooling of the hidden states and the number of layers that it needs; None: all layers. `layer:N` is `mean`, N."""
        pooling = SIMCSE_NAMES.get(pooling, pooling)
        match = LAYER.fullmatch(pooling)
        if match is None:
            trainable = [name for name, option in POOLINGS.items() if option.trainable]
            if pooling not in trainable:
                raise ConfigError(f"unknown encoder.{setting} {pooling!r}; one of {', '.join([*trainable, *SIMCSE_NAMES, 'layer:N'])}")
            return pooling, None
        layer, num_layers = int(match[1]), int(self.model.config.num_hidden_layers)
        if len(self._layer_lists()) != 1:
            raise ConfigError(f"encoder.{setting} {pooling}: layers of {self.settings.model} cannot be removed; choose another pooling")
        if not 1 <= layer <= num_layers:
            raise ConfigError(f"encoder.{setting} {pooling}: {self.settings.model} has layers 1 to {num_layers}; choose one of them")
        return "mean", layer

    def _layer_lists(self) -> list[nn.ModuleList]:
        """Return the lists of modules that have the length of the model; one in models whose layers can be removed."""
        num_layers = int(self.model.config.num_hidden_layers)
        return [module for module in self.model.modules() if isinstance(module, nn.ModuleList) and len(module) == num_layers]

    def _remove_layers(self, layer: int) -> list[nn.Module]:
        """Remove the layers above `layer` from the model and return them."""
        layers = self._layer_lists()[0]
        removed = list(layers[layer:])
        del layers[layer:]
        self.model.config.num_hidden_layers = layer
        return removed

    @contextmanager
    def inference(self) -> Iterator["Transformer"]:
        """Encode as the exported encoder does: with its layers and pooling, and with the head only if it is saved."""
        pooling, head, num_layers = self.pooling, self.head, int(self.model.config.num_hidden_layers)
        self.pooling = self._inference_pooling
        self.head = head if self.settings.keep_head else None
        removed = [] if self._inference_layer is None else self._remove_layers(self._inference_layer)
        try:
            yield self
        finally:
            if removed:
                self._layer_lists()[0].extend(removed)
                self.model.config.num_hidden_layers = num_layers
            self.pooling, self.head = pooling, head

    def _load_head(self) -> nn.Sequential | None:
        """Return the head, if the config has one: the Dense layer of the model if there is one (as in LaBSE), or a new one."""
        dense = [layer for layer in self.recipe.layers if layer.kind == "Dense"]
        if self.settings.head == "none":
            if dense:
                logger.warning("%s: its Dense layer is not used; set encoder.head to mlp to continue from it", self.settings.model)
            return None
        head = nn.Sequential(nn.Linear(self.dim, self.dim), nn.Tanh())
        for layer in [parts.load_layer(layer, torch.device("cpu")) for layer in dense]:
            if len(dense) > 1 or repr(layer) != repr(head):
                raise ConfigError(
                    f"{self.settings.model}: the Dense layers are not one Linear of {self.dim} and a Tanh; set encoder.head to none"
                )
            head.load_state_dict(layer.state_dict())  # type: ignore[attr-defined]
        return head

    def tokenize_views(self, views: Sequence[View | MixedView], random: np.random.Generator) -> Tokens:
        """Tokenise the texts of all views, concatenated, with the limit of training."""
        tokenized = [self._tokenize(self.max_length, *part.read(random)) for view in views for part in view.parts]
        inputs = {name: [row for tokens in tokenized for row in tokens.inputs[name]] for name in tokenized[0].inputs}
        lengths, is_cut = (np.concatenate([getattr(tokens, name) for tokens in tokenized]) for name in ("lengths", "is_cut"))
        return Tokens(inputs, lengths, is_cut)

    def tokenize(self, texts: Sequence[str], partners: Sequence[str] | None = None) -> Tokens:
        """Tokenise texts, or pairs of texts as one sequence each, with the limit of the exported encoder."""
        return self._tokenize(self._inference_max_length, texts, partners)

    def _tokenize(self, limit: int | None, texts: Sequence[str], partners: Sequence[str] | None) -> Tokens:
        prompted = [self.recipe.prompt + text for text in texts] if self.recipe.prompt else list(texts)
        second = {} if partners is None else {"text_pair": list(partners)}
        truncation: dict[str, Any] = {"truncation": False} if limit is None else {"truncation": True, "max_length": limit}
        with _tokenizing:
            tokens = self.tokenizer(prompted, **second, **truncation, return_attention_mask=False)
        inputs: dict[str, list[list[int]]] = {
            name: tokens[name] for name in ("input_ids", "token_type_ids") if name in tokens and name in self._model_inputs
        }
        lengths = np.array([len(ids) for ids in inputs["input_ids"]], dtype=np.int64)
        return Tokens(inputs, lengths, np.array(parts.find_truncated(tokens, limit), dtype=bool))

    def split_chunks(self, tokens: Tokens, size: int | None) -> list[Ints]:
        """Return the rows of each chunk: texts of similar length, to save padding, longest first."""
        device = next(self.parameters()).device
        size = size or (CPU_CHUNK_TEXTS if device.type == "cpu" else len(tokens))
        order = np.argsort(-tokens.lengths, kind="stable")
        return [order[start : start + size] for start in range(0, len(order), size)]

    def finish_backward(self) -> None:
        """Do nothing: gradients reach the weights at once."""

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the vectors (n, dim) float32 of collated texts."""
        device = next(self.parameters()).device
        inputs = {name: upload(tensor, device) for name, tensor in inputs.items()}
        with attention_kernels(device):
            output = self.model(**inputs, output_hidden_states=bool(POOLINGS[self.pooling].layers))
        states = getattr(output, "hidden_states", None) or [output.last_hidden_state]
        vectors = pooler(self.pooling)(states, inputs["attention_mask"])
        return vectors if self.head is None else self.head(vectors).float()

    def collate(self, tokens: Tokens, rows: Ints) -> dict[str, Tensor]:
        """Return the model inputs (n, length) of rows (n,), padded on the right to the longest, on the CPU."""
        length = max(1, int(tokens.lengths[rows].max()))
        tensors = {}
        for name, values in tokens.inputs.items():
            fill = self.tokenizer.pad_token_type_id if name == "token_type_ids" else self.tokenizer.pad_token_id
            table = np.full((len(rows), length), fill, dtype=np.int64)
            for line, row in zip(table, rows, strict=True):
                line[: len(values[row])] = values[row]
            tensors[name] = torch.from_numpy(table)
        mask = np.arange(length) < tokens.lengths[rows, None]
        return {**tensors, "attention_mask": torch.from_numpy(mask.astype(np.int64))}

    def save(self, folder: Path) -> None:
        """Write the encoder in a format that miner, sentence-transformers and transformers load."""
        recipe = ModelRecipe(folder, max_tokens=self._inference_max_length, lower_case=self.recipe.lower_case, prompt=self.recipe.prompt)
        with self.inference():
            head: Any = None if self.head is None else self.head[0]
            export.save(recipe, self.model, self.tokenizer, self.pooling, head)
