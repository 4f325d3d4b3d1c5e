"""Run independent tasks on the cores of a CPU, or ahead of each other on a GPU."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T", bound=tuple[Any, ...])

MAX_THREADS = 16  # beyond, threads wait for Python's lock; the remaining cores go to torch inside each thread


def parallel_for(count: int, task: Callable[[int], None], device: "torch.device") -> None:
    """Call task(0) to task(count - 1): on a CPU in one thread per core, on another device one after the other.

    Inside a thread, torch operations do not fork further. Splitting each operation over all cores ends in a barrier per operation:
    small operations gain nothing, and on a shared machine the barriers dominate the time.
    """
    import torch

    cores = torch.get_num_threads()
    num_threads = min(cores, count, MAX_THREADS) if device.type == "cpu" else 1
    if num_threads <= 1:
        for number in range(count):
            task(number)
        return
    torch.set_num_threads(cores // num_threads)  # new threads inherit it
    pool = ThreadPoolExecutor(num_threads)
    try:
        for future in [pool.submit(task, number) for number in range(count)]:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)


def compute_ahead(items: Iterator[T], device: "torch.device") -> Iterator[T]:
    """Yield the items, tuples with tensors of a GPU: the next item is computed in a stream of its own while the caller works on this one.

    The memory of an item may be that of the last but one, whose use by the caller has ended by then.
    """
    import torch

    caller, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(caller)

    def compute() -> tuple[T | None, "torch.cuda.Event"]:
        with torch.cuda.stream(stream):
            return next(items, None), stream.record_event()

    try:
        item, is_computed = compute()
        while item is not None:
            following = compute()
            caller.wait_event(is_computed)
            for value in item:
                if isinstance(value, torch.Tensor):
                    value.record_stream(caller)
            yield item
            stream.wait_event(caller.record_event())
            item, is_computed = following
    finally:
        caller.wait_stream(stream)  # before the memory is used for anything else


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Run torch in one thread: on a busy machine, the threads of a short operation mostly wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
