"""Packages that only some commands need, each in an extra of bitext-miner."""

from importlib import import_module
from typing import Any

from miner.errors import ConfigError

EXTRAS = {"accelerate": "train", "matplotlib": "report", "sentencex": "split", "sklearn": "eval"}  # package -> extra


def require(module: str) -> Any:
    """Return a module. Raises ConfigError, with the pip command, if its package is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ConfigError(f"{package} is not installed; pip install 'bitext-miner[{EXTRAS[package]}]'") from error
