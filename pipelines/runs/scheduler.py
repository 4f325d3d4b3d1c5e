"""Tasks that need one another, each begun as soon as what it needs is done."""

import logging
import queue
import threading
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from miner.errors import DataError

Results = queue.SimpleQueue[tuple[str, BaseException | None]]  # of tasks, and what they raised

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScheduledTask:
    """Something to do, after the tasks it needs."""

    name: str
    act: Callable[[], None]
    needs: tuple[str, ...] = ()


def run(tasks: Sequence[ScheduledTask], at_once: int = 1, spare: bool = False) -> dict[str, DataError]:
    """Do all tasks, up to `at_once` side by side; of those that could begin, the one that comes first in `tasks`.

    One at a time, they run in the thread that calls, which alone notices signals. Where a task fails no other is begun, those that
    run are waited for, and the first error is raised. An interrupt is raised at once. Where tasks can be spared, one that fails for
    its data's sake is returned with its error, as are those that need it, and the others go on.
    """
    done: set[str] = set()
    failed: dict[str, DataError] = {}
    waiting = list(tasks)
    results: Results = queue.SimpleQueue()
    running, error = 0, None
    while running or (waiting and error is None):
        while error is None and running < at_once and (ready := [task for task in waiting if done.issuperset(task.needs)]):
            waiting.remove(ready[0])
            _begin(ready[0], failed, at_once > 1, results)
            running += 1
        name, raised = results.get()
        running -= 1
        done.add(name)
        if spare and isinstance(raised, DataError):
            failed[name] = raised
            logger.info("%s: set aside: %s", name, raised)
        else:
            error = error or raised
    if error is not None:
        raise error
    return failed


def _begin(task: ScheduledTask, failed: Container[str], aside: bool, results: Results) -> None:
    """Do a task, in a thread of its own or in this one, unless something that it needs failed."""
    lacking = [name for name in task.needs if name in failed]
    if lacking:
        results.put((task.name, DataError(f"it needs {lacking[0]}, which is set aside")))
    elif aside:
        # A daemon does not keep a program alive that the user has interrupted.
        threading.Thread(target=_act, args=(task, results), name=task.name, daemon=True).start()
    else:
        _act(task, results)


def _act(task: ScheduledTask, results: Results) -> None:
    try:
        task.act()
    except BaseException as error:
        results.put((task.name, error))
    else:
        results.put((task.name, None))
