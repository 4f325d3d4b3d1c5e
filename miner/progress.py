"""Progress of long work: one record, one function that reports it, and functions that receive it.

A report is an INFO log record with a `Progress` attached, so it follows the level and the propagation of its logger. The terminal and
the JSON log read the record through `progress_of`. The lock of an output directory receives all reports: as a handler of the library's
loggers, it would keep Python from printing warnings where logging is not configured.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How much of a stage is done."""

    stage: str
    done: int
    total: int
    unit: str = "shard"  # singular
    note: str = ""  # the current rate or item, for the end of a progress bar


def report_progress(logger: logging.Logger, progress: Progress, message: str = "") -> None:
    """Report progress. `message` is the text of the log record; by default "STAGE: DONE of TOTAL UNITs"."""
    for receive in list(_receivers):
        receive(progress)
    text = message or f"{progress.stage}: {progress.done} of {progress.total} {progress.unit}s"
    logger.info("%s", text, extra={"progress": progress})


def progress_of(record: logging.LogRecord) -> Progress | None:
    """Return the progress that a log record reports; None if it is an ordinary message."""
    progress: Progress | None = getattr(record, "progress", None)
    return progress


_receivers: list[Callable[[Progress], None]] = []


@contextlib.contextmanager
def receive_progress(receive: Callable[[Progress], None]) -> Iterator[None]:
    """Pass all progress that this process reports to a function."""
    _receivers.append(receive)
    try:
        yield
    finally:
        _receivers.remove(receive)


_local = threading.local()  # the shard that a thread works on
_running_work: dict[str, dict[str, int]] = {}  # folder of a stage -> unfinished shard -> work done


@contextlib.contextmanager
def count_work(folder: str, shard: str) -> Iterator[None]:
    """Count what this thread adds by `add_work` as work on a shard."""
    counts = _running_work.setdefault(folder, {})
    counts[shard] = 0
    previous, _local.shard = getattr(_local, "shard", None), (counts, shard)
    try:
        yield
    finally:
        _local.shard = previous
        counts.pop(shard, None)


def add_work(amount: int) -> None:
    """Report work on the current shard of this thread, in the unit of its task; nothing outside a shard."""
    if getattr(_local, "shard", None) is not None:
        counts, shard = _local.shard
        counts[shard] = counts.get(shard, 0) + amount


def running_work(folder: str) -> dict[str, int]:
    """Return the work that this process has done on the unfinished shards of a stage."""
    return dict(_running_work.get(folder, {}))
