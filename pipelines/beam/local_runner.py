"""Beam's runner for one machine, extended to notice dead worker processes and Ctrl-C, and confined to this machine.

The servers of an FnApiRunner with worker processes listen on all interfaces without authentication, and one of them returns any file and
any URL that a client names. Here they listen on 127.0.0.1, and return no files: the workers of this machine need none.
"""

import contextlib
import logging
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped]
import psutil
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.runners.portability import artifact_service, local_job_service
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
from apache_beam.runners.portability.fn_api_runner.worker_handlers import BeamFnControlServicer, SubprocessSdkWorkerHandler, WorkerHandler
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from miner.errors import MinerError, Terminated

WORKER_MODULE = "pipelines.beam.worker"
LOOPBACK = "127.0.0.1"

logger = logging.getLogger(__name__)


def create_local_runner(options: PipelineOptions) -> FnApiRunner:
    """Create an FnApiRunner whose processes (`--direct_running_mode=multi_processing`) run `pipelines.beam.worker`."""
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode != "multi_processing":
        return FnApiRunner()
    direct.direct_running_mode = "in_memory"  # otherwise the runner replaces the environment below by its own
    confine_servers()
    # exec: or the shell reports the death of a worker. -P: or a file in the working directory can shadow a module.
    command = f"exec {shlex.quote(sys.executable)} -P -m {WORKER_MODULE}"
    return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


@WorkerHandler.register_environment(python_urns.SUBPROCESS_SDK, bytes)
class LocalWorkerHandler(SubprocessSdkWorkerHandler):  # type: ignore[misc]
    """Close worker processes that have not connected yet when the run is cancelled.

    Beam's handler stops only connected processes, and then waits for all.
    """

    def close(self) -> None:
        self.control_conn.push(BeamFnControlServicer._DONE_MARKER)
        super().close()


class WorkerDiedError(MinerError):
    """A local worker process ended before its work was done."""


class _WorkerDeath(BaseException):
    """Not an Exception, so that Beam does not treat it as a failed bundle."""


class _InterruptionWatcher:
    """Record what interrupts a pipeline from outside: worker processes that die, and Ctrl-C."""

    def __init__(self) -> None:
        self.deaths: list[str] = []  # messages
        self.interruption: type[KeyboardInterrupt] | None = None
        self.has_ended = False
        self.lock = threading.Lock()
        self.previous_excepthook = threading.excepthook

    def handle_thread_error(self, args: threading.ExceptHookArgs) -> None:
        """Handle an uncaught exception: a process that dies raises one in the thread that waits for it."""
        if args.thread is not None and args.thread.name == "run_worker":
            with self.lock:
                self.deaths.append(str(args.exc_value))
                if not self.has_ended and len(self.deaths) == 1:  # only a signal wakes the main thread
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        elif self.deaths or args.exc_type.__module__.partition(".")[0] == "grpc":
            logger.debug("after a worker's death: %s", args.exc_value)
        else:
            self.previous_excepthook(args)

    def handle_worker_death(self, *_: object) -> None:
        raise _WorkerDeath

    def handle_signal(self, number: int, _: object) -> None:
        """Handle Ctrl-C and SIGTERM. Workers in the middle of a shard would only notice at its end, so they are stopped."""
        self.interruption = Terminated if number == signal.SIGTERM else KeyboardInterrupt
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if WORKER_MODULE in child.cmdline():
                    child.terminate()
        raise self.interruption

    def cause_of(self, error: BaseException) -> BaseException:
        """Return the error to raise for `error`, which the pipeline raised."""
        is_worker_interrupted = any(death.endswith(f"code {-signal.SIGINT}") for death in self.deaths)  # Ctrl-C reaches workers too
        if self.interruption is not None or is_worker_interrupted:
            return (self.interruption or KeyboardInterrupt)()
        if isinstance(error, _WorkerDeath):
            return WorkerDiedError(f"{self.deaths[0]} (-9: killed, perhaps out of memory); run the same command again to resume")
        return error


@contextlib.contextmanager
def raise_interruptions() -> Iterator[None]:
    """Raise a WorkerDiedError if a worker process dies in this block, and a KeyboardInterrupt on Ctrl-C.

    The FnApiRunner itself waits forever for a dead process, and turns a KeyboardInterrupt into a RuntimeError.
    """
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield
        return
    watcher = _InterruptionWatcher()
    threading.excepthook = watcher.handle_thread_error
    previous_handlers = {signal.SIGUSR1: signal.signal(signal.SIGUSR1, watcher.handle_worker_death)}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # a background job ignores Ctrl-C
        previous_handlers[signal.SIGINT] = signal.signal(signal.SIGINT, watcher.handle_signal)
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # the command line handles it
        previous_handlers[signal.SIGTERM] = signal.signal(signal.SIGTERM, watcher.handle_signal)
    try:
        yield
    except BaseException as error:
        cause = watcher.cause_of(error)
        raise cause from (error.__cause__ if cause is error else None)
    finally:
        with watcher.lock:
            watcher.has_ended = True
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
        if not (watcher.interruption or watcher.deaths):  # otherwise keep the hook, which silences the workers that are still ending
            threading.excepthook = watcher.previous_excepthook


class _LoopbackServer:
    """A gRPC server whose ports are open on the loopback interface only."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def add_insecure_port(self, address: str) -> Any:
        return self._server.add_insecure_port(f"{LOOPBACK}:{address.rpartition(':')[2]}")


class _LoopbackGrpc:
    """The module grpc, except for its servers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(grpc, name)

    @staticmethod
    def server(*args: Any, **options: Any) -> _LoopbackServer:
        return _LoopbackServer(grpc.server(*args, **options))


class _NoArtifacts(artifact_service.ArtifactRetrievalService):  # type: ignore[misc]
    def GetArtifact(self, request: Any, context: Any = None) -> NoReturn:  # noqa: ARG002, N802 - the name of the RPC
        raise PermissionError("this runner stages no files")


class _ArtifactServices:
    """The module artifact_service, as far as the runner uses it."""

    ArtifactRetrievalService: Callable[..., Any] = _NoArtifacts


def confine_servers() -> None:
    """Replace the servers that Beam starts in this process from now on."""
    worker_handlers.grpc = local_job_service.grpc = _LoopbackGrpc()
    worker_handlers.artifact_service = _ArtifactServices
