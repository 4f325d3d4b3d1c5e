"""Classification heads and masked language modelling."""

import math

import pytest
import torch
from torch import nn

from miner.training.models.heads import FirstTokenHead, NliHead
from miner.training.steps.mlm import IGNORED, mask_tokens, mlm_loss

MASK, VOCABULARY = 3, 5000


def test_nli_head_equals_its_formula() -> None:
    torch.manual_seed(0)
    head = NliHead(4).eval().double()
    u, v = torch.randn(2, 4).double(), torch.randn(2, 4).double()
    hidden, last = head.layers[0], head.layers[3]
    assert (hidden.out_features, last.out_features) == (256, 3)
    for row in range(2):
        features = torch.cat([u[row], v[row], (u[row] - v[row]).abs()])
        expected = last.weight @ (hidden.weight @ features + hidden.bias).clamp_min(0) + last.bias
        torch.testing.assert_close(head(u, v)[row], expected, rtol=1e-12, atol=1e-12)


def test_first_token_head_is_linear_except_for_dropout() -> None:
    torch.manual_seed(0)
    head = FirstTokenHead(4, classes=2, dropout=0.5)
    x = torch.randn(64, 4)
    linear = head.layers[1]
    torch.testing.assert_close(head.eval()(x), x @ linear.weight.T + linear.bias)
    assert not torch.equal(head.train()(x), head.eval()(x))


def mask_sample(probability: float, seed: int = 0) -> tuple[torch.Tensor, ...]:
    ids = torch.arange(200 * 500).reshape(200, 500) % (VOCABULARY - 10) + 10
    special = torch.zeros_like(ids, dtype=torch.bool)
    special[:, 0] = special[:, 400:] = True
    return ids, special, *mask_tokens(ids.clone(), special, probability, MASK, VOCABULARY, torch.Generator().manual_seed(seed))


def test_masking_uses_the_shares_of_bert() -> None:
    ids, special, masked, labels = mask_sample(0.15)
    is_chosen = labels != IGNORED
    assert not (is_chosen & special).any()
    torch.testing.assert_close(labels[is_chosen], ids[is_chosen])
    assert torch.equal(masked[~is_chosen], ids[~is_chosen])
    count = int(is_chosen.sum())
    kinds = {"mask": masked == MASK, "same": masked == ids, "other": (masked != MASK) & (masked != ids)}
    for share, subset, population in (
        (0.15, is_chosen, ~special),
        (0.8, kinds["mask"], is_chosen),
        (0.1, kinds["same"], is_chosen),
        (0.1, kinds["other"], is_chosen),
    ):
        total = int(population.sum())
        assert abs(int((subset & population).sum()) - share * total) < 4 * math.sqrt(share * (1 - share) * total)
    assert masked[is_chosen & kinds["other"]].unique().numel() > 0.07 * count  # drawn from the whole vocabulary


def test_masking_is_a_function_of_the_generator() -> None:
    assert all(torch.equal(a, b) for a, b in zip(mask_sample(0.15), mask_sample(0.15), strict=True))
    assert not torch.equal(mask_sample(0.15)[2], mask_sample(0.15, seed=1)[2])


def test_mlm_loss_is_the_mean_over_masked_tokens() -> None:
    torch.manual_seed(0)
    tokens = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    decoder = nn.Linear(4, 5).double()
    labels = torch.tensor([[IGNORED, 2, IGNORED], [0, IGNORED, 4]])
    expected = 0.0
    for row, column in ((0, 1), (1, 0), (1, 2)):
        logits = decoder(tokens[row, column]).tolist()
        expected += math.log(math.fsum(map(math.exp, logits))) - logits[labels[row, column]]
    assert mlm_loss(tokens, labels, decoder).item() == pytest.approx(expected / 3, rel=1e-12)
    assert torch.autograd.gradcheck(lambda vectors: mlm_loss(vectors, labels, decoder), tokens)


def test_mlm_loss_is_zero_without_masked_tokens() -> None:
    tokens = torch.randn(1, 2, 4, requires_grad=True)
    loss = mlm_loss(tokens, torch.full((1, 2), IGNORED), nn.Linear(4, 5))
    loss.backward()
    assert loss.item() == 0
    assert tokens.grad is not None
    assert not tokens.grad.any()
