"""The transformer in training: tokens, hidden states, pooling and, if asked for, a head."""

import inspect
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from miner.encoders import hub
from miner.encoders import transformer_parts as parts
from miner.encoders.model_folder import ModelRecipe, read_recipe
from miner.encoders.pooling import pooler
from miner.errors import ConfigError
from miner.training import export
from miner.training.batches import Ints, View
from miner.training.settings import TransformerSettings

# What SimCSE calls its pooling -> what it is here. `cls` there has an MLP, which is a setting of its own here.
SIMCSE = {"cls_before_pooler": "cls", "avg": "mean", "avg_first_last": "first_last_avg"}
POOLINGS = ("cls", "mean", "max", "first_last_avg", "avg_top2")
LAYER = re.compile(r"layer:([1-9]\d*)")
CHUNK = 64  # texts of one pass on a CPU: few enough to be of like length, enough to keep it busy

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tokens:
    """Texts in numbers, ready for the model: lists of different lengths."""

    inputs: dict[str, list[list[int]]]  # input_ids, and perhaps token_type_ids
    lengths: Ints  # (n,)

    def __len__(self) -> int:
        return len(self.lengths)


class Transformer(nn.Module):
    """Texts -> pooled vectors, not of length 1."""

    # What makes a step need less memory.
    SMALLER = "set training.gradient_cache (texts held at once) or lower it, or lower training.batch_size or encoder.max_tokens"

    def __init__(self, settings: TransformerSettings) -> None:
        """Raises ModelError where the model cannot be loaded, ConfigError where pooling or length do not fit it."""
        super().__init__()
        self.settings = settings
        folder = Path(settings.model) if Path(settings.model).is_dir() else hub.fetch(settings.model)
        self.recipe = read_recipe(folder)
        self.model = parts.load_model(self.recipe.folder).float()
        self.tokenizer = parts.load_tokenizer(self.recipe)
        if self.tokenizer.pad_token_id is None:
            raise ConfigError(f"{settings.model}: its tokenizer has no padding token; choose another encoder.model")
        self.longest = parts.token_limit(self.recipe, settings.max_tokens, self.tokenizer, self.model)
        wanted = settings.pooling or "+".join(self.recipe.pooling) or "cls"
        self.pooling = self._cut(SIMCSE.get(wanted, wanted))
        self.pool = pooler(self.pooling)
        self.dim = int(self.model.config.hidden_size)
        self.head = self._load_head()
        self._wanted = tuple(inspect.signature(self.model.forward).parameters)

    def _cut(self, pooling: str) -> str:
        """What to do with the hidden states. The mean of layer N is that of the last layer once the layers above it are gone."""
        match = LAYER.fullmatch(pooling)
        if match is None:
            if pooling not in POOLINGS:
                raise ConfigError(f"unknown encoder.pooling {pooling!r}; one of {', '.join([*POOLINGS, *SIMCSE, 'layer:N'])}")
            return pooling
        wanted, there = int(match[1]), int(self.model.config.num_hidden_layers)
        lists = [module for module in self.model.modules() if isinstance(module, nn.ModuleList) and len(module) == there]
        if wanted > there or len(lists) != 1:
            raise ConfigError(f"encoder.pooling {pooling}: {self.settings.model} has layers 1 to {there}; choose one of them")
        del lists[0][wanted:]
        self.model.config.num_hidden_layers = wanted
        return "mean"

    def _load_head(self) -> nn.Sequential | None:
        """Linear and Tanh, if asked for: the ones the model comes with, where it does (as LaBSE), or new ones."""
        dense = [layer for layer in self.recipe.layers if layer.kind == "Dense"]
        if self.settings.head == "none":
            if dense:
                logger.warning("%s: its Dense layer is left out; encoder.head mlp goes on from it", self.settings.model)
            return None
        head = nn.Sequential(nn.Linear(self.dim, self.dim), nn.Tanh())
        for layer in [parts.load_layer(layer, torch.device("cpu")) for layer in dense]:
            if len(dense) > 1 or repr(layer) != repr(head):
                raise ConfigError(
                    f"{self.settings.model}: its Dense layers are not one Linear of {self.dim} and a Tanh; set encoder.head to none"
                )
            head.load_state_dict(layer.state_dict())  # type: ignore[attr-defined]
        return head

    def read(self, views: Sequence[View], random: np.random.Generator) -> Tokens:
        """The texts of all views in numbers, one view after another."""
        read = [self.numbers(*view.read(random)) for view in views]
        inputs = {name: [row for tokens in read for row in tokens.inputs[name]] for name in read[0].inputs}
        return Tokens(inputs, np.concatenate([tokens.lengths for tokens in read]))

    def numbers(self, texts: Sequence[str], partners: Sequence[str] | None = None) -> Tokens:
        """Texts, or pairs of texts as one sequence, in numbers."""
        prompted = [self.recipe.prompt + text for text in texts] if self.recipe.prompt else list(texts)
        second = {} if partners is None else {"text_pair": list(partners)}
        tokens = self.tokenizer(prompted, **second, truncation=True, max_length=self.longest, return_attention_mask=False)
        inputs: dict[str, list[list[int]]] = {
            name: tokens[name] for name in ("input_ids", "token_type_ids") if name in tokens and name in self._wanted
        }
        return Tokens(inputs, np.array([len(ids) for ids in inputs["input_ids"]], dtype=np.int64))

    def chunks(self, read: Tokens, size: int | None) -> list[Ints]:
        """Which texts go through the model together: those of like length, so that little of it is padding; longest first."""
        device = next(self.parameters()).device
        size = size or (CHUNK if device.type == "cpu" else len(read))
        order = np.argsort(-read.lengths, kind="stable")
        return [order[start : start + size] for start in range(0, len(order), size)]

    def forward(self, read: Tokens, rows: Ints) -> Tensor:
        """Rows (n,) of what was read -> (n, dim) float32."""
        inputs = self.padded(read, rows)
        output = self.model(**inputs, output_hidden_states=self.pooling in ("first_last_avg", "avg_top2"))
        states = getattr(output, "hidden_states", None) or [output.last_hidden_state]
        vectors = self.pool(states, inputs["attention_mask"])
        return vectors if self.head is None else self.head(vectors).float()

    def padded(self, read: Tokens, rows: Ints) -> dict[str, Tensor]:
        """Rows (n,) of what was read -> tensors (n, longest) as the model wants them, padded on the right."""
        longest = max(1, int(read.lengths[rows].max()))
        device = next(self.parameters()).device
        tensors = {}
        for name, values in read.inputs.items():
            fill = self.tokenizer.pad_token_type_id if name == "token_type_ids" else self.tokenizer.pad_token_id
            table = np.full((len(rows), longest), fill, dtype=np.int64)
            for line, row in zip(table, rows, strict=True):
                line[: len(values[row])] = values[row]
            tensors[name] = torch.from_numpy(table).to(device)
        mask = np.arange(longest) < read.lengths[rows, None]
        return {**tensors, "attention_mask": torch.from_numpy(mask.astype(np.int64)).to(device)}

    def save(self, folder: Path) -> None:
        """Write the encoder as `miner`, sentence-transformers and transformers load it."""
        head: Any = self.head[0] if self.head is not None and self.settings.keep_head else None
        recipe = ModelRecipe(folder, max_tokens=self.longest, lower_case=self.recipe.lower_case, prompt=self.recipe.prompt)
        export.save(recipe, self.model, self.tokenizer, self.pooling, head)
