"""Report what a job does: its progress while it runs, and a record of each stage for the summary of a run.

Progress is read from the markers of the stages and, in this process, from the work within unfinished shards. Records are built from the
manifests, so they are the same on every runner: some runners return no counters, and others count retried work twice.
"""

import contextlib
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass

from miner import progress
from miner.errors import MinerError
from miner.io import storage
from miner.io.stages import Manifest
from miner.progress import Progress, report_progress
from miner.units import format_seconds
from pipelines.beam.tasks import WORKERS, StageRun

POLL_SECONDS = 0.25  # between two looks at the markers of a running job
OBJECT_POLL_SECONDS = 2.0  # the same on object stores, where a look takes a request per stage
MAX_POLL_SHARE = 0.1  # of the time, for these looks
SILENT_SECONDS = 60.0  # without a new shard, until a job on a cluster gets a warning
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
    try:
        with _in_background(lambda stop: _poll(watches, stop)):
            yield
    finally:
        for watch in watches:
            watch.report()


@contextlib.contextmanager
def watch_cluster(
    runs: Sequence[StageRun], describe_wait: Callable[[Sequence[str]], str], silent_seconds: float = SILENT_SECONDS
) -> Iterator[None]:
    """Warn, while the block runs a job on a cluster, if no shard is written for some time, and again after twice as long.

    `describe_wait` returns the reason, by the workers that have started: the names in `WORKERS`.
    """
    with _in_background(lambda stop: _warn_of_waiting(runs, describe_wait, stop, silent_seconds)):
        yield


@contextlib.contextmanager
def _in_background(function: Callable[[threading.Event], None]) -> Iterator[None]:
    """Call a function in a thread; the event that it gets is set when the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=function, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _warn_of_waiting(
    runs: Sequence[StageRun], describe_wait: Callable[[Sequence[str]], str], stop: threading.Event, silent_seconds: float
) -> None:
    num_written, since, warn_seconds = -1, time.monotonic(), silent_seconds
    while not stop.wait(silent_seconds / 12):
        with contextlib.suppress(MinerError, OSError):
            written = sum(len(run.stage.marked_shards()) for run in runs)
            if written != num_written:
                num_written, since, warn_seconds = written, time.monotonic(), silent_seconds
            elif time.monotonic() - since >= warn_seconds:
                reason = describe_wait(storage.names_in(runs[0].stage.path(WORKERS)))
                logger.warning("no shard was written for %s: %s", format_seconds(time.monotonic() - since), reason)
                warn_seconds *= 2


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
            note = format_rate(self.task.row_unit, sum(watch.rows for watch in self.stages), seconds)
            return Progress(self.kind, sum(len(watch.reported) for watch in self.stages), self.num_shards, note=note)
        done, total = self.work_reported, self.work
        rate = (done - self.work_before) / max(seconds, 1e-9)
        parts = [self.label, format_rate(f"{unit}s", done - self.work_before, seconds)]
        if 0 < done < total and rate > 0:
            parts.append(f"{format_seconds((total - done) / rate)} left")
        return Progress(self.kind, done, total, unit, ", ".join(filter(None, parts)))

    def _work_done(self) -> int:
        return sum(watch.work_done() for watch in self.stages)


def format_rate(unit: str | None, rows: int, seconds: float) -> str:
    """Format rows per second; an empty string if there are no rows or they have no unit."""
    return f"{rows / seconds:,.0f} {unit}/s" if rows and unit is not None else ""


@dataclass(frozen=True)
class StageRecord:
    """What one stage did in this run."""

    stage: str
    folder: str
    seconds: float
    shards: int  # of the stage
    written: int  # shards that this run wrote; the others were finished before
    counters: Mapping[str, int]  # of the shards written by this run
    skipped: Mapping[str, str]  # shard -> reason


def sum_counters(records: Sequence[StageRecord]) -> dict[str, dict[str, int]]:
    """Sum the counters of the stages of each kind."""
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        totals[record.stage].update(record.counters)
    return {stage: dict(counter) for stage, counter in totals.items()}


def report_stage(run: StageRun, manifest: Manifest, written: Set[str], seconds: float) -> StageRecord:
    """Log a finished stage and return its record. `written` are the shards that this run wrote, or skipped."""
    stage, counter = run.stage, Counter[str]()
    shards = [shard for shard in manifest.shards if shard.name in written]
    sizes = storage.sizes(stage.folder) if shards else {}
    for shard in shards:
        counter.update(run.task.counters(shard.rows, shard.counts, sizes.get(shard.name, 0)))
    record = StageRecord(
        stage.stage, stage.folder, round(seconds, 3), len(manifest.shards), len(shards), dict(counter), dict(manifest.skipped)
    )
    text = ", ".join(f"{value:,} {name}" for name, value in counter.items()) or "all shards are up to date"
    logger.info("%s: finished in %.1f s: %s", stage.stage, seconds, text, extra={"stage": stage.stage, "figures": asdict(record)})
    return record
