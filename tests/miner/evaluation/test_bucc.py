"""Precision-recall curves, and BUCC: thresholds by hand and by brute force; the test split must not influence the threshold."""

import gzip
import itertools
import json
import shutil
import tarfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import dense
import numpy as np
import pytest
from command import miner, outcome_of
from sklearn.metrics import precision_recall_curve

from miner.encoders import load_encoder
from miner.mining.precision_recall import MAX_CURVE_POINTS, curve

NUMBERS = ["one", "two", "three", "four", "five", "seven", "eight", "nine", "ten"]
NOMBRES = ["un", "deux", "trois", "quatre", "cinq", "sept", "huit", "neuf", "dix"]
Pairs = Sequence[tuple[str, str]]


def test_curve_by_hand() -> None:
    # Best first: 0.9 correct, 0.8 wrong tied with 0.8 correct, 0.5 wrong; two of the four gold pairs are not mined.
    by_threshold = curve(np.array([0.8, 0.9, 0.5, 0.8]), np.array([False, True, False, True]), 4)
    assert by_threshold.thresholds.tolist() == [pytest.approx(0.85), pytest.approx(0.65), np.nextafter(0.5, 0)]
    assert by_threshold.pairs.tolist() == [1, 3, 4]
    assert by_threshold.precision.tolist() == [1, 2 / 3, 2 / 4]
    assert by_threshold.recall.tolist() == [1 / 4, 2 / 4, 2 / 4]
    assert by_threshold.f1.tolist() == [2 / 5, 4 / 7, 4 / 8]
    assert by_threshold.best() == 1


def test_best_of_equal_f1_is_the_highest_threshold() -> None:
    by_threshold = curve(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]), 3)
    assert by_threshold.f1.tolist() == [0.5, 0.4, 2 / 3]
    assert curve(np.array([3.0, 2.0, 1.0, 0.5]), np.array([True, False, False, True]), 2).best() == 0


def test_curves_without_correct_pairs_have_no_best_threshold() -> None:
    assert curve(np.array([1.0]), np.array([False]), 1).best() is None
    empty = curve(np.zeros(0), np.zeros(0, dtype=bool), 1)
    assert (empty.best(), empty.figures()) == (None, [])


def test_curves_equal_sklearn() -> None:
    chance = np.random.default_rng(0)
    margins, right = chance.integers(0, 50, size=400) / 10, chance.random(400) < 0.4
    precision, recall, thresholds = precision_recall_curve(right, margins)
    by_threshold = curve(margins, right, int(right.sum()))
    assert by_threshold.precision[::-1] == pytest.approx(precision[:-1])
    assert by_threshold.recall[::-1] == pytest.approx(recall[:-1])
    assert ((by_threshold.thresholds[::-1] < thresholds) & (by_threshold.thresholds[::-1] > np.append(-1, thresholds[:-1]))).all()


def test_long_curves_are_thinned_to_both_ends_and_points_between() -> None:
    points = curve(np.arange(5000.0), np.ones(5000, dtype=bool), 5000).figures()
    assert len(points) == MAX_CURVE_POINTS
    assert (points[0]["pairs"], points[-1]["pairs"]) == (1, 5000)


def sentences(count: int, words: Sequence[str], seed: int) -> list[str]:
    """Return different random sentences of five words."""
    rng = np.random.default_rng(seed)
    drawn = {tuple(sorted(rng.choice(len(words), size=5).tolist())): None for _ in range(count)}
    return [" ".join(words[number] for number in numbers) for numbers in drawn]


def make_split(seed: int) -> tuple[Pairs, Pairs, Pairs]:
    """Return French and English sentences with ids, and gold: exact translations, some with an additional word, and singles."""
    french = sentences(60, NOMBRES, seed)
    rng = np.random.default_rng(seed)
    english = [" ".join(NUMBERS[NOMBRES.index(word)] for word in line.split()) for line in french]
    english = [line if number < 20 else f"{line} {rng.choice(NUMBERS)}" for number, line in enumerate(english[:40])]
    english = list(dict.fromkeys([*english, *sentences(30, NUMBERS, seed + 100)]))
    gold = [(f"fr-{number}", f"en-{number}") for number in range(40)]
    return [(f"fr-{n}", line) for n, line in enumerate(french)], [(f"en-{n}", line) for n, line in enumerate(english)], gold


def write(folder: Path, split: str, sides: tuple[Pairs, Pairs, Pairs], suffix: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in zip(("fr", "en", "gold"), sides, strict=True):
        data = "".join(f"{first}\t{second}\n" for first, second in rows).encode()
        (folder / f"fr-en.{split}.{part}{suffix}").write_bytes(gzip.compress(data) if suffix else data)


run = partial(outcome_of, "eval", "bucc")


def measure(folder: Path, toy_encoder: Path, *options: object) -> dict:
    status, output, _ = run("--data", folder, "--encoder", toy_encoder, "--json", folder / "f.json", *options)
    assert status == 0
    assert output
    return json.loads((folder / "f.json").read_text())


def expected_margins(toy_encoder: Path, sides: tuple[Pairs, Pairs, Pairs], k: int, margin: str) -> list[tuple[float, bool]]:
    """Return the margin of each mined pair and whether it is gold, from the whole similarity matrix."""
    encoder = load_encoder(str(toy_encoder))
    x, y = (encoder.encode([text for _, text in side]).astype(np.float16) for side in sides[:2])
    mined = dense.mine(x, y, np.arange(len(x)), np.arange(len(y)), k, margin)
    return [(score, (sides[0][i][0], sides[1][j][0]) in set(sides[2])) for score, i, j in mined]


def shares(mined: list[tuple[float, bool]], threshold: float, num_gold: int) -> dict[str, float]:
    is_gold = [gold for margin, gold in mined if margin > threshold]
    return {
        "pairs": len(is_gold),
        "precision": sum(is_gold) / len(is_gold),
        "recall": sum(is_gold) / num_gold,
        "f1": 2 * sum(is_gold) / (len(is_gold) + num_gold),
    }


@pytest.mark.parametrize(("k", "margin"), [(4, "ratio"), (3, "distance"), (1, "absolute")])
def test_figures_equal_brute_force(toy_encoder: Path, tmp_path: Path, k: int, margin: str) -> None:
    dev, test = make_split(1), make_split(2)
    write(tmp_path, "dev", dev)
    write(tmp_path, "test", test)
    figures = measure(tmp_path, toy_encoder, "--k", k, "--margin", margin)["pairs"]["fr-en"]
    mined = {name: expected_margins(toy_encoder, split, k, margin) for name, split in (("dev", dev), ("test", test))}
    margins = sorted({margin for margin, _ in mined["dev"]}, reverse=True)
    thresholds = [(high + low) / 2 for high, low in itertools.pairwise(margins)] + [margins[-1] - 1e-9]
    tuned = max(thresholds, key=lambda threshold: shares(mined["dev"], threshold, 40)["f1"])
    assert figures["dev"]["threshold"] == pytest.approx(tuned, abs=1e-8)
    assert figures["test"] == pytest.approx(shares(mined["test"], tuned, 40))
    best = max(shares(mined["test"], margin - 1e-9, 40)["f1"] for margin, _ in mined["test"])
    assert figures["oracle"]["f1"] == pytest.approx(best)
    assert 0 < figures["test"]["f1"] <= best < 1
    assert figures["gold"] == {"dev": 40, "test": 40}


def test_late_figures_are_those_of_mined_pairs(toy_encoder: Path, tmp_path: Path) -> None:
    dev, test = make_split(1), make_split(2)
    write(tmp_path, "dev", dev)
    write(tmp_path, "test", test)
    figures = measure(tmp_path, toy_encoder)
    late = figures["pairs"]["fr-en"]["late"]
    for name, side in zip(("fr", "en"), test[:2], strict=True):
        (tmp_path / name).write_text("".join(f"{text}\n" for _, text in side))
    options = ("--encoder", toy_encoder, "--threshold", "-5")
    assert miner("mine", tmp_path / "fr", tmp_path / "en", "--output", tmp_path / "out", *options).exit_code == 0
    ids = [{text: name for name, text in side} for side in test[:2]]
    rows = [line.split("\t") for line in gzip.decompress((tmp_path / "out/bitext.tsv.gz").read_bytes()).decode().splitlines()]
    mined = [(float(margin), (ids[0][source], ids[1][target]) in set(test[2])) for margin, source, target in rows]
    assert late["test"] == pytest.approx(shares(mined, late["dev"]["threshold"], 40))
    assert late["oracle"]["f1"] == pytest.approx(max(shares(mined, margin - 1e-7, 40)["f1"] for margin, _ in mined))
    assert figures["mean"] == {"f1": figures["pairs"]["fr-en"]["test"]["f1"], "late": late["test"]["f1"]}
    assert "late" not in measure(tmp_path, toy_encoder, "--rescore", "none")["pairs"]["fr-en"]


def test_threshold_does_not_depend_on_the_test_split(toy_encoder: Path, tmp_path: Path) -> None:
    dev, test = make_split(1), make_split(2)
    write(tmp_path / "a", "dev", dev)
    write(tmp_path / "a", "test", test)
    write(tmp_path / "b", "dev", dev)
    write(tmp_path / "b", "test", (test[0][:30], test[1][5:], test[2][10:20]))
    first, second = (measure(tmp_path / name, toy_encoder)["pairs"]["fr-en"] for name in "ab")
    assert first["dev"] == second["dev"]
    assert first["oracle"] != second["oracle"]


def small_split(*more_french: tuple[str, str]) -> tuple[Pairs, Pairs, Pairs]:
    """Return three translations with equal margins, and more French sentences."""
    french = [("f1", "un"), ("f2", "deux"), ("f3", "trois"), *more_french]
    return french, [("e1", "one"), ("e2", "two"), ("e3", "three")], [("f1", "e1"), ("f2", "e2"), ("f3", "e3")]


def test_pairs_of_a_sentence_with_two_ids_are_left_out(toy_encoder: Path, tmp_path: Path) -> None:
    write(tmp_path, "dev", small_split())
    write(tmp_path, "test", small_split(("f4", " un ")))
    figures = measure(tmp_path, toy_encoder, "--margin", "absolute")["pairs"]["fr-en"]
    assert figures["dev"]["f1"] == 1.0
    assert figures["test"] == {"pairs": 2, "precision": 1.0, "recall": 2 / 3, "f1": 0.8}


def test_gold_of_missing_sentences_counts_as_not_mined(toy_encoder: Path, tmp_path: Path) -> None:
    write(tmp_path, "dev", small_split())
    french, english, gold = small_split()
    write(tmp_path, "test", (french, english, [*gold, ("f9", "e1"), ("f1", "e9")]))
    status, _, errors = run("--data", tmp_path, "--encoder", toy_encoder, "--json", tmp_path / "f.json", "--margin", "absolute")
    assert status == 0
    assert errors.endswith("fr-en.test.gold: 2 of 5 pairs have ids of missing sentences; they count as not mined\n")
    figures = json.loads((tmp_path / "f.json").read_text())["pairs"]["fr-en"]
    assert figures["test"] == {"pairs": 3, "precision": 1.0, "recall": 3 / 5, "f1": 6 / 8}


def test_no_pair_is_accepted_if_no_dev_pair_is_correct(toy_encoder: Path, tmp_path: Path) -> None:
    write(tmp_path, "dev", ([("f1", "un"), ("f2", "deux")], [("e1", "one"), ("e2", "two")], [("f1", "e2")]))
    write(tmp_path, "test", small_split())
    figures = measure(tmp_path, toy_encoder)["pairs"]["fr-en"]
    assert figures["dev"] is None
    assert figures["test"] == {"pairs": 0, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert figures["oracle"]["f1"] == 1.0


def test_files_may_be_named_as_in_bucc_2018_and_be_in_subfolders(toy_encoder: Path, tmp_path: Path) -> None:
    write(tmp_path / "fr-en", "sample", small_split(), ".gz")
    write(tmp_path / "fr-en", "training", small_split())
    (tmp_path / "fr-en" / "fr-en.test.fr").write_text("f1\tun\n")  # published without gold
    (tmp_path / "README").write_text("other files are ignored")
    assert measure(tmp_path, toy_encoder)["mean"] == {"f1": 1.0, "late": 1.0}


def test_a_release_is_read_from_its_archives(toy_encoder: Path, tmp_path: Path) -> None:
    """Text with a BOM, CRLF, a quote that is not closed, and a second tab."""
    french = [(f"fr-{n:09}", text) for n, text in enumerate(['" un', "deux\ttrois", "quatre"], 1)]
    english = [(f"en-{n:09}", text) for n, text in enumerate(['" one', "two\tthree", "four"], 1)]
    gold = [(source, target) for (source, _), (target, _) in zip(french, english, strict=True)]
    for split, archive in (("sample", "sample-gold"), ("training", "training-gold")):
        write(tmp_path / "bucc2018/fr-en", split, (french, english, gold))
        path = tmp_path / f"bucc2018/fr-en/fr-en.{split}.fr"
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
        with tarfile.open(tmp_path / f"bucc2018-fr-en.{archive}.tar.bz2", "w:bz2") as tar:
            for part in ("fr", "en", "gold"):
                tar.add(tmp_path / f"bucc2018/fr-en/fr-en.{split}.{part}", f"bucc2018/fr-en/fr-en.{split}.{part}")
    shutil.rmtree(tmp_path / "bucc2018")
    assert measure(tmp_path, toy_encoder, "--margin", "absolute")["mean"] == {"f1": 1.0, "late": 1.0}


def test_language_pairs_are_chosen_from_a_dataset(toy_encoder: Path, tmp_path: Path) -> None:
    for split, seed in (("sample", 1), ("training", 2)):
        sides = [[(f"{side[0][0][:2]}-{int(key[3:]):09}", text) for key, text in side] for side in make_split(seed)[:2]]
        gold = [(f"fr-{number:09}", f"en-{number:09}") for number in range(40)]
        write(tmp_path / "bucc2018/fr-en", split, (sides[0], sides[1], gold))
    (tmp_path / "bucc2018/de-en").mkdir()
    (tmp_path / "bucc2018/de-en/de-en.sample.de").write_text("de-000000001\teins\n")
    (tmp_path / "bucc2018/de-en/de-en.sample.en").write_text("en-000000001\tone\n")
    folder = tmp_path / "bucc2018"
    data = f"{{dataset: bucc, path: {folder}, languages: [fr]}}"
    status, _, errors = run("--data", data, "--encoder", toy_encoder, "--json", tmp_path / "dataset.json")
    assert (status, errors) == (0, "")
    figures = json.loads((tmp_path / "dataset.json").read_text())
    assert figures == measure(folder / "fr-en", toy_encoder)
    errors = run("--data", f"{{dataset: bucc, path: {folder}}}", "--encoder", toy_encoder)[2]
    assert f"bucc in {folder}: de-en.dev.{{de,en,gold}} or de-en.sample.{{de,en,gold}} is incomplete" in errors
    for wrong in ("{dataset: tatoeba, path: x}", "{dataset: bucc, path: x, split: test}"):
        assert "name the dataset bucc, and no split" in run("--data", wrong, "--encoder", toy_encoder)[2]


FRENCH, ENGLISH, GOLD = small_split()


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ((FRENCH, ENGLISH, [("e1", "f1")]), "none of its pairs has ids of "),
        ((FRENCH, ENGLISH, []), "fr-en.test.gold: no gold pairs"),
        (([*FRENCH, ("f1", "quatre")], ENGLISH, GOLD), "fr-en.test.fr: several sentences have the id 'f1'"),
        (([], ENGLISH, GOLD), "fr-en.test.fr: no lines"),
        (([*FRENCH, ("f4 quatre\nf5", "cinq")], ENGLISH, GOLD), "fr-en.test.fr:4: expected id<TAB>sentence, found 'f4 quatre'"),
    ],
)
def test_malformed_splits_are_errors(toy_encoder: Path, tmp_path: Path, sides: tuple[Pairs, Pairs, Pairs], message: str) -> None:
    write(tmp_path, "dev", small_split())
    write(tmp_path, "test", sides)
    status, output, errors = run("--data", tmp_path, "--encoder", toy_encoder, "--json", tmp_path / "f.json")
    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert message in errors
    assert not (tmp_path / "f.json").exists()


def test_missing_files_are_errors(toy_encoder: Path, tmp_path: Path) -> None:
    assert "no such file or folder" in run("--data", tmp_path / "nowhere", "--encoder", toy_encoder)[2]
    assert "no files such as de-en.dev.de" in run("--data", tmp_path, "--encoder", toy_encoder)[2]
    write(tmp_path, "dev", small_split())
    status, _, errors = run("--data", tmp_path, "--encoder", toy_encoder)
    assert status == 1
    assert "fr-en.test.{fr,en,gold} or fr-en.training.{fr,en,gold} is incomplete" in errors


def test_sample_protocol_tunes_and_scores_one_split(toy_encoder: Path, tmp_path: Path) -> None:
    split = make_split(1)
    write(tmp_path, "sample", split)  # the test split is not needed
    figures = measure(tmp_path, toy_encoder, "--protocol", "sample")
    mined = expected_margins(toy_encoder, split, 4, "ratio")
    expected = max((shares(mined, margin - 1e-9, 40) for margin, _ in mined), key=lambda point: point["f1"])
    result = figures["pairs"]["fr-en"]
    assert {name: result[name] for name in expected} == pytest.approx(expected)
    assert {margin > result["threshold"] for margin, _ in sorted(mined)[-result["pairs"] :]} == {True}
    assert (figures["protocol"], result["gold"]) == ("sample", {"sample": 40})
    assert figures["mean"]["f1"] == pytest.approx(expected["f1"])


def test_report_of_the_sample_protocol_says_that_it_is_an_oracle(toy_encoder: Path, tmp_path: Path) -> None:
    write(tmp_path, "dev", make_split(1))
    options = ("--data", tmp_path, "--encoder", toy_encoder, "--json", tmp_path / "f.json", "--protocol", "sample")
    result = miner("eval", "bucc", *options, report=True)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0].split() == ["sample", "threshold", "precision", "recall", "sample", "F1"]
    assert "On the sample split, with 40 gold pairs" in (tmp_path / "report.html").read_text()
