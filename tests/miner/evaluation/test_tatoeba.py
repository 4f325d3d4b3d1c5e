"""The Tatoeba evaluation on files with obvious answers."""

import gzip
import json
from functools import partial
from pathlib import Path

import pytest
from command import outcome_of

from miner.evaluation.tatoeba import SETS

FRENCH = ["un", "deux trois", "quatre", "cinq"]
ENGLISH = ["one", "two three", "four", "five"]


def write(folder: Path, code: str, lines: list[str]) -> None:
    with gzip.open(folder / f"tatoeba.{code}-eng.tsv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")


run = partial(outcome_of, "eval", "tatoeba")


def test_sets_have_the_sizes_of_xtremes() -> None:
    assert {name: len(set(codes)) for name, codes in SETS.items()} == {"tatoeba14": 14, "tatoeba36": 36}
    assert set(SETS["tatoeba14"]) < set(SETS["tatoeba36"])


def test_accuracy_by_language_and_average(toy_encoder: Path, tmp_path: Path) -> None:
    pairs = [f"{french}\t{english}" for french, english in zip(FRENCH, ENGLISH, strict=True)]
    # Every pair is right, except in one language, whose last two lines are swapped and so both wrong.
    for code in SETS["tatoeba14"]:
        write(tmp_path, code, pairs)
    write(tmp_path, "bul", [pairs[0], pairs[1], "quatre\tfive", "cinq\tfour"])
    # Two foreign lines have one vector: the second retrieves the English of the first, and "nine" retrieves neither.
    # The language is only in the average `all`.
    write(tmp_path, "nds", ["un\tone", "un un\tnine", "quatre\tfour", "cinq\tfive"])
    (tmp_path / "README").write_text("other files are ignored")
    status, output, errors = run("--data", str(tmp_path), "--encoder", str(toy_encoder), "--json", str(tmp_path / "f.json"))
    assert status == 0
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["languages"]["deu"] == {"n": 4, "forward": 1.0, "backward": 1.0, "mean": 1.0}
    assert figures["languages"]["bul"] == {"n": 4, "forward": 0.5, "backward": 0.5, "mean": 0.5}
    assert figures["languages"]["nds"] == {"n": 4, "forward": 0.75, "backward": 0.75, "mean": 0.75}
    assert list(figures["languages"]) == sorted([*SETS["tatoeba14"], "nds"])
    assert figures["average"]["tatoeba14"] == pytest.approx(13.5 / 14)
    assert figures["average"]["tatoeba36"] is None
    assert figures["average"]["all"] == pytest.approx((13.5 + 0.75) / 15)
    assert errors == ""
    *_, all_row, note = output.splitlines()
    assert all_row.split() == ["all", *(f"{100 * figures['average']['all']:.2f}" for _ in range(3))]
    assert note == f"no average tatoeba36: no file for {', '.join(code for code in SETS['tatoeba36'] if code not in SETS['tatoeba14'])}"


def test_forward_is_from_the_language_to_english(toy_encoder: Path, tmp_path: Path) -> None:
    # "un un un deux" is nearest to "one", but of the French lines "two" is nearest to it.
    write(tmp_path, "fra", ["un\tone", "un un un deux\ttwo"])
    run("--data", str(tmp_path), "--encoder", str(toy_encoder), "--json", str(tmp_path / "f.json"))
    assert json.loads((tmp_path / "f.json").read_text())["languages"]["fra"] == {"n": 2, "forward": 0.5, "backward": 1.0, "mean": 0.75}


@pytest.mark.parametrize(
    ("text", "cut", "message"),
    [
        (None, 0, "no file like tatoeba.deu-eng.deu or tatoeba/de-en.de"),
        (b"", 0, "no lines"),
        (b"un\tone\ndeux\n", 0, "fra-eng.tsv.gz:2: 1 column, expected at least 2"),
        (b"un\tone\n", 9, "truncated or not .gz"),
        (b"un\tone\n\xff\ttwo\n", 0, "fra-eng.tsv.gz:2: not UTF-8"),
    ],
)
def test_malformed_files_are_errors(toy_encoder: Path, tmp_path: Path, text: bytes | None, cut: int, message: str) -> None:
    if text is not None:
        compressed = gzip.compress(text)
        (tmp_path / "tatoeba.fra-eng.tsv.gz").write_bytes(compressed[: len(compressed) - cut])
    status, output, errors = run("--data", str(tmp_path), "--encoder", str(toy_encoder), "--json", str(tmp_path / "f.json"))
    assert (status, output) == (1, "")
    assert message in errors
    assert not (tmp_path / "f.json").exists()


def test_files_may_be_uncompressed(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "tatoeba.fra-eng.tsv").write_text("un\tone\ndeux\ttwo\n")
    assert run("--data", str(tmp_path), "--encoder", str(toy_encoder))[0] == 0


def test_missing_folder_is_an_error(toy_encoder: Path, tmp_path: Path) -> None:
    status, _, errors = run("--data", str(tmp_path / "nowhere"), "--encoder", str(toy_encoder))
    assert status == 1
    assert errors.startswith(f"miner: error: {tmp_path}/nowhere: no such file or folder; name a file of the release")
