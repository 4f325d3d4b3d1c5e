"""Kill a worker, the scheduler or the driver of `miner mine` on a Dask cluster of this machine, and run the same command again.

    python benchmarks/kill_cluster.py --times 6

Each attempt has a cluster of a scheduler and two workers, and one for the second run. The driver must end in status 0 or in one line,
unless it was killed. The second run must succeed, with the bytes of a run without a cluster.
"""

import argparse
import contextlib
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
VICTIMS = ("worker", "scheduler", "driver")
EARLIEST, LATEST = 4, 16  # seconds after which something is killed; a run takes about 20
START_SECONDS, SECONDS = 4, 200
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@contextlib.contextmanager
def serve() -> Iterator[tuple[str, dict[str, subprocess.Popen[bytes]]]]:
    """Start a scheduler and two workers; yield the address, and the processes that can be killed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    address = f"tcp://127.0.0.1:{port}"
    scheduler = ["dask_scheduler", "--host", "127.0.0.1", "--port", port]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True, "env": ENVIRONMENT}
    processes = [
        subprocess.Popen([sys.executable, "-m", f"distributed.cli.{words[0]}", *words[1:], "--no-dashboard"], **silent)
        for words in (scheduler, *[["dask_worker", address, "--nthreads", "1", "--no-nanny"]] * 2)
    ]
    try:
        time.sleep(START_SECONDS)
        yield address, {"scheduler": processes[0], "worker": processes[1]}
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def mine(output: Path, address: str | None = None) -> subprocess.Popen[str]:
    sides = [str(EXAMPLES / "en.txt"), str(EXAMPLES / "de.txt"), "--source-lang", "en", "--target-lang", "de"]
    options = ["--engine", "exact", "--shards", "20", "--no-report", "--output", str(output)]
    cluster = ["--", "--runner=DaskRunner", f"--dask_client_address={address}"] if address else []
    command = [sys.executable, "-m", "miner.cli.main", "mine", *sides, *options, *cluster]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def end_of(driver: subprocess.Popen[str]) -> str:
    """Wait for a driver; return `done`, `error`, `killed` or what is wrong."""
    try:
        _, text = driver.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        driver.kill()
        driver.communicate()
        return "hang"
    errors = [line for line in text.splitlines() if line.startswith("miner: error: ")]
    if driver.returncode == 1 and len(errors) == 1 and "internal error" not in errors[0]:
        return "error"
    return {0: "done", -signal.SIGKILL: "killed"}.get(driver.returncode, "traceback")


def digest(output: Path) -> str:
    return hashlib.sha256((output / "bitext.tsv.gz").read_bytes()).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng, num_faults = random.Random(arguments.seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        assert end_of(mine(folder / "whole")) == "done"
        for number in range(arguments.times):
            output, victim = folder / str(number), VICTIMS[number % len(VICTIMS)]
            with serve() as (address, processes):
                driver = mine(output, address)
                time.sleep(rng.uniform(EARLIEST, LATEST))
                was_running = driver.poll() is None
                {"driver": driver, **processes}[victim].kill()
                first = end_of(driver)
            with serve() as (address, _):
                second = end_of(mine(output, address))
            is_same = second == "done" and digest(output) == digest(folder / "whole")
            when, result = "in" if was_running else "after", "same" if is_same else "other"
            print(f"{victim} killed {when} the run: {first}; again: {second}, {result}", flush=True)
            num_faults += not is_same or first in ("hang", "traceback")
    return min(1, num_faults)


if __name__ == "__main__":
    sys.exit(main())
