"""Dual momentum contrast: momentum encoders by their formula, queues against a deque, the loss against its equation."""

import math
from collections import deque

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from miner.training.losses.momentum import Queue, copy_momentum_encoder, dual_momentum_contrast, momentum_contrast, update_momentum_encoder


def unit(count: int, seed: int) -> Tensor:
    return nn.functional.normalize(torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 3))), dim=1)


def fill_queue(size: int, keys: Tensor, groups: list[int]) -> Queue:
    queue = Queue(size, keys.shape[1]).to(keys.dtype)
    queue.enqueue(keys, torch.tensor(groups))
    return queue


def test_momentum_encoder_moves_by_its_formula() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
    momentum_encoder = copy_momentum_encoder(model)
    before = {name: value.clone() for name, value in momentum_encoder.state_dict().items()}
    model(unit(5, seed=1)).square().sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1
    update_momentum_encoder(momentum_encoder, model, 0.9)
    for name, value in momentum_encoder.named_parameters():
        expected = 0.9 * before[name] + 0.1 * model.get_parameter(name)
        torch.testing.assert_close(value.detach(), expected.detach(), rtol=1e-12, atol=1e-15)
        assert not value.requires_grad
    for name, value in momentum_encoder.named_buffers():
        torch.testing.assert_close(value, model.get_buffer(name), rtol=0, atol=0)


def test_without_momentum_the_copy_equals_the_model() -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    update_momentum_encoder(momentum_encoder := copy_momentum_encoder(model), other, 0.0)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in momentum_encoder.state_dict().items())


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [2, 5, 1, 4, 7], [7], [8, 1], [20, 3], [1] * 16, [0, 3]], ids=str)
def test_queue_keeps_the_last_keys(sizes: list[int]) -> None:
    queue, expected = Queue(7, 2), deque[tuple[float, float, int]](maxlen=7)
    for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        numbers = torch.arange(start, start + size)
        queue.enqueue(torch.stack([numbers, -numbers], dim=1).float(), 10 * numbers)
        expected.extend((float(n), -float(n), 10 * n) for n in numbers.tolist())
        keys, groups = queue.contents()
        assert sorted((*key, group) for key, group in zip(keys.tolist(), groups.tolist(), strict=True)) == sorted(expected)


def test_restored_queue_continues_identically() -> None:
    uninterrupted, resumed = Queue(7, 3), Queue(7, 3)
    for step in range(6):
        if step == 3:
            restored = Queue(7, 3)
            restored.load_state_dict(resumed.state_dict())
            resumed = restored
        for queue in (uninterrupted, resumed):
            queue.enqueue(unit(4, seed=step).float(), torch.arange(4) + step)
    assert all(torch.equal(value, resumed.state_dict()[name]) for name, value in uninterrupted.state_dict().items())


def reference(queries: Tensor, keys: Tensor, groups: list[int], queued: Tensor, queued_groups: list[int], temperature: float) -> float:
    total = 0.0
    for query, key, group in zip(queries.tolist(), keys.tolist(), groups, strict=True):
        positive = math.exp(float(np.dot(query, key)) / temperature)
        negatives = [
            math.exp(float(np.dot(query, other)) / temperature)
            for other, other_group in zip(queued.tolist(), queued_groups, strict=True)
            if other_group != group
        ]
        total -= math.log(positive / (positive + math.fsum(negatives)))
    return total / len(groups)


QUEUED_GROUPS = [5, 1, 6, 1, 9]


@pytest.mark.parametrize("groups", [[0, 1, 2, 1], [1], [3, 3, 3]], ids=str)
def test_loss_equals_its_equation(groups: list[int]) -> None:
    queued = unit(5, seed=3)
    x, key = unit(len(groups), seed=1), unit(len(groups), seed=2)
    loss = momentum_contrast(x, key, torch.tensor(groups), fill_queue(8, queued, QUEUED_GROUPS), 0.04)
    assert loss.item() == pytest.approx(reference(x, key, groups, queued, QUEUED_GROUPS, 0.04), rel=1e-12)


def test_each_side_contrasts_with_the_keys_of_the_other() -> None:
    groups = [0, 1, 2]
    (x, y), (key_x, key_y) = ((unit(3, seed=seed), unit(3, seed=seed + 1)) for seed in (1, 3))
    queued_x, queued_y = unit(5, seed=5), unit(5, seed=6)
    queues = fill_queue(5, queued_x, QUEUED_GROUPS), fill_queue(5, queued_y, QUEUED_GROUPS)
    loss = dual_momentum_contrast((x, y), (key_x, key_y), torch.tensor(groups), queues, 0.1)
    expected = reference(x, key_y, groups, queued_y, QUEUED_GROUPS, 0.1) + reference(y, key_x, groups, queued_x, QUEUED_GROUPS, 0.1)
    assert loss.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("groups", [[0, 1, 2], [1, 1, 1]], ids=str)
def test_only_queries_get_gradients(groups: list[int]) -> None:
    queue = fill_queue(7, unit(5, seed=3), QUEUED_GROUPS)
    x, key = unit(3, seed=1).requires_grad_(), unit(3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda query: momentum_contrast(query, key, torch.tensor(groups), queue, 0.3), x)
    momentum_contrast(x, key, torch.tensor(groups), queue, 0.3).backward()
    assert key.grad is None
    assert not any(buffer.requires_grad for buffer in queue.buffers())


def test_loss_is_zero_with_an_empty_queue() -> None:
    x = unit(2, seed=1).requires_grad_()
    loss = momentum_contrast(x, unit(2, seed=2), torch.arange(2), Queue(4, 3).double(), 0.04)
    loss.backward()
    assert loss.item() == 0
    assert x.grad is not None
    assert not x.grad.any()


def test_unfilled_queue_rows_are_no_negatives() -> None:
    """The zero rows of a queue that is not full would be negatives with similarity 0."""
    queued = unit(5, seed=3)
    x, key = unit(2, seed=1), unit(2, seed=2)
    partly_filled, full = (
        momentum_contrast(x, key, torch.arange(2), fill_queue(size, queued, QUEUED_GROUPS), 0.5).item() for size in (500, 5)
    )
    assert partly_filled == full
