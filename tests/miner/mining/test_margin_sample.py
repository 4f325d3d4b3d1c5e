"""The sample of margins, against a plain loop over all candidates."""

import numpy as np
import pytest

from miner.mining.candidates import Candidates, pair_margins, sample_step
from miner.mining.margin_sample import MAX_SAMPLED, MarginSample, sample_candidates

NUM_IDS = 60


def random_candidates(seed: int) -> Candidates:
    """Return candidates with equal margins, some of which are not defined."""
    random = np.random.default_rng(seed)
    pairs = np.unique(random.integers(NUM_IDS, size=(400, 2)), axis=0)
    similarities = random.integers(1, 20, len(pairs)) / 20
    similarities[random.random(len(pairs)) < 0.1] = np.nan
    everywhere = np.ones(len(pairs), dtype=bool)
    return Candidates(pairs[:, 0], pairs[:, 1], similarities, *np.ones((2, len(pairs))), everywhere, everywhere)


def expected_sample(candidates: Candidates, steps: tuple[int, int]) -> tuple[list[float], list[float], list[float]]:
    pairs = zip(candidates.source_ids.tolist(), candidates.target_ids.tolist(), pair_margins(candidates, "ratio").tolist(), strict=True)
    defined = [pair for pair in pairs if not np.isnan(pair[2])]
    ranked = [{number: sorted((p[2] for p in defined if p[side] == number), reverse=True) for number in range(NUM_IDS)} for side in (0, 1)]
    mutual = [
        ranked[1][target][0]
        for target in range(0, NUM_IDS, steps[1])
        if any(p[1] == target and p[2] == ranked[1][target][0] == ranked[0][p[0]][0] for p in defined)
    ]
    second = [
        [margins[1] for number, margins in side.items() if number % step == 0 and len(margins) > 1]
        for side, step in zip(ranked, steps, strict=True)
    ]
    return mutual, second[0], second[1]


def lists(sample: MarginSample) -> tuple[list[float], ...]:
    return tuple(sorted(part.tolist()) for part in (sample.mutual_bests, sample.source_runners_up, sample.target_runners_up))


@pytest.mark.parametrize("seed", range(5))
def test_a_sample_of_all_sentences_equals_a_loop(seed: int) -> None:
    candidates = random_candidates(seed)
    expected = expected_sample(candidates, (1, 1))
    assert lists(MarginSample.of(candidates, "ratio", (NUM_IDS, NUM_IDS))) == tuple(map(sorted, expected))
    assert min(map(len, expected)) > 5


def test_copied_sentences_are_in_no_pair_of_the_sample() -> None:
    """Sentences 1 and 2 are on both sides. The best of target 3 is the copied source 2, and source 5 and target 4 are mutual bests."""
    pairs = np.array([(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 3), (5, 2), (5, 3), (5, 4)])
    similarities = np.array([1.0, 0.9, 0.8, 0.9, 1.0, 0.95, 0.5, 0.6, 0.85])
    everywhere = np.ones(len(pairs), dtype=bool)
    candidates = Candidates(pairs[:, 0], pairs[:, 1], similarities, *np.ones((2, len(pairs))), everywhere, everywhere)
    parts = [
        sample_candidates(candidates.take(candidates.source_ids == source), "ratio", (NUM_IDS, NUM_IDS), drops_copies=True)
        for source in (1, 2, 5)
    ]
    assert lists(MarginSample.merge(*zip(*parts, strict=True))) == ([0.85], [0.6], [0.6, 0.8])


def test_every_nth_sentence_of_a_large_side_is_sampled() -> None:
    assert [sample_step(size, MAX_SAMPLED) for size in (0, 20_000, 20_001, 1_000_000)] == [1, 1, 2, 50]
    candidates = random_candidates(7)
    sample = MarginSample.of(candidates, "ratio", (50_000, 30_000))
    assert lists(sample) == tuple(map(sorted, expected_sample(candidates, (3, 2))))


def test_ranges_of_sources_give_the_same_sample() -> None:
    candidates = random_candidates(3)
    parts = [sample_candidates(candidates.take(candidates.source_ids % 4 == part), "ratio", (NUM_IDS, NUM_IDS)) for part in (2, 0, 3, 1)]
    merged = MarginSample.merge(*zip(*parts, strict=True))
    assert lists(merged) == lists(MarginSample.of(candidates, "ratio", (NUM_IDS, NUM_IDS)))


def test_no_candidates_are_an_empty_sample() -> None:
    candidates = random_candidates(0)
    sample = MarginSample.of(candidates.take(np.zeros(len(candidates), dtype=bool)), "ratio", (0, 0))
    assert lists(sample) == ([], [], [])
