"""Many like pieces of work at a time on the cores of a CPU."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

WORKERS = 16  # more would wait for Python's lock; each has several threads then


def for_each(count: int, work: Callable[[int], None], device: torch.device) -> None:
    """Call work(0) to work(count - 1), on a CPU in a thread for each core.

    The operations of torch then compute alone in their thread. To share each of them among all cores means to wait, after each,
    for the last: small ones gain nothing, and on a machine that has other things to do they lose most of the time.
    """
    threads = torch.get_num_threads()
    workers = min(threads, count, WORKERS) if device.type == "cpu" else 1
    if workers <= 1:
        for number in range(count):
            work(number)
        return
    torch.set_num_threads(threads // workers)  # new threads take it over
    pool = ThreadPoolExecutor(workers)
    try:
        for future in [pool.submit(work, number) for number in range(count)]:
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
