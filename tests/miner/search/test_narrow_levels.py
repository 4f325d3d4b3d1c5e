"""Products of operands of 7.5 bits: they do not saturate, also where the processor adds pairs of products in 16 bits."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dense
import numpy as np
import pytest
import torch
from search_cases import Sides, assert_exact, many_ties, mixed_scales, no_ties, one_dimension

from miner.search.int8_products import MAX_UNSATURATED, PackedInt8
from miner.search.precision import rank_precisions

NO_VNNI = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
SEARCH_CHECKS = "import test_narrow_levels as tests; tests.check_unsaturated(); tests.check_ranking(); tests.check_searches()"


def isotropic() -> Sides:
    """Vectors without near neighbours, so that most rows are uncertain in few bits."""
    return dense.unit(600, 256, 40), dense.unit(700, 256, 41)


def decaying() -> Sides:
    """Vectors whose components decay, as on principal axes: the first ones determine the scale of all."""
    spectrum = np.exp(-np.arange(96) / 12)
    sides = (np.random.default_rng(seed).standard_normal((900, 96)) * spectrum for seed in (42, 43))
    x, y = ((side / np.linalg.norm(side, axis=1, keepdims=True)).astype(np.float16) for side in sides)
    return x, y


CASES = [isotropic, decaying, many_ties, mixed_scales, no_ties, one_dimension]


def check_unsaturated() -> None:
    """Compare products of the largest operands, of any signs, with exact ones."""
    for dim in (1, 2, 3, 5, 64, 257, 1024):
        signs = torch.from_numpy(np.random.default_rng(dim).choice([-1, 1], size=(200, dim)))
        signs[:4] = torch.tensor([1, -1, 1, -1])[:, None]
        operands = (signs * MAX_UNSATURATED).to(torch.int8)
        right = PackedInt8(operands[2:], torch.ones(len(operands) - 2), MAX_UNSATURATED)
        products = right.multiply(operands, 1.0, 1.0, torch.float32)
        assert torch.equal(products.double(), operands.double() @ operands[2:].double().T), dim


def check_ranking() -> None:
    """The wider formats saturate here, so that they are never used."""
    assert {"int8", "int8-levels"}.isdisjoint(rank_precisions(torch.device("cpu"), 256))


def check_searches() -> None:
    for make_sides in CASES:
        assert_exact(*make_sides(), k=4, precision="narrow-levels", cpu_tile_rows=256)
        assert_exact(*make_sides(), k=4, min_trial_multiplications=0)


def test_largest_operands_do_not_saturate() -> None:
    check_unsaturated()


@pytest.mark.parametrize("make_sides", CASES)
@pytest.mark.parametrize("k", [1, 4, 16])
def test_both_directions_equal_the_whole_matrix(make_sides: Callable[[], Sides], k: int) -> None:
    assert_exact(*make_sides(), k=k, precision="narrow-levels", cpu_tile_rows=256)


@pytest.mark.skipif(not torch.cpu._is_avx2_supported(), reason="needs AVX2")
def test_a_processor_without_vnni() -> None:
    """Both libraries read the instructions that they may use when they are loaded, so this needs a process of its own."""
    environment = {**os.environ, **NO_VNNI, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", SEARCH_CHECKS], cwd=here, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_wider_levels_are_preferred_where_they_do_not_saturate() -> None:
    ranked = rank_precisions(torch.device("cpu"), 256)
    assert not {"int8-levels", "narrow-levels"} <= set(ranked)
