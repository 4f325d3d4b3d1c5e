"""The texts that ship with miner, by which an encoder is measured."""

import random
from pathlib import Path

import numpy as np
from support.scripts import load_script

from miner.encoders import calibration_texts

EXAMPLES = Path(__file__).parents[3] / "examples"
MAX_BYTES = 2_000_000


def test_texts_are_small_and_cover_domains_scripts_and_pairs_without_english() -> None:
    assert calibration_texts.TEXTS.stat().st_size <= MAX_BYTES
    table = calibration_texts.read()
    assert table.schema.equals(calibration_texts.SCHEMA)
    langs = {source: set() for source in ("ud-pud", "tico-19", "tatoeba", "bible", "nllb-seed")}
    for row in table.select(["source", "lang"]).to_pylist():
        langs[row["source"]].add(row["lang"])
    assert {len(lang) > 1 for lang in langs.values()} == {True, False}  # only NLLB-Seed has no translations
    assert len({lang.partition("_")[2] for part in langs.values() for lang in part}) >= 10  # scripts
    assert len(langs["ud-pud"] - {"eng_Latn"}) >= 10  # all pairs of these have no English


def test_no_text_is_in_two_groups_or_in_the_demo() -> None:
    table = calibration_texts.read()
    texts, groups = np.array(table["text"].to_pylist()), table["group"].to_numpy()
    by_text = np.lexsort((groups, texts))
    same_text = texts[by_text][1:] == texts[by_text][:-1]
    assert (groups[by_text][1:] == groups[by_text][:-1])[same_text].all()
    match_key = load_script("builtin_data").match_key
    demo = {match_key(line) for path in EXAMPLES.glob("*.txt") for line in path.read_text().splitlines()}
    assert demo.isdisjoint(map(match_key, texts))


def test_a_group_with_an_excluded_text_is_left_out() -> None:
    script = load_script("calibration_texts")
    groups = [{"en": f"This is sentence number {number}.", "de": f"Satz {number}."} for number in range(6)]
    selected = script.select(iter([*groups, {"en": "Too short.", "de": "Zu kurz."}]), 4, {"satz3"}, random.Random(0))
    assert len(selected) == 4
    assert groups[3] not in selected
    assert all(group in groups for group in selected)
