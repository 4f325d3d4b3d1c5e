"""Packages that only some commands need, each in an extra of bitext-miner."""

from importlib import import_module
from typing import Any

from miner.errors import ConfigError

EXTRAS = {  # package -> extra
    "accelerate": "train",
    "apitools": "gcp",
    "distributed": "dask",
    "faiss": "cpu",
    "fasttext": "fasttext",
    "matplotlib": "report",
    "mteb": "mteb",
    "py3langid": "langid",
    "sentencex": "split",
    "sklearn": "eval",
}


def require(module: str, hint: str = "") -> Any:
    """Return a module. Raises ConfigError, with the pip command and a hint, if its package is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ConfigError(f"{package} is not installed; pip install 'bitext-miner[{EXTRAS[package]}]'{hint}") from error
