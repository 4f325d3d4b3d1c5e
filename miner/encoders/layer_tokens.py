"""The token vectors of a layer of a transformer, and which encoders have token vectors.

Hidden states are contextual, so those of the middle layers match words and their translations: BERTScore (Zhang et al. 2020, section 5)
and SimAlign (Jalili Sabet et al. 2020, section 4) choose layers 8 to 10 of 12. All tokens weigh the same: after layer normalization
the lengths of hidden states differ little, and by a few dimensions only.
"""

from collections.abc import Sequence

import numpy as np

from miner.config.choices import LATE, NONE, RescoreName
from miner.encoders.base import Encoder, TokenEncoder
from miner.encoders.token_vectors import TokenFile, TokenTable, TokenVectors
from miner.encoders.transformer import TransformerEncoder
from miner.errors import ConfigError

DEFAULT_DEPTH = 2 / 3  # share of the layers up to the one that is used: 8 of 12


class LayerTokens:
    """Encode texts as the hidden states of one layer, rounded as those of static encoders.

    The vectors of a text may differ in single units from run to run if its batch does, by the rounding errors of the transformer.
    """

    rescores_by_default = False

    def __init__(self, transformer: TransformerEncoder, layer: int | None = None) -> None:
        """Choose a layer, 0 for the embeddings. Raise ConfigError if the transformer lacks it."""
        layers = transformer.num_layers
        if layer is not None and layer > layers:
            raise ConfigError(f"--token-layer {layer}: {transformer.folder} has layers 0 to {layers}; choose one of them")
        self.transformer = transformer
        self.layer = round(DEFAULT_DEPTH * layers) if layer is None else layer

    def token_vectors(self, texts: Sequence[str]) -> TokenVectors:
        """Return the token vectors of n texts, without special tokens. They are in a temporary file: dim bytes per token."""
        file, counts = TokenFile(), [np.zeros(1, np.int64)]
        for states, block_counts in self.transformer.hidden_states(texts, self.layer):
            rounded = TokenTable.of(states)
            file.append(TokenTable(rounded.vectors, (rounded.norms > 0).astype(np.float64)))
            counts.append(block_counts)
        table = file.table()
        return TokenVectors.of(table, np.arange(len(table.norms), dtype=np.int32), np.cumsum(np.concatenate(counts)))


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
    """Return the token encoder that rescores: with `auto` one that does so at a low cost, with `none` None.

    Raise ConfigError with `late`, where the encoder, called `name` in the message, has no token vectors.
    """
    token_encoder = None if rescore == NONE else choose_token_encoder(encoder, layer)
    if rescore == LATE and token_encoder is None:
        raise ConfigError(f"--rescore {LATE}: {name} has no token vectors; give --rescore {NONE}")
    return token_encoder if rescore == LATE or (token_encoder is not None and token_encoder.rescores_by_default) else None
