"""A local worker process: Beam's worker, with its log sent to the driver instead of the terminal, and no traceback on Ctrl-C."""

import logging
import os
import signal
import sys

from miner.devices import WORKER

signal.signal(signal.SIGINT, signal.SIG_DFL)
os.environ[WORKER] = os.environ.get("WORKER_ID", "0").rpartition("_")[2]  # Beam numbers its local workers: worker_0, worker_1

# Before Beam is imported: its first warning would otherwise set up a handler on stderr.
logging.getLogger().addHandler(logging.NullHandler())

from apache_beam.runners.worker import sdk_worker_main  # noqa: E402

if __name__ == "__main__":
    sdk_worker_main.main(sys.argv)
