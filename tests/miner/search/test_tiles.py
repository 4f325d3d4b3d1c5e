"""The size of tiles by free memory, what happens where memory runs out, and the settings of matrix products."""

from collections.abc import Callable, Iterator

import dense
import pytest
import torch
from search_cases import assert_exact, assert_nearest, many_ties
from torch import Tensor

from miner.errors import MinerError
from miner.search.exact import SearchOptions, fitting_tile_rows, search_forward
from miner.search.neighbours import VectorBlock, empty_neighbours
from miner.search.precision import Precision, full_precision_matmul


@pytest.mark.parametrize(
    ("free_bytes", "rows"),
    [
        (32 * 32768**2, 32768),  # 34 GB
        (32 * 32768**2 - 1, 16384),
        (24 << 30, 16384),
        (8 << 30, 16384),
        ((8 << 30) - 1, 8192),
        (1 << 30, 4096),
        (32 * 256**2, 256),
        (0, 256),  # the smallest tile is tried in any case
    ],
)
def test_tiles_take_at_most_32_bytes_of_free_memory_for_a_product(free_bytes: int, rows: int) -> None:
    assert fitting_tile_rows(32768, free_bytes) == rows


@pytest.fixture
def max_products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of products of a tile from which memory runs out, to be set by the test; afterwards, the sizes of all tiles."""
    multiply, limit = Precision.multiply, list[int]()

    def multiply_small(precision: Precision, left: Tensor, right: Tensor, out: Tensor) -> Tensor:
        limit.append(out.numel())
        if out.numel() > limit[0]:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return multiply(precision, left, right, out)

    monkeypatch.setattr(Precision, "multiply", multiply_small)
    return limit


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_tiles_are_halved_until_they_fit(precision: str, max_products: list[int]) -> None:
    max_products.append(300 * 300)
    assert_exact(*many_ties(), k=4, precision=precision, cpu_tile_rows=2048)
    sizes = max_products[1:]
    assert sizes[0] > 512 * 512
    assert any(size > 300 * 300 for size in sizes)
    assert sizes[-1] <= 256 * 256


def test_tiles_are_halved_in_one_direction_too(max_products: list[int]) -> None:
    max_products.append(256 * 256)
    x, y = many_ties()
    y_ids = dense.ids(len(y), 1)
    options = SearchOptions(precision="float32", cpu_tile_rows=1024)
    neighbours = search_forward(VectorBlock(dense.ids(len(x), 0), x), VectorBlock(y_ids, y), empty_neighbours(len(x), 4), options)
    assert_nearest(neighbours, x, y, y_ids)


def test_too_little_memory_for_the_smallest_tile_is_an_error(max_products: list[int]) -> None:
    max_products.append(0)
    with pytest.raises(MinerError, match="cpu: too little memory for a block of the search; free some of it") as caught:
        assert_exact(dense.unit(600, 8, 0), dense.unit(600, 8, 1), k=2)
    assert "\n" not in str(caught.value)


MATMUL = torch.backends.cuda.matmul


@pytest.fixture
def _restore_settings() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.fp32_precision = MATMUL.fp32_precision = "none"
    MATMUL.allow_fp16_reduced_precision_reduction, MATMUL.allow_fp16_accumulation = True, False


def set_older() -> None:
    MATMUL.allow_tf32 = True


def set_newer() -> None:
    MATMUL.fp32_precision = "tf32"


def set_for_all_backends() -> None:
    torch.backends.fp32_precision = "tf32"


@pytest.mark.usefixtures("_restore_settings")
@pytest.mark.parametrize(
    "change", [lambda: None, set_older, set_newer, set_for_all_backends, lambda: torch.set_float32_matmul_precision("high")]
)
def test_matrix_products_are_in_full_precision_and_settings_are_restored(change: Callable[[], None]) -> None:
    change()
    MATMUL.allow_fp16_accumulation = True
    before = MATMUL.fp32_precision
    for _ in range(2):
        with full_precision_matmul():
            assert MATMUL.fp32_precision == "ieee"
            assert not (MATMUL.allow_fp16_reduced_precision_reduction)
            assert not (MATMUL.allow_bf16_reduced_precision_reduction)
            assert not MATMUL.allow_fp16_accumulation
        assert MATMUL.fp32_precision == before
        assert MATMUL.allow_fp16_reduced_precision_reduction
        assert MATMUL.allow_fp16_accumulation


@pytest.mark.usefixtures("_restore_settings")
def test_a_setting_for_all_backends_stays_in_force_for_matrix_products() -> None:
    torch.backends.fp32_precision = "tf32"
    with full_precision_matmul():
        pass
    torch.backends.fp32_precision = "ieee"
    assert MATMUL.fp32_precision == "ieee"


@pytest.mark.usefixtures("_restore_settings")
def test_search_works_after_the_newer_settings_were_used() -> None:
    MATMUL.fp32_precision = "tf32"
    assert_exact(dense.unit(40, 8, 0), dense.unit(50, 8, 1), k=2)
