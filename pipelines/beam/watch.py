"""Watch a job while it runs: the markers of its stages and, in this process, the work within unfinished shards."""

import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

from miner import progress
from miner.errors import MinerError
from miner.io import storage
from miner.progress import Progress, report_progress
from miner.units import format_seconds
from pipelines.beam import metrics
from pipelines.beam.runner import StageRun

POLL_SECONDS = 0.25  # between two looks at the markers of a running job
OBJECT_POLL_SECONDS = 2.0  # the same on object stores, where a look takes a request per stage
MAX_POLL_SHARE = 0.1  # of the time, for these looks
REPORT_SECONDS = 1.0  # between two reports, also without progress: the clock moves

logger = logging.getLogger("pipelines.beam.runner")


@contextlib.contextmanager
def watch_progress(runs: Sequence[StageRun]) -> Iterator[None]:
    """Report the progress of each kind of stage in a job while it runs."""
    kinds = defaultdict[str, list[StageRun]](list)
    for run in runs:
        kinds[run.stage.stage].append(run)
    watches = [_KindWatch(kind, kind_runs) for kind, kind_runs in kinds.items()]
    for watch in watches:
        watch.report()
    stop = threading.Event()
    thread = threading.Thread(target=_poll, args=(watches, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for watch in watches:
            watch.report()


def _poll(watches: Sequence["_KindWatch"], stop: threading.Event) -> None:
    seconds = 0.0
    poll_seconds = max(watch.poll_seconds for watch in watches)
    while not stop.wait(max(poll_seconds, seconds / MAX_POLL_SHARE)):
        start = time.perf_counter()
        for watch in watches:
            with contextlib.suppress(MinerError, OSError):
                watch.update()
        seconds = time.perf_counter() - start


class _StageWatch:
    """The shards of one stage that are written, and their work."""

    def __init__(self, run: StageRun) -> None:
        self.stage, self.num_shards = run.stage, len(run.shard_keys)
        self.work = run.task.work(list(run.shard_keys)) if run.task.work_unit is not None else {}
        self.reported = self.stage.marked_shards()
        self.rows = 0  # of the shards that were written since the start

    def report_new(self) -> None:
        """Log the shards that are new."""
        rows = self.stage.read_rows()
        new = rows.keys() - self.reported
        for name in sorted(new):
            self.rows += rows[name]
            logger.info("%s: %s is written", self.stage.stage, name, extra={"stage": self.stage.stage, "shard": name})
        self.reported |= new

    def work_done(self) -> int:
        """Return the work in finished shards and, as far as this process does it, in others."""
        running = progress.running_work(self.stage.folder)
        return sum(work if name in self.reported else min(running.get(name, 0), work) for name, work in self.work.items())


class _KindWatch:
    """The stages of one kind."""

    def __init__(self, kind: str, runs: Sequence[StageRun]) -> None:
        self.kind, self.task = kind, runs[0].task
        self.label = runs[0].task.label if len(runs) == 1 else ""
        self.stages = [_StageWatch(run) for run in runs]
        self.num_shards, self.work = (
            sum(values) for values in zip(*((s.num_shards, sum(s.work.values())) for s in self.stages), strict=True)
        )
        self.work_before = self.work_reported = self._work_done()
        self.start = self.last_report = time.perf_counter()

    @property
    def poll_seconds(self) -> float:
        return OBJECT_POLL_SECONDS if storage.is_on_object_store(self.stages[0].stage.folder) else POLL_SECONDS

    def update(self) -> None:
        """Report if a shard is new, or if the last report was a while ago."""
        is_due = time.perf_counter() - self.last_report >= REPORT_SECONDS
        if is_due or any(watch.stage.marked_shards() - watch.reported for watch in self.stages):
            self.report()

    def report(self) -> None:
        """Log the shards that are new, and the progress."""
        for watch in self.stages:
            watch.report_new()
        self.last_report, self.work_reported = time.perf_counter(), self._work_done()
        report_progress(logger, self._progress())

    def _progress(self) -> Progress:
        seconds, unit = time.perf_counter() - self.start, self.task.work_unit
        if unit is None or not self.work:
            note = metrics.format_rate(self.task.row_unit, sum(watch.rows for watch in self.stages), seconds)
            return Progress(self.kind, sum(len(watch.reported) for watch in self.stages), self.num_shards, note=note)
        done, total = self.work_reported, self.work
        rate = (done - self.work_before) / max(seconds, 1e-9)
        parts = [self.label, metrics.format_rate(f"{unit}s", done - self.work_before, seconds)]
        if 0 < done < total and rate > 0:
            parts.append(f"{format_seconds((total - done) / rate)} left")
        return Progress(self.kind, done, total, unit, ", ".join(filter(None, parts)))

    def _work_done(self) -> int:
        return sum(watch.work_done() for watch in self.stages)
