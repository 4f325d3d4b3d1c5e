"""Tasks that need one another, each begun as soon as what it needs is done."""

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """Something to do, after the tasks it needs."""

    name: str
    act: Callable[[], None]
    needs: tuple[str, ...] = ()


def run(tasks: Sequence[Task], at_once: int = 1) -> None:
    """Do all tasks, up to `at_once` side by side; of those that could begin, the one that comes first in `tasks`.

    One at a time, they run in the thread that calls, which alone notices signals. Where a task fails no other is begun, those that
    run are waited for, and the first error is raised. An interrupt is raised at once.
    """
    done: set[str] = set()
    waiting = list(tasks)
    if at_once == 1:
        while waiting:
            task = waiting.pop(_next(waiting, done))
            task.act()
            done.add(task.name)
        return
    results: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()
    running, error = 0, None
    while running or (waiting and error is None):
        while error is None and running < at_once and (ready := [task for task in waiting if done.issuperset(task.needs)]):
            waiting.remove(ready[0])
            # A daemon does not keep a program alive that the user has interrupted.
            threading.Thread(target=_act, args=(ready[0], results), name=ready[0].name, daemon=True).start()
            running += 1
        name, failed = results.get()
        running -= 1
        done.add(name)
        error = error or failed
    if error is not None:
        raise error


def _next(waiting: Sequence[Task], done: set[str]) -> int:
    return next(at for at, task in enumerate(waiting) if done.issuperset(task.needs))


def _act(task: Task, results: "queue.SimpleQueue[tuple[str, BaseException | None]]") -> None:
    try:
        task.act()
    except BaseException as error:
        results.put((task.name, error))
    else:
        results.put((task.name, None))
