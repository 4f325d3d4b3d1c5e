"""`miner eval bitext`: figures of bitexts made by hand, and mined."""

import json
from functools import partial
from pathlib import Path

import bitexts
import numpy as np
import pytest
from command import miner, outcome_of

from miner.errors import DataError
from miner.evaluation import bitext
from miner.evaluation.marks import read_marks
from miner.evaluation.reliability import measure_reliability
from miner.io import table_files
from miner.mining.gold import GoldPairs
from miner.mining.thresholds import wilson
from miner.mining.writers import PARQUET
from miner.text.normalise import sentence_ids

run = partial(outcome_of, "eval", "bitext")


PAIRS = [
    (1.9, "The house is old.", "Das Haus ist alt."),
    (1.8, "We met in 1999.", "Wir trafen uns 1998."),
    (1.7, "the house is OLD", "Das alte Haus steht noch immer da und wird von allen sehr bewundert."),
    (1.6, "Rhein Main Donau", "Rhein Main Donau"),
    (1.5, "The cat sleeps.", "Die Katze schläft."),
    (1.5, "The cat sleeps.", "Die Katze ruht."),
    (1.4, "one, two, three, four, five, six", "eins, zwei, drei, vier, fünf, sechs"),
    (1.3, "Where are you going tomorrow morning?", "Where did you go when you left yesterday evening?"),
]


def test_figures_by_hand(tmp_path: Path) -> None:
    figures = bitext.evaluate(str(bitexts.write(tmp_path, PAIRS))).figures
    assert figures["pairs"] == 8
    assert figures["languages"] == {"source": "eng_Latn", "target": "deu_Latn"}
    margin = figures["margin"]
    assert (margin["min"], margin["median"], margin["max"], margin["mean"]) == pytest.approx((1.3, 1.55, 1.9, 12.7 / 8))
    assert sum(figures["histogram"]["counts"]) == 8
    assert (figures["histogram"]["edges"][0], figures["histogram"]["edges"][-1]) == (1.3, 1.9)
    # The cat is in two pairs; so is the house, but for its spelling.
    assert figures["repeats"]["exact"] == {"source": pytest.approx(1 / 8), "target": 0}
    assert figures["repeats"]["near"] == {"source": pytest.approx(2 / 8), "target": 0}
    suspects = {reason: round(suspect["share"] * suspect["n"]) for reason, suspect in figures["suspects"].items()}
    expected = {"near_copy": 1, "junk": 1, "numbers_disagree": 1, "length_ratio": 1, "other_language": 1}
    assert {reason: count for reason, count in suspects.items() if count} == expected
    assert figures["length_ratio"]["max"] == pytest.approx((68 + 10) / (16 + 10))
    assert figures["hubs"] is None
    assert "gold" not in figures


def test_languages_are_identified_in_an_evenly_spaced_sample(tmp_path: Path) -> None:
    german = "Wo sind die Bücher, die du gestern gekauft hast?"
    pairs = [
        (2.0 - number / 100, f"Where are the {number} books that you bought?", german if number % 6 else "Where are the books?")
        for number in range(60)
    ]
    figures = bitext.evaluate(str(bitexts.write(tmp_path, pairs)), max_language_pairs=10, batch_rows=7).figures
    assert figures["suspects"]["other_language"] == {"n": 10, "share": 1.0}  # every sixth pair, from the first
    assert figures["suspects"]["length_ratio"]["n"] == 60


def test_calibration_by_hand() -> None:
    """Of the pairs of 0.62 and 0.68 half are right, 0.65 on average; the pair of 1.0 belongs to the last interval."""
    probabilities, is_right = np.array([1.0, 0.95, 0.62, 0.68, 0.31]), np.array([True, False, True, False, False])
    figures = measure_reliability(probabilities, is_right).figures()
    assert [(each["pairs"], pytest.approx(each["probability"]), each["precision"]) for each in figures["bins"]] == [
        (1, 0.31, 0.0),
        (2, 0.65, 0.5),
        (2, 0.975, 0.5),
    ]
    assert figures["error"] == pytest.approx((0.31 + 2 * 0.15 + 2 * 0.475) / 5)


def test_precision_and_recall_by_hand(tmp_path: Path) -> None:
    folder = bitexts.write(tmp_path, PAIRS)
    gold = {tuple(sentence_ids([source, target]).tolist()) for _, source, target in (PAIRS[0], PAIRS[4], PAIRS[6])}
    figures = bitext.evaluate(str(folder), GoldPairs(frozenset(gold), num_missing=1)).figures["gold"]
    assert figures["pairs"] == 4
    assert [(point["pairs"], point["precision"], point["recall"]) for point in figures["curve"]] == [
        (1, 1, 1 / 4),
        (2, 1 / 2, 1 / 4),
        (3, 1 / 3, 1 / 4),
        (4, 1 / 4, 1 / 4),
        (6, 2 / 6, 2 / 4),  # two with equal margins
        (7, 3 / 7, 3 / 4),
        (8, 3 / 8, 3 / 4),
    ]
    assert figures["best"]["pairs"] == 7
    assert figures["mined"] == figures["curve"][-1]


def test_levels_are_weighted_by_their_pairs(tmp_path: Path) -> None:
    pairs = [(2 - number / 100, f"source {number}", f"target {number}") for number in range(40)]
    folder = bitexts.write(tmp_path / "mined", pairs)
    marks = {0: "right", 1: "right", 2: "wrong", 4: "right", 8: "", 9: "unsure", 12: "wrong"}  # ten levels of four pairs
    lines = [f"{pairs[number][0]}\t{mark}\t{pairs[number][1]}\t{pairs[number][2]}" for number, mark in marks.items()]
    lines.append("1.0\tright\tfrom another\tbitext")
    (tmp_path / "marks.tsv").write_text("\n".join(["margin\tmark\tsource\ttarget", *lines]) + "\n")
    status, output, errors = run(folder, "--gold", tmp_path / "marks.tsv", "--json", tmp_path / "f.json")
    assert (status, errors) == (0, "")
    assert "of all above" in output
    assert "\n1 marked pair not in the bitext\n" in output
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["task"] == "bitext"
    assert figures["marks"]["unmatched"] == 1
    levels = figures["marks"]["levels"]
    assert [(level["pairs"], level["marked"], level["precision"]) for level in levels[:4]] == [
        (4, 3, 2 / 3),
        (4, 1, 1.0),
        (4, 0, None),
        (4, 1, 0.0),
    ]
    assert [level["precision_above"] for level in levels[:4]] == [pytest.approx(2 / 3), pytest.approx((4 * 2 / 3 + 4) / 8), None, None]
    low, high = wilson(np.array([2 / 3]), np.array([3.0]))
    assert levels[0]["interval"] == pytest.approx([low[0], high[0]])
    assert (levels[0]["min_margin"], levels[0]["max_margin"]) == pytest.approx((1.97, 2.0))
    assert levels[0]["interval_above"] == pytest.approx(levels[0]["interval"])
    assert levels[1]["interval_above"][1] < 1


def test_marks_of_several_people_are_compared_and_averaged(tmp_path: Path) -> None:
    """One of two people marks the first ten pairs right, the other one four of them wrong; by chance they agree on 0.6."""
    pairs = [(2 - number / 100, f"source {number}", f"target {number}") for number in range(20)]
    folder = bitexts.write(tmp_path / "mined", pairs)
    for name, marks in (("one", ["right"] * 9 + ["wrong"] + ["right"] * 10), ("two", ["right"] * 6 + ["wrong"] * 4 + ["unsure"])):
        rows = (f"{mark}\t{source}\t{target}\n" for mark, (_, source, target) in zip(marks, pairs, strict=False))
        (tmp_path / f"{name}.tsv").write_text("mark\tsource\ttarget\n" + "".join(rows))
    files = [str(tmp_path / f"{name}.tsv") for name in ("one", "two")]
    status, output, _ = run(folder, "--gold", files[0], "--gold", files[1], "--json", tmp_path / "f.json")
    assert status == 0
    marks = json.loads((tmp_path / "f.json").read_text())["marks"]
    kappa = (0.7 - (0.9 * 0.6 + 0.1 * 0.4)) / (1 - (0.9 * 0.6 + 0.1 * 0.4))
    assert marks["agreement"] == [{"files": files, "pairs": 10, "equal": 7, "kappa": pytest.approx(kappa)}]
    assert f"7 of 10 marks equal, Cohen's kappa {kappa:.3f}" in output
    assert [level["precision"] for level in marks["levels"][:6]] == [1, 1, 1, 0.5, 0.25, 1]


ENGLISH = ["one two", "three four", "five", "one two", "seven eight", "nine"]
FRENCH = ["trois quatre", "un deux", "cinq dix", "neuf", "deux sept huit", "un"]


@pytest.fixture(scope="module")
def mined(toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mined")
    for name, lines in (("en", ENGLISH), ("fr", FRENCH)):
        (folder / name).write_text("\n".join(lines) + "\n")
    options = ("--source-lang", "en", "--target-lang", "fr", "--encoder", toy_encoder, "--threshold", "-inf", "--output", folder / "out")
    assert miner("mine", folder / "en", folder / "fr", "--rescore-candidates", 4, *options).exit_code == 0
    return folder


def test_gold_has_line_numbers_as_for_mine(mined: Path, tmp_path: Path) -> None:
    # Line 4 repeats line 1, so their gold pairs are one; line 6 has its translation in line 4.
    (tmp_path / "gold.tsv").write_text("1\t2\n4\t2\n2\t1\n6\t4\n5\t6\n")
    status, output, errors = run(mined / "out", "--gold", tmp_path / "gold.tsv", "--json", tmp_path / "f.json")
    assert (status, errors) == (0, "")
    assert "4 gold pairs" in output
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["gold"]["mined"]["pairs"] == figures["pairs"] == 5
    assert figures["gold"]["mined"]["precision"] == 3 / 5
    assert figures["gold"]["mined"]["recall"] == 3 / 4


def test_hubs_are_the_sentences_in_most_candidates(mined: Path) -> None:
    figures = bitext.evaluate(str(mined / "out")).figures
    candidates = table_files.read_table(str(next((mined / "out" / "candidates").glob("*.parquet"))))["target_id"].to_pylist()
    paired = table_files.read_table(str(mined / "out" / PARQUET))["target_text"].to_pylist()
    times = {text: candidates.count(int(name)) / 4 for text, name in zip(paired, sentence_ids(paired), strict=True)}
    hubs = {hub["text"]: hub["times_k"] for hub in figures["hubs"]["target"]}
    assert hubs == times
    assert list(hubs.values()) == sorted(times.values(), reverse=True)
    assert len(set(times.values())) > 1
    assert figures["suspects"]["hub"]["n"] == 5


def test_unusable_directories_and_gold_are_errors(mined: Path, tmp_path: Path) -> None:
    empty = bitexts.write(tmp_path / "empty", [])
    (tmp_path / "other.tsv").write_text("mark\tsource\ttarget\nright\ta\tb\n")
    (tmp_path / "none.tsv").write_text("mark\tsource\ttarget\n\ta\tb\n")
    (tmp_path / "odd.tsv").write_text("source\ttarget\na\tb\n")
    for arguments, message in (
        ([tmp_path / "nowhere"], "nowhere"),
        ([empty], "no pairs; mine with a lower --threshold"),
        ([mined / "out", "--gold", tmp_path / "other.tsv"], "none of its pairs is in the bitext"),
        ([mined / "out", "--gold", tmp_path / "none.tsv"], "no row is marked right or wrong"),
        ([mined / "out", "--gold", tmp_path / "odd.tsv"], "odd.tsv:1: not `source line<TAB>target line`"),
        ([bitexts.write(tmp_path / "decided", PAIRS), "--gold", mined / "en"], "en:1: not `source line"),
        ([mined / "out", "--gold", tmp_path / "other.tsv", "--gold", mined / "en"], "en: --gold takes one file of line pairs"),
    ):
        status, output, errors = run(*arguments, "--json", tmp_path / "f.json")
        assert (status, output, errors.count("\n")) == (1, "", 1)
        assert message in errors
        assert not (tmp_path / "f.json").exists()


def test_marks_may_have_columns_in_any_order_and_are_cleaned(tmp_path: Path) -> None:
    (tmp_path / "m.tsv").write_text("source\ttarget\tmark\n a  b\tc\twrong\n")
    assert read_marks([str(tmp_path / "m.tsv")]).right == {tuple(sentence_ids(["a b", "c"]).tolist()): False}


def write_marks(path: Path, rows: list[tuple[str, str, str]]) -> str:
    path.write_text("".join("\t".join(row) + "\n" for row in [("mark", "source", "target"), *rows]))
    return str(path)


def test_marks_that_cannot_be_used_are_counted_and_an_error_where_they_are_many(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [("right" if number % 3 else "WRONG", f"source {number}", f"target {number}") for number in range(57)]
    odd = [("rihgt", "other", "text"), ("wrong", "source 1", "target 1"), ("unsure", "a", "b")]
    marks = read_marks([write_marks(tmp_path / "few.tsv", [*rows, *odd])])
    assert caplog.messages == [
        f"{tmp_path}/few.tsv: 2 of 60 marks cannot be used: 1 of unknown words, such as 'rihgt' and 1 pairs marked right and wrong"
    ]
    assert (len(marks.right), sum(marks.right.values()), len(marks.reviewed)) == (56, 37, 57)
    many = [*rows, *odd, ("ja", "one", "two"), ("nein", "three", "four")]
    with pytest.raises(
        DataError, match=r"4 of 62 marks cannot be used: 3 of unknown words, .*; correct them, and mark pairs as right, wrong or unsure"
    ):
        read_marks([write_marks(tmp_path / "many.tsv", many)])
