"""The threshold where none is given: that of the margin, which was chosen for the built-in encoder."""

import logging
from typing import Literal

from miner.choices import MARGINS, RETRIEVALS
from miner.config.commands import MatchSettings
from miner.encoders import BUILTIN, load_encoder

REMEDY = "choose one for this encoder with `miner mine --threshold auto --planted known.tsv`"
RATIO_REMEDY = f"{REMEDY}, or set 1.06, as CRISS"

logger = logging.getLogger(__name__)


def find(settings: MatchSettings) -> float | None:
    """Return the default threshold of the margin, None if the retrieval has no threshold unless one is given."""
    uses_default = RETRIEVALS[settings.retrieval].uses_default_threshold
    return MARGINS[settings.margin].default_threshold if uses_default else None


def resolve(settings: MatchSettings, threshold: float | Literal["auto"] | None, fingerprint: str) -> float | Literal["auto"] | None:
    """Return the threshold, or the default one if it is None; then warn if the fingerprint is not that of the built-in encoder."""
    if threshold is not None:
        return threshold
    default = find(settings)
    if default is not None and fingerprint != load_encoder(BUILTIN).fingerprint:
        remedy = RATIO_REMEDY if settings.margin == "ratio" else REMEDY
        logger.warning("the default threshold %g was chosen for the built-in encoder, not for %s; %s", default, fingerprint, remedy)
    return default
