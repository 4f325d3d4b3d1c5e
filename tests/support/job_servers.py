"""Beam's portable job server and a pool of workers, as processes on this machine."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from square_stage import PYTHONPATH

SECONDS = 60  # to start


@contextlib.contextmanager
def serve() -> Iterator[list[str]]:
    """Start a job server and a pool of workers, which both outlive a driver; yield the options that select them."""
    job_port, pool_port = free_port(), free_port()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # where the pool finds `python`
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", "PATH": path}
    commands = [
        ["apache_beam.runners.portability.local_job_service_main", "--port", str(job_port)],
        ["apache_beam.runners.worker.worker_pool_main", "--service_port", str(pool_port)],
    ]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    servers = [subprocess.Popen([sys.executable, "-m", *command], env=environment, **silent) for command in commands]
    try:
        for port in (job_port, pool_port):
            wait_for(port)
        yield [
            "--runner=PortableRunner",
            f"--job_endpoint=localhost:{job_port}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{pool_port}",
        ]
    finally:
        for server in servers:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(port: int) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"nothing listens on port {port}")
