"""Commands in processes of their own, and what they end in, for faults.py and attacks.py."""

import hashlib
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner, Result

from miner.cli import console
from miner.cli.main import main as miner

OUTCOMES = ("error", "same", "other", "traceback", "crash")
SECONDS = 60
CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}

Arguments = list[object]


def invoke(arguments: Arguments) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(miner, [str(argument) for argument in arguments])


def outcome_of(result: Result) -> str:
    """Return `done`, `error` or `traceback`."""
    if result.exit_code == 0:
        return "done"
    lines = [line for line in result.stderr.splitlines() if line.startswith("miner: error: ")]
    is_error = isinstance(result.exception, SystemExit) and len(lines) == 1 and console.INTERNAL_ERROR not in lines[0]
    return "error" if is_error else "traceback"


def run(arguments: Arguments) -> str:
    """Run a command in this process; return `done`, `error` or `traceback`."""
    return outcome_of(invoke(arguments))


def in_process(work: Callable[[], str], seconds: int = SECONDS) -> str:
    """Return the outcome of `work` in a process of its own, because damaged files may crash it or keep it busy."""
    child = os.fork()
    if child == 0:
        with Path(os.devnull).open("w") as null:
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        signal.alarm(10 * seconds)  # on the clock, where other programs take the cores
        outcome = work()
        os._exit(CODES.get(outcome, len(OUTCOMES)))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return (*OUTCOMES, "done")[code] if 0 <= code <= len(OUTCOMES) else "crash"


def hash_files(pattern: str) -> str:
    return "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(Path().glob(pattern)))


def start(arguments: Arguments) -> int:
    """Run a command in a process of its own, and return its number."""
    child = os.fork()
    if child == 0:
        os._exit(CODES.get(run(arguments), len(OUTCOMES)))
    return child


def run_killed(arguments: Arguments, seconds: float) -> None:
    """Run a command, and kill it after some time unless it has ended."""
    child = start(arguments)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
