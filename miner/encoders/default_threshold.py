"""The threshold where none is given: that of the margin, which was chosen for the built-in encoder."""

import logging
from typing import Literal

from miner.choices import MARGINS, RETRIEVALS
from miner.config.commands import MatchSettings
from miner.encoders import BUILTIN, load_encoder

REMEDY = "choose one for this encoder with `miner mine --threshold auto --planted known.tsv`"
RATIO_REMEDY = f"{REMEDY}, or set 1.06, as CRISS"

logger = logging.getLogger(__name__)


def find(settings: MatchSettings, is_rescored: bool) -> float | None:
    """Return the default threshold of the margin, None if the retrieval has no threshold unless one is given."""
    margin = MARGINS[settings.margin]
    uses_default = RETRIEVALS[settings.retrieval].uses_default_threshold
    return (margin.late_threshold if is_rescored else margin.default_threshold) if uses_default else None


def warn(settings: MatchSettings, threshold: float | Literal["auto"] | None, fingerprint: str, is_rescored: bool) -> None:
    """Warn if there is no threshold, so that the default is used, and the fingerprint is not that of the built-in encoder."""
    default = find(settings, is_rescored) if threshold is None else None
    if default is not None and fingerprint != load_encoder(BUILTIN).fingerprint:
        remedy = RATIO_REMEDY if settings.margin == "ratio" else REMEDY
        logger.warning("the default threshold %g was chosen for the built-in encoder, not for %s; %s", default, fingerprint, remedy)
