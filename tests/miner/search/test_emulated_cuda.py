"""The code for GPUs on an emulated one: no operation mixes devices, and the results are those of the CPU, to the bit."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from emulated_cuda import EmulatedTensor, emulated_cuda
from search_cases import Sides, assert_exact, many_ties, mixed_scales, near_ties

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.mining.late_interaction import LateOptions, late_similarities

pytestmark = pytest.mark.usefixtures("one_thread")


def test_mixing_devices_is_an_error() -> None:
    with emulated_cuda():
        on_device = torch.arange(3, device="cuda")
        assert isinstance(on_device + 1, EmulatedTensor)
        assert (on_device + 1).cpu().tolist() == [1, 2, 3]
        with pytest.raises(RuntimeError, match="tensors on cuda:0 and on the CPU"):
            on_device + torch.arange(3)
        with pytest.raises(RuntimeError, match="indexed by one on cuda:0"):
            torch.arange(3)[on_device]


@pytest.mark.parametrize("make_sides", [many_ties, near_ties, mixed_scales])
def test_search_on_an_emulated_gpu_is_exact(make_sides: Callable[[], Sides]) -> None:
    with emulated_cuda():
        assert_exact(*make_sides(), k=4, device="cuda", gpu_tile_rows=256, min_trial_multiplications=0)


def test_late_interaction_on_an_emulated_gpu() -> None:
    encoder = load_encoder("builtin", EncoderSettings())
    sources = encoder.token_vectors([f"The cat number {number} sat on the mat" for number in range(30)])
    targets = encoder.token_vectors([f"Die Katze {number} sass auf der Matte" for number in range(30)])
    rows = np.repeat(np.arange(30), 4), np.random.default_rng(0).integers(0, 30, 120)
    expected = late_similarities(sources, targets, *rows)
    with emulated_cuda():
        np.testing.assert_array_equal(late_similarities(sources, targets, *rows, LateOptions("cuda")), expected)
