"""`miner calibrate`: measure an encoder on the texts that ship with miner, and write its profile; also before a run that is far longer."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from miner.config.commands import CalibrateConfig, EmbedConfig, EncoderSettings
from miner.encoders import LASER, PAIR, TRANSFORMER, calibration_texts, find_folder, find_kind, is_offered, mining_profile
from miner.encoders.mining_profile import MiningProfile
from miner.errors import ConfigError
from miner.evaluation import calibration
from miner.evaluation.calibration import MixedCorpora
from miner.text import readers
from miner.text.sharding import InputFile, text_bytes
from pipelines.beam import workers
from pipelines.corpus import embed

MIN_RATIO = 10  # of the text of a run to that of the measurement

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CalibrationResult:
    """The outcome of `miner calibrate`."""

    encoder: str
    fingerprint: str
    file: str
    measured: MiningProfile
    seconds: float

    def figures(self) -> dict[str, Any]:
        """Return the result for --json."""
        return {**vars(self), "measured": self.measured.model_dump(mode="json", exclude_unset=True)}

    def summary(self) -> str:
        """Return the result in one line."""
        pays = "rescoring pays" if self.measured.rescoring_pays else "rescoring does not pay"
        return f"probabilities of {self.encoder} in {self.file}, measured in {self.seconds:.0f} s; {pays}"


def run(config: CalibrateConfig, mixtures: Sequence[MixedCorpora] | None = None) -> CalibrationResult:
    """Measure the encoder on mixtures, by default those that ship with miner, and write what was measured into its profile.

    Raises ConfigError for an encoder that has probabilities, unless they are to be replaced, and for one with two sides.
    """
    start = time.perf_counter()
    folder, settings = find_folder(config.encoder), config.part(EncoderSettings)
    if find_kind(config.encoder) == PAIR:
        raise ConfigError(f"{config.encoder}: two encoders, which the texts of miner cannot measure; choose --threshold by known pairs")
    encoder = embed.load_once(settings)
    if mining_profile.of_folder(folder, encoder.fingerprint).probabilities and not config.replace:
        raise ConfigError(f"{config.encoder}: has probabilities already; give --replace to measure them again")
    file = mining_profile.claim(folder, encoder.fingerprint)  # before the long part
    measured = calibration.measure(encoder, mixtures or calibration.read_mixtures())
    mining_profile.write_measured(file, measured)
    return CalibrationResult(config.encoder, encoder.fingerprint, str(file), measured, round(time.perf_counter() - start, 1))


def run_before_first_use(texts: Sequence[EmbedConfig], options: Sequence[str], mixtures: Sequence[MixedCorpora] | None = None) -> bool:
    """Measure the encoder that will embed texts, if it has no probabilities and takes far longer for the texts; return whether it did.

    So do transformers and LASER on this machine. Texts that an earlier run began to embed are mined as they were then.
    """
    if not texts or any(embed.recorded_fingerprint(text.output) is not None for text in texts):
        return False
    name = texts[0].encoder
    if is_offered(name) or find_kind(name) not in (TRANSFORMER, LASER) or not workers.describe(options).is_here:
        return False
    uris = [uri for text in texts for uri in readers.expand(text.inputs)]
    if readers.STDIN in uris or text_bytes([InputFile(uri, uri) for uri in uris]) < MIN_RATIO * calibration_texts.num_bytes():
        return False
    settings = texts[0].part(EncoderSettings)
    encoder = embed.load_once(settings)
    if mining_profile.of_folder(find_folder(name), encoder.fingerprint).probabilities:
        return False
    logger.info("%s: no probabilities yet; measuring them takes less than a tenth of this run (--calibrate none leaves it out)", name)
    logger.info("%s", run(CalibrateConfig(**dict(settings)), mixtures).summary())
    return True
