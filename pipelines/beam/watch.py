"""Watch a stage while it runs: its markers and, in this process, the work within unfinished shards."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from miner import progress
from miner.errors import MinerError
from miner.progress import Progress, report_progress
from miner.stages import Stage
from pipelines.beam import metrics

POLL_SECONDS = 0.25  # between two looks at the markers of a running stage
REPORT_SECONDS = 1.0  # between two reports, also without progress: the clock moves

logger = logging.getLogger("pipelines.beam.runner")


class WatchedTask(Protocol):
    """What the watch asks of a `pipelines.beam.runner.ShardTask`."""

    @property
    def row_unit(self) -> str | None: ...

    @property
    def work_unit(self) -> str | None: ...

    @property
    def label(self) -> str: ...

    def work(self, names: Sequence[str]) -> Mapping[str, int]: ...


@contextlib.contextmanager
def watch_progress(stage: Stage, names: Sequence[str], task: WatchedTask) -> Iterator[None]:
    """Report the progress of a stage with these shards while it runs."""
    watch = _Watch(stage, names, task)
    watch.report()
    stop = threading.Event()
    thread = threading.Thread(target=watch.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        watch.report()


class _Watch:
    def __init__(self, stage: Stage, names: Sequence[str], task: WatchedTask) -> None:
        self.stage, self.task, self.num_shards = stage, task, len(names)
        self.work = task.work(names) if task.work_unit is not None else {}
        self.reported = stage.marked_shards()
        self.rows = 0  # of the shards that were written since the start
        self.work_before = self._finished_work()
        self.work_reported = self.work_before
        self.start = self.last_report = time.perf_counter()

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(POLL_SECONDS):
            with contextlib.suppress(MinerError, OSError):
                is_due = time.perf_counter() - self.last_report >= REPORT_SECONDS
                if is_due or self.stage.marked_shards() - self.reported:
                    self.report()

    def report(self) -> None:
        """Log the shards that are new, and the progress."""
        new = self.stage.marked_shards() - self.reported
        for name in sorted(new):
            self.rows += self.stage.read_rows(name)
            logger.info("%s: %s is written", self.stage.stage, name, extra={"stage": self.stage.stage, "shard": name})
        self.reported |= new
        self.last_report, self.work_reported = time.perf_counter(), self._work_done()
        report_progress(logger, self._progress())

    def _progress(self) -> Progress:
        seconds, unit = time.perf_counter() - self.start, self.task.work_unit
        if unit is None or not sum(self.work.values()):
            note = metrics.format_rate(self.task.row_unit, self.rows, seconds)
            return Progress(self.stage.stage, len(self.reported), self.num_shards, note=note)
        done, total = self.work_reported, sum(self.work.values())
        rate = (done - self.work_before) / max(seconds, 1e-9)
        parts = [self.task.label, metrics.format_rate(f"{unit}s", done - self.work_before, seconds)]
        if 0 < done < total and rate > 0:
            parts.append(f"{progress.format_seconds((total - done) / rate)} left")
        return Progress(self.stage.stage, done, total, unit, ", ".join(filter(None, parts)))

    def _finished_work(self) -> int:
        return sum(work for name, work in self.work.items() if name in self.reported)

    def _work_done(self) -> int:
        """Return the work in finished shards and, as far as this process does it, in others."""
        running = progress.running_work(self.stage.folder)
        return self._finished_work() + sum(min(running.get(name, 0), work) for name, work in self.work.items() if name not in self.reported)
