"""Handle shards that fail: retry, then skip the shard if the stage allows it, else end the stage.

Workers record failures as files in the stage's directory, because runners return exceptions as text or not at all.
"""

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from typing_extensions import TypedDict

from miner import errors
from miner.errors import ConfigError, MinerError, ModelError, StorageError
from miner.io import records, storage
from miner.io.credentials import hide
from miner.io.stages import Stage

FAILURE = "_failure.json"  # the error that ends the stage
SKIPPED = "_skipped"  # directory with a JSON file per skipped shard
MAX_SKIPPED = 10  # beyond this, a stage that skips more shards than it writes ends

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetryPolicy:
    """How often a failed shard, or the pipeline of a died worker, is tried."""

    attempts: int = 3
    wait_seconds: float = 0.5  # before the second attempt, doubled before each further one


def call_with_retries(function: Callable[[], T], policy: RetryPolicy, stage: str, shard: str) -> T:
    """Call a function, again if it raises an error that may be transient."""
    for attempt in range(1, policy.attempts):
        try:
            return function()
        except Exception as error:
            if not _may_be_transient(error):
                raise
            labels = {"stage": stage, "shard": shard}
            logger.warning("%s %s: %s; attempt %d of %d", stage, shard, _one_line(error), attempt + 1, policy.attempts, extra=labels)
            time.sleep(policy.wait_seconds * 2 ** (attempt - 1))
    return function()


def _may_be_transient(error: Exception) -> bool:
    """Whether a retry may help: after a lost connection or a full GPU, not after invalid data or settings."""
    if not isinstance(error, MinerError):
        return True
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno is not None and not errors.is_permanent(cause)
    return cause is not None and errors.is_remote_error(cause)


class FailureRecord(TypedDict):
    """The record of a failed stage or of a skipped shard."""

    kind: str  # class of the error
    message: str


@contextlib.contextmanager
def record_failure(stage: Stage, shard: str | None = None) -> Iterator[None]:
    """Record a MinerError for the driver instead of raising it, because runners would retry and wrap it. Raise other errors.

    With `shard`, any error that concerns only that shard is recorded as a skipped shard, and the stage continues.
    """
    try:
        yield
    except Exception as error:
        skips = shard is not None and not isinstance(error, (ConfigError, ModelError, StorageError)) and not _skips_too_many(stage)
        if not skips and not isinstance(error, MinerError):
            raise
        try:
            name = f"{SKIPPED}/{shard}.json" if skips else FAILURE
            records.write(stage.path(name), {"kind": type(error).__name__, "message": hide(_message(error, stage.path(shard or "")))})
        except MinerError:  # on a full disk the record cannot be written either
            raise error from None
        if skips:
            logger.info("%s %s: skipped", stage.stage, shard, exc_info=True, extra={"stage": stage.stage, "shard": shard})


def _message(error: Exception, path: str) -> str:
    if isinstance(error, MinerError):
        return str(error)
    return f"{path}: {_one_line(error)}; fix the cause and run the same command again"


def _one_line(error: Exception) -> str:
    if isinstance(error, MinerError):
        return str(error)
    return f"{type(error).__name__}: {errors.first_line(error)}"


def _skips_too_many(stage: Stage) -> bool:
    num_skipped = len(storage.names_in(stage.path(SKIPPED)))
    return num_skipped >= MAX_SKIPPED and num_skipped > len(stage.marked_shards())


def remove_records(stage: Stage) -> None:
    """Remove the failures that an earlier run recorded."""
    storage.remove_files([stage.path(FAILURE)])
    _remove_folder(stage.path(SKIPPED))


def _remove_folder(folder: str) -> None:
    """Remove a directory if it has files; on object stores there is no other one."""
    if storage.names_in(folder):
        storage.remove(folder)


def pop_skipped(stage: Stage) -> dict[str, str]:
    """Return the skipped shards with the reasons, and remove their records."""
    folder = stage.path(SKIPPED)
    failures = {name.removesuffix(".json"): records.read(storage.join(folder, name), FailureRecord) for name in storage.names_in(folder)}
    if failures:
        storage.remove(folder)
    return {shard: failure["message"] for shard, failure in failures.items()}


@contextlib.contextmanager
def parse_failures(stages: Sequence[Stage]) -> Iterator[None]:
    """Raise, in the driver, the MinerError that a worker recorded or that the runner's own error contains as text."""
    try:
        yield
    except Exception as error:
        for stage in stages:
            raise_failure(stage, error)
        failure = _parse_failure(f"{type(error).__module__}.{type(error).__name__}: {error}")
        if failure is None:
            raise
        raise failure from error


def has_failed(stage: Stage) -> bool:
    """Whether a worker has recorded an error that ends a stage."""
    return storage.find_bytes(stage.path(FAILURE)) is not None


def raise_failure(stage: Stage, cause: Exception | None = None) -> None:
    """Raise the MinerError that a worker recorded for a stage, if any, and remove the record."""
    uri = stage.path(FAILURE)
    value = records.find(uri, FailureRecord)
    if value is not None:
        storage.remove(uri)
        raise _build_error(value["kind"], value["message"]) from cause


def _parse_failure(text: str) -> MinerError | None:
    """Parse the last MinerError in a traceback, to which Beam appends the name of the step in brackets."""
    matches = re.findall(r"^miner\.errors\.(\w+): (.*?)(?: \[while running .*\])?$", text, flags=re.MULTILINE)
    return _build_error(*matches[-1]) if matches else None


def _build_error(kind: str, message: str) -> MinerError:
    error = getattr(errors, kind, MinerError)(message)
    return error if isinstance(error, MinerError) else MinerError(message)
