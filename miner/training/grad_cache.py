"""Vectors of a batch, and the way back to the weights: at once, or in chunks whose activations are made twice (GradCache).

A contrastive loss needs the vectors of the whole batch, but not the activations behind them. Gao et al. (2021) take the vectors
without activations, the gradient of the loss with respect to them, and then each chunk again, with activations, to send its part
of that gradient through. The gradients are those of the whole batch, the memory is that of a chunk.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from miner.training.batches import Ints

Context = Callable[[], AbstractContextManager[Any]]  # in which an encoder computes: its precision


def reseed(number: int) -> None:
    """torch.manual_seed, but that one keeps a stack trace of every call as long as CUDA has not been used."""
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(number)


class BatchReader(Protocol):
    """An encoder in training: what was read, in chunks of rows, to vectors."""

    dim: int

    def split_chunks(self, read: Any, size: int | None) -> list[Ints]: ...

    def __call__(self, read: Any, rows: Ints) -> Tensor: ...


class EncodingPass:
    """The vectors (n, d) of what an encoder has read, cut off from their past; `backward` goes there."""

    def __init__(self, encoder: BatchReader, read: Any, cache: int | None, seed: int, context: Context) -> None:
        """`cache` is the number of texts whose activations are held at once; None holds all. Dropout is drawn from `seed`."""
        self.encoder, self.read, self.seed, self.context = encoder, read, seed, context
        self.cached = cache is not None
        self.rows = encoder.split_chunks(read, cache)
        with torch.set_grad_enabled(not self.cached):
            self.parts = [self._forward(number) for number in range(len(self.rows))]
        count = sum(map(len, self.rows))
        self.vectors = torch.empty(count, encoder.dim, device=self.parts[0].device)
        for rows, part in zip(self.rows, self.parts, strict=True):
            self.vectors[torch.from_numpy(rows)] = part.detach().float()
        if self.cached:
            self.parts = []

    def _forward(self, number: int) -> Tensor:
        reseed((self.seed + number) % (1 << 63))  # a chunk drops out the same numbers each time
        with self.context():
            return self.encoder(self.read, self.rows[number])

    def backward(self, gradient: Tensor) -> None:
        """The gradient (n, d) of the loss with respect to the vectors -> added to the gradients of the weights."""
        for number, rows in enumerate(self.rows):
            part = self._forward(number) if self.cached else self.parts[number]
            part.backward(gradient[torch.from_numpy(rows)].to(part.dtype))  # type: ignore[no-untyped-call]


def encode(encoder: BatchReader, read: Any, cache: int | None, context: Context) -> Tensor:
    """The vectors (n, d) of what an encoder has read, without a way back."""
    with torch.no_grad():
        return EncodingPass(encoder, read, cache, 0, context).vectors
