"""The device of a computation, the memory that is free there, and the cores of this process."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

WORKER = "MINER_WORKER"  # environment variable: the number of this local worker process, set by `pipelines.beam.worker`


def worker_device(name: str, worker: str | None, num_devices: int) -> str:
    """Return the device of a local worker process: `cuda` becomes one of the devices; `worker` is None in any other process."""
    return name if name != "cuda" or worker is None else f"cuda:{int(worker) % num_devices}"


def free_memory(device: "torch.device") -> int:
    """Return the free bytes of a CUDA device, including those that torch has reserved and does not use, or those of a CPU per core.

    There may be a worker process for each core.
    """
    import psutil
    import torch

    if device.type == "cpu":
        return int(psutil.virtual_memory().available // (os.cpu_count() or 1))

    return int(torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


def available_cores() -> int:
    """Count the cores that this process may use; containers often allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
