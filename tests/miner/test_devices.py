"""The device of a computation: names, errors, and one device for each local worker process."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from miner import devices
from miner.devices import choose_device, worker_device
from miner.encoders.base import search_device
from miner.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "worker", "num_devices", "device"),
    [
        ("cuda", "0", 4, "cuda:0"),
        ("cuda", "3", 4, "cuda:3"),
        ("cuda", "4", 4, "cuda:0"),
        ("cuda", "9", 4, "cuda:1"),
        ("cuda", "5", 1, "cuda:0"),
        ("cuda:2", "5", 4, "cuda:2"),  # the device asked for
        ("cpu", "5", 0, "cpu"),
        ("cuda", None, 4, "cuda"),  # not a worker
    ],
)
def test_worker_processes_take_turns_at_the_devices(name: str, worker: str | None, num_devices: int, device: str) -> None:
    assert worker_device(name, worker, num_devices) == device


def test_unknown_and_missing_devices_are_errors() -> None:
    assert choose_device("cpu") == "cpu"
    with pytest.raises(ConfigError, match="unknown device 'gpu'; one of auto, cpu, cuda, cuda:N"):
        choose_device("gpu")
    with pytest.raises(ConfigError, match="device cuda:99: torch finds"):
        choose_device("cuda:99")


@pytest.mark.parametrize(("has_gpu", "may_have_gpu", "device"), [(True, True, "cuda"), (False, True, "cpu"), (True, False, "cpu")])
def test_auto_asks_torch_only_where_there_may_be_a_gpu(
    monkeypatch: pytest.MonkeyPatch, has_gpu: bool, may_have_gpu: bool, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(has_gpu))
    monkeypatch.setattr(devices, "may_have_gpu", lambda: may_have_gpu)
    assert choose_device("auto") == device


@pytest.mark.parametrize(
    ("platform", "name", "expected"),
    [
        ("linux", "nvidia0", True),
        ("linux", "kfd", True),
        ("linux", "dxg", True),
        ("linux", "null", False),
        ("darwin", "nvidia0", False),
        ("win32", "null", True),
    ],
)
def test_a_gpu_has_a_device_file_on_linux(tmp_path: Path, platform: str, name: str, expected: bool) -> None:
    (tmp_path / name).touch()
    assert devices.may_have_gpu(platform, tmp_path) == expected


def test_vectors_are_searched_on_the_device_of_their_encoder() -> None:
    assert search_device(SimpleNamespace(device=torch.device("cuda:1"))) == "cuda:1"
    assert search_device(SimpleNamespace(dim=3)) == "cpu"


def test_a_gpu_does_not_plan_attention_for_each_shape_of_a_batch() -> None:
    names = ("cudnn", "flash", "mem_efficient", "math")

    def enabled() -> list[bool]:
        return [getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in names]

    before = enabled()
    with devices.attention_kernels(torch.device("cuda")):
        assert enabled() == [False, True, True, True]
    assert enabled() == before
    with devices.attention_kernels(torch.device("cpu")):
        assert enabled() == before
