"""Thresholds without known pairs: partners that are left out, against a loop over dense matrices, and estimates against planted truth."""

from dataclasses import replace

import numpy as np
import pytest

from miner.config.choices import FALLBACK_RATIO, MARGINS
from miner.mining import leave_out
from miner.mining.candidates import Candidates, LateScores, score
from miner.mining.in_memory import find_candidates
from miner.mining.leave_out import BestMargins, LeftOut, SampledSources
from miner.mining.matching import match, rank

K = 4


def corpora(num_pairs: int, num_lone: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of sources and targets, of which the first `num_pairs` are translations of each other, with noise."""
    random = np.random.default_rng(seed)
    meanings, dim = random.normal(size=(num_pairs, 24)), 24
    sides = [np.concatenate([meanings + noise * random.normal(size=meanings.shape), random.normal(size=(num_lone, dim))]) for _ in range(2)]
    return tuple((side / np.linalg.norm(side, axis=1, keepdims=True)).astype(np.float16) for side in sides)


def candidates_of(source: np.ndarray, target: np.ndarray, margin: str = "ratio") -> tuple[Candidates, BestMargins]:
    candidates = find_candidates(source, target, K)
    best = BestMargins.of_none(candidates.target_ids)
    best.update(candidates, margin)
    return candidates, best


@pytest.mark.parametrize("margin", MARGINS)
def test_left_out_partners_equal_a_loop_over_all_candidates(margin: str) -> None:
    source, target = corpora(20, 15, 0.5)
    candidates, best = candidates_of(source, target, margin)
    left_out = leave_out.leave_out(candidates, margin, best, K)
    x, y = source.astype(np.float64), target.astype(np.float64)
    similarities = x @ y.T
    function = MARGINS[margin].score
    forward = [set(np.argsort(-row)[:K]) for row in similarities]
    backward = [set(np.argsort(-column)[:K]) for column in similarities.T]
    source_means, target_means = np.sort(similarities)[:, -K:].mean(axis=1), np.sort(similarities.T)[:, -K:].mean(axis=1)
    pairs = {(i, j) for i in range(len(x)) for j in range(len(y)) if j in forward[i] or i in backward[j]}
    margins = {(i, j): function(similarities[i, j], (source_means[i] + target_means[j]) / 2) for i, j in pairs}
    best_of = {j: max(value for (_, other), value in margins.items() if other == j) for j in range(len(y))}
    expected = []
    for i in range(len(x)):
        own = {j: value for (row, j), value in margins.items() if row == i}
        partner = max(own, key=own.__getitem__)
        if own[partner] != best_of[partner]:
            continue
        mean = np.mean([similarities[i, j] for j in forward[i] - {partner}])
        others = [function(similarities[i, j], (mean + target_means[j]) / 2) for j in own if j != partner]
        kept = [value for j, value in zip((j for j in own if j != partner), others, strict=True) if value >= best_of[j]]
        expected.append((own[partner], max(kept, default=-np.inf)))
    assert len(expected) > 10
    assert any(np.isfinite(value) for _, value in expected)
    np.testing.assert_allclose(sorted(zip(left_out.pair_margins, left_out.next_margins, strict=True)), sorted(expected), atol=1e-9)


def test_precision_is_estimated_from_the_share_that_is_paired_again() -> None:
    """Of 100 pairs above 1.5, 2 are paired again above it: F = 0.02 (1100 - 100) / 0.98 of 100 pairs are wrong."""
    left_out = LeftOut(np.full(100, 2.0), np.array([1.6, 1.6, 1.4, *[-np.inf] * 97]))
    precision, counts = leave_out.estimate_precision(left_out, np.array([1.5]), 1100, 1.0)
    assert precision[0] == pytest.approx(1 - 0.02 * 1000 / 0.98 / 100)
    assert counts[0] == 100
    halved, _ = leave_out.estimate_precision(left_out, np.array([1.5]), 1100, 0.5)  # the same pairs, of a sample of half the sources
    assert halved[0] == pytest.approx(1 - 0.02 * 900 / 0.98 / 200)


@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("noise", [0.5, 0.6])
def test_calibrated_threshold_has_about_the_precision(margin: str, noise: float) -> None:
    source, target = corpora(600, 900, noise)
    candidates, best = candidates_of(source, target, margin)
    chosen = leave_out.choose(candidates, margin, best, SampledSources(len(source), K), 0.9)
    assert chosen.by == "calibrated"
    pairs = match(rank(score(candidates, margin, chosen.threshold)), "max")
    is_correct = (pairs.source_ids == pairs.target_ids) & (pairs.source_ids < 600)
    assert chosen.precision.value == pytest.approx(0.9, abs=0.02)
    assert 0.8 <= is_correct.mean() <= 1
    assert is_correct.sum() >= 200


@pytest.mark.parametrize("is_rescored", [False, True])
def test_candidates_in_blocks_give_the_same_threshold(is_rescored: bool) -> None:
    source, target = corpora(600, 900, 0.5)
    candidates = find_candidates(source, target, K)
    if is_rescored:
        late = LateScores(candidates.similarities + 0.01, candidates.source_means, candidates.target_means)
        candidates = replace(candidates, late=late)
    best = BestMargins.of_none(candidates.target_ids)
    best.update(candidates, "ratio")
    blocks = [candidates.take(candidates.source_ids // 500 == number) for number in range(3)]
    assert [len(np.unique(block.source_ids)) for block in blocks] == [500, 500, 500]
    sources = SampledSources(len(source), K)  # so few that all are sampled
    expected = leave_out.choose(candidates, "ratio", best, sources, 0.9)
    assert expected.by == "calibrated"
    assert leave_out.choose_by_sample(lambda: blocks, "ratio", sources, 0.9) == expected


@pytest.mark.parametrize("margin", MARGINS)
def test_too_few_pairs_fall_back_to_the_margin_of_a_ratio(margin: str) -> None:
    source, target = corpora(20, 10, 0.3)
    candidates, best = candidates_of(source, target, margin)
    chosen = leave_out.choose(candidates, margin, best, SampledSources(len(source), K), 0.95)
    mean = np.mean((candidates.source_means + candidates.target_means) / 2)
    expected = {"ratio": FALLBACK_RATIO, "distance": FALLBACK_RATIO * mean - mean, "absolute": FALLBACK_RATIO * mean}[margin]
    assert chosen.figures() == {"threshold": pytest.approx(expected), "by": "fallback"}


def test_no_candidates_fall_back() -> None:
    candidates, best = candidates_of(np.zeros((3, 8), np.float16), np.zeros((4, 8), np.float16))
    assert leave_out.choose(candidates, "ratio", best, SampledSources(3, K), 0.95).threshold == FALLBACK_RATIO
