"""The token vectors of a layer of a transformer, and which encoders have token vectors.

Hidden states are contextual, so those of the middle layers match words and their translations: BERTScore (Zhang et al. 2020, section 5)
and SimAlign (Jalili Sabet et al. 2020, section 4) choose layers 8 to 10 of 12. All tokens weigh the same: after layer normalization
the lengths of hidden states differ little, and by a few dimensions only. A random projection, the same for all encoders and machines,
makes tokens small enough to be stored. An encoder that was trained for late interaction, such as BGE-M3 (Chen et al. 2024, section 3.2),
has a linear layer that maps the states of the last layer to its token vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from miner.arrays import AnyFloats, Floats32, Int8s
from miner.config.choices import AUTO, LATE, NONE, RescoreName
from miner.encoders import mining_profile
from miner.encoders.base import Encoder, TokenEncoder
from miner.encoders.model_folder import TOKEN_HEAD
from miner.encoders.token_vectors import TextTokens, TokenFile, TokenTable, TokenVectors
from miner.encoders.transformer import TransformerEncoder
from miner.encoders.transformer_parts import load_token_head
from miner.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_DEPTH = 2 / 3  # share of the layers up to the one that is used: 8 of 12
TOKEN_DIM = 96  # dimensions of a token, whose accuracy benchmarks/encoders.md compares with that of all of them
SEED = 46  # of the projection; another one makes the tokens of existing corpora incomparable


@dataclass(frozen=True)
class TokenForm:
    """Which tokens of a transformer rescore."""

    layer: int
    dim: int  # after the projection


class LayerTokens:
    """Encode texts as the hidden states of one layer, projected to TOKEN_DIM dimensions and rounded.

    The vectors of a text may differ in single units from run to run if its batch does, by the rounding errors of the transformer.
    """

    def __init__(self, transformer: TransformerEncoder, layer: int | None = None) -> None:
        """Choose a layer, 0 for the embeddings. Raise ConfigError if the transformer lacks it."""
        self.transformer = transformer
        self.form = choose_form(transformer.folder, transformer.num_layers, transformer.width, layer)
        is_last = self.form.layer == transformer.num_layers
        self._head = load_token_head(transformer.folder, transformer.device) if is_last else None

    def encode(self, texts: Sequence[str]) -> tuple[Floats32, TextTokens]:
        """Return the vectors (n, dim) of n texts and their tokens, by one pass."""
        vectors, tokens, counts = self.transformer.encode_with_states(texts, self.form.layer, self._round)
        return vectors, TextTokens(tokens, counts)

    def token_vectors(self, texts: Sequence[str]) -> TokenVectors:
        """Return the token vectors of n texts, without special tokens. They are in a temporary file: dim bytes per token."""
        file, counts = TokenFile(), [np.zeros(1, np.int64)]
        for states, block_counts in self.transformer.hidden_states(texts, self.form.layer):
            file.append(TokenTable.of_rounded(self._round(states)))
            counts.append(block_counts)
        table = file.table()
        return TokenVectors.of(table, np.arange(len(table.norms), dtype=np.int32), np.cumsum(np.concatenate(counts)))

    def _round(self, states: AnyFloats | Tensor) -> Int8s:
        """Project hidden states (t, width) and round them to (t, dim)."""
        if self._head is not None:
            import torch

            with torch.inference_mode():
                states = self._head(torch.as_tensor(states, device=self.transformer.device))
        rows = np.asarray(states if isinstance(states, np.ndarray) else states.cpu(), dtype=np.float32)
        if self.form.dim < rows.shape[1]:
            rows = rows @ random_axes(rows.shape[1], self.form.dim)
        return TokenTable.of(rows).vectors


@lru_cache
def random_axes(width: int, dim: int) -> Floats32:
    """Return random orthonormal axes (width, dim), which preserve products approximately. They are the same in every run."""
    axes, _ = np.linalg.qr(np.random.default_rng(SEED).normal(size=(width, dim)))
    return np.ascontiguousarray(axes, dtype=np.float32)


def choose_form(folder: Path, num_layers: int, width: int, layer: int | None) -> TokenForm:
    """Return which tokens rescore: by default those at DEFAULT_DEPTH, or of the last layer where a layer for them follows it.

    Raise ConfigError if the transformer lacks the layer.
    """
    if layer is not None and layer > num_layers:
        raise ConfigError(f"--token-layer {layer}: {folder} has layers 0 to {num_layers}; choose one of them")
    default = num_layers if (folder / TOKEN_HEAD).exists() else round(DEFAULT_DEPTH * num_layers)
    return TokenForm(default if layer is None else layer, min(width, TOKEN_DIM))


def choose_token_encoder(encoder: Encoder, layer: int | None) -> TokenEncoder | None:
    """Return the token encoder of an encoder, of this layer if it has layers (None: the default one); None if it has no token vectors.

    Raise ConfigError for a layer that it lacks.
    """
    if isinstance(encoder, TransformerEncoder):
        return LayerTokens(encoder, layer)
    if not isinstance(encoder, TokenEncoder):
        return None
    if layer is not None:
        raise ConfigError(f"--token-layer {layer}: this encoder has no layers; remove the option")
    return encoder


def choose_rescoring_encoder(encoder: Encoder, layer: int | None, rescore: RescoreName, name: str = "this encoder") -> TokenEncoder | None:
    """Return the token encoder that rescores: with `auto` one whose profile does not say that it does not pay, with `none` None.

    Raise ConfigError with `late`, where the encoder, called `name` in the message, has no token vectors.
    """
    is_refused = rescore == AUTO and not mining_profile.of_encoder(encoder, encoder.fingerprint).rescoring_pays
    token_encoder = None if rescore == NONE or is_refused else choose_token_encoder(encoder, layer)
    if rescore == LATE and token_encoder is None:
        raise ConfigError(f"--rescore {LATE}: {name} has no token vectors; give --rescore {NONE}")
    return token_encoder
