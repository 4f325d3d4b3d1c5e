"""`miner.train`: `miner train` from Python."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from miner import encoders
from miner.api.results import TableResult
from miner.config.base import load_yaml
from miner.config.recipes import config_path
from miner.encoders import Encoder
from miner.errors import ConfigError, require

if TYPE_CHECKING:
    from miner.training.config import TrainConfig
    from miner.training.run import TrainingResult


@dataclass(frozen=True)
class TrainedEncoder(TableResult):
    """A finished training run."""

    output: str
    result: "TrainingResult"  # steps, examples, loss, score and so on

    @property
    def folder(self) -> str:
        """Folder of the encoder, for `encoder=` and `--encoder`."""
        return self.result.encoder

    def load(self) -> Encoder:
        """Load the encoder."""
        return encoders.load_encoder(self.folder)

    def to_arrow(self) -> pa.Table:
        """Return the log, one row per logged step."""
        lines = (Path(self.output) / "log.jsonl").read_text(encoding="utf-8").splitlines()
        return pa.Table.from_pylist([json.loads(line) for line in lines])


def train(
    config: "str | os.PathLike[str] | Mapping[str, Any] | TrainConfig",
    output: str | os.PathLike[str],
    resume: bool = False,
    changes: Sequence[str] = (),
) -> TrainedEncoder:
    """Train an encoder, as `miner train` does, and write it to OUTPUT/encoder.

    Args:
        config: Path of a YAML file, the name of a recipe, or the same settings as a mapping or a TrainConfig.
        output: Folder of the run.
        resume: Continue the run in the folder from its last checkpoint.
        changes: Settings to change, as of `--set`: `training.lr=1e-5`. Only for a path.

    Raises a MinerError for invalid settings or data.

    Example:
        >>> trained = miner.train("configs/builtin.yaml", "build/builtin")
        >>> encoder = trained.load()
    """
    require("accelerate")
    from miner.training import run
    from miner.training.config import TrainConfig

    if isinstance(config, str | os.PathLike):
        config = load_yaml(TrainConfig, config_path(os.fspath(config)), changes)
    elif isinstance(config, Mapping):
        config = TrainConfig.check(**config)
    elif not isinstance(config, TrainConfig):
        raise ConfigError(f"config: expected a path, the name of a recipe or a mapping of settings, not {type(config).__name__}")
    return TrainedEncoder(os.fspath(output), run.train(config, os.fspath(output), resume))
