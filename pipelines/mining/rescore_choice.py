"""Whether candidates are rescored, and by which encoder: the one of the command, or the one that the corpora record."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miner import encoders
from miner.config.choices import AUTO, LATE, NONE, RescoreName, default_candidates
from miner.config.commands import EncoderSettings, RescoreSettings
from miner.encoders import mining_profile
from miner.encoders.layer_tokens import LayerTokens, choose_rescoring_encoder
from miner.errors import ConfigError, MinerError, ModelError
from miner.io import stages
from miner.io.corpus import Corpus
from pipelines.corpus import embed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rescoring:
    """How candidates are rescored."""

    candidates: int  # neighbours on each side that are candidates
    token_layer: int | None  # layer of a transformer
    token_dim: int | None = None  # dimensions of the projected tokens of a transformer

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> "Rescoring | None":
        """Read the settings of a stage of candidates; None if these were not rescored."""
        if config.get("rescore") != LATE:
            return None
        return cls(config["rescore_candidates"], config.get("token_layer"), config.get("token_dim"))

    def figures(self) -> dict[str, Any]:
        """Return the settings for manifests."""
        form = {} if self.token_layer is None else {"token_layer": self.token_layer, "token_dim": self.token_dim}
        return {"rescore": LATE, "rescore_candidates": self.candidates, **form}

    def are_stored(self, corpora: Sequence[Corpus]) -> bool:
        """Return whether corpora store the tokens that rescore."""
        return all(corpus.tokens is not None and corpus.tokens == (self.token_layer, self.token_dim) for corpus in corpora)

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
    recorded, searched = Rescoring.read(candidates or {}), int((neighbours or {}).get("k", 0))
    num_candidates = settings.rescore_candidates
    if num_candidates is None and recorded is not None:  # those of an earlier run, whatever the corpora have grown to
        num_candidates = recorded.candidates
    elif num_candidates is None:
        num_candidates = searched if searched > k else default_candidates(corpus.rows for corpus in corpora)
    choices = {max(k, num_candidates): LATE, k: NONE}  # by the neighbours that an earlier run searched
    previous = None if len(choices) == 1 else choices.get(searched)
    if candidates is not None:
        previous = NONE if recorded is None else LATE
    if settings.rescore != AUTO and previous not in (None, settings.rescore):
        raise ConfigError(f"{folders[1]}: computed with --rescore {previous}, now {settings.rescore}; choose another --output")
    layer = recorded.token_layer if recorded is not None and settings.rescore == AUTO else settings.token_layer
    rescore = LATE if previous == LATE else settings.rescore
    form = _find_stored(rescore, layer, encoder, corpora) or _find_form(rescore, layer, encoder, corpora)
    if form is None:
        return None
    if previous == NONE:
        logger.warning("%s: the candidates there are not rescored; to rescore them, mine into another --output", folders[1])
        return None
    return Rescoring(num_candidates, *form)


def is_planned(settings: RescoreSettings, encoder: str) -> bool:
    """Return whether new candidates will be rescored, if the encoder embeds the corpora. It is not loaded."""
    return settings.rescore == LATE or (settings.rescore == AUTO and _rescores(encoder))


def num_neighbours(settings: RescoreSettings, k: int, encoder: str, sizes: Iterable[int]) -> int:
    """Return the neighbours that will be searched, given the sentences of both sides."""
    return max(k, settings.rescore_candidates or default_candidates(sizes)) if is_planned(settings, encoder) else k


def find_encoder(encoder: EncoderSettings, corpora: Sequence[Corpus], only_static: bool = False) -> EncoderSettings:
    """Return the settings of the encoder that embedded corpora: `encoder` or, if that is another one, the one that they record.

    `only_static`: no other encoder is loaded. Raises ConfigError if neither embedded them as it is now.
    """
    fingerprint, side = corpora[0].fingerprint, corpora[0].side
    encoder = encoders.with_recorded_dtype(encoder, [fingerprint])
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


def _rescores(encoder: str) -> bool:
    """Return whether an encoder rescores with `auto`, as far as its folder says so."""
    try:
        is_object = encoders.find_kind(encoder) == encoders.OBJECT
        return is_object or mining_profile.read(encoders.find_folder(encoder)).rescoring_pays
    except ModelError:
        return False  # missing: corpora that are embedded need none


def _is_static(encoder: str) -> bool:
    """Return whether an encoder is static, or in memory. One that is missing is not: corpora that are embedded need none."""
    try:
        return encoders.find_kind(encoder) in (encoders.STATIC, encoders.OBJECT)
    except ModelError:
        return False


Form = tuple[int | None, int | None]  # layer and dimensions of the tokens of a transformer; None for those of another encoder


def _find_stored(rescore: RescoreName, layer: int | None, settings: EncoderSettings, corpora: Sequence[Corpus]) -> Form | None:
    """Return the form of the tokens that all corpora store; None if they do not, or are not to be rescored."""
    forms = {corpus.tokens for corpus in corpora}
    if rescore == NONE or len(forms) > 1 or (form := forms.pop()) is None or layer not in (None, form[0]):
        return None
    pays = rescore == LATE or embed.profile_of(settings, corpora[0]).rescoring_pays
    return form if pays else None


def _find_form(rescore: RescoreName, layer: int | None, settings: EncoderSettings, corpora: Sequence[Corpus]) -> Form | None:
    """Return the form of tokens that are encoded again, None for no rescoring: with `auto`, those of transformers are not.

    Raises ConfigError with `late`, if a side has no token vectors, or no such layer.
    """
    is_auto, fingerprint = rescore == AUTO, corpora[0].fingerprint
    is_static = fingerprint.startswith(f"{encoders.STATIC}-") or (
        encoders.is_offered(settings.encoder) and encoders.find_kind(settings.encoder) == encoders.OBJECT
    )
    if rescore == NONE or (is_auto and not is_static):
        return None
    try:
        own_encoder = find_encoder(settings, corpora, only_static=is_auto)
    except ConfigError as error:
        if not is_auto:
            raise
        logger.warning("candidates are not rescored: %s, or --rescore none", error)
        return None
    form: Form | None = None
    for corpus in corpora:
        own_side = embed.load_once(own_encoder.model_copy(update={"side": corpus.side}), corpus.fingerprint)
        token_encoder = choose_rescoring_encoder(own_side, layer, rescore, f"the encoder {own_encoder.encoder}")
        if token_encoder is None:
            return None
        form = None, None
        if isinstance(token_encoder, LayerTokens):
            layer, _ = form = token_encoder.form.layer, token_encoder.form.dim  # both sides have the same
    if settings.encoder not in (own_encoder.encoder, EncoderSettings().encoder):
        logger.warning("%s was embedded by %s, which rescores, not by %s", corpora[0].folder, own_encoder.encoder, settings.encoder)
    return form
