"""The optimizer of sparse tables against AdamW on dense gradients."""

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny import config
from torch import nn

from miner.training import run
from miner.training.config import TrainConfig
from miner.training.steps import trainer
from miner.training.steps.sparse_adamw import SparseAdamW

ROWS, DIM, STEPS = 40, 6, 260


def take_steps(optimizer: torch.optim.Optimizer, table: nn.Embedding, mean: nn.Linear, clip: float | None, seed: int = 0) -> None:
    """Train with rows that are read at very different rates, some never, and a learning rate that changes."""
    generator = torch.Generator().manual_seed(seed)
    frequencies = 1 / torch.arange(1, ROWS - 4) ** 1.5
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * (1 - step / STEPS)
        optimizer.zero_grad()
        for _ in range(2):  # accumulation
            tokens = torch.multinomial(frequencies, 12, replacement=True, generator=generator).reshape(3, 4)
            targets = torch.randn(3, DIM, generator=generator, dtype=torch.float64)
            (mean(table(tokens).mean(dim=1) * 0.01).tanh().sum() + (table(tokens).mean(dim=1) * targets).sum()).backward()
        rows = optimizer.join_gradients() if isinstance(optimizer, SparseAdamW) else [table.weight]
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([*mean.parameters(), *rows], clip)
        optimizer.step()


def build(sparse: bool) -> tuple[torch.optim.AdamW, nn.Embedding, nn.Linear]:
    torch.manual_seed(1)
    table, mean = nn.Embedding(ROWS, DIM, padding_idx=3).double(), nn.Linear(DIM, 2).double()
    groups = [{"params": [table.weight, mean.weight], "weight_decay": 0.1}, {"params": [mean.bias], "weight_decay": 0.0}]
    options = {"lr": 1e-2, "betas": (0.9, 0.98)}
    return SparseAdamW(groups, [table], **options) if sparse else torch.optim.AdamW(groups, **options), table, mean


@pytest.mark.parametrize("clip", [None, 0.05])
def test_rows_are_those_of_adamw(clip: float | None) -> None:
    dense, dense_table, dense_mean = build(sparse=False)
    take_steps(dense, dense_table, dense_mean, clip)
    sparse, table, mean = build(sparse=True)
    take_steps(sparse, table, mean, clip)
    assert isinstance(sparse, SparseAdamW)
    assert (sparse.tables[0].updated < STEPS).sum() > ROWS / 3  # rows that are not up to date yet
    sparse.catch_up()
    torch.testing.assert_close(table.weight, dense_table.weight, rtol=1e-5, atol=5e-6)  # of 260 steps of up to 1e-2
    torch.testing.assert_close(mean.weight, dense_mean.weight, rtol=1e-5, atol=1e-7)
    for name, values in dense.state[dense_table.weight].items():
        torch.testing.assert_close(sparse.state[table.weight][name], values, rtol=1e-5, atol=1e-12, check_dtype=False)


def test_a_stored_state_continues_with_dense_and_sparse_gradients() -> None:
    whole, table, mean = build(sparse=True)
    take_steps(whole, table, mean, None)
    whole.catch_up()  # type: ignore[attr-defined]
    results = []
    for is_sparse in (True, False):
        resumed, resumed_table, resumed_mean = build(is_sparse)
        resumed_table.load_state_dict(table.state_dict())
        resumed_mean.load_state_dict(mean.state_dict())
        resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
        take_steps(resumed, resumed_table, resumed_mean, None, seed=2)
        if isinstance(resumed, SparseAdamW):
            resumed.catch_up()
        results.append(resumed_table.weight)
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("objective", [[{"loss": "info_nce"}], [{"loss": "info_nce"}, {"loss": "mlm"}]], ids=["untied", "tied"])
def test_trained_encoders_are_those_of_dense_gradients(
    folder: Path, objective: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = config(folder, steps=12, batch_size=8, accumulation=2, clip=0.1, weight_decay=0.1, lr=1e-3, checkpoint_every=5)
    values["objective"] = objective
    run.train(TrainConfig(**values), str(folder / "sparse"))
    monkeypatch.setattr(trainer, "sparse_tables", lambda *_: [])
    run.train(TrainConfig(**values), str(folder / "dense"))
    sparse, dense = (load_file(folder / name / "encoder" / "model.safetensors") for name in ("sparse", "dense"))
    for name in (name for name in dense if not name.endswith("key.bias")):  # whose gradients are rounding errors
        torch.testing.assert_close(sparse[name], dense[name], rtol=1e-4, atol=2e-6, msg=name)
