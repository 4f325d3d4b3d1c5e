"""Run tasks that depend on one another, each as soon as its dependencies are done."""

import logging
import queue
import threading
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from miner.errors import DataError

Outcomes = queue.SimpleQueue[tuple[str, BaseException | None]]  # names of ended tasks, and the exceptions they raised

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScheduledTask:
    """A function to call after the tasks it needs."""

    name: str
    function: Callable[[], None]
    needs: tuple[str, ...] = ()


def run(tasks: Sequence[ScheduledTask], max_parallel: int = 1, skip_failed: bool = False) -> dict[str, DataError]:
    """Run all tasks, up to `max_parallel` at a time. Of the tasks that are ready, the first in `tasks` starts first.

    With `max_parallel` 1, tasks run in the calling thread, the only one that receives signals. When a task fails, no other starts, the
    running ones finish, and the first error is raised; a KeyboardInterrupt is raised at once. With `skip_failed`, a task that raises a
    DataError is returned with its error, as are the tasks that need it, and the others run.
    """
    done: set[str] = set()
    failed: dict[str, DataError] = {}
    waiting = list(tasks)
    outcomes: Outcomes = queue.SimpleQueue()
    num_running, first_error = 0, None
    while num_running or (waiting and first_error is None):
        while first_error is None and num_running < max_parallel:
            ready = next((task for task in waiting if done.issuperset(task.needs)), None)
            if ready is None:
                break
            waiting.remove(ready)
            _start(ready, failed, max_parallel > 1, outcomes)
            num_running += 1
        name, error = outcomes.get()
        num_running -= 1
        done.add(name)
        if skip_failed and isinstance(error, DataError):
            failed[name] = error
            logger.info("%s: skipped: %s", name, error)
        else:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return failed


def _start(task: ScheduledTask, failed: Container[str], in_thread: bool, outcomes: Outcomes) -> None:
    """Run a task, in a new thread or in this one, unless a task that it needs has failed."""
    failed_needs = [name for name in task.needs if name in failed]
    if failed_needs:
        outcomes.put((task.name, DataError(f"needs {failed_needs[0]}, which was skipped")))
    elif in_thread:
        # A daemon thread does not keep the program alive after Ctrl-C.
        threading.Thread(target=_run_task, args=(task, outcomes), name=task.name, daemon=True).start()
    else:
        _run_task(task, outcomes)


def _run_task(task: ScheduledTask, outcomes: Outcomes) -> None:
    try:
        task.function()
    except BaseException as error:
        outcomes.put((task.name, error))
    else:
        outcomes.put((task.name, None))
