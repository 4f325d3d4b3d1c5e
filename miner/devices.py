"""The device of a computation, copies to it, the memory that is free there, the cores of this process, and its background threads."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from miner.errors import ConfigError, require

if TYPE_CHECKING:
    import torch

CPU, CUDA = "cpu", "cuda"  # types of devices
WORKER = "MINER_WORKER"  # environment variable: the number of this local worker process, set by `pipelines.beam.worker`
DEVICE_FILES = Path("/dev")
GPU_FILES = ("nvidia*", "nvmap", "nvhost*", "kfd", "dxg")  # of drivers by NVIDIA, for Jetson, by AMD, and in WSL

_DEVICE = re.compile(r"(cpu|cuda)(:\d+)?")


def has_torch() -> bool:
    """Whether torch is installed; it is not imported, which takes seconds."""
    return find_spec("torch") is not None


def choose_device(name: str) -> str:
    """Return the device for `auto`, `cpu`, `cuda` or `cuda:N`; raise ConfigError where this machine lacks it.

    Local worker processes take turns at the devices of a machine, unless the name has a number. Torch, which takes a second to import,
    is only asked where there may be a GPU.
    """
    device = parse_device(name)
    if device is None and not (has_torch() and may_have_gpu()):
        device = CPU
    if device is not None and device_type(device) == CPU:
        return device
    torch = require("torch")
    device = device or (CUDA if torch.cuda.is_available() else CPU)
    count = torch.cuda.device_count()
    if device_type(device) == CUDA and int(device.partition(":")[2] or 0) >= count:
        raise ConfigError(f"device {name}: torch finds {count} CUDA devices; choose another, or use auto")
    return worker_device(device, os.environ.get(WORKER), count)


def parse_device(name: str) -> str | None:
    """Return the device of a name, None for `auto`; raise ConfigError for an unknown name. This machine may lack the device."""
    if name == "auto":
        return None
    if not _DEVICE.fullmatch(name):
        raise ConfigError(f"unknown device {name!r}; one of auto, cpu, cuda, cuda:N")
    return name


def device_type(device: str) -> str:
    """Return the type, cpu or cuda, of a device."""
    return device.partition(":")[0]


def may_have_gpu(platform: str = sys.platform, device_files: Path = DEVICE_FILES) -> bool:
    """Whether torch may find a CUDA device: on Linux a GPU has a device file, and no Mac has one that CUDA supports."""
    if platform == "linux":
        return any(next(device_files.glob(pattern), None) is not None for pattern in GPU_FILES)
    return platform != "darwin"


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


def upload(tensor: "torch.Tensor", device: "torch.device") -> "torch.Tensor":
    """Copy a tensor to a device. To a CUDA GPU it goes through page-locked memory, so that the CPU need not wait for earlier work."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == CUDA else tensor.to(device)


def attention_kernels(device: "torch.device") -> contextlib.AbstractContextManager[None]:
    """Keep cuDNN's attention out on a GPU: it plans each new shape of a batch, which takes longer than most batches themselves."""
    if device.type == CPU:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernels = sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
    return cast(contextlib.AbstractContextManager[None], kernels)


def available_cores() -> int:
    """Count the cores that this process may use; containers often allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


Submit = Callable[..., None]
T = TypeVar("T")


@contextlib.contextmanager
def background_thread() -> Iterator[Submit]:
    """Yield `submit(function, *arguments)`, which waits for the previous call, raises its exception, and starts the next.

    At most two calls hold their arguments at a time. The block ends when the last call has returned.
    """
    with ThreadPoolExecutor(1) as pool:
        pending: Future[None] | None = None

        def submit(function: Callable[..., None], *arguments: object) -> None:
            nonlocal pending
            if pending is not None:
                pending.result()
            pending = pool.submit(function, *arguments)

        yield submit
        if pending is not None:
            pending.result()


def read_ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """Yield the items of `items`, which runs in a background thread: the next item is computed while the caller works on this one.

    The thread ends with the items, or on `close`.
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(next, iterator, end)
        while (item := pending.result()) is not end:
            pending = pool.submit(next, iterator, end)
            yield cast(T, item)
            del item
