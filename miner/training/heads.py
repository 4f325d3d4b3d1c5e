"""Classifiers on top of an encoder. Their loss is torch's cross entropy of logits and labels."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn


class NliHead(nn.Module):
    """The relation of two texts from their vectors: a hidden layer on [u, v, |u - v|] (Wang et al. 2021).

    Features as in InferSent (Conneau et al. 2017) without the product.
    """

    def __init__(self, dim: int, classes: int = 3, hidden: int = 256, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3 * dim, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, classes))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Vectors (n, dim) of both texts -> logits (n, classes)."""
        logits: Tensor = self.layers(torch.cat([first, second, (first - second).abs()], dim=1))
        return logits


class FirstTokenHead(nn.Module):
    """The class of a joint sequence, `<s> a </s></s> b </s>`, from its first token, by one linear layer (Wang et al. 2022)."""

    def __init__(self, dim: int, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Dropout(dropout), nn.Linear(dim, classes))

    def forward(self, vectors: Tensor) -> Tensor:
        """Vectors (n, dim) of the first tokens, as of the pooling `cls` -> logits (n, classes)."""
        logits: Tensor = self.layers(vectors)
        return logits


def save_head(path: Path, head: nn.Module, labels: Sequence[str]) -> None:
    """Write the weights of a head as safetensors, with the labels of its classes, in their order, as a JSON list in the metadata."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in head.state_dict().items()}
    save_file(tensors, path, metadata={"labels": json.dumps(list(labels))})
