"""A CUDA device that is emulated on the CPU, so that tests run the code for GPUs without one.

Its tensors say that they are on `cuda:0` and hold their values in the memory of the CPU. An operation on tensors of both devices raises, as
on a GPU, except copies and scalars. Kernels, streams and memory are not emulated.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("cuda", 0)
FREE_BYTES = 4 << 30  # of its memory, as far as anyone asks
aten = torch.ops.aten
COPIES = (aten.copy_.default, aten._to_copy.default)
INDEXED = (aten.index.Tensor, aten.index_put_.default, aten._index_put_impl_.default)  # their indices may be on the CPU


class EmulatedTensor(torch.Tensor):
    """A tensor of the emulated device. To C++ it is a tensor without values, because torch without CUDA has no guard of that device."""

    values: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> "EmulatedTensor":
        layout = {"strides": values.stride(), "storage_offset": values.storage_offset(), "dtype": values.dtype}
        made: EmulatedTensor = torch.Tensor._make_wrapper_subclass(cls, values.shape, device="meta", **layout)
        made.values = values
        return made

    @property
    def device(self) -> torch.device:
        return DEVICE

    @property
    def is_cuda(self) -> bool:
        return True

    def tolist(self) -> Any:
        return self.values.tolist()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})


class _EmulationMode(TorchDispatchMode):
    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})


def _run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the values, and return its results as tensors of the device on which a GPU would have them."""
    tensors = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    emulated = [tensor for tensor in tensors if isinstance(tensor, EmulatedTensor)]
    others = [tensor for tensor in tensors if tensor.dim() > 0 and not isinstance(tensor, EmulatedTensor)]
    if emulated and others and operation not in (*COPIES, *INDEXED):
        raise RuntimeError(f"{operation}: tensors on {DEVICE} and on the CPU")
    if operation in INDEXED and emulated and not isinstance(args[0], EmulatedTensor):
        raise RuntimeError(f"{operation}: a tensor of the CPU indexed by one on {DEVICE}")
    is_emulated = isinstance(args[0], EmulatedTensor) if operation in COPIES[:1] else bool(emulated)
    if kwargs.get("device") is not None:
        is_emulated = torch.device(kwargs["device"]).type != "cpu"
        kwargs = {**kwargs, "device": torch.device("cpu"), "pin_memory": False}
    bare_args, bare_kwargs = pytree.tree_map(lambda value: value.values if isinstance(value, EmulatedTensor) else value, (args, kwargs))
    wrappers = {id(tensor.values): tensor for tensor in emulated}  # of what an operation changes in place and returns

    def wrap(value: Any) -> Any:
        if not is_emulated or not isinstance(value, torch.Tensor):
            return value
        return wrappers[id(value)] if id(value) in wrappers else EmulatedTensor(value)

    return pytree.tree_map(wrap, operation(*bare_args, **bare_kwargs))


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Copy to a device, as `Tensor.to` does, which would look for the driver of it."""
    options = [value for value in (*args, *kwargs.values()) if value is not None and not isinstance(value, bool)]
    devices = [torch.device(option) for option in options if isinstance(option, str | torch.device)]
    dtypes = [option for option in options if isinstance(option, torch.dtype)]
    values = tensor.values if isinstance(tensor, EmulatedTensor) else tensor
    for dtype in dtypes:
        values = aten._to_copy.default(values, dtype=dtype)
    device = devices[0] if devices else tensor.device
    if device == tensor.device and not dtypes:
        return tensor
    return values.clone() if device.type == "cpu" else EmulatedTensor(values.clone())


class _Stream:
    def __init__(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...


@contextlib.contextmanager
def emulated_cuda() -> Iterator[None]:
    """Emulate the device in this thread and in those of pools."""
    submit = ThreadPoolExecutor.submit

    def submit_in_mode(pool: ThreadPoolExecutor, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with _EmulationMode():
                return function(*args, **kwargs)

        return submit(pool, run, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "_lazy_init": lambda: None,
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "mem_get_info": lambda _=None: (FREE_BYTES, FREE_BYTES),
            "memory_reserved": lambda _=None: 0,
            "memory_allocated": lambda _=None: 0,
            "empty_cache": lambda: None,
            "Stream": _Stream,
            "stream": lambda _: contextlib.nullcontext(),
            "current_stream": lambda _=None: _Stream(),
        }.items():
            patch.setattr(torch.cuda, name, value)
        for name, method in {
            "to": _to,
            "cpu": lambda tensor: _to(tensor, "cpu"),
            "pin_memory": lambda tensor: tensor,
            "record_stream": lambda *_: None,
        }.items():
            patch.setattr(torch.Tensor, name, method)
        patch.setattr(torch, "inference_mode", torch.no_grad)  # its tensors cannot be wrapped
        patch.setattr(ThreadPoolExecutor, "submit", submit_in_mode)
        overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            with _EmulationMode():
                yield
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
