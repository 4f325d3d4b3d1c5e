"""Maxima of groups of products, in torch and by the kernel in Triton, against numpy."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch

from miner.search.group_maxima import COLUMN_GROUP, ROW_GROUP, both_maxima, has_kernel, row_maxima

SHAPES = [(64, 64), (128, 320), (192, 512), (64, 576)]  # below, at and beyond a block of the kernel
DTYPES = [torch.float16, torch.float32, torch.int32]


def example(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Products with ties, and padding of the lowest value in the last rows and columns."""
    random = np.random.default_rng(shape[1])
    products = torch.from_numpy(random.integers(-900, 900, shape).astype(np.float32)).to(dtype)
    lowest = -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min
    products[-3:], products[:, -40:] = lowest, lowest
    return products


def assert_maxima(found: tuple[torch.Tensor, torch.Tensor], products: torch.Tensor) -> None:
    cells = products.cpu().numpy()
    rows, columns = cells.shape
    for row in range(rows):
        expected = [cells[row, start : start + ROW_GROUP].max() for start in range(0, columns, ROW_GROUP)]
        np.testing.assert_array_equal(found[0][row].cpu().numpy(), expected)
    for column in range(columns):
        expected = [cells[start : start + COLUMN_GROUP, column].max() for start in range(0, rows, COLUMN_GROUP)]
        np.testing.assert_array_equal(found[1][column].cpu().numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_maxima_of_torch_equal_those_of_numpy(shape: tuple[int, int], dtype: torch.dtype) -> None:
    products = example(shape, dtype)
    assert_maxima(both_maxima(products), products)
    assert torch.equal(row_maxima(products), both_maxima(products)[0])


def assert_kernel_equals_numpy() -> None:
    from miner.search.triton_maxima import group_maxima

    for rows, columns in SHAPES:
        for dtype in DTYPES:
            products = example((rows // 4, columns), dtype)  # of whole blocks; the interpreter takes half a second for one
            assert_maxima(group_maxima(products, ROW_GROUP, COLUMN_GROUP), products)


def test_interpreted_kernel_equals_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, the interpreter of Triton runs the kernel. It has to be set before Triton is imported, hence the process."""
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(assert_kernel_equals_numpy).result()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_maxima_on_cuda_equal_those_of_numpy(shape: tuple[int, int], dtype: torch.dtype) -> None:
    products = example(shape, dtype).cuda()
    assert_maxima(both_maxima(products), products)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernel works here")
def test_without_a_working_kernel_torch_computes_the_maxima(caplog: pytest.LogCaptureFixture) -> None:
    """Triton is missing, or finds no GPU."""
    with caplog.at_level("INFO"):
        assert not has_kernel.__wrapped__(torch.device("cpu"), torch.float16)
    assert "Triton does not work: " in caplog.text
