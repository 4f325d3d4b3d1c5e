"""Losses against its equation, written in plain loops over Python floats, and its gradient against finite differences."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from miner.errors import ConfigError
from miner.training import losses
from miner.training.losses import (
    DISTANCES,
    EmbeddingBatch,
    alignment,
    info_nce,
    label_contrast,
    multi_positive,
    rescaled,
    retrieval_contrast,
)

Rows = list[list[float]]


def unit(count: int, dim: int = 3, seed: int = 0) -> Tensor:
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, dim)))
    return torch.nn.functional.normalize(rows, dim=1)


def batch(groups: list[int], owners: list[int] | None = None, hard: bool = False, weights: list[float] | None = None) -> EmbeddingBatch:
    return EmbeddingBatch(
        unit(len(groups), seed=1),
        unit(len(groups if owners is None else owners), seed=2),
        torch.tensor(groups),
        None if owners is None else torch.tensor(owners),
        unit(len(groups), seed=3) if hard else None,
        None if weights is None else torch.tensor(weights),
    )


def dots(first: Tensor, second: Tensor) -> Rows:
    return [[math.fsum(a * b for a, b in zip(x, y, strict=True)) for y in second.tolist()] for x in first.tolist()]


def negatives_of(
    i: int, of: EmbeddingBatch, temperature: float, hard_weight: float = 0.0, scale: Callable[[float], float] = float
) -> float:
    """The sum over the negatives of anchor i of exp(s / t)."""
    groups = of.groups.tolist()
    owners = list(range(len(groups))) if of.owners is None else of.owners.tolist()
    similarities = dots(of.anchors, of.positives)[i]
    terms = [math.exp(scale(similarities[p]) / temperature) for p, owner in enumerate(owners) if groups[owner] != groups[i]]
    if of.negatives is not None:
        for j, similarity in enumerate(dots(of.anchors, of.negatives)[i]):
            kin = of.negative_groups is not None and int(of.negative_groups[j]) == groups[i]
            if j == i or (groups[j] != groups[i] and not kin):
                terms.append(math.exp(scale(similarity) / temperature + (hard_weight if j == i else 0)))
    return math.fsum(terms)


def mean(values: list[float], weights: list[float] | None) -> float:
    weights = [1.0] * len(values) if weights is None else weights
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)


def reference_info_nce(of: EmbeddingBatch, temperature: float, two_way: bool, hard_weight: float) -> float:
    similarities, groups = dots(of.anchors, of.positives), of.groups.tolist()
    values = []
    for i in range(len(groups)):
        right = math.exp(similarities[i][i] / temperature)
        value = -math.log(right / (right + negatives_of(i, of, temperature, hard_weight)))
        if two_way:
            back = math.fsum(math.exp(row[i] / temperature) for j, row in enumerate(similarities) if groups[j] != groups[i])
            value = (value - math.log(right / (right + back))) / 2
        values.append(value)
    return mean(values, None if of.weights is None else of.weights.tolist())


BATCHES = {
    "distinct": batch([0, 1, 2, 3, 4]),
    "hard": batch([0, 1, 2, 3, 4], hard=True),
    "groups": batch([0, 0, 1, 2, 1]),
    "groups and hard": batch([0, 0, 1, 2, 1], hard=True),
    "weights": batch([0, 0, 1, 2, 1], weights=[1.0, 0.5, 2.0, 0.0, 1.5], hard=True),
    "hard negatives that others say": replace(batch([0, 0, 1, 2, 1], hard=True), negative_groups=torch.tensor([-1, 2, 0, 0, 1])),
    "no negatives": batch([7, 7, 7, 7]),
    "one row": batch([0]),
    "one row and hard": batch([0], hard=True),
}


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("hard_weight", [0.0, 1.5])
@pytest.mark.parametrize("case", BATCHES)
def test_info_nce_is_its_equation(case: str, hard_weight: float, two_way: bool) -> None:
    loss = info_nce(BATCHES[case], 0.05, two_way, hard_weight)
    assert loss.item() == pytest.approx(reference_info_nce(BATCHES[case], 0.05, two_way, hard_weight), rel=1e-12, abs=1e-15)


RAGGED = {
    "ragged": batch([0, 1, 2, 3], owners=[0, 2, 1, 0, 0, 3, 3]),
    "ragged and hard": batch([0, 1, 2, 3], owners=[0, 2, 1, 0, 0, 3, 3], hard=True),
    "anchors that say the same": batch([5, 1, 5, 3], owners=[0, 2, 1, 0, 0, 3, 3], hard=True),
    "hard negatives that others say": replace(
        batch([5, 1, 5, 3], owners=[0, 2, 1, 0, 0, 3, 3], hard=True), negative_groups=torch.tensor([1, 5, -1, 1])
    ),
    "an anchor without a positive": batch([0, 1, 2, 3], owners=[0, 2, 0, 0, 3, 3]),
    "weights": batch([0, 1, 2, 3], owners=[0, 2, 0, 0, 3, 3], weights=[1.0, 9.0, 0.5, 2.0]),
    "one positive each": batch([0, 1, 2, 3]),
    "no negatives": batch([4, 4, 4], owners=[2, 0, 0, 1]),
    "one row": batch([0], owners=[0, 0, 0]),
    "one row and positive": batch([0]),
}


def reference_multi_positive(
    of: EmbeddingBatch, temperature: float, form: str, siblings: bool, scale: Callable[[float], float] = float
) -> float:
    similarities, count = dots(of.anchors, of.positives), len(of.anchors)
    owners = list(range(count)) if of.owners is None else of.owners.tolist()
    values, weights = [], []
    for i in range(count):
        own = [math.exp(scale(similarities[i][p]) / temperature) for p, owner in enumerate(owners) if owner == i]
        if own:
            others = negatives_of(i, of, temperature, scale=scale)
            shares = [right / (math.fsum(own) + others if siblings else right + others) for right in own]
            out = -math.fsum(map(math.log, shares)) / len(own)
            values.append(out if form == "out" else -math.log(math.fsum(shares) / len(own)))
            weights.append(1.0 if of.weights is None else of.weights[i].item())
    return mean(values, weights)


@pytest.mark.parametrize("siblings", [True, False])
@pytest.mark.parametrize("form", ["out", "in"])
@pytest.mark.parametrize("case", RAGGED)
def test_multi_positive_is_its_equation(case: str, form: str, siblings: bool) -> None:
    loss = multi_positive(RAGGED[case], 0.05, form, siblings)
    assert loss.item() == pytest.approx(reference_multi_positive(RAGGED[case], 0.05, form, siblings), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("form", ["out", "in"])
@pytest.mark.parametrize("case", RAGGED)
def test_rescaling_is_that_of_the_similarities(case: str, form: str) -> None:
    of = RAGGED[case]
    every = [s for keys in (of.positives, of.negatives) if keys is not None for row in dots(of.anchors, keys) for s in row]
    spread = max(every) - min(every) or 1.0
    expected = reference_multi_positive(of, 0.3, form, True, lambda s: (s - min(every)) / spread)
    assert multi_positive(of, rescaled(of, 0.3), form).item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_one_positive_each_is_info_nce() -> None:
    for form in ("out", "in"):
        for siblings in (True, False):
            loss = multi_positive(BATCHES["groups and hard"], 0.1, form, siblings)
            torch.testing.assert_close(loss, info_nce(BATCHES["groups and hard"], 0.1), rtol=1e-12, atol=0)


def test_no_positive_at_all_is_no_loss() -> None:
    none = EmbeddingBatch(unit(3).requires_grad_(), unit(0), torch.arange(3), torch.zeros(0, dtype=torch.int64))
    loss = multi_positive(none, 0.1)
    loss.backward()
    assert loss.item() == 0
    assert none.anchors.grad is not None
    assert not none.anchors.grad.any()


@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1], [2]], ids=str)
def test_label_contrast_is_its_equation(labels: list[int]) -> None:
    x, y = unit(len(labels), seed=1), unit(len(labels), seed=2)
    similarities = dots(x, y)
    values = []
    for i, row in enumerate(similarities):
        others = math.fsum(math.exp(row[j] / 0.2) for j in range(len(labels)) if labels[j] != labels[i])
        values.append(math.log1p(others / math.exp(row[i] / 0.2)))
    assert label_contrast(x, y, torch.tensor(labels), 0.2).item() == pytest.approx(mean(values, None), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("case", [*RAGGED])
def test_retrieval_contrast_is_its_equation(case: str) -> None:
    of = RAGGED[case]
    similarities, groups = dots(of.anchors, of.positives), of.groups.tolist()
    owners = list(range(len(groups))) if of.owners is None else of.owners.tolist()
    values, weights = [], []
    for i in range(len(groups)):
        own = [math.exp(similarities[i][p] / 0.2) for p, owner in enumerate(owners) if groups[owner] == groups[i]]
        if own:
            values.append(math.fsum(math.log1p(negatives_of(i, of, 0.2) / right) for right in own) / len(own))
            weights.append(1.0 if of.weights is None else of.weights[i].item())
    assert retrieval_contrast(of, 0.2).item() == pytest.approx(mean(values, weights), rel=1e-12, abs=1e-15)


def softmax(row: list[float]) -> list[float]:
    total = math.fsum(map(math.exp, row))
    return [math.exp(x) / total for x in row]


def divergence(p: list[float], q: list[float]) -> float:
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


APART: dict[str, Callable[[list[float], list[float]], float]] = {
    "cosine": lambda x, y: 1 - math.fsum(a * b for a, b in zip(x, y, strict=True)) / math.hypot(*x) / math.hypot(*y),
    "mse": lambda x, y: math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / len(x),
    "kl": lambda x, y: divergence(softmax(x), softmax(y)),
    "symmetric_kl": lambda x, y: divergence(softmax(x), softmax(y)) + divergence(softmax(y), softmax(x)),
}


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("count", [1, 5])
def test_alignment_is_its_equation(distance: str, count: int) -> None:
    x, y = 3 * unit(count, seed=1), 2 * unit(count, seed=2)
    expected = [APART[distance](a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert alignment(x, y, distance).item() == pytest.approx(mean(expected, None), rel=1e-12)
    assert alignment(x, x, distance).item() == pytest.approx(0, abs=1e-12)


def gradients_are_right(loss: Callable[[EmbeddingBatch], Tensor], of: EmbeddingBatch) -> bool:
    names = [name for name in ("anchors", "positives", "negatives") if getattr(of, name) is not None]
    inputs = [getattr(of, name).clone().requires_grad_() for name in names]
    return torch.autograd.gradcheck(lambda *vectors: loss(replace(of, **dict(zip(names, vectors, strict=True)))), inputs)


LOSSES: dict[str, Callable[[EmbeddingBatch], Tensor]] = {
    "info_nce": lambda of: info_nce(of, 0.5, hard_weight=0.7) if of.owners is None else multi_positive(of, 0.5),
    "two-way": lambda of: info_nce(of, 0.5, two_way=True) if of.owners is None else multi_positive(of, 0.5, siblings=False),
    "in": lambda of: multi_positive(of, 0.5, "in"),
    "in without siblings": lambda of: multi_positive(of, 0.5, "in", siblings=False),
    "rescaled": lambda of: multi_positive(of, rescaled(of, 0.5)),
    "retrieval": lambda of: retrieval_contrast(of, 0.5),
    "labels": lambda of: label_contrast(of.anchors, of.positives[: len(of.anchors)], of.groups, 0.5),
}


STEEP = {
    **{case: BATCHES[case] for case in ("weights", "hard negatives that others say", "no negatives", "one row", "one row and hard")},
    **{f"{case}, ragged": RAGGED[case] for case in ("anchors that say the same", "an anchor without a positive", "no negatives")},
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", STEEP)
def test_gradients(loss: str, case: str) -> None:
    assert gradients_are_right(LOSSES[loss], STEEP[case])


@pytest.mark.parametrize("distance", DISTANCES)
def test_gradients_of_alignments(distance: str) -> None:
    x, y = (unit(3, seed=seed).requires_grad_() for seed in (1, 2))
    assert torch.autograd.gradcheck(lambda a, b: alignment(a, b, distance), (x, y))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_batch_in_parts_is_the_batch(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of = EmbeddingBatch(unit(23, seed=1), unit(23, seed=2), torch.arange(23) % 9, negatives=unit(23, seed=3))
    found = []
    for part in (losses.PART, 5 * 23):
        monkeypatch.setattr(losses, "PART", part)
        monkeypatch.setattr(losses, "LEAST_ROWS", 1)
        leaves = replace(of, anchors=of.anchors.clone().requires_grad_(), positives=of.positives.clone().requires_grad_())
        value = LOSSES[loss](leaves)
        found.append((value, *torch.autograd.grad(value, (leaves.anchors, leaves.positives))))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES)
def test_equal_rows_and_sharp_temperatures_stay_finite(loss: str) -> None:
    for rows in (unit(1).expand(4, -1).float(), -unit(4, seed=1).float()):
        anchors = (rows * 40).clone().requires_grad_()  # logits of 1600 / 0.5, whose exponentials no float holds
        of = EmbeddingBatch(anchors, 40 * unit(4, seed=1).float() if rows.std() else anchors, torch.arange(4))
        value = LOSSES[loss](of)
        (gradient,) = torch.autograd.grad(value, anchors)
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_weights_of_zero_are_no_loss() -> None:
    assert info_nce(batch([0, 1], weights=[0.0, 0.0]), 0.1).item() == 0


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown form 'both'; one of out, in"):
        multi_positive(BATCHES["distinct"], 0.1, "both")
    with pytest.raises(ConfigError, match="unknown distance 'l1'; one of cosine, mse, kl, symmetric_kl"):
        alignment(unit(2), unit(2), "l1")
