"""Whether candidates are rescored, and by which encoder: the one of the command, or the one that the corpora record."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miner import encoders
from miner.config.choices import AUTO, LATE, NONE, default_candidates
from miner.config.commands import EncoderSettings, RescoreSettings
from miner.encoders.base import TokenEncoder
from miner.encoders.layer_tokens import LayerTokens, choose_token_encoder
from miner.errors import ConfigError, MinerError, ModelError
from miner.io import stages
from miner.io.corpus import Corpus
from pipelines.corpus import embed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rescoring:
    """How candidates are rescored."""

    candidates: int  # neighbours on each side that are candidates
    token_layer: int | None  # of a transformer

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "Rescoring | None":
        """Read the settings of a stage of candidates; None if these were not rescored."""
        return cls(config["rescore_candidates"], config.get("token_layer")) if config.get("rescore") == LATE else None

    def figures(self) -> dict[str, Any]:
        """Return the settings for manifests."""
        layer = {} if self.token_layer is None else {"token_layer": self.token_layer}
        return {"rescore": LATE, "rescore_candidates": self.candidates, **layer}

    def num_neighbours(self, k: int) -> int:
        """Return the neighbours to search, of which the first k give the means."""
        return max(k, self.candidates)


def choose(
    settings: RescoreSettings, k: int, encoder: EncoderSettings, corpora: Sequence[Corpus], folders: tuple[str, str]
) -> Rescoring | None:
    """Return how the candidates of two corpora are rescored, None if they are not.

    `folders` are those of the neighbours of one direction and of the candidates: what is there already decides for `auto`.
    Raises ConfigError where the encoder has no token vectors, or the folders are of the other choice.
    """
    neighbours, candidates = (stages.recorded_config(folder) for folder in folders)
    recorded = Rescoring.read(candidates or {})
    num_candidates = settings.rescore_candidates
    if num_candidates is None:  # those of an earlier run, whatever the corpora have grown to
        searched = (neighbours or {}).get("k", k)
        default = int(searched) if searched > k else default_candidates(corpus.rows for corpus in corpora)
        num_candidates = default if recorded is None else recorded.candidates
    previous = _previous_choice(max(k, num_candidates), k, neighbours, candidates)
    is_late = settings.rescore == LATE or (settings.rescore == AUTO and _rescores_by_default(encoder, corpora))
    choice = LATE if is_late else NONE
    if previous not in (None, choice):
        if settings.rescore != AUTO:
            raise ConfigError(f"{folders[1]}: computed with --rescore {previous}, now {choice}; choose another --output")
        choice = str(previous)
        if choice == NONE:
            logger.warning("%s: the candidates there are not rescored; to rescore them, mine into another --output", folders[1])
    if choice == NONE:
        return None
    layer = recorded.token_layer if recorded is not None and settings.rescore == AUTO else settings.token_layer
    return Rescoring(num_candidates, _choose_token_layer(layer, encoder, corpora))


def is_planned(settings: RescoreSettings, encoder: str) -> bool:
    """Return whether new candidates will be rescored, if the encoder embeds the corpora. It is not loaded."""
    return settings.rescore == LATE or (settings.rescore == AUTO and _is_static(encoder))


def num_neighbours(settings: RescoreSettings, k: int, encoder: str, sizes: Iterable[int]) -> int:
    """Return the neighbours that will be searched, given the sentences of both sides."""
    return max(k, settings.rescore_candidates or default_candidates(sizes)) if is_planned(settings, encoder) else k


def find_encoder(encoder: EncoderSettings, corpora: Sequence[Corpus], only_static: bool = False) -> EncoderSettings:
    """Return the settings of the encoder that embedded corpora: `encoder` or, if that is another one, the one that they record.

    `only_static`: no other encoder is loaded. Raises ConfigError if neither embedded them as it is now.
    """
    fingerprint, side = corpora[0].fingerprint, corpora[0].side
    for name in dict.fromkeys([encoder.encoder, *(corpus.encoder for corpus in corpora if corpus.encoder is not None)]):
        settings = encoder.model_copy(update={"encoder": name, "side": side})
        try:
            if (_is_static(name) or not only_static) and embed.has_fingerprint(settings, fingerprint):
                return settings
        except ConfigError:
            continue  # options for another kind of encoder
        except MinerError:
            if name == encoder.encoder:
                raise
    raise ConfigError(
        f"{corpora[0].folder} was embedded by {fingerprint}, and --encoder {encoder.encoder} is another one;"
        " give the --encoder that embedded it"
    )


def _is_static(encoder: str) -> bool:
    """Return whether an encoder is static. One that is missing is not: corpora that are embedded need none."""
    try:
        return encoders.find_kind(encoder) == encoders.STATIC
    except ModelError:
        return False


def _previous_choice(num_neighbours: int, k: int, neighbours: Mapping[str, Any] | None, candidates: Mapping[str, Any] | None) -> str | None:
    """Return the choice of an earlier run by the configs that it recorded, None if there is none."""
    if candidates is not None:
        return LATE if Rescoring.read(candidates) else NONE
    searched = (neighbours or {}).get("k", 0)
    return None if num_neighbours == k else {num_neighbours: LATE, k: NONE}.get(searched)


def _rescores_by_default(settings: EncoderSettings, corpora: Sequence[Corpus]) -> bool:
    """Return whether the encoder of corpora rescores at a low cost; a transformer is not loaded."""
    if not corpora[0].fingerprint.startswith(f"{encoders.STATIC}-"):
        return False
    try:
        encoder = embed.load_once(find_encoder(settings, corpora, only_static=True), corpora[0].fingerprint)
    except ConfigError as error:
        logger.warning("candidates are not rescored: %s, or --rescore none", error)
        return False
    return isinstance(encoder, TokenEncoder) and encoder.rescores_by_default


def _choose_token_layer(layer: int | None, settings: EncoderSettings, corpora: Sequence[Corpus]) -> int | None:
    """Return the layer of the tokens of both sides. Raises ConfigError if a side has no token vectors, or no such layer."""
    own_encoder = find_encoder(settings, corpora)
    if settings.encoder not in (own_encoder.encoder, EncoderSettings().encoder):
        logger.warning("%s was embedded by %s, which rescores, not by %s", corpora[0].folder, own_encoder.encoder, settings.encoder)
    for corpus in corpora:
        own_side = embed.load_once(own_encoder.model_copy(update={"side": corpus.side}), corpus.fingerprint)
        token_encoder = choose_token_encoder(own_side, layer)
        if token_encoder is None:
            raise ConfigError(f"--rescore {LATE}: the encoder {own_encoder.encoder} has no token vectors; give --rescore {NONE}")
        if isinstance(token_encoder, LayerTokens):
            layer = token_encoder.layer  # both sides have the same
    return layer
