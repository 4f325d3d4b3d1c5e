"""The loop without its pipelines: selection, groups, validation and stop rules."""

import numpy as np
import pytest

from miner.loop.groups import CONTRADICTED, draw_validation, link_pairs, share_sentence
from miner.loop.progress import RoundOutcome, assess_rounds, drift, jaccard
from miner.loop.selection import MinedPairs, select_pairs, template_keys
from miner.loop.settings import SelectionSettings, StopSettings

PLAIN = {"skip_top": 0.0, "one_way": 0.0}  # select by margin alone


def mined_pairs(margins: list[float], is_mutual: list[bool] | None = None, source_keys: list[int] | None = None) -> MinedPairs:
    distinct_keys = np.arange(len(margins), dtype=np.int64)
    return MinedPairs(
        margins=np.array(margins),
        is_mutual=np.array(is_mutual or [True] * len(margins)),
        source_keys=np.array(source_keys) if source_keys else distinct_keys,
        target_keys=distinct_keys,
    )


def test_pairs_above_the_threshold_are_selected_best_first() -> None:
    selection = select_pairs(mined_pairs([1.1, 1.3, 1.0, 1.2]), 1.05, SelectionSettings(**PLAIN))
    assert selection.rows.tolist() == [1, 3, 0]
    assert selection.num_dropped == {"repeated": 0, "skipped_top": 0, "too_weak": 1}


def test_selection_takes_at_most_top_and_at_least_min_count() -> None:
    pairs = mined_pairs([1.1, 1.3, 1.0, 1.2])
    assert select_pairs(pairs, 1.05, SelectionSettings(**PLAIN, top=2)).rows.tolist() == [1, 3]
    assert select_pairs(pairs, 1.25, SelectionSettings(**PLAIN, min_count=3)).rows.tolist() == [1, 3, 0]
    assert select_pairs(pairs, 1.25, SelectionSettings(**PLAIN, min_count=9)).rows.tolist() == [1, 3, 0, 2]


def test_one_way_pairs_lose_margin() -> None:
    pairs = mined_pairs([1.20, 1.19], is_mutual=[False, True])
    assert select_pairs(pairs, 1.0, SelectionSettings(skip_top=0.0, one_way=0.02)).rows.tolist() == [1, 0]
    assert select_pairs(pairs, 1.185, SelectionSettings(skip_top=0.0, one_way=0.02)).rows.tolist() == [1]


def test_skip_top_drops_the_best_pairs() -> None:
    selection = select_pairs(mined_pairs([1.5, 1.4, 1.3, 1.2]), 1.0, SelectionSettings(skip_top=0.25, one_way=0.0))
    assert selection.rows.tolist() == [1, 2, 3]
    assert selection.num_dropped["skipped_top"] == 1


def test_skip_top_is_a_share_of_the_requested_pairs() -> None:
    """80 pairs are above the threshold, thousands only above the floor, and 100 are requested: 1 is skipped."""
    margins = [*np.linspace(1.5, 1.2, 80), *np.linspace(1.05, 1.0, 9920)]
    selection = select_pairs(mined_pairs(margins), 1.06, SelectionSettings(min_count=100, skip_top=0.01, one_way=0.0))
    assert selection.rows.tolist() == list(range(1, 101))
    assert selection.num_dropped["skipped_top"] == 1


def test_skip_top_keeps_the_only_pair() -> None:
    assert select_pairs(mined_pairs([1.5]), 1.0, SelectionSettings(skip_top=0.01, one_way=0.0)).rows.tolist() == [0]


def test_a_template_is_selected_a_limited_number_of_times() -> None:
    keys = template_keys(["Page 1 of 9", "page 22 of 37!", "Another page", "PAGE 3 OF 3", "123", "456"])
    assert keys[0] == keys[1] == keys[3]
    assert len(set(keys.tolist())) == 4  # texts of numerals alone have keys of their own
    pairs = mined_pairs([1.5, 1.4, 1.3, 1.2, 1.1], source_keys=[7, 7, 8, 7, 7])
    assert select_pairs(pairs, 1.0, SelectionSettings(**PLAIN, repeats=2)).rows.tolist() == [0, 1, 2]


def test_pairs_form_groups_and_weaker_contradicting_pairs_are_not_linked() -> None:
    # Sentences 0 and 1 are English, 2 and 3 German, 4 French.
    langs = np.array([0, 0, 1, 1, 2])
    sources, targets = np.array([0, 0, 2, 1, 1]), np.array([2, 4, 4, 4, 3])
    groups = link_pairs(sources, targets, langs, np.array([1.5, 1.4, 1.3, 1.2, 1.1]))
    assert groups[0] == groups[1] == groups[2]  # en-de, en-fr and de-fr meet
    assert groups[3] == CONTRADICTED  # the French sentence has an English one already
    assert groups[4] not in (groups[0], CONTRADICTED)
    groups = link_pairs(sources, targets, langs, np.array([1.1, 1.2, 1.05, 1.9, 1.0]))
    assert (groups[1], groups[2]) == (CONTRADICTED, CONTRADICTED)  # the other English sentence is linked first
    assert len({groups[0], groups[3]}) == 2


def test_no_group_has_two_sentences_of_one_language() -> None:
    random = np.random.default_rng(5)
    langs = random.integers(0, 4, 200)
    pairs = random.integers(0, 200, (600, 2))
    pairs = pairs[langs[pairs[:, 0]] != langs[pairs[:, 1]]]
    groups = link_pairs(pairs[:, 0], pairs[:, 1], langs, random.random(len(pairs)))
    assert (groups >= 0).any()
    assert (groups == CONTRADICTED).any()
    for group in range(groups.max() + 1):
        members = np.unique(pairs[groups == group])
        assert len(members) == len(set(langs[members]))


def test_validation_groups_are_drawn_whatever_their_strength() -> None:
    groups = np.repeat(np.arange(5000), 2)  # strongest first
    ids = np.random.default_rng(1).integers(-(1 << 63), 1 << 63, size=len(groups))
    is_validation = draw_validation(groups, ids, 0.1, seed=3)
    assert is_validation.sum() == 1000
    assert (is_validation[::2] == is_validation[1::2]).all()  # groups are not split
    ranks = np.flatnonzero(is_validation) / len(is_validation)
    assert abs(ranks.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 500)
    assert (draw_validation(groups, ids, 0.1, seed=4) != is_validation).any()
    assert not draw_validation(np.full(9, CONTRADICTED), ids[:9], 0.5, seed=0).any()
    assert draw_validation(np.arange(9), ids[:9], 0.02, seed=0).sum() == 1, "at least one group"
    assert not draw_validation(np.arange(9), ids[:9], 0.0, seed=0).any()
    assert not draw_validation(np.zeros(9, dtype=np.int64), ids[:9], 0.5, seed=0).any(), "nothing would be left"


def test_validation_groups_stay_in_validation_in_later_rounds() -> None:
    """An additional pair changes all group numbers, but the draw depends on ids."""
    ids = np.random.default_rng(1).integers(-(1 << 63), 1 << 63, size=10_001)
    before = draw_validation(np.arange(10_000), ids[1:], 0.02, seed=0)
    after = draw_validation(np.arange(10_001), ids, 0.02, seed=0)
    assert before.sum() == after.sum() == 200
    assert (before & after[1:]).sum() >= 199


def test_pairs_that_share_a_sentence_with_validation_are_excluded() -> None:
    sources, targets = np.array([1, 1, 2, 3]), np.array([5, 6, 6, 7])
    assert share_sentence(np.array([True, False, False, False]), (sources, targets)).tolist() == [True, True, False, False]


def trained(dev: float, jaccard: float | None = 0.5, seconds: float = 60) -> RoundOutcome:
    return RoundOutcome(1000, jaccard, dev, seconds)


TOO_FEW = RoundOutcome(50, None, None, 60)  # pairs to train on
DEFAULT = StopSettings(rounds=4)
PATIENCE_2, PATIENCE_3 = StopSettings(rounds=4, patience=2), StopSettings(rounds=5, patience=3)
MIN_GAIN, ONE_HOUR, MIN_10_PAIRS = (StopSettings(rounds=4, **rule) for rule in ({"least_gain": 0.01}, {"hours": 1}, {"least_pairs": 10}))

# The start encoder has a dev score of 0.7. Case -> rounds, rules, latest, best, part of the reason to stop.
STOP_CASES: dict[str, tuple[list[RoundOutcome], StopSettings, int, int, str | None]] = {
    "no round yet": ([], DEFAULT, -1, -1, None),
    "gain": ([trained(0.8)], DEFAULT, 0, 0, None),
    "second round is worse": ([trained(0.8), trained(0.7)], DEFAULT, 0, 0, "rolled back"),
    "first round is worse": ([trained(0.6)], DEFAULT, -1, -1, "rolled back"),
    "equal to the start": ([trained(0.7)], DEFAULT, 0, -1, "did not gain"),
    "worse within patience": ([trained(0.8), trained(0.7)], PATIENCE_2, 0, 0, None),
    "gain after a rollback": ([trained(0.8), trained(0.7), trained(0.85)], PATIENCE_2, 2, 2, None),
    "gain below least_gain": ([trained(0.8), trained(0.805)], MIN_GAIN, 1, 1, "did not gain"),
    "same pairs": ([trained(0.8), trained(0.9, jaccard=0.99)], DEFAULT, 1, 1, "the same pairs"),
    "all rounds": ([trained(0.8), trained(0.9), trained(0.91), trained(0.92)], DEFAULT, 3, 3, "round 4 was the last one"),
    "no time left": ([trained(0.8, seconds=1900)], ONE_HOUR, 0, 0, "after 1 hours"),
    "time left": ([trained(0.8, seconds=1700)], ONE_HOUR, 0, 0, None),
    "too few pairs": ([TOO_FEW], DEFAULT, -1, -1, "too few to learn from"),
    "resumed with a lower minimum": ([TOO_FEW], MIN_10_PAIRS, -1, -1, None),
    "gain after too few pairs": ([TOO_FEW, trained(0.8, jaccard=1.0)], MIN_10_PAIRS, 1, 1, None),
    "same pairs from the same encoder": ([trained(0.8), trained(0.75), trained(0.85, jaccard=1.0)], PATIENCE_3, 2, 2, None),
    "same pairs from another encoder": (
        [trained(0.8), trained(0.75), trained(0.85, jaccard=1.0), trained(0.9, jaccard=0.99)], PATIENCE_3, 3, 3, "the same pairs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", STOP_CASES)
def test_stop_rules(case: str) -> None:
    rounds, rules, latest, best, stop = STOP_CASES[case]
    state = assess_rounds(0.7, rounds, rules)
    assert (state.latest, state.best) == (latest, best)
    assert state.stop_reason is None if stop is None else stop in str(state.stop_reason)


def test_new_text_overrides_a_lack_of_progress_but_not_the_budget() -> None:
    assert assess_rounds(0.7, [trained(0.6)], DEFAULT, has_new_text=True).stop_reason is None
    assert assess_rounds(0.7, [trained(0.8)] * 4, DEFAULT, has_new_text=True).stop_reason is not None


def test_drift_ignores_rotation_and_scaling() -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(500, 8))
    rotated = vectors @ np.linalg.qr(random.normal(size=(8, 8)))[0]
    assert drift(vectors, 3 * rotated) == pytest.approx(0, abs=1e-9)
    assert drift(vectors, random.normal(size=(500, 12))) > 0.9
    assert drift(vectors, np.zeros((500, 8))) == 1


def test_jaccard_by_hand() -> None:
    assert jaccard({1, 2, 3}, {2, 3, 4}) == 0.5
    assert jaccard(set(), set()) == 1
