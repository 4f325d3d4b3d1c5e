"""Progress of long work: one record, one function that reports it, and handlers that receive it.

A report is an INFO log record with a `Progress` attached, so it follows the level and the propagation of its logger. The terminal,
the JSON log and the lock of an output directory read the record through `progress_of` or `ProgressHandler`.
"""

import logging
from collections.abc import Callable
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
    text = message or f"{progress.stage}: {progress.done} of {progress.total} {progress.unit}s"
    logger.info("%s", text, extra={"progress": progress})


def progress_of(record: logging.LogRecord) -> Progress | None:
    """Return the progress that a log record reports; None if it is an ordinary message."""
    progress: Progress | None = getattr(record, "progress", None)
    return progress


class ProgressHandler(logging.Handler):
    """Pass reported progress to a function, and ignore ordinary messages."""

    def __init__(self, receive: Callable[[Progress], None]) -> None:
        super().__init__(logging.INFO)
        self.receive = receive

    def emit(self, record: logging.LogRecord) -> None:
        progress = progress_of(record)
        if progress is not None:
            self.receive(progress)
