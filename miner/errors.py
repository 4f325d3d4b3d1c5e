"""Errors that the user can fix. Each message says what is wrong, where, and how to fix it.

The command line prints them in one line and exits with status 1. Any other exception is a bug, whose traceback `--debug` prints.
"""


class MinerError(Exception):
    """Base class of all errors that the library raises on purpose."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C: the state is kept, and the same command resumes."""


class ConfigError(MinerError):
    """An invalid option, config file, or combination of both."""


class DataError(MinerError):
    """Input that is missing, invalid, or inconsistent with other input."""


class NoThresholdError(DataError):
    """No threshold reaches the requested precision, or there is too little evidence to decide."""


class ModelError(MinerError):
    """An encoder that cannot be loaded or does not match its description."""


class StorageError(MinerError):
    """A directory, file or disk that cannot be read, written or reused."""
