"""Count the requests that commands send to S3 or GCS, those of the driver and those of a worker process apart.

Both talk to servers on this machine (`tests/support/object_servers.py`), each at a port of its own. A command runs with several numbers
of shards. Its requests are a polynomial of this number: a constant per stage, an amount per shard and, of the stages that join files, an
amount per shard and file that the shard is read from. The heartbeats of the lock and the looks for progress are per second, and are
not counted.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
import object_servers
from object_servers import OPERATIONS, Request, RequestLog

ROLES = ("driver", "worker")
SENTENCES_PER_SHARD = 50
OPTIONS = ("--direct_running_mode=multi_processing", "--direct_num_workers=1")
OUTSIDE = "between jobs"

Counts = Counter[tuple[str, str]]  # (role, operation) -> requests
StageCounts = dict[tuple[str, str], Counts]  # (run, stage) -> counts
Run = Callable[[], object]


def connect(protocol: str) -> RequestLog:
    """Let this process use the server of the driver, and the processes that it starts use that of the worker."""
    import fsspec

    log = RequestLog()
    driver, worker = (object_servers.serve(protocol, log, role) for role in ROLES)
    os.environ.update(worker.environment)
    fsspec.config.conf[protocol] = driver.options
    fsspec.filesystem(protocol).mkdir("bucket")
    return log


def count_embed(folder: Path, shards: int, log: RequestLog, protocol: str) -> StageCounts:
    """Embed a text into this number of shards, and run the same command again. Return the counts of each stage of both runs."""
    config = embed_config(folder, f"{protocol}://bucket/{shards}", shards)
    return count_runs(lambda: run_embed(config, OPTIONS), log)


def count_mine(folder: Path, shards: int, log: RequestLog, protocol: str, engine: str = "exact") -> StageCounts:
    """Mine two embedded corpora of this number of shards each, every step as a job, and run the same command again."""
    from miner.config.commands import MineConfig
    from miner.io import host_copies
    from pipelines.mining import mine
    from pipelines.mining.candidates import MiningLimits

    os.environ[host_copies.CACHE] = str(folder / f"cache-{shards}")  # empty, so that the copies of indexes are counted
    output = f"{protocol}://bucket/mine-{shards}"
    sides = [f"{output}-{side}" for side in ("source", "target")]
    for side in sides:
        run_embed(embed_config(folder, side, shards), ())
    config = MineConfig(source=sides[0], target=sides[1], output=output, engine=engine, threshold=1.0, k=4)
    return count_runs(lambda: mine.run(config, OPTIONS, MiningLimits(in_process_rows=0)), log)


def embed_config(folder: Path, output: str, shards: int) -> Any:
    from miner.config.commands import EmbedConfig

    text = folder / f"{shards}.txt"
    text.write_text("".join(f"sentence {number} of this text\n" for number in range(shards * SENTENCES_PER_SHARD)))
    return EmbedConfig(inputs=[str(text)], output=output, lang="en", shards=shards)


def run_embed(config: Any, options: Sequence[str]) -> None:
    from pipelines.corpus import embed

    embed.run(config, options)


def count_runs(run: Run, log: RequestLog) -> StageCounts:
    """Run a command twice. Return the counts of each stage of both runs."""
    from pipelines.beam import reporting, runner

    counted: StageCounts = {}
    run_job = runner.run_job
    reporting.POLL_SECONDS = reporting.OBJECT_POLL_SECONDS = 3600.0
    log.take()
    for name in ("first", "again"):

        def run_counted(runs: Any, options: Any, stage_records: Any, name: str = name) -> Any:
            add(counted, (name, OUTSIDE), log.take())
            result = run_job(runs, options, stage_records)
            add(counted, (name, stage_name(runs)), log.take())
            return result

        runner.run_job = run_counted
        try:
            run()
        finally:
            runner.run_job = run_job
        add(counted, (name, OUTSIDE), log.take())
    return counted


def stage_name(runs: Sequence[Any]) -> str:
    """Return the name of a step, which is that of its folder, or of the stage of a job."""
    stage = runs[0].stage
    return Path(stage.folder).name if stage.stage in ("joining", "matching") else stage.stage


def add(counted: StageCounts, key: tuple[str, str], requests: Sequence[Request]) -> None:
    counted[key] = counted.get(key, Counter()) + Counter((request.role, request.operation) for request in requests)


def print_table(counted: dict[int, StageCounts]) -> None:
    """Print the coefficients of the numbers of requests, which are a polynomial of the number of shards."""
    sizes = sorted(counted)
    print("| run | stage | role | per stage | per shard | per shard and file |\n|---|---|---|---|---|---|")
    for run, stage in counted[sizes[-1]]:
        for role in ROLES:
            numbers = {name: [counted[size][run, stage][role, name] for size in sizes] for name in OPERATIONS}
            if any(map(any, numbers.values())):
                cells = [*columns(sizes, numbers), "", ""][:3]
                print(f"| {run} | {stage} | {role} | {' | '.join(cells)} |", flush=True)


def columns(sizes: Sequence[int], numbers: dict[str, list[int]]) -> Iterator[str]:
    """Yield the coefficients of each power of the number of shards: their sum, and those of each operation."""
    fits = {name: np.polynomial.polynomial.polyfit(sizes, values, len(sizes) - 1) for name, values in numbers.items()}
    for power in range(len(sizes)):
        parts = {name: fit[power] for name, fit in fits.items() if abs(fit[power]) >= 0.01}
        total = f"{sum(parts.values()):.2f}".rstrip("0").rstrip(".")
        detail = ", ".join(f"{value:.2g} {name}" for name, value in parts.items())
        yield f"{total} ({detail})" if power and parts else total
