"""Write the shards of a job one after the other, in a worker of Beam or, if there are few, in the driver without Beam."""

import copy
import gc
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from miner import progress
from pipelines.beam import metrics, retry
from pipelines.beam.pending import PendingShards
from pipelines.beam.runner import ShardTask

GC_THRESHOLD = 100_000  # new objects between two garbage collections in a worker
MAX_LOADED_TASKS = 8  # tasks that a worker thread keeps set up, of those without an accelerator

Element = tuple[int, str]  # number of a stage in the job, name of a shard
Count = Callable[[str, Mapping[str, int]], None]  # adds counters to those of a stage


class ShardWriter:
    """Writes shards and their markers, and keeps the tasks that were set up last.

    Of those that use an accelerator there is one at a time, because each takes what memory is free.
    """

    def __init__(self, missing: Sequence[PendingShards]) -> None:
        self.missing = missing
        self.tasks = OrderedDict[int, ShardTask]()

    def write(self, element: Element, count: Count | None = None) -> None:
        """Write a shard and its marker, or record the failure, in the directory of its stage."""
        number, name = element
        shards = self.missing[number]
        stage, key = shards.stage, shards.shard_keys[name]
        # After an error that ends the stage, the other shards would fail too, or be written for nothing.
        # A bundle that is retried has finished shards.
        if retry.has_failed(stage) or stage.has_marker(name, key):
            return
        task = None
        with retry.record_failure(stage):
            task = self._task(number)
        if task is not None:
            with retry.record_failure(stage, name if shards.skip_failed else None):
                with progress.count_work(stage.folder, name):
                    rows, counts = retry.call_with_retries(lambda: task.write_shard(name), task.retry_policy, stage.stage, name)
                size = stage.mark_done(name, rows, key, counts)
                if count is not None:
                    count(stage.stage, metrics.count_shard(task, rows, counts, size))

    def _task(self, number: int) -> ShardTask:
        """Return the task of a stage, which is set up first if it is not."""
        if number not in self.tasks:
            task = copy.copy(self.missing[number].task)  # the original keeps nothing alive
            self._make_room(task.uses_accelerator)
            retry.call_with_retries(task.setup, task.retry_policy, self.missing[number].stage.stage, "setup")
            self.tasks[number] = task
            # Shards are lists of millions of strings without cycles: collecting rarely, and never the loaded objects, saves time.
            gc.freeze()
            gc.set_threshold(GC_THRESHOLD, 10, 10)  # Python's ratios, whatever those of the driver
        self.tasks.move_to_end(number)
        return self.tasks[number]

    def _make_room(self, uses_accelerator: bool) -> None:
        for number in [number for number, task in self.tasks.items() if uses_accelerator and task.uses_accelerator]:
            del self.tasks[number]
        while len(self.tasks) >= MAX_LOADED_TASKS:
            self.tasks.popitem(last=False)


def elements_of(missing: Sequence[PendingShards]) -> list[Element]:
    """Return the shards of a job."""
    return [(number, name) for number, shards in enumerate(missing) for name in shards.shard_keys]
