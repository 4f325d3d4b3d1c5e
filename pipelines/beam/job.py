"""A job: the shards of one or several stages, written by one Beam pipeline or, if they are few, in this process.

Only names pass between Beam steps. Workers read and write the shards themselves and leave a marker for each, so the driver needs no results
from the runner: it reads the directories. Errors (`pipelines/beam/retry.py`) and counters (`pipelines/beam/metrics.py`) also go through
the directories, so a stage that fails does not stop the others.
"""

import contextlib
import ctypes
import logging
import time
from collections.abc import Mapping, Sequence

import pyarrow as pa

from miner.errors import AllSkippedError, MinerError
from miner.io import storage
from miner.io.stages import SKIPPED, Manifest, Shard
from pipelines.beam import metrics, pending, retry
from pipelines.beam.pending import PendingShards
from pipelines.beam.runner import StageRun
from pipelines.beam.shard_writer import ShardWriter, elements_of
from pipelines.beam.watch import watch_progress

MAX_SHARDS_WITHOUT_BEAM = 16  # of a job that runs in this process: more, and the start of Beam is a small share of the time

logger = logging.getLogger(__name__)


def run_job(runs: Sequence[StageRun], options: Sequence[str] = ()) -> list[Manifest | MinerError]:
    """Write the missing shards of several stages, then the manifests. Return the manifest of each, or the error that ended it."""
    start = time.perf_counter()
    opened = [_open(run) for run in runs]
    missing = [shards for shards in opened if isinstance(shards, PendingShards) and shards.shard_keys]
    if missing:
        _write_shards(runs, missing, options)
    seconds = time.perf_counter() - start
    return [shards if isinstance(shards, MinerError) else _finish(run, shards, seconds) for run, shards in zip(runs, opened, strict=True)]


def _open(run: StageRun) -> PendingShards | MinerError:
    try:
        run.stage.start()
        retry.remove_records(run.stage)
        names = run.stage.reopen(run.shard_keys)
    except MinerError as error:
        return error
    return PendingShards(run.stage, {name: run.shard_keys[name] for name in names}, run.task, run.skip_failed)


def _finish(run: StageRun, written: PendingShards, seconds: float) -> Manifest | MinerError:
    """Write the manifest of a stage."""
    stage = run.stage
    try:
        retry.raise_failure(stage)
        skipped = retry.pop_skipped(stage)
        if skipped and len(skipped) == len(run.shard_keys):
            raise AllSkippedError(skipped)
        for name, reason in skipped.items():
            logger.info("%s: skipped: %s", stage.stage, reason, extra={"stage": stage.stage, "shard": name})
        keys = {name: key for name, key in run.shard_keys.items() if name not in skipped}
        skipped_details = {SKIPPED: skipped} if skipped else {}

        def details(shards: Sequence[Shard]) -> Mapping[str, object]:
            return {**(run.details(shards) if run.details else {}), **skipped_details}

        manifest = stage.finish(keys, details)
    except MinerError as error:
        return error
    metrics.report_stage(stage, run.task, manifest, set(written.shard_keys) - set(skipped), seconds)
    return manifest


def check_options(options: Sequence[str]) -> None:
    """Raise ConfigError for invalid options of Beam."""
    from pipelines.beam.pipeline import parse_beam_options

    parse_beam_options(options)


def _write_shards(runs: Sequence[StageRun], missing: Sequence[PendingShards], options: Sequence[str]) -> None:
    """Write the missing shards: by a Beam pipeline or, if there are few and no options, here, because Beam takes longer to start."""
    _release_memory()
    num_shards = {run.stage.folder: len(run.shard_keys) for run in runs}
    for shards in missing:
        stage = shards.stage
        text = "%s: %d of %d shards to write"
        logger.info(text, stage.stage, len(shards.shard_keys), num_shards[stage.folder], extra={"stage": stage.stage})
    elements = elements_of(missing)
    with watch_progress(runs), retry.parse_failures([shards.stage for shards in missing]):
        if needs_beam(len(elements), options):
            _run_beam(missing, options)
        else:
            writer = ShardWriter(missing)
            for element in elements:
                writer.write(element)


def needs_beam(num_shards: int, options: Sequence[str]) -> bool:
    """Return whether Beam writes the shards of a job: many of them, or where options describe how."""
    return bool(options) or num_shards > MAX_SHARDS_WITHOUT_BEAM


def _run_beam(missing: Sequence[PendingShards], options: Sequence[str]) -> None:
    """Write shards by a Beam pipeline. Beam, which takes a second to import, is imported only here."""
    from pipelines.beam import pipeline

    beam_options = pipeline.parse_beam_options(options)
    try:
        pipeline.run_pipeline(missing, beam_options)
    except Exception:  # not Ctrl-C: a detached job reads the file
        storage.remove_files([missing[0].stage.path(pending.FILE)])
        raise
    storage.remove_files([missing[0].stage.path(pending.FILE)])


def _release_memory() -> None:
    """Return freed memory to the system; allocators would keep hundreds of MB of earlier stages."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError, OSError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
