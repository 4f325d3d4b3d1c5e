"""Late interaction of sentences in memory: which encoder has their tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from miner import encoders
from miner.api.embedding import resolve_encoder
from miner.api.settings import SearchSettings
from miner.api.sides import OpenSide
from miner.config.choices import LATE, NONE, default_candidates
from miner.devices import choose_device
from miner.encoders import Encoder
from miner.encoders.base import TokenEncoder
from miner.encoders.layer_tokens import choose_rescoring_encoder
from miner.encoders.token_vectors import TokenVectors
from miner.errors import ConfigError
from miner.mining.late_interaction import LateOptions

ROLES = ("source", "target")


@dataclass(frozen=True)
class InMemoryRescoring:
    """The encoders of both sides, which have token vectors."""

    encoders: tuple[TokenEncoder, TokenEncoder]
    candidates: int  # neighbours on each side
    settings: SearchSettings

    def tokens(self, role: str, texts: Sequence[str]) -> TokenVectors:
        """Return the tokens of texts of the `source` or the `target`."""
        return self.encoders[ROLES.index(role)].token_vectors(texts)

    def options(self) -> LateOptions:
        return LateOptions(choose_device(self.settings.device))


def choose_rescoring(sides: tuple[OpenSide, OpenSide], encoder: str | Encoder, settings: SearchSettings) -> InMemoryRescoring | None:
    """Return how candidates are rescored, as the settings say; None if they are not. Raises ConfigError where they cannot be."""
    if settings.rescore == NONE:
        return None
    source, target = (_token_encoder(side, encoder, settings, role) for side, role in zip(sides, ROLES, strict=True))
    if source is None or target is None:
        if settings.rescore == LATE:
            raise ConfigError(f"rescore={LATE!r} needs texts of both sides and an encoder with token vectors; give these, or {NONE!r}")
        return None
    num_candidates = settings.rescore_candidates or default_candidates(len(side.ids) for side in sides)
    return InMemoryRescoring((source, target), num_candidates, settings)


def num_neighbours(rescoring: InMemoryRescoring | None, settings: SearchSettings) -> int:
    """Return the neighbours of each sentence that are candidates."""
    return settings.k if rescoring is None else max(settings.k, rescoring.candidates)


def _token_encoder(side: OpenSide, encoder: str | Encoder, settings: SearchSettings, role: str) -> TokenEncoder | None:
    """Return the encoder of a side if it rescores; a transformer is not loaded to determine that it does not."""
    own_encoder = side.encoder
    if side.texts is not None and own_encoder is None:
        if isinstance(encoder, str) and settings.rescore != LATE and encoders.find_kind(encoder) != encoders.STATIC:
            return None
        own_encoder = resolve_encoder(encoder, settings, side.lang, role)
    if own_encoder is None or own_encoder.fingerprint != side.fingerprint:
        return None
    return choose_rescoring_encoder(own_encoder, settings.token_layer, settings.rescore)
