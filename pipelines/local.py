"""Beam's runner for one machine, made quiet, and made to notice a worker process that dies."""

import contextlib
import logging
import shlex
import signal
import sys
import threading
from collections.abc import Iterator

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from miner.errors import MinerError

logger = logging.getLogger(__name__)


def local_runner(options: PipelineOptions) -> FnApiRunner:
    """The FnApiRunner, whose processes (`--direct_running_mode=multi_processing`) are `pipelines.worker`."""
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode != "multi_processing":
        return FnApiRunner()
    direct.direct_running_mode = "in_memory"  # the runner would put its own environment in the place of this one
    command = f"exec {shlex.quote(sys.executable)} -m pipelines.worker"  # exec: else the shell reports on the worker's death
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


class _WorkerDiedError(BaseException):
    """Not an Exception, so that nothing in Beam takes it for the failure of a bundle."""


@contextlib.contextmanager
def worker_deaths_raised() -> Iterator[None]:
    """Raise MinerError when a worker process is killed. The FnApiRunner alone would wait for its answer for ever.

    The death shows as an uncaught exception in the thread that watches over the process. Only a signal wakes the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    deaths: list[str] = []
    lock = threading.Lock()
    ended = False

    def hook(args: threading.ExceptHookArgs) -> None:
        if args.thread is not None and args.thread.name == "run_worker":
            with lock:
                if not (ended or deaths):
                    deaths.append(str(args.exc_value))
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        elif deaths or args.exc_type.__module__.partition(".")[0] == "grpc":
            logger.debug("after a worker's death: %s", args.exc_value)
        else:
            threads_hook(args)

    def wake(*_: object) -> None:
        raise _WorkerDiedError

    threads_hook, threading.excepthook = threading.excepthook, hook
    handler = signal.signal(signal.SIGUSR1, wake)
    try:
        yield
    except _WorkerDiedError:
        raise MinerError(f"{deaths[0]} (-9: killed, perhaps for want of memory); run the same command again to go on") from None
    finally:
        with lock:
            ended = True
        threading.excepthook = threads_hook
        signal.signal(signal.SIGUSR1, handler)
