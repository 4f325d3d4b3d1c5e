"""Count the requests that `miner embed` sends to S3, those of the driver and those of a worker process apart.

Both talk to moto's server of S3 on this machine, each at a port of its own. The text is embedded into two numbers of shards, so the
requests per shard are the slope; the rest is per stage. The heartbeats of the lock and the looks for progress are per second, and are
not counted.
"""

import logging
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

ROLES = ("driver", "worker")
OPERATIONS = ("GET", "PUT", "HEAD", "LIST", "COPY", "DELETE", "POST")
SENTENCES_PER_SHARD = 50
OPTIONS = ("--direct_running_mode=multi_processing", "--direct_num_workers=1")

Counts = Counter[tuple[str, str]]  # (role, operation) -> requests
StageCounts = dict[tuple[str, str], Counts]  # (run, stage) -> counts


def operation(environ: dict[str, Any]) -> str:
    """Return which of the OPERATIONS a request is."""
    method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "")
    if method == "GET" and "list-type" in query:
        return "LIST"
    if method == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" in environ:
        return "COPY"
    return "DELETE" if method == "POST" and "delete" in query else method


def serve(role: str, counts: Counts) -> str:
    """Start a server that counts the requests of a role, and return its address. All servers have the same objects."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = DomainDispatcherApplication(create_backend_app)

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if "_lock-" not in environ["PATH_INFO"]:
            counts[role, operation(environ)] += 1
        return app(environ, start_response)

    server = make_server("127.0.0.1", 0, answer, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.port}"


def connect(counts: Counts) -> None:
    """Let this process use the server of the driver, and the processes that it starts use that of the worker."""
    import fsspec

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1")
    fsspec.config.conf["s3"] = {"endpoint_url": serve("driver", counts)}
    os.environ["AWS_ENDPOINT_URL"] = serve("worker", counts)
    fsspec.filesystem("s3").mkdir("bucket")


def count(folder: Path, shards: int, counts: Counts, protocol: str = "s3") -> StageCounts:
    """Embed a text into so many shards, and run the same command again. Return the counts of each stage of both runs."""
    from miner.config.commands import EmbedConfig
    from pipelines.beam import job, watch
    from pipelines.corpus import embed

    text = folder / f"{shards}.txt"
    text.write_text("".join(f"sentence {number} of this text\n" for number in range(shards * SENTENCES_PER_SHARD)))
    config = EmbedConfig(inputs=[str(text)], output=f"{protocol}://bucket/{shards}", lang="en", shards=shards)
    counted: StageCounts = {}
    run_job = job.run_job
    watch.POLL_SECONDS = watch.OBJECT_POLL_SECONDS = 3600.0
    for run in ("first", "again"):

        def run_counted(runs: Any, options: Any, run: str = run) -> Any:
            counts.clear()
            result = run_job(runs, options)
            counted[run, runs[0].stage.stage] = Counter(counts)
            return result

        job.run_job = run_counted
        try:
            embed.run(config, OPTIONS)
        finally:
            job.run_job = run_job
    return counted


def print_table(few: tuple[int, StageCounts], many: tuple[int, StageCounts]) -> None:
    """Print the requests per shard, and those of a stage that do not depend on the number of shards."""
    print("| run | stage | role | requests per shard | in all | per stage |\n|---|---|---|---|---|---|")
    added = many[0] - few[0]
    for (run, stage), counts in many[1].items():
        for role in ROLES:
            slopes = {name: (counts[role, name] - few[1][run, stage][role, name]) / added for name in OPERATIONS}
            total = sum(slopes.values())
            constant = sum(counts[role, name] for name in OPERATIONS) - total * many[0]
            parts = ", ".join(f"{slope:.2g} {name}" for name, slope in slopes.items() if abs(slope) >= 0.01)
            print(f"| {run} | {stage} | {role} | {parts or 'none'} | {total:.2f} | {constant:.0f} |", flush=True)
