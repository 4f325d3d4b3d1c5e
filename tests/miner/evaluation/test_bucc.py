"""Curves, and BUCC: thresholds by hand and by brute force, and what the test split must not tell."""

import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import dense
import numpy as np
import pytest
from command import miner
from sklearn.metrics import precision_recall_curve

from miner.encoders import load_encoder
from miner.evaluation.precision_recall import POINTS, curve

NUMBERS = ["one", "two", "three", "four", "five", "seven", "eight", "nine", "ten"]
NOMBRES = ["un", "deux", "trois", "quatre", "cinq", "sept", "huit", "neuf", "dix"]
Pairs = Sequence[tuple[str, str]]


def test_a_curve_by_hand() -> None:
    # Best first: 0.9 right, 0.8 wrong and 0.8 right together, 0.5 wrong; of four right ones two are never found.
    found = curve(np.array([0.8, 0.9, 0.5, 0.8]), np.array([False, True, False, True]), 4)
    assert found.thresholds.tolist() == [pytest.approx(0.85), pytest.approx(0.65), np.nextafter(0.5, 0)]
    assert found.pairs.tolist() == [1, 3, 4]
    assert found.precision.tolist() == [1, 2 / 3, 2 / 4]
    assert found.recall.tolist() == [1 / 4, 2 / 4, 2 / 4]
    assert found.f1.tolist() == [2 / 5, 4 / 7, 4 / 8]
    assert found.best() == 1


def test_of_equal_f1_the_highest_threshold_is_best() -> None:
    found = curve(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]), 3)
    assert found.f1.tolist() == [0.5, 0.4, 2 / 3]
    assert curve(np.array([3.0, 2.0, 1.0, 0.5]), np.array([True, False, False, True]), 2).best() == 0


def test_nothing_right_and_nothing_at_all() -> None:
    assert curve(np.array([1.0]), np.array([False]), 1).best() is None
    empty = curve(np.zeros(0), np.zeros(0, dtype=bool), 1)
    assert (empty.best(), empty.figures()) == (None, [])


def test_curves_are_sklearns() -> None:
    chance = np.random.default_rng(0)
    margins, right = chance.integers(0, 50, size=400) / 10, chance.random(400) < 0.4
    precision, recall, thresholds = precision_recall_curve(right, margins)
    found = curve(margins, right, int(right.sum()))
    assert found.precision[::-1] == pytest.approx(precision[:-1])
    assert found.recall[::-1] == pytest.approx(recall[:-1])
    assert ((found.thresholds[::-1] < thresholds) & (found.thresholds[::-1] > np.append(-1, thresholds[:-1]))).all()


def test_long_curves_keep_their_ends() -> None:
    points = curve(np.arange(5000.0), np.ones(5000, dtype=bool), 5000).figures()
    assert len(points) == POINTS
    assert (points[0]["pairs"], points[-1]["pairs"]) == (1, 5000)


def sentences(count: int, words: Sequence[str], seed: int) -> list[str]:
    """Different sentences, each of words of its own."""
    chance = np.random.default_rng(seed)
    drawn = {tuple(sorted(chance.choice(len(words), size=5).tolist())): None for _ in range(count)}
    return [" ".join(words[number] for number in numbers) for numbers in drawn]


def made_split(seed: int) -> tuple[Pairs, Pairs, Pairs]:
    """French and English sentences with ids, and gold: some are translations, others translations with a word too many, others alone."""
    french = sentences(60, NOMBRES, seed)
    chance = np.random.default_rng(seed)
    english = [" ".join(NUMBERS[NOMBRES.index(word)] for word in line.split()) for line in french]
    english = [line if number < 20 else f"{line} {chance.choice(NUMBERS)}" for number, line in enumerate(english[:40])]
    english = list(dict.fromkeys([*english, *sentences(30, NUMBERS, seed + 100)]))
    gold = [(f"fr-{number}", f"en-{number}") for number in range(40)]
    return [(f"fr-{n}", line) for n, line in enumerate(french)], [(f"en-{n}", line) for n, line in enumerate(english)], gold


def write(folder: Path, split: str, sides: tuple[Pairs, Pairs, Pairs], pack: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for what, rows in zip(("fr", "en", "gold"), sides, strict=True):
        data = "".join(f"{one}\t{other}\n" for one, other in rows).encode()
        (folder / f"fr-en.{split}.{what}{pack}").write_bytes(gzip.compress(data) if pack else data)


def run(*arguments: object) -> tuple[int, str, str]:
    result = miner("eval", "bucc", *arguments)
    return result.exit_code, result.stdout, result.stderr


def measure(folder: Path, toy_encoder: Path, *options: object) -> dict:
    status, output, _ = run("--data", folder, "--encoder", toy_encoder, "--json", folder / "f.json", *options)
    assert status == 0
    assert output
    return json.loads((folder / "f.json").read_text())


def expected(toy_encoder: Path, sides: tuple[Pairs, Pairs, Pairs], k: int, margin: str) -> list[tuple[float, bool]]:
    """Margin of each mined pair and whether it is gold, from the whole similarity matrix."""
    encoder = load_encoder(str(toy_encoder))
    x, y = (encoder.encode([text for _, text in side]).astype(np.float16) for side in sides[:2])
    mined = dense.mine(x, y, np.arange(len(x)), np.arange(len(y)), k, margin)
    return [(score, (sides[0][i][0], sides[1][j][0]) in set(sides[2])) for score, i, j in mined]


def shares(mined: list[tuple[float, bool]], threshold: float, wanted: int) -> dict[str, float]:
    kept = [right for score, right in mined if score > threshold]
    return {
        "pairs": len(kept),
        "precision": sum(kept) / len(kept),
        "recall": sum(kept) / wanted,
        "f1": 2 * sum(kept) / (len(kept) + wanted),
    }


@pytest.mark.parametrize(("k", "margin"), [(4, "ratio"), (3, "distance"), (1, "absolute")])
def test_figures_by_brute_force(toy_encoder: Path, tmp_path: Path, k: int, margin: str) -> None:
    dev, test = made_split(1), made_split(2)
    write(tmp_path, "dev", dev)
    write(tmp_path, "test", test)
    found = measure(tmp_path, toy_encoder, "--k", k, "--margin", margin)["pairs"]["fr-en"]
    mined = {name: expected(toy_encoder, split, k, margin) for name, split in (("dev", dev), ("test", test))}
    scores = sorted({score for score, _ in mined["dev"]}, reverse=True)
    cuts = [(one + other) / 2 for one, other in itertools.pairwise(scores)] + [scores[-1] - 1e-9]
    tuned = max(cuts, key=lambda cut: shares(mined["dev"], cut, 40)["f1"])
    assert found["dev"]["threshold"] == pytest.approx(tuned, abs=1e-8)
    assert found["test"] == pytest.approx(shares(mined["test"], tuned, 40))
    cuts = [score - 1e-9 for score, _ in mined["test"]]
    best = max(shares(mined["test"], cut, 40)["f1"] for cut in cuts)
    assert found["oracle"]["f1"] == pytest.approx(best)
    assert 0 < found["test"]["f1"] <= best < 1
    assert found["gold"] == {"dev": 40, "test": 40}


def test_the_threshold_does_not_hear_of_the_test_split(toy_encoder: Path, tmp_path: Path) -> None:
    dev, test = made_split(1), made_split(2)
    write(tmp_path / "a", "dev", dev)
    write(tmp_path / "a", "test", test)
    write(tmp_path / "b", "dev", dev)
    write(tmp_path / "b", "test", (test[0][:30], test[1][5:], test[2][10:20]))
    one, other = (measure(tmp_path / name, toy_encoder)["pairs"]["fr-en"] for name in "ab")
    assert one["dev"] == other["dev"]
    assert one["oracle"] != other["oracle"]


def tiny(*extra: tuple[str, str]) -> tuple[Pairs, Pairs, Pairs]:
    """Three translations that are found with the same margin, and what is added to the French side."""
    french = [("f1", "un"), ("f2", "deux"), ("f3", "trois"), *extra]
    return french, [("e1", "one"), ("e2", "two"), ("e3", "three")], [("f1", "e1"), ("f2", "e2"), ("f3", "e3")]


def test_a_sentence_with_two_ids_belongs_to_neither(toy_encoder: Path, tmp_path: Path) -> None:
    write(tmp_path, "dev", tiny())
    write(tmp_path, "test", tiny(("f4", " un ")))
    found = measure(tmp_path, toy_encoder, "--margin", "absolute")["pairs"]["fr-en"]
    assert found["dev"]["f1"] == 1.0
    assert found["test"] == {"pairs": 2, "precision": 1.0, "recall": 2 / 3, "f1": 0.8}


def test_gold_of_missing_sentences_cannot_be_found(toy_encoder: Path, tmp_path: Path) -> None:
    write(tmp_path, "dev", tiny())
    french, english, gold = tiny()
    write(tmp_path, "test", (french, english, [*gold, ("f9", "e1"), ("f1", "e9")]))
    status, _, errors = run("--data", tmp_path, "--encoder", toy_encoder, "--json", tmp_path / "f.json", "--margin", "absolute")
    assert status == 0
    assert errors.endswith("fr-en.test.gold: 2 of 5 pairs are of sentences that are not there; they count as not found\n")
    found = json.loads((tmp_path / "f.json").read_text())["pairs"]["fr-en"]
    assert found["test"] == {"pairs": 3, "precision": 1.0, "recall": 3 / 5, "f1": 6 / 8}


def test_without_a_right_pair_in_dev_nothing_is_accepted(toy_encoder: Path, tmp_path: Path) -> None:
    write(tmp_path, "dev", ([("f1", "un"), ("f2", "deux")], [("e1", "one"), ("e2", "two")], [("f1", "e2")]))
    write(tmp_path, "test", tiny())
    found = measure(tmp_path, toy_encoder)["pairs"]["fr-en"]
    assert found["dev"] is None
    assert found["test"] == {"pairs": 0, "precision": 0.0, "recall": 0.0, "f1": 0.0}
    assert found["oracle"]["f1"] == 1.0


def test_the_names_of_bucc_2018_in_folders_of_their_own(toy_encoder: Path, tmp_path: Path) -> None:
    write(tmp_path / "fr-en", "sample", tiny(), ".gz")
    write(tmp_path / "fr-en", "training", tiny())
    (tmp_path / "fr-en" / "fr-en.test.fr").write_text("f1\tun\n")  # published without gold
    (tmp_path / "README").write_text("other files are left alone")
    assert measure(tmp_path, toy_encoder)["mean"] == {"f1": 1.0}


FRENCH, ENGLISH, GOLD = tiny()


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ((FRENCH, ENGLISH, [("e1", "f1")]), "none of its pairs is of ids in "),
        ((FRENCH, ENGLISH, []), "fr-en.test.gold: no gold pairs"),
        (([*FRENCH, ("f1", "quatre")], ENGLISH, GOLD), "fr-en.test.fr: several sentences have the id 'f1'"),
        (([], ENGLISH, GOLD), "fr-en.test.fr: no lines"),
    ],
)
def test_bad_splits(toy_encoder: Path, tmp_path: Path, sides: tuple[Pairs, Pairs, Pairs], message: str) -> None:
    write(tmp_path, "dev", tiny())
    write(tmp_path, "test", sides)
    status, output, errors = run("--data", tmp_path, "--encoder", toy_encoder, "--json", tmp_path / "f.json")
    assert (status, output, errors.count("\n")) == (1, "", 1)
    assert message in errors
    assert not (tmp_path / "f.json").exists()


def test_missing_files(toy_encoder: Path, tmp_path: Path) -> None:
    assert "no such folder" in run("--data", tmp_path / "nowhere", "--encoder", toy_encoder)[2]
    assert "no files such as de-en.dev.de" in run("--data", tmp_path, "--encoder", toy_encoder)[2]
    write(tmp_path, "dev", tiny())
    status, _, errors = run("--data", tmp_path, "--encoder", toy_encoder)
    assert status == 1
    assert "fr-en.test.{fr,en,gold} or fr-en.training.{fr,en,gold} is not all there" in errors
