"""Paraphrases: pairs of one corpus, against all similarities in numpy."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import miner as command

import miner
from miner.encoders import load_encoder

EXAMPLES = Path(__file__).parents[3] / "examples"
# Each number word has one vector in English and French, so that the pairs of a number in both are paraphrases of the toy encoder.
LINES = ["one two", "un deux", "three", "trois", "four five six", "quatre cinq six", "seven", "one two", "neuf dix un", "nine ten one"]
PAIRS = {("one two", "un deux"), ("three", "trois"), ("four five six", "quatre cinq six"), ("nine ten one", "neuf dix un")}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text("".join(f"{line}\n" for line in LINES))
    return tmp_path / "corpus.txt"


@pytest.mark.parametrize("names", [1, 2])
def test_no_sentence_is_paired_with_itself_and_each_pair_occurs_once(names: int, corpus: Path, toy_encoder: Path, tmp_path: Path) -> None:
    options = ("--paraphrases", "--encoder", toy_encoder, "--threshold", "1.01", "--filter", "none", "--output", tmp_path / "out")
    assert command("mine", *[corpus] * names, *options).exit_code == 0
    rows = pq.read_table(tmp_path / "out/bitext.parquet").to_pylist()
    pairs = [frozenset((row["source_text"], row["target_text"])) for row in rows]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {frozenset(pair) for pair in PAIRS}
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.name in ("source", "target")) == ["source"]


def test_margins_are_those_of_all_similarities() -> None:
    texts = [line for name in ("en", "de") for line in (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()[:150]]
    settings = {"paraphrases": True, "rescore": "none", "retrieval": "all", "threshold": 0, "filters": ["none"], "k": 4}
    bitext = miner.mine(texts, **settings)
    unique = list(dict.fromkeys(texts))
    vectors = load_encoder("builtin").encode(unique).astype(np.float16).astype(np.float64)
    similarities = vectors @ vectors.T
    np.fill_diagonal(similarities, -np.inf)
    means = np.sort(similarities, axis=1)[:, -4:].mean(1)
    ratio = similarities / ((means[:, None] + means[None, :]) / 2)
    rows = {text: row for row, text in enumerate(unique)}
    nearest = np.argsort(-similarities, axis=1)[:, :4]
    expected = {frozenset((row, other)) for row, others in enumerate(nearest.tolist()) for other in others}
    found = {}
    for pair in bitext:
        key = frozenset((rows[pair["source_text"]], rows[pair["target_text"]]))
        assert key not in found
        found[key] = pair["margin"]
    assert found.keys() == expected
    np.testing.assert_allclose(list(found.values()), [ratio[tuple(key)] for key in found], rtol=1e-6)
    assert all(pair["source_id"] < pair["target_id"] for pair in bitext)


def test_near_copies_are_left_out_by_a_bound(toy_encoder: Path, tmp_path: Path) -> None:
    lines = ["one two three four", "one two three four five", "un deux trois quatre", "six", "seven eight"]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    base = ("mine", tmp_path / "a.txt", "--paraphrases", "--encoder", toy_encoder, "--threshold", "0", "--retrieval", "all")
    for bound, is_there in (("copies=0.5", False), ("none", True)):
        output = tmp_path / bound
        assert command(*base, "--filter", "none", "--filter", bound, "--output", output, "--json", tmp_path / "f.json").exit_code == 0
        pairs = {frozenset((row["source_text"], row["target_text"])) for row in pq.read_table(output / "bitext.parquet").to_pylist()}
        assert (frozenset(lines[:2]) in pairs) == is_there
        assert frozenset((lines[0], lines[2])) in pairs
        assert (json.loads((tmp_path / "f.json").read_text())["dropped"] != {}) == (not is_there)


def test_one_corpus_twice_gets_a_warning_and_two_an_error(corpus: Path, toy_encoder: Path, tmp_path: Path) -> None:
    options = ("--encoder", toy_encoder, "--threshold", "1", "--output", tmp_path / "out")
    assert "each of which is paired with itself; give --paraphrases" in command("mine", corpus, corpus, *options).stderr
    (tmp_path / "other.txt").write_text("one\n")
    refused = command("mine", corpus, tmp_path / "other.txt", "--paraphrases", *options)
    assert refused.exit_code != 0
    assert "--paraphrases takes one corpus; leave TARGET out" in refused.stderr


def test_groups_are_what_pairs_connect(toy_encoder: Path, tmp_path: Path) -> None:
    """A chain of pairs is one group, in a file and in Python; other groups are apart, best pair first."""
    lines = ["one two", "lone", "un deux", "one deux", "un two", "six", "six six"]
    (tmp_path / "corpus.txt").write_text("".join(f"{line}\n" for line in lines))
    options = ("--paraphrases", "--encoder", toy_encoder, "--threshold", "0.9", "--retrieval", "all", "--filter", "none", "--groups")
    assert command("mine", tmp_path / "corpus.txt", *options, "--output", tmp_path / "out").exit_code == 0
    pairs = pq.read_table(tmp_path / "out/bitext.parquet").to_pylist()
    expected: list[set[str]] = []
    for pair in pairs:
        joined = {pair["source_text"], pair["target_text"]}
        expected = [group for group in expected if not group & joined] + [joined.union(*(group for group in expected if group & joined))]
    cells = [line.split("\t") for line in gzip.decompress((tmp_path / "out/groups.tsv.gz").read_bytes()).decode().splitlines()]
    groups = [{row[1] for row in cells if row[0] == number} for number in dict.fromkeys(row[0] for row in cells)]
    assert {"one two", "un deux", "one deux", "un two"} in groups
    assert sorted(map(sorted, groups)) == sorted(map(sorted, expected))
    assert cells[0][1] in (pairs[0]["source_text"], pairs[0]["target_text"])
    assert all(lines[int(row[3]) - 1] == row[1] for row in cells)
    settings = {"encoder": toy_encoder, "paraphrases": True, "retrieval": "all", "filters": "none"}
    mined = miner.mine(lines, threshold=0.9, **settings)
    assert [(str(row["group"]), row["text"], row["row"] + 1) for row in mined.groups.to_pylist()] == [
        (row[0], row[1], int(row[3])) for row in cells
    ]
    assert len(miner.mine(lines, threshold=99, **settings).groups) == 0
    assert command("verify", tmp_path / "out").exit_code == 0
    again = ("mine", "--from-candidates", tmp_path / "out", "--threshold", "99", "--output", tmp_path / "again")
    assert command(*again, "--groups").exit_code == 0
    assert gzip.decompress((tmp_path / "again/groups.tsv.gz").read_bytes()) == b""
    assert command(*again).exit_code == 0
    assert not (tmp_path / "again/groups.tsv.gz").exists()
