"""Write the shards of a job one after the other, in a worker of Beam or in the driver.

A shard that fails is tried again, then skipped if its stage allows it, else it ends the stage. Workers record failures as files in the
stage's directory, because runners return exceptions as text or not at all.
"""

import contextlib
import copy
import gc
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TypeVar

from typing_extensions import TypedDict

from miner import errors, progress
from miner.errors import ConfigError, MinerError, ModelError, StorageError
from miner.io import records, storage
from miner.io.credentials import hide
from miner.io.object_stores import Patience
from miner.io.stages import Stage
from pipelines.beam.tasks import Element, RetryPolicy, ShardTask, StageRun

FAILURE = "_failure.json"  # the error that ends the stage
SKIPPED = "_skipped"  # directory with a JSON file per skipped shard
SHARED_REMEDY = "use a path that every machine has, such as of NFS, or a URI (s3://, gs://)"
MAX_SKIPPED = 10  # beyond this, a stage that skips more shards than it writes ends
GC_THRESHOLD = 100_000  # new objects between two garbage collections in a worker
MAX_LOADED_TASKS = 8  # tasks that a worker thread keeps set up, of those without an accelerator

T = TypeVar("T")
Count = Callable[[str, Mapping[str, int]], None]  # adds counters to those of a stage

logger = logging.getLogger(__name__)


def call_with_retries(function: Callable[[], T], policy: RetryPolicy, stage: str, shard: str) -> T:
    """Call a function, again if it raises an error that may be transient, and as long as an object store does not answer."""
    attempt, patience = 1, Patience()
    while True:
        try:
            return function()
        except Exception as error:
            if patience.wait(error):
                continue
            if attempt == policy.attempts or not _may_be_transient(error):
                raise
            attempt += 1
            labels = {"stage": stage, "shard": shard}
            logger.warning("%s %s: %s; attempt %d of %d", stage, shard, _one_line(error), attempt, policy.attempts, extra=labels)
            time.sleep(policy.wait_seconds * 2 ** (attempt - 2))


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


def record_failure(error: Exception, stage: Stage, shard: str | None = None, host: str = "") -> bool:
    """Record a MinerError for the driver, because runners would retry and wrap it; raise other errors. Return whether the stage ends.

    `host` is the machine of a worker, which may lack a file that the driver has.

    With `shard`, any error that concerns only that shard is recorded as a skipped shard, and the stage continues.
    """
    skips = shard is not None and not isinstance(error, (ConfigError, ModelError, StorageError)) and not _skips_too_many(stage)
    if not skips and not isinstance(error, MinerError):
        raise error
    try:
        name = f"{SKIPPED}/{shard}.json" if skips else FAILURE
        records.write(stage.path(name), {"kind": type(error).__name__, "message": hide(_message(error, stage.path(shard or ""), host))})
    except MinerError:  # on a full disk the record cannot be written either
        raise error from None
    if skips:
        logger.info("%s %s: skipped", stage.stage, shard, exc_info=error, extra={"stage": stage.stage, "shard": shard})
    return not skips


def _message(error: Exception, path: str, host: str) -> str:
    if host and isinstance(error.__cause__, FileNotFoundError):
        return f"{str(error).rsplit('; ', 1)[0]} for the worker on {host}; {SHARED_REMEDY}"
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


def remove_records(stage: Stage, names: Container[str]) -> None:
    """Remove the failures that an earlier run recorded; `names` are those in the stage's directory."""
    for name in (FAILURE, SKIPPED):
        if name in names:
            storage.remove(stage.path(name))


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
        failure = parse_failure(error)
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


def parse_failure(error: Exception) -> MinerError | None:
    """Return the last MinerError in the text of an error, to which Beam appends the name of the step in brackets; None if it has none."""
    text = f"{type(error).__module__}.{type(error).__name__}: {error}"
    matches = re.findall(r"^miner\.errors\.(\w+): (.*?)(?: \[while running .*\])?$", text, flags=re.MULTILINE)
    return _build_error(*matches[-1]) if matches else None


def _build_error(kind: str, message: str) -> MinerError:
    error = getattr(errors, kind, MinerError)(message)
    return error if isinstance(error, MinerError) else MinerError(message)


class ShardWriter:
    """Writes shards and their markers, and keeps the tasks that were set up last.

    Of those that use an accelerator there is one at a time, because each takes what memory is free.
    """

    def __init__(self, runs: Sequence[StageRun], host: str = "") -> None:
        self.runs, self.host = runs, host
        self.tasks = OrderedDict[int, ShardTask]()
        self.ended: set[int] = set()  # stages with an error: their other shards would fail too, or be written for nothing

    def is_pending(self, element: Element) -> bool:
        """Whether a shard is still to be written: no worker has ended its stage, and no earlier attempt at its bundle has written it."""
        number, name = element
        run = self.runs[number]
        return not has_failed(run.stage) and not run.stage.has_marker(name, run.shard_keys[name])

    def write(self, element: Element, count: Count | None = None) -> None:
        """Write a shard and its marker, or record the failure, in the directory of its stage."""
        number, name = element
        if number in self.ended:
            return
        run, skipped = self.runs[number], None
        try:
            task = self._task(number)
            skipped = name if run.skip_failed else None  # an error of `setup` concerns every shard
            with progress.count_work(run.stage.folder, name):
                rows, counts = call_with_retries(lambda: task.write_shard(name), task.retry_policy, run.stage.stage, name)
            size = run.stage.mark_done(name, rows, run.shard_keys[name], counts)
            if count is not None:
                count(run.stage.stage, task.counters(rows, counts, size))
        except Exception as error:
            if record_failure(error, run.stage, skipped, self.host):
                self.ended.add(number)

    def _task(self, number: int) -> ShardTask:
        """Return the task of a stage, which is set up first if it is not."""
        if number not in self.tasks:
            task = copy.copy(self.runs[number].task)  # the original keeps nothing alive
            self._make_room(task.uses_accelerator)
            call_with_retries(task.setup, task.retry_policy, self.runs[number].stage.stage, "setup")
            self.tasks[number] = task
            # Shards are lists of millions of strings without cycles: collecting rarely, and never the loaded objects, saves time.
            gc.freeze()
            gc.set_threshold(GC_THRESHOLD, 10, 10)  # Python's ratios, whatever those of the driver
        self.tasks.move_to_end(number)
        return self.tasks[number]

    def _make_room(self, uses_accelerator: bool) -> None:
        for number in [number for number, task in self.tasks.items() if uses_accelerator and task.uses_accelerator]:
            del self.tasks[number]
        while len(self.tasks) >= MAX_LOADED_TASKS:
            self.tasks.popitem(last=False)
