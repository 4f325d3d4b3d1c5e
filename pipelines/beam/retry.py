"""What becomes of a shard that cannot be made: it is tried again; then it is set aside, where the others mean something without it, or
the stage ends.

A worker leaves word of it in the stage's folder, for runners hand an exception back as text, or not at all.
"""

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from miner import errors, storage
from miner.errors import ConfigError, MinerError, ModelError, StorageError
from miner.stages import Manifest, Stage

FAILURE = "_failure.json"  # what ends the stage
SET_ASIDE = "_set_aside"  # a folder with a file for each shard that was set aside; and what a manifest calls them
ATTEMPTS = 3
WAIT_SECONDS = 0.5  # before the second attempt; twice that before the third
TOO_MANY = 10  # shards to set aside, where fewer are made: then it is no matter of a shard

T = TypeVar("T")

logger = logging.getLogger(__name__)


def retried(act: Callable[[], T], stage: str, shard: str) -> T:
    """What `act` returns. It is tried again where it fails for a reason that may pass."""
    for attempt in range(1, ATTEMPTS):
        try:
            return act()
        except Exception as error:
            if not _may_pass(error):
                raise
            told = {"stage": stage, "shard": shard}
            logger.warning("%s %s: %s; attempt %d of %d", stage, shard, _told(error), attempt + 1, ATTEMPTS, extra=told)
            time.sleep(WAIT_SECONDS * 2 ** (attempt - 1))
    return act()


def _may_pass(error: Exception) -> bool:
    """Not what is wrong with data or settings; a lost connection or a full graphics card may be."""
    if not isinstance(error, MinerError):
        return True
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno is not None and not storage.is_lasting(cause)


@contextlib.contextmanager
def recorded(stage: Stage, shard: str | None = None) -> Iterator[None]:
    """Write an error down for the driver, a MinerError at least. It is not raised here: runners would try again, and wrap it.

    `shard` names one that the stage can do without: what is wrong with it alone does not end the stage.
    """
    try:
        yield
    except Exception as error:
        spare = shard is not None and not isinstance(error, (ConfigError, ModelError, StorageError)) and not _too_many(stage)
        if not spare and not isinstance(error, MinerError):
            raise
        try:
            name = f"{SET_ASIDE}/{shard}.json" if spare else FAILURE
            storage.write_json(stage.path(name), {"kind": type(error).__name__, "message": _message(error, stage.path(shard or ""))})
        except MinerError:  # a full disk may have no room for the record either
            raise error from None
        if spare:
            logger.info("%s %s is set aside", stage.stage, shard, exc_info=True, extra={"stage": stage.stage, "shard": shard})


def _message(error: Exception, place: str) -> str:
    """What was wrong, where, and what mends it."""
    return str(error) if isinstance(error, MinerError) else f"{place}: {_told(error)}; see to it, and run the same command again"


def _told(error: Exception) -> str:
    """One line."""
    if isinstance(error, MinerError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}"


def _too_many(stage: Stage) -> bool:
    found = len(storage.names_in(stage.path(SET_ASIDE)))
    return found >= TOO_MANY and found > len(stage.marked())


def forget(stage: Stage) -> None:
    """Remove the records of an earlier run."""
    for name in (FAILURE, SET_ASIDE):
        storage.remove(stage.path(name))


def take_set_aside(stage: Stage) -> dict[str, str]:
    """Shard -> why it was set aside; the records are removed."""
    folder = stage.path(SET_ASIDE)
    found = {name.removesuffix(".json"): storage.read_json(storage.join(folder, name)) for name in storage.names_in(folder)}
    storage.remove(folder)
    return {name: told["message"] for name, told in found.items()}


def set_aside_in(manifest: Manifest) -> Mapping[str, str]:
    """Shard -> why it was set aside, of a stage that is finished without it."""
    found: Mapping[str, str] = manifest.details.get("set_aside", {})
    return found


@contextlib.contextmanager
def raised(stage: Stage) -> Iterator[None]:
    """Raise, in the driver, the MinerError that a worker recorded, or that the text of the runner's own error tells of."""
    try:
        yield
    except Exception as error:
        failure = _read(stage) or _in_text(f"{type(error).__module__}.{type(error).__name__}: {error}")
        if failure is None:
            raise
        raise failure from error
    failure = _read(stage)
    if failure is not None:
        raise failure


def _read(stage: Stage) -> MinerError | None:
    uri = stage.path(FAILURE)
    if not storage.exists(uri):
        return None
    value = storage.read_json(uri)
    storage.remove(uri)
    return _error(value["kind"], value["message"])


def _in_text(text: str) -> MinerError | None:
    """The MinerError that stands last in `text`, as in a traceback; Beam adds the step's name in brackets."""
    found = re.findall(r"^miner\.errors\.(\w+): (.*?)(?: \[while running .*\])?$", text, flags=re.MULTILINE)
    return _error(*found[-1]) if found else None


def _error(kind: str, message: str) -> MinerError:
    made = getattr(errors, kind, MinerError)(message)
    return made if isinstance(made, MinerError) else MinerError(message)
