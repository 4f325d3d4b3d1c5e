"""Classification heads on top of an encoder, trained with torch's cross entropy."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from miner.errors import ModelError


class NliHead(nn.Module):
    """Classify the relation of two texts from their vectors: a hidden layer on [u, v, |u - v|] (Wang et al. 2021).

    The features are those of InferSent (Conneau et al. 2017) without the product.
    """

    def __init__(self, dim: int, classes: int = 3, hidden: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3 * dim, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, classes))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Vectors (n, dim) of both texts -> logits (n, classes)."""
        logits: Tensor = self.layers(torch.cat([first, second, (first - second).abs()], dim=1))
        return logits


class FirstTokenHead(nn.Module):
    """Classify a joint sequence, `<s> a </s></s> b </s>`, from its first token with one linear layer (Wang et al. 2022)."""

    def __init__(self, dim: int, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Dropout(dropout), nn.Linear(dim, classes))

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors (n, dim) of the first tokens (pooling `cls`) -> logits (n, classes)."""
        logits: Tensor = self.layers(vectors)
        return logits


def save_head(path: Path, head: nn.Module, labels: Sequence[str]) -> None:
    """Write the weights of a head as safetensors, with its class labels in order as a JSON list in the metadata."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in head.state_dict().items()}
    save_file(tensors, path, metadata={"labels": json.dumps(list(labels))})


def load_head(path: Path) -> tuple[NliHead | FirstTokenHead, tuple[str, ...]]:
    """Load a head, ready for inference, and its labels; raise ModelError where the file is damaged."""
    try:
        with safe_open(path, "pt") as file:
            labels = tuple(map(str, json.loads(file.metadata()["labels"])))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
        head = _build_head(tensors, len(labels))
        head.load_state_dict(tensors)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"{path}: not a classifier from `miner train` ({error}); train it again") from error
    return head.eval(), labels


def _build_head(tensors: Mapping[str, Tensor], classes: int) -> NliHead | FirstTokenHead:
    """Build a head of the type and sizes of these weights."""
    if "layers.3.weight" in tensors:
        hidden, features = tensors["layers.0.weight"].shape
        return NliHead(features // 3, classes, hidden)
    return FirstTokenHead(tensors["layers.1.weight"].shape[1], classes)
