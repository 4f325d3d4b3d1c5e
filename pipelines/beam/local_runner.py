"""Beam's runner for one machine, made quiet, and made to notice a worker process that dies."""

import contextlib
import logging
import shlex
import signal
import sys
import threading
from collections.abc import Iterator

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.fn_api_runner.worker_handlers import BeamFnControlServicer, SubprocessSdkWorkerHandler, WorkerHandler
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from miner.errors import MinerError

logger = logging.getLogger(__name__)


def local_runner(options: PipelineOptions) -> FnApiRunner:
    """The FnApiRunner, whose processes (`--direct_running_mode=multi_processing`) are `pipelines.beam.worker`."""
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode != "multi_processing":
        return FnApiRunner()
    direct.direct_running_mode = "in_memory"  # the runner would put its own environment in the place of this one
    # exec, or the shell reports the death of a worker; -P, or a file of the working directory stands in for a module.
    command = f"exec {shlex.quote(sys.executable)} -P -m pipelines.beam.worker"
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


@WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class _WorkerProcess(SubprocessSdkWorkerHandler):
    """Beam's, but a process that has not yet called when its run is given up ends when it does.

    Beam tells only those to end that have called, and waits for all.
    """

    def close(self) -> None:
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)
        super().close()


class WorkerDiedError(MinerError):
    """A worker process of this machine ended before its work did."""


class _Death(BaseException):
    """Not an Exception, so that nothing in Beam takes it for the failure of a bundle."""


class _Watch:
    """What happened besides the pipeline: processes that died, and the user's wish to stop."""

    def __init__(self) -> None:
        self.deaths: list[str] = []
        self.stopped = False
        self.over = False
        self.lock = threading.Lock()
        self.hook = threading.excepthook

    def thread_failed(self, args: threading.ExceptHookArgs) -> None:
        """A process that dies shows as an uncaught exception in the thread that waits for its end."""
        if args.thread is not None and args.thread.name == "run_worker":
            with self.lock:
                self.deaths.append(str(args.exc_value))
                if not self.over and len(self.deaths) == 1:  # only a signal wakes the main thread
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        elif self.deaths or args.exc_type.__module__.partition(".")[0] == "grpc":
            logger.debug("after a worker's death: %s", args.exc_value)
        else:
            self.hook(args)

    def worker_died(self, *_: object) -> None:
        raise _Death

    def stop(self, *_: object) -> None:
        self.stopped = True
        raise KeyboardInterrupt

    def reason(self, error: BaseException) -> BaseException:
        """What `error`, which came out of the pipeline, stands for."""
        if self.stopped or any(death.endswith(f"code {-signal.SIGINT}") for death in self.deaths):  # Ctrl-C reaches workers too
            return KeyboardInterrupt()
        if isinstance(error, _Death):
            return WorkerDiedError(f"{self.deaths[0]} (-9: killed, perhaps for want of memory); run the same command again to go on")
        return error


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let a run end when a worker process dies, with a MinerError, and when the user stops it, with KeyboardInterrupt.

    By itself the FnApiRunner waits for the answer of a dead process for ever, and makes of a KeyboardInterrupt a RuntimeError.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    watch = _Watch()
    threading.excepthook = watch.thread_failed
    before = {signal.SIGUSR1: signal.signal(signal.SIGUSR1, watch.worker_died)}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as it is for a job in the background
        before[signal.SIGINT] = signal.signal(signal.SIGINT, watch.stop)
    try:
        yield
    except BaseException as error:
        reason = watch.reason(error)
        raise reason from (error.__cause__ if reason is error else None)
    finally:
        with watch.lock:
            watch.over = True
        for number, handler in before.items():
            signal.signal(number, handler)
        if not (watch.stopped or watch.deaths):  # else other workers are yet to end, and no one wants to hear of it
            threading.excepthook = watch.hook
