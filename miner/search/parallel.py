"""Run independent tasks on the cores of a CPU."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from miner.devices import CPU, available_cores, device_type, has_torch

MAX_THREADS = 16  # beyond, threads wait for Python's lock; the remaining cores go to torch inside each thread


def parallel_for(count: int, task: Callable[[int], None], device: str = CPU) -> None:
    """Call task(0) to task(count - 1): on a CPU in one thread per core, on another device one after the other.

    Inside a thread, torch operations do not fork further. Splitting each operation over all cores ends in a barrier per operation:
    small operations gain nothing, and on a shared machine the barriers dominate the time.
    """
    if not has_torch():
        with ThreadPoolExecutor(min(available_cores(), MAX_THREADS)) as pool:
            list(pool.map(task, range(count)))
        return
    import torch

    cores = torch.get_num_threads()
    num_threads = min(cores, count, MAX_THREADS) if device_type(device) == CPU else 1
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
