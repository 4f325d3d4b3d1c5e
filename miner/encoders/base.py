"""The interface between text and vectors, and optional abilities of encoders."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from miner.arrays import Floats32
from miner.errors import ConfigError, DataError
from miner.languages import UNDETERMINED

if TYPE_CHECKING:
    import torch

    from miner.encoders.model_folder import ModelRecipe
    from miner.encoders.token_vectors import TokenVectors


def check_texts(texts: Sequence[str]) -> None:
    """Raise ConfigError unless these are texts, and DataError for one that UTF-8 cannot store. A single string is not a list of letters."""
    if isinstance(texts, str):
        raise ConfigError(f"one text instead of a list of texts; give [{texts[:40]!r}]")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigError(f"text {row} is {type(text).__name__}, not a string; give a list of strings")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"text {row} has an unpaired surrogate, which UTF-8 cannot store; remove or replace it") from error


@runtime_checkable
class Encoder(Protocol):
    """What the library requires of every encoder.

    `fingerprint` identifies the mapping from text to vector: it changes with weights, pooling and preprocessing, and not with
    device, batch size or path.
    """

    @property
    def dim(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> Floats32:
        """n texts -> (n, dim) float32 unit rows in the order of the texts; a zero row for a text without tokens."""
        ...


class EncodeCounts(threading.local):
    """Numbers of tokens that a thread has encoded, and of texts that it has truncated."""

    tokens = 0
    truncated_texts = 0


@runtime_checkable
class LanguageEncoder(Protocol):
    """An encoder that may need the language of texts, which it states in a tag beside each."""

    def in_language(self, lang: str) -> Encoder:
        """Return the encoder of texts of a language, itself if it needs none; raise ConfigError for one that it does not know."""
        ...


def in_language(encoder: Encoder, lang: str | None) -> Encoder:
    """Return the encoder of texts of a language; raise ConfigError where the encoder needs one that it does not know."""
    return encoder.in_language(lang or UNDETERMINED) if isinstance(encoder, LanguageEncoder) else encoder


@runtime_checkable
class Preloads(Protocol):
    """An encoder that can read its files before they are needed."""

    def preload(self, num_bytes: float) -> None:
        """Start to read in the background the files that texts of this size need."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """An encoder that counts the tokens it encodes."""

    tally: EncodeCounts


@runtime_checkable
class TokenEncoder(Protocol):
    """An encoder that also has a vector for each token of a text, by which candidates can be rescored."""

    def token_vectors(self, texts: Sequence[str]) -> TokenVectors:
        """Return the token vectors of n texts."""
        ...


@runtime_checkable
class EstimatesOperations(Protocol):
    """An encoder that knows its arithmetic."""

    def operations(self, tokens: float) -> float:
        """Return the floating point operations for a text of `tokens` tokens."""
        ...


@runtime_checkable
class StoredEncoder(Protocol):
    """An encoder with a folder, in which `miner train` may have saved classifiers."""

    folder: Path


@runtime_checkable
class FineTunable(Protocol):
    """An encoder whose folder `miner train` can train further: a transformer, and how it is run."""

    folder: Path
    recipe: ModelRecipe
    num_positions: int | None  # maximum length that the model can read; None: unlimited
    max_tokens: int | None
    device: torch.device
    precision: str


@runtime_checkable
class DeviceEncoder(Protocol):
    """An encoder that runs on a chosen device."""

    @property
    def device(self) -> torch.device: ...


def search_device(encoder: object) -> str:
    """Return the device on which vectors of an encoder are searched in memory: its own; the CPU for an encoder without a device."""
    return str(encoder.device) if isinstance(encoder, DeviceEncoder) else "cpu"


@runtime_checkable
class PieceEncoder(Protocol):
    """An encoder that adds up vectors of SentencePiece pieces, from which a static encoder can be trained further."""

    dim: int
    pieces: Any  # a SentencePieceProcessor
    vectors: Floats32  # (pieces, dim)
