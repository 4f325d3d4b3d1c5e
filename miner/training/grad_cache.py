"""Embed a batch and backpropagate to the weights, at once or in chunks (GradCache).

A contrastive loss needs the vectors of the whole batch, but not the activations behind them. Gao et al. (2021) compute the vectors
without activations, then the gradient of the loss with respect to the vectors, and then each chunk again, with activations, to
backpropagate its part of that gradient. The gradients are those of the whole batch; the memory is that of one chunk.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from miner.training.batches import Ints

Context = Callable[[], AbstractContextManager[Any]]  # returns the autocast context in which an encoder runs


def reseed(seed: int) -> None:
    """Seed torch's generators; torch.manual_seed keeps a stack trace of every call until CUDA is first used."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


class BatchReader(Protocol):
    """An encoder in training: tokenized texts, in chunks of rows, to vectors."""

    dim: int

    def split_chunks(self, tokens: Any, size: int | None) -> list[Ints]: ...

    def __call__(self, tokens: Any, rows: Ints) -> Tensor: ...


class EncodingPass:
    """The vectors (n, d) of tokenized texts, detached; `backward` backpropagates their gradient to the encoder's weights."""

    def __init__(self, encoder: BatchReader, tokens: Any, cache: int | None, seed: int, context: Context) -> None:
        """Encode `tokens`, with dropout drawn from `seed`; `cache` is the number of texts per chunk, None keeps all activations."""
        self.encoder, self.tokens, self.seed, self.context = encoder, tokens, seed, context
        self.is_cached = cache is not None
        self.rows = encoder.split_chunks(tokens, cache)
        with torch.set_grad_enabled(not self.is_cached):
            self.chunks = [self._encode_chunk(number) for number in range(len(self.rows))]
        self.vectors = torch.empty(sum(map(len, self.rows)), encoder.dim, device=self.chunks[0].device)
        for rows, chunk in zip(self.rows, self.chunks, strict=True):
            self.vectors[torch.from_numpy(rows)] = chunk.detach().float()
        if self.is_cached:
            self.chunks = []

    def _encode_chunk(self, number: int) -> Tensor:
        reseed((self.seed + number) % (1 << 63))  # both passes over a chunk draw the same dropout
        with self.context():
            return self.encoder(self.tokens, self.rows[number])

    def backward(self, gradient: Tensor) -> None:
        """Add the gradient (n, d) of the loss with respect to the vectors to the gradients of the weights."""
        for number, rows in enumerate(self.rows):
            chunk = self._encode_chunk(number) if self.is_cached else self.chunks[number]
            chunk.backward(gradient[torch.from_numpy(rows)].to(chunk.dtype))  # type: ignore[no-untyped-call]


def encode_without_gradient(encoder: BatchReader, tokens: Any, chunk_size: int, context: Context) -> Tensor:
    """Return the vectors (n, d) of tokenized texts, without gradients."""
    with torch.no_grad():
        return EncodingPass(encoder, tokens, chunk_size, 0, context).vectors
