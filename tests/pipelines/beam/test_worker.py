"""A local worker process knows its number, by which it takes one of the devices."""

import os
import subprocess
import sys


def test_a_worker_takes_the_number_that_beam_gives_it() -> None:
    code = (
        "import os, pipelines.beam.worker; from miner import devices; print(devices.worker_device('cuda', os.environ[devices.WORKER], 4))"
    )
    environment = {**os.environ, "WORKER_ID": "worker_6", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cuda:2"]
