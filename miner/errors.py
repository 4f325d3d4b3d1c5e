"""The errors a user can do something about. Each message says what, where and what to do.

The command line turns any of them into one line and exit status 1; everything else is a bug and keeps its traceback.
"""


class MinerError(Exception):
    """The common parent: catch this to catch everything the library raises on purpose."""


class ConfigError(MinerError):
    """An option, a config file or a combination of them that cannot work."""


class DataError(MinerError):
    """Input that is missing, broken, or does not fit the rest."""


class NoThresholdError(DataError):
    """Pairs of which no threshold makes as many right as are asked for, or evidence too thin to tell."""


class ModelError(MinerError):
    """An encoder that cannot be loaded or does not do what it says."""


class StorageError(MinerError):
    """A folder, file or disk that cannot be read, written or reused."""
