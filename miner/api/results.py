"""What the results of the Python interface have in common: conversion to tables of other libraries."""

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

import pyarrow as pa

from miner.errors import ConfigError


class TableResult(ABC):
    """A result that is a table."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return an Arrow table."""

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame. Raises ConfigError if pandas is not installed."""
        _require("pandas")
        return self.to_arrow().to_pandas()

    def to_dataset(self) -> Any:
        """Return a `datasets.Dataset` of Hugging Face. Raises ConfigError if datasets is not installed."""
        return _require("datasets").Dataset(self.to_arrow())


def _require(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError(f"this result as a table of {package} needs the package: pip install {package}") from error
