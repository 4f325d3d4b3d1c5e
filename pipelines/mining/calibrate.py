"""`miner calibrate`: measure an encoder on the texts that ship with miner, and write its profile."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from miner import calibration
from miner.calibration import MixedCorpora
from miner.config.commands import CalibrateConfig, EncoderSettings
from miner.encoders import PAIR, find_folder, find_kind, mining_profile
from miner.encoders.mining_profile import MiningProfile
from miner.errors import ConfigError
from pipelines.corpus import embed


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
    measured = calibration.measure(encoder, mixtures or calibration.read_mixtures())
    file = mining_profile.write_measured(folder, encoder.fingerprint, measured)
    return CalibrationResult(config.encoder, encoder.fingerprint, str(file), measured, round(time.perf_counter() - start, 1))
