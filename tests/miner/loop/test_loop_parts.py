"""The parts of the loop that are no pipeline: which pairs are chosen, linked, forbidden, and when the loop ends."""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from miner.errors import ConfigError, DataError
from miner.loop.decontaminate import EXACT, NEAR, NONE, EvaluationIndex
from miner.loop.evaluation_texts import sentences
from miner.loop.figures import drift, jaccard
from miner.loop.groups import CONTRADICTED, held_out, link, touching
from miner.loop.selection import MinedPairs, choose, template_keys
from miner.loop.settings import SelectionSettings, StopSettings
from miner.loop.stopping import RoundOutcome, judge

PLAIN = {"skip_top": 0.0, "one_way": 0.0}


def mined(margins: list[float], mutual: list[bool] | None = None, sources: list[int] | None = None) -> MinedPairs:
    count = len(margins)
    own = np.arange(count)
    return MinedPairs(
        np.array(margins), np.array(mutual or [True] * count), np.array(sources) if sources else own.astype(np.int64), own.astype(np.int64)
    )


def test_what_is_above_the_threshold_is_chosen_best_first() -> None:
    chosen = choose(mined([1.1, 1.3, 1.0, 1.2]), 1.05, SelectionSettings(**PLAIN))
    assert chosen.rows.tolist() == [1, 3, 0]
    assert chosen.left_out == {"repeated": 0, "at the top": 0, "too weak": 1}


def test_at_most_top_and_at_least_min_count_are_chosen() -> None:
    pairs = mined([1.1, 1.3, 1.0, 1.2])
    assert choose(pairs, 1.05, SelectionSettings(**PLAIN, top=2)).rows.tolist() == [1, 3]
    assert choose(pairs, 1.25, SelectionSettings(**PLAIN, min_count=3)).rows.tolist() == [1, 3, 0]
    assert choose(pairs, 1.25, SelectionSettings(**PLAIN, min_count=9)).rows.tolist() == [1, 3, 0, 2]


def test_pairs_that_both_directions_found_come_first() -> None:
    pairs = mined([1.20, 1.19], mutual=[False, True])
    assert choose(pairs, 1.0, SelectionSettings(skip_top=0.0, one_way=0.02)).rows.tolist() == [1, 0]
    assert choose(pairs, 1.185, SelectionSettings(skip_top=0.0, one_way=0.02)).rows.tolist() == [1]


def test_the_very_top_is_left_out() -> None:
    chosen = choose(mined([1.5, 1.4, 1.3, 1.2]), 1.0, SelectionSettings(skip_top=0.25, one_way=0.0))
    assert chosen.rows.tolist() == [1, 2, 3]
    assert chosen.left_out["at the top"] == 1


def test_the_top_is_that_of_what_is_wanted() -> None:
    """Eighty good pairs before thousands that are above the floor alone."""
    margins = [*np.linspace(1.5, 1.2, 80), *np.linspace(1.05, 1.0, 9920)]
    chosen = choose(mined(margins), 1.06, SelectionSettings(min_count=100, skip_top=0.01, one_way=0.0))
    assert chosen.rows.tolist() == list(range(1, 101))
    assert chosen.left_out["at the top"] == 1


def test_a_template_is_learnt_from_a_few_times_only() -> None:
    keys = template_keys(["Page 1 of 9", "page 22 of 37!", "Another page", "PAGE 3 OF 3", "123", "456"])
    assert keys[0] == keys[1] == keys[3]
    assert len(set(keys.tolist())) == 4  # figures alone stay apart
    pairs = mined([1.5, 1.4, 1.3, 1.2, 1.1], sources=[7, 7, 8, 7, 7])
    assert choose(pairs, 1.0, SelectionSettings(**PLAIN, repeats=2)).rows.tolist() == [0, 1, 2]


def test_pairs_link_to_groups_and_the_weaker_contradiction_links_nothing() -> None:
    # Sentences 0 and 1 are English, 2 and 3 German, 4 French.
    langs = np.array([0, 0, 1, 1, 2])
    first, second = np.array([0, 0, 2, 1, 1]), np.array([2, 4, 4, 4, 3])
    groups = link(first, second, langs, np.array([1.5, 1.4, 1.3, 1.2, 1.1]))
    assert groups[0] == groups[1] == groups[2]  # en-de, en-fr and de-fr meet
    assert groups[3] == CONTRADICTED  # the French sentence has an English one already
    assert groups[4] not in (groups[0], CONTRADICTED)
    groups = link(first, second, langs, np.array([1.1, 1.2, 1.05, 1.9, 1.0]))
    assert (groups[1], groups[2]) == (CONTRADICTED, CONTRADICTED)  # now the other English sentence was there first
    assert len({groups[0], groups[3]}) == 2


def test_no_group_has_two_sentences_of_a_language() -> None:
    draws = np.random.default_rng(5)
    langs = draws.integers(0, 4, 200)
    ends = draws.integers(0, 200, (600, 2))
    ends = ends[langs[ends[:, 0]] != langs[ends[:, 1]]]
    groups = link(ends[:, 0], ends[:, 1], langs, draws.random(len(ends)))
    assert (groups >= 0).any()
    assert (groups == CONTRADICTED).any()
    for group in range(groups.max() + 1):
        members = np.unique(ends[groups == group])
        assert len(members) == len(set(langs[members]))


def test_validation_is_drawn_at_random_and_not_from_the_top() -> None:
    groups = np.repeat(np.arange(5000), 2)  # the strongest first
    ids = np.random.default_rng(1).integers(-(1 << 63), 1 << 63, size=len(groups))
    held = held_out(groups, ids, 0.1, seed=3)
    assert held.sum() == 1000
    assert (held[::2] == held[1::2]).all()  # a group goes as a whole
    ranks = np.flatnonzero(held) / len(held)
    assert abs(ranks.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 500)
    assert (held_out(groups, ids, 0.1, seed=4) != held).any()
    assert not held_out(np.full(9, CONTRADICTED), ids[:9], 0.5, seed=0).any()


def test_what_is_held_out_is_held_out_again() -> None:
    """A pair more gives all groups other numbers, and nearly the same ones are drawn."""
    ids = np.random.default_rng(1).integers(-(1 << 63), 1 << 63, size=10_001)
    before = held_out(np.arange(10_000), ids[1:], 0.02, seed=0)
    after = held_out(np.arange(10_001), ids, 0.02, seed=0)
    assert before.sum() == after.sum() == 200
    assert (before & after[1:]).sum() >= 199


def test_what_touches_a_held_out_sentence_is_not_learnt() -> None:
    first, second = np.array([1, 1, 2, 3]), np.array([5, 6, 6, 7])
    assert touching(np.array([True, False, False, False]), (first, second)).tolist() == [True, True, False, False]


def overlap(one: str, other: str) -> float:
    """The definition: the share of all sequences of five letters or digits that both have."""
    sets = []
    for text in (one, other):
        letters = "".join(filter(str.isalnum, text.lower()))
        sets.append({letters[at : at + 5] for at in range(max(1, len(letters) - 4))})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_near_matches_are_those_of_the_definition() -> None:
    draw = random.Random(1)
    words = ["parliament", "vote", "on", "the", "new", "budget", "minister", "said", "today", "growth", "of", "two", "percent"]
    held = [" ".join(draw.choices(words, k=draw.randint(1, 14))) for _ in range(150)]
    texts = list(held[:20])
    for text in held:
        changed = text.split()
        changed[draw.randrange(len(changed))] = draw.choice(words)
        texts.append(" ".join(changed))
    for near in (0.5, 0.7, 0.9):
        kinds = EvaluationIndex(held, near).matches(texts)
        wanted = [max(overlap(text, other) for other in held) >= near for text in texts]
        assert (kinds > NONE).tolist() == wanted
        assert 20 < sum(wanted) < len(texts)


def test_case_punctuation_and_width_do_not_hide_a_sentence() -> None:
    forbidden = EvaluationIndex(["The vote was on Monday.", "2013年、東京で会議が開かれた。"], near=0.7)
    texts = ["the vote — was on Monday!", "２０１３年 東京で会議が開かれた", "The vote was on Monday night.", "Something else", "..."]
    assert forbidden.matches(texts).tolist() == [EXACT, EXACT, NEAR, NONE, NONE]


def test_sentences_are_read_from_every_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("One.\tEins.\n...\tZwei\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(json.dumps({"x": "Drei", "deep": ["Vier", 5]}) + "\n")
    pq.write_table(pa.table({"n": [1, 2], "text": ["Fünf", None]}), tmp_path / "c.parquet")
    deep = {"coded": pa.array(["Sechs"]).dictionary_encode(), "bytes": [b"Sieben"], "both": [{"en": "Eight", "de": ["Acht"]}]}
    pq.write_table(pa.table(deep), tmp_path / "d.parquet")
    found = [list(sentences(str(tmp_path / name))) for name in ("a.tsv", "b.jsonl", "c.parquet", "d.parquet")]
    assert found == [["One.", "Eins.", "Zwei"], ["Drei", "Vier"], ["Fünf"], ["Sechs", "Sieben", "Eight", "Acht"]]
    (tmp_path / "table.csv").write_text("1,One.\n")
    with pytest.raises(ConfigError, match=r"table\.csv: \.csv files are not read"):
        list(sentences(str(tmp_path / "table.csv")))
    pq.write_table(pa.table({"n": [1]}), tmp_path / "numbers.parquet")
    with pytest.raises(DataError, match="not one sentence in it"):
        list(sentences(str(tmp_path / "numbers.parquet")))
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    with pytest.raises(DataError, match=r"bad\.txt:2"):
        list(sentences(str(tmp_path / "bad.txt")))


def ran(dev: float, same: float | None = 0.5, seconds: float = 60) -> RoundOutcome:
    return RoundOutcome(1000, same, dev, seconds)


RULES = StopSettings(rounds=4)
TOO_FEW = RoundOutcome(50, None, None, 60)
ENDS = [
    ([], RULES, -1, -1, None),
    ([ran(0.8)], RULES, 0, 0, None),
    ([ran(0.8), ran(0.7)], RULES, 0, 0, "rolled back"),
    ([ran(0.6)], RULES, -1, -1, "rolled back"),
    ([ran(0.7)], RULES, 0, -1, "did not gain"),  # as good as the start
    ([ran(0.8), ran(0.7)], StopSettings(rounds=4, patience=2), 0, 0, None),
    ([ran(0.8), ran(0.7), ran(0.85)], StopSettings(rounds=4, patience=2), 2, 2, None),
    ([ran(0.8), ran(0.805)], StopSettings(rounds=4, least_gain=0.01), 1, 1, "did not gain"),
    ([ran(0.8), ran(0.9, same=0.99)], RULES, 1, 1, "the same pairs"),
    ([ran(0.8), ran(0.9), ran(0.91), ran(0.92)], RULES, 3, 3, "all 4 rounds"),
    ([ran(0.8, seconds=1900)], StopSettings(rounds=4, hours=1), 0, 0, "after 1 hours"),
    ([ran(0.8, seconds=1700)], StopSettings(rounds=4, hours=1), 0, 0, None),
    ([TOO_FEW], RULES, -1, -1, "too few to learn from"),
    ([TOO_FEW], StopSettings(rounds=4, least_pairs=10), -1, -1, None),  # resumed with another rule
    ([TOO_FEW, ran(0.8, same=1.0)], StopSettings(rounds=4, least_pairs=10), 1, 1, None),
    ([ran(0.8), ran(0.75), ran(0.85, same=1.0)], StopSettings(rounds=4, patience=3), 2, 2, None),  # mined by the same encoder
    ([ran(0.8), ran(0.75), ran(0.85, same=1.0), ran(0.9, same=0.99)], StopSettings(rounds=5, patience=3), 3, 3, "the same pairs"),
]


@pytest.mark.parametrize(("rounds", "rules", "latest", "best", "stop"), ENDS, ids=range(len(ENDS)))
def test_the_loop_ends_by_its_rules(rounds: list[RoundOutcome], rules: StopSettings, latest: int, best: int, stop: str | None) -> None:
    state = judge(0.7, rounds, rules)
    assert (state.latest, state.best) == (latest, best)
    assert state.stop is None if stop is None else stop in str(state.stop)


def test_new_text_is_a_reason_to_go_on() -> None:
    assert judge(0.7, [ran(0.6)], RULES, new_text=True).stop is None
    assert judge(0.7, [ran(0.8)] * 4, RULES, new_text=True).stop is not None


def test_drift_is_blind_to_turning_and_scaling() -> None:
    draws = np.random.default_rng(0)
    one = draws.normal(size=(500, 8))
    turned = one @ np.linalg.qr(draws.normal(size=(8, 8)))[0]
    assert drift(one, 3 * turned) == pytest.approx(0, abs=1e-9)
    assert drift(one, draws.normal(size=(500, 12))) > 0.9
    assert drift(one, np.zeros((500, 8))) == 1


def test_jaccard_by_hand() -> None:
    assert jaccard({1, 2, 3}, {2, 3, 4}) == 0.5
    assert jaccard(set(), set()) == 1
