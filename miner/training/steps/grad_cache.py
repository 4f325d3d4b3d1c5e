"""Embed a batch and backpropagate to the weights, at once or in chunks (GradCache).

A contrastive loss needs the vectors of the whole batch, but not the activations behind them. Gao et al. (2021) compute the vectors
without activations, then the gradient of the loss with respect to the vectors, and then each chunk again, with activations, to
backpropagate its part of that gradient. The gradients are those of the whole batch; the memory is that of one chunk.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from miner.devices import CUDA, upload
from miner.training.data.batches import Ints

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

    def collate(self, tokens: Any, rows: Ints) -> dict[str, Tensor]:
        """Return the inputs of the encoder for rows (n,), on the CPU."""

    def __call__(self, inputs: dict[str, Tensor]) -> Tensor: ...


@dataclass(frozen=True)
class EncoderInputs:
    """Tokenized texts, and the inputs of the encoder for chunks of them, on the CPU."""

    tokens: Any
    rows: list[Ints]  # row indexes of each chunk
    chunks: list[dict[str, Tensor]]


def build_inputs(encoder: BatchReader, tokens: Any, chunk_size: int | None, device: torch.device) -> EncoderInputs:
    """Build the inputs; in page-locked memory for a CUDA GPU, so that their copy to it need not wait for earlier work."""
    rows = encoder.split_chunks(tokens, chunk_size)
    chunks = [encoder.collate(tokens, chunk_rows) for chunk_rows in rows]
    if device.type == CUDA:
        chunks = [{name: tensor.pin_memory() for name, tensor in chunk.items()} for chunk in chunks]
    return EncoderInputs(tokens, rows, chunks)


class EncodingPass:
    """The vectors (n, d) of tokenized texts, detached; `backward` backpropagates their gradient to the encoder's weights."""

    def __init__(self, encoder: BatchReader, inputs: EncoderInputs, is_cached: bool, seed: int, context: Context) -> None:
        """Encode `inputs`, with dropout drawn from `seed`; if `is_cached`, chunk by chunk, without keeping activations."""
        self.encoder, self.inputs, self.is_cached, self.seed, self.context = encoder, inputs, is_cached, seed, context
        with torch.set_grad_enabled(not self.is_cached):
            self.chunks = [self._encode_chunk(number) for number in range(len(inputs.rows))]
        self.vectors = torch.empty(sum(map(len, inputs.rows)), encoder.dim, device=self.chunks[0].device)
        for rows, chunk in zip(inputs.rows, self.chunks, strict=True):
            self.vectors[upload(torch.from_numpy(rows), chunk.device)] = chunk.detach().float()
        if self.is_cached:
            self.chunks = []

    def _encode_chunk(self, number: int) -> Tensor:
        reseed((self.seed + number) % (1 << 63))  # both passes over a chunk draw the same dropout
        with self.context():
            return self.encoder(self.inputs.chunks[number])

    def backward(self, gradient: Tensor) -> None:
        """Add the gradient (n, d) of the loss with respect to the vectors to the gradients of the weights."""
        for number, rows in enumerate(self.inputs.rows):
            chunk = self._encode_chunk(number) if self.is_cached else self.chunks[number]
            chunk.backward(gradient[upload(torch.from_numpy(rows), chunk.device)].to(chunk.dtype))  # type: ignore[no-untyped-call]


def encode_without_gradient(encoder: Any, tokens: Any, chunk_size: int, context: Context) -> Tensor:
    """Return the vectors (n, d) of tokenized texts, without gradients."""
    inputs = build_inputs(encoder, tokens, chunk_size, next(encoder.parameters()).device)
    with torch.no_grad():
        return EncodingPass(encoder, inputs, True, 0, context).vectors
