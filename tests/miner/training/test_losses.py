"""Each loss against its equation in plain loops over Python floats, and its gradient against finite differences."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from miner.errors import ConfigError
from miner.training.losses.contrastive import (
    DISTANCES,
    EmbeddingBatch,
    Tiling,
    alignment,
    info_nce,
    label_contrast,
    multi_positive,
    rescaled_temperature,
    retrieval_contrast,
)

Rows = list[list[float]]


def unit_rows(count: int, dim: int = 3, seed: int = 0) -> Tensor:
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, dim)))
    return torch.nn.functional.normalize(rows, dim=1)


def make_batch(
    groups: list[int], owners: list[int] | None = None, hard: bool = False, weights: list[float] | None = None
) -> EmbeddingBatch:
    return EmbeddingBatch(
        unit_rows(len(groups), seed=1),
        unit_rows(len(groups if owners is None else owners), seed=2),
        torch.tensor(groups),
        None if owners is None else torch.tensor(owners),
        unit_rows(len(groups), seed=3) if hard else None,
        None if weights is None else torch.tensor(weights),
    )


def dot_products(first: Tensor, second: Tensor) -> Rows:
    return [[math.fsum(a * b for a, b in zip(x, y, strict=True)) for y in second.tolist()] for x in first.tolist()]


def sum_over_negatives(
    i: int, batch: EmbeddingBatch, temperature: float, hard_weight: float = 0.0, scale: Callable[[float], float] = float
) -> float:
    """Return the sum of exp(s / t) over the negatives of anchor i."""
    groups = batch.groups.tolist()
    owners = list(range(len(groups))) if batch.owners is None else batch.owners.tolist()
    similarities = dot_products(batch.anchors, batch.positives)[i]
    terms = [math.exp(scale(similarities[p]) / temperature) for p, owner in enumerate(owners) if groups[owner] != groups[i]]
    if batch.negatives is not None:
        negative_owners = list(range(len(groups))) if batch.negative_owners is None else batch.negative_owners.tolist()
        for j, similarity in enumerate(dot_products(batch.anchors, batch.negatives)[i]):
            owner = negative_owners[j]
            is_same_group = batch.negative_groups is not None and int(batch.negative_groups[j]) == groups[i]
            if owner == i or (groups[owner] != groups[i] and not is_same_group):
                terms.append(math.exp(scale(similarity) / temperature + (hard_weight if owner == i else 0)))
    return math.fsum(terms)


def weighted_mean(values: list[float], weights: list[float] | None) -> float:
    weights = [1.0] * len(values) if weights is None else weights
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)


def reference_info_nce(batch: EmbeddingBatch, temperature: float, two_way: bool, hard_weight: float) -> float:
    similarities, groups = dot_products(batch.anchors, batch.positives), batch.groups.tolist()
    values = []
    for i in range(len(groups)):
        positive = math.exp(similarities[i][i] / temperature)
        value = -math.log(positive / (positive + sum_over_negatives(i, batch, temperature, hard_weight)))
        if two_way:
            backward = math.fsum(math.exp(row[i] / temperature) for j, row in enumerate(similarities) if groups[j] != groups[i])
            value = (value - math.log(positive / (positive + backward))) / 2
        values.append(value)
    return weighted_mean(values, None if batch.weights is None else batch.weights.tolist())


def make_mixed_batch(groups: list[int], negative_owners: list[int], owners: list[int] | None = None) -> EmbeddingBatch:
    """Return a batch in which only these anchors have a hard negative; two of the hard negatives are texts of other groups."""
    negative_groups = torch.tensor([groups[0], groups[-1], *[-1] * len(negative_owners)][: len(negative_owners)])
    return replace(
        make_batch(groups, owners),
        negatives=unit_rows(len(negative_owners), seed=3),
        negative_owners=torch.tensor(negative_owners),
        negative_groups=negative_groups,
    )


BATCHES = {
    "hard negatives for some anchors": make_mixed_batch([0, 0, 1, 2, 1], negative_owners=[1, 3, 4]),
    "one hard negative": make_mixed_batch([0, 1, 2, 3, 4], negative_owners=[3]),
    "two hard negatives for an anchor": make_mixed_batch([0, 1, 2, 2], negative_owners=[3, 1, 1]),
    "distinct": make_batch([0, 1, 2, 3, 4]),
    "hard": make_batch([0, 1, 2, 3, 4], hard=True),
    "groups": make_batch([0, 0, 1, 2, 1]),
    "groups and hard": make_batch([0, 0, 1, 2, 1], hard=True),
    "weights": make_batch([0, 0, 1, 2, 1], weights=[1.0, 0.5, 2.0, 0.0, 1.5], hard=True),
    "hard negatives of another group": replace(make_batch([0, 0, 1, 2, 1], hard=True), negative_groups=torch.tensor([-1, 2, 0, 0, 1])),
    "no negatives": make_batch([7, 7, 7, 7]),
    "one row": make_batch([0]),
    "one row and hard": make_batch([0], hard=True),
}


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("hard_weight", [0.0, 1.5])
@pytest.mark.parametrize("case", BATCHES)
def test_info_nce_equals_its_equation(case: str, hard_weight: float, two_way: bool) -> None:
    loss = info_nce(BATCHES[case], 0.05, two_way, hard_weight)
    assert loss.item() == pytest.approx(reference_info_nce(BATCHES[case], 0.05, two_way, hard_weight), rel=1e-12, abs=1e-15)


MULTI_POSITIVE_BATCHES = {
    "hard negatives for some anchors": make_mixed_batch([5, 1, 5, 3], owners=[0, 2, 1, 0, 0, 3, 3], negative_owners=[1, 3]),
    "several positives": make_batch([0, 1, 2, 3], owners=[0, 2, 1, 0, 0, 3, 3]),
    "several positives and hard": make_batch([0, 1, 2, 3], owners=[0, 2, 1, 0, 0, 3, 3], hard=True),
    "anchors of one group": make_batch([5, 1, 5, 3], owners=[0, 2, 1, 0, 0, 3, 3], hard=True),
    "hard negatives of another group": replace(
        make_batch([5, 1, 5, 3], owners=[0, 2, 1, 0, 0, 3, 3], hard=True), negative_groups=torch.tensor([1, 5, -1, 1])
    ),
    "an anchor without a positive": make_batch([0, 1, 2, 3], owners=[0, 2, 0, 0, 3, 3]),
    "weights": make_batch([0, 1, 2, 3], owners=[0, 2, 0, 0, 3, 3], weights=[1.0, 9.0, 0.5, 2.0]),
    "one positive per anchor": make_batch([0, 1, 2, 3]),
    "no negatives": make_batch([4, 4, 4], owners=[2, 0, 0, 1]),
    "one row": make_batch([0], owners=[0, 0, 0]),
    "one row and positive": make_batch([0]),
}


def reference_multi_positive(
    batch: EmbeddingBatch, temperature: float, form: str, siblings: bool, scale: Callable[[float], float] = float
) -> float:
    similarities, count = dot_products(batch.anchors, batch.positives), len(batch.anchors)
    owners = list(range(count)) if batch.owners is None else batch.owners.tolist()
    values, weights = [], []
    for i in range(count):
        positives = [math.exp(scale(similarities[i][p]) / temperature) for p, owner in enumerate(owners) if owner == i]
        if positives:
            negatives = sum_over_negatives(i, batch, temperature, scale=scale)
            shares = [positive / ((math.fsum(positives) if siblings else positive) + negatives) for positive in positives]
            outside = -math.fsum(map(math.log, shares)) / len(positives)
            values.append(outside if form == "out" else -math.log(math.fsum(shares) / len(positives)))
            weights.append(1.0 if batch.weights is None else batch.weights[i].item())
    return weighted_mean(values, weights)


@pytest.mark.parametrize("siblings", [True, False])
@pytest.mark.parametrize("form", ["out", "in"])
@pytest.mark.parametrize("case", MULTI_POSITIVE_BATCHES)
def test_multi_positive_equals_its_equation(case: str, form: str, siblings: bool) -> None:
    loss = multi_positive(MULTI_POSITIVE_BATCHES[case], 0.05, form, siblings)
    assert loss.item() == pytest.approx(reference_multi_positive(MULTI_POSITIVE_BATCHES[case], 0.05, form, siblings), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("form", ["out", "in"])
@pytest.mark.parametrize("case", MULTI_POSITIVE_BATCHES)
def test_rescaled_temperature_rescales_similarities(case: str, form: str) -> None:
    batch = MULTI_POSITIVE_BATCHES[case]
    similarities = [
        s for keys in (batch.positives, batch.negatives) if keys is not None for row in dot_products(batch.anchors, keys) for s in row
    ]
    spread = max(similarities) - min(similarities) or 1.0
    expected = reference_multi_positive(batch, 0.3, form, True, lambda s: (s - min(similarities)) / spread)
    assert multi_positive(batch, rescaled_temperature(batch, 0.3), form).item() == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_multi_positive_equals_info_nce_for_one_positive_per_anchor() -> None:
    for form in ("out", "in"):
        for siblings in (True, False):
            loss = multi_positive(BATCHES["groups and hard"], 0.1, form, siblings)
            torch.testing.assert_close(loss, info_nce(BATCHES["groups and hard"], 0.1), rtol=1e-12, atol=0)


def test_loss_is_zero_without_positives() -> None:
    batch = EmbeddingBatch(unit_rows(3).requires_grad_(), unit_rows(0), torch.arange(3), torch.zeros(0, dtype=torch.int64))
    loss = multi_positive(batch, 0.1)
    loss.backward()
    assert loss.item() == 0
    assert batch.anchors.grad is not None
    assert not batch.anchors.grad.any()


@pytest.mark.parametrize("views", [1, 3])
@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1], [0, 0, 0, 0, 1], [1, 1, 1, 1, 1], [2]], ids=str)
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_label_contrast_equals_its_equation(labels: list[int], views: int, temperature: float) -> None:
    """Each view of a sample against the views of samples with another label; the temperature of the paper is 1."""
    batch = make_batch(list(range(len(labels))), owners=list(range(len(labels))) * views, hard=True)
    similarities, owners = dot_products(batch.anchors, batch.positives), batch.anchor_of_positives().tolist()
    values = []
    for i, row in enumerate(similarities):
        negatives = math.fsum(math.exp(s / temperature) for s, owner in zip(row, owners, strict=True) if labels[owner] != labels[i])
        own = [math.exp(s / temperature) for s, owner in zip(row, owners, strict=True) if owner == i]
        values.append(math.fsum(-math.log(s / (s + negatives)) for s in own) / views)
    loss = label_contrast(batch, torch.tensor(labels), temperature)
    assert loss.item() == pytest.approx(weighted_mean(values, None), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_retrieval_contrast_differs_from_info_nce_through_groups(temperature: float) -> None:
    """Without paraphrases, each row is a group of its own, and both losses have one positive and the same negatives."""
    distinct, grouped = make_batch([0, 1, 2, 3], hard=True), make_batch([0, 0, 2, 3], hard=True)
    torch.testing.assert_close(retrieval_contrast(distinct, temperature), info_nce(distinct, temperature), rtol=1e-12, atol=0)
    assert abs(retrieval_contrast(grouped, temperature) - info_nce(grouped, temperature)) > 1e-3


@pytest.mark.parametrize("case", [*MULTI_POSITIVE_BATCHES])
def test_retrieval_contrast_equals_its_equation(case: str) -> None:
    batch = MULTI_POSITIVE_BATCHES[case]
    similarities, groups = dot_products(batch.anchors, batch.positives), batch.groups.tolist()
    owners = list(range(len(groups))) if batch.owners is None else batch.owners.tolist()
    values, weights = [], []
    for i in range(len(groups)):
        positives = [math.exp(similarities[i][p] / 0.2) for p, owner in enumerate(owners) if groups[owner] == groups[i]]
        if positives:
            values.append(math.fsum(math.log1p(sum_over_negatives(i, batch, 0.2) / positive) for positive in positives))
            weights.append(1.0 if batch.weights is None else batch.weights[i].item())
    assert retrieval_contrast(batch, 0.2).item() == pytest.approx(weighted_mean(values, weights), rel=1e-12, abs=1e-15)


def softmax(row: list[float]) -> list[float]:
    total = math.fsum(map(math.exp, row))
    return [math.exp(x) / total for x in row]


def divergence(p: list[float], q: list[float]) -> float:
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


REFERENCE_DISTANCES: dict[str, Callable[[list[float], list[float]], float]] = {
    "cosine": lambda x, y: 1 - math.fsum(a * b for a, b in zip(x, y, strict=True)) / math.hypot(*x) / math.hypot(*y),
    "mse": lambda x, y: math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True)),
    "kl": lambda x, y: divergence(softmax(x), softmax(y)),
    "symmetric_kl": lambda x, y: divergence(softmax(x), softmax(y)) + divergence(softmax(y), softmax(x)),
}


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("count", [1, 5])
def test_alignment_equals_its_equation(distance: str, count: int) -> None:
    x, y = 3 * unit_rows(count, seed=1), 2 * unit_rows(count, seed=2)
    expected = [REFERENCE_DISTANCES[distance](a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert alignment(x, y, distance).item() == pytest.approx(weighted_mean(expected, None), rel=1e-12)
    assert alignment(x, x, distance).item() == pytest.approx(0, abs=1e-12)


def check_gradients(loss: Callable[[EmbeddingBatch], Tensor], batch: EmbeddingBatch) -> bool:
    names = [name for name in ("anchors", "positives", "negatives") if getattr(batch, name) is not None]
    inputs = [getattr(batch, name).clone().requires_grad_() for name in names]
    return torch.autograd.gradcheck(lambda *vectors: loss(replace(batch, **dict(zip(names, vectors, strict=True)))), inputs)


LOSSES: dict[str, Callable[[EmbeddingBatch], Tensor]] = {
    "info_nce": lambda batch: info_nce(batch, 0.5, hard_weight=0.7) if batch.owners is None else multi_positive(batch, 0.5),
    "two-way": lambda batch: info_nce(batch, 0.5, two_way=True) if batch.owners is None else multi_positive(batch, 0.5, siblings=False),
    "in": lambda batch: multi_positive(batch, 0.5, "in"),
    "in without siblings": lambda batch: multi_positive(batch, 0.5, "in", siblings=False),
    "rescaled": lambda batch: multi_positive(batch, rescaled_temperature(batch, 0.5)),
    "retrieval": lambda batch: retrieval_contrast(batch, 0.5),
    "labels": lambda batch: label_contrast(batch, batch.groups, 0.5),
}


GRADIENT_BATCHES = {
    **{case: BATCHES[case] for case in ("weights", "hard negatives of another group", "no negatives", "one row", "one row and hard")},
    **{case: BATCHES[case] for case in ("hard negatives for some anchors", "two hard negatives for an anchor")},
    **{
        f"{case}, several positives": MULTI_POSITIVE_BATCHES[case]
        for case in ("anchors of one group", "an anchor without a positive", "no negatives", "hard negatives for some anchors")
    },
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", GRADIENT_BATCHES)
def test_gradients_equal_finite_differences(loss: str, case: str) -> None:
    assert check_gradients(LOSSES[loss], GRADIENT_BATCHES[case])


@pytest.mark.parametrize("distance", DISTANCES)
def test_gradients_of_alignment_equal_finite_differences(distance: str) -> None:
    x, y = (unit_rows(3, seed=seed).requires_grad_() for seed in (1, 2))
    assert torch.autograd.gradcheck(lambda a, b: alignment(a, b, distance), (x, y))


@pytest.mark.parametrize("loss", LOSSES)
def test_tiling_does_not_change_losses_and_gradients(loss: str) -> None:
    batch = EmbeddingBatch(unit_rows(23, seed=1), unit_rows(23, seed=2), torch.arange(23) % 9, negatives=unit_rows(23, seed=3))
    results = []
    for tiling in (Tiling(), Tiling(similarities=5 * 23, min_rows=1)):
        leaves = replace(
            batch, tiling=tiling, anchors=batch.anchors.clone().requires_grad_(), positives=batch.positives.clone().requires_grad_()
        )
        value = LOSSES[loss](leaves)
        results.append((value, *torch.autograd.grad(value, (leaves.anchors, leaves.positives))))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES)
def test_equal_rows_and_low_temperatures_stay_finite(loss: str) -> None:
    for rows in (unit_rows(1).expand(4, -1).float(), -unit_rows(4, seed=1).float()):
        anchors = (rows * 40).clone().requires_grad_()  # logits of 1600 / 0.5, whose exponentials overflow
        batch = EmbeddingBatch(anchors, 40 * unit_rows(4, seed=1).float() if rows.std() else anchors, torch.arange(4))
        value = LOSSES[loss](batch)
        (gradient,) = torch.autograd.grad(value, anchors)
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_loss_is_zero_for_zero_weights() -> None:
    assert info_nce(make_batch([0, 1], weights=[0.0, 0.0]), 0.1).item() == 0


def test_unknown_names_are_errors() -> None:
    with pytest.raises(ConfigError, match="unknown form 'both'; one of out, in"):
        multi_positive(BATCHES["distinct"], 0.1, "both")
    with pytest.raises(ConfigError, match="unknown distance 'l1'; one of cosine, mse, kl, symmetric_kl"):
        alignment(unit_rows(2), unit_rows(2), "l1")
