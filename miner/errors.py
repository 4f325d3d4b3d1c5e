"""Errors that the user can fix. Each message says what is wrong, where, and how to fix it.

The command line prints them in one line and exits with status 1. Any other exception is a bug, whose traceback `--debug` prints.
"""

import errno
from collections.abc import Mapping
from importlib import import_module
from typing import Any

EXTRAS = {  # package that only some commands need -> extra of bitext-miner
    "accelerate": "train",
    "apitools": "gcp",
    "distributed": "dask",
    "faiss": "cpu",
    "fasttext": "fasttext",
    "ftfy": "clean",
    "matplotlib": "report",
    "mteb": "mteb",
    "py3langid": "langid",
    "pysubs2": "subtitles",
    "sacremoses": "laser",
    "sentencex": "split",
    "sklearn": "eval",
    "torch": "transformers",
    "transformers": "transformers",
}


class MinerError(Exception):
    """Base class of all errors that the library raises on purpose."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C: the state is kept, and the same command resumes."""


class ConfigError(MinerError):
    """An invalid option, config file, or combination of both."""


class DataError(MinerError):
    """Input that is missing, invalid, or inconsistent with other input."""


class ClusterError(MinerError):
    """A job that a cluster did not finish, for a reason of the cluster: a lost machine, a worker out of memory, a restarted server."""


class NoThresholdError(DataError):
    """No threshold reaches the requested precision, or there is too little evidence to decide."""


class AllSkippedError(DataError):
    """No shard of a stage could be written. `reasons`: shard -> error; the message is that of the first."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(next(iter(reasons.values())))
        self.reasons = reasons


class ModelError(MinerError):
    """An encoder that cannot be loaded or does not match its description."""


class StorageError(MinerError):
    """A directory, file or disk that cannot be read, written or reused."""


class DamagedError(StorageError):
    """A file that is not as it was written: truncated, changed, or missing where a record lists it."""


class SettingsError(StorageError):
    """An output that was made with other settings or from other inputs, or by another command."""


MAX_REASON = 300  # characters of an error of another library
REMOTE_PACKAGES = ("adlfs", "aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google")
REMOTE_REMEDY = "check the address and the credentials, and run the same command again"
STORAGE_REMEDIES = {
    errno.ENOSPC: "free some space or choose another path",
    errno.EDQUOT: "free some space or choose another path",
    errno.EFBIG: "allow larger files or choose another path",
    errno.EACCES: "allow access or choose another path",
    errno.EROFS: "choose another path",
    errno.EEXIST: "choose another path",
    errno.ENOTDIR: "choose another path",
    errno.EISDIR: "choose another path",
}


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, cut where it is long."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line if len(line) <= MAX_REASON else f"{line[:MAX_REASON]}…"


def is_remote_error(error: BaseException) -> bool:
    """Whether an error is of a library for object stores or web servers; not all of them are OSErrors."""
    return any(base.__module__.partition(".")[0] in REMOTE_PACKAGES for base in type(error).__mro__)


def is_library_error(error: BaseException) -> bool:
    """Whether an error is an Exception, or a panic of a library in Rust, which is none."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def is_permanent(error: OSError) -> bool:
    """Whether a retry cannot succeed until the user fixes the cause."""
    return error.errno in STORAGE_REMEDIES or isinstance(error, FileNotFoundError)


def require(module: str, hint: str = "") -> Any:
    """Return a module. Raises ConfigError, with the pip command and a hint, if its package is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(missing_package(module) + hint) from error


def missing_package(module: str) -> str:
    """Return the sentence for a module of an extra that is not installed."""
    package = module.partition(".")[0]
    return f"{package} is not installed; pip install 'bitext-miner[{EXTRAS[package]}]'"
