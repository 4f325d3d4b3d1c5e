"""Gold pairs: from the lines of a file to the sentences of two corpora."""

import json
import random
from pathlib import Path

import pytest
from command import miner, output_of

from miner.errors import DataError
from miner.mining import writers
from pipelines.mining import gold_pairs


@pytest.fixture
def french(tmp_path: Path) -> Path:
    (tmp_path / "fr.txt").write_text("trois quatre\nun deux\n")
    return tmp_path / "fr.txt"


def test_file_may_have_a_bom_crlf_blank_lines_and_repeats(tmp_path: Path) -> None:
    (tmp_path / "gold.tsv").write_bytes(b"\xef\xbb\xbf1\t2\r\n\r\n3\t1 \r\n1\t2\r\n007\t5")
    assert gold_pairs.read_gold_file(str(tmp_path / "gold.tsv")).lines == ((1, 2), (3, 1), (7, 5))


@pytest.mark.parametrize(
    "line", [b"source\ttarget", b"1 2", b"1\t2\t0.9", b"-1\t2", b"1\t", b"1.0\t2", b"1\t99999999999999999999", b"\xff\t1"]
)
def test_invalid_line_is_an_error_with_its_number(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "gold.tsv").write_bytes(b"1\t2\n" + line + b"\n")
    with pytest.raises(DataError, match=r"gold\.tsv:2: not `source line<TAB>target line`, counted from 1; fix or remove the line"):
        gold_pairs.read_gold_file(str(tmp_path / "gold.tsv"))


def test_gold_pair_of_a_dropped_line_counts_as_missed(toy_encoder: Path, tmp_path: Path) -> None:
    """The last line of a TSV with a header is empty."""
    (tmp_path / "en.tsv").write_text("text\none two\n\n")
    (tmp_path / "fr.tsv").write_text("text\ntrois quatre\nun deux\n")
    (tmp_path / "gold.tsv").write_text("2\t3\n3\t2\n")
    files = (tmp_path / "en.tsv", tmp_path / "fr.tsv", "--text-column", "text", "--gold", tmp_path / "gold.tsv")
    options = ("--encoder", toy_encoder, "--output", tmp_path / "out", "--threshold", "1", "--json", tmp_path / "figures.json")
    output_of("mine", *files, *options)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["precision"], figures["recall"], figures["f1"]) == (1.0, 0.5, pytest.approx(2 / 3))


def test_repeated_line_of_standard_input_is_an_error(french: Path, toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "gold.tsv").write_text("2\t2\n")
    options = ("--gold", tmp_path / "gold.tsv", "--encoder", toy_encoder, "--output", tmp_path / "out")
    result = miner("mine", "-", french, *options, stdin=b"one two\none two\n")
    assert result.exit_code == 1
    assert result.stderr.endswith("gold.tsv: line 2 of standard input cannot be read again to look it up; give the text as a file\n")


def test_repeated_line_of_a_moved_text_is_an_error(french: Path, toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("one two\none two\n")
    (tmp_path / "gold.tsv").write_text("2\t2\n")
    assert miner("embed", tmp_path / "en.txt", "--encoder", toy_encoder, "--output", tmp_path / "en").exit_code == 0
    arguments = ("mine", tmp_path / "en", french, "--encoder", toy_encoder, "--gold", tmp_path / "gold.tsv", "--output")
    assert miner(*arguments, tmp_path / "out").exit_code == 0
    (tmp_path / "en.txt").rename(tmp_path / "moved.txt")
    result = miner(*arguments, tmp_path / "again")
    assert result.exit_code == 1
    assert "en.txt cannot be looked up: the file moved or changed; embed it again" in result.stderr


@pytest.mark.slow
def test_collapsed_line_is_an_error(toy_encoder: Path, tmp_path: Path) -> None:
    """English line 2 differs from line 1 only in case: the gold pair 2-1 would count as missed, and the correct pair as wrong."""
    (tmp_path / "en.txt").write_text("One two!\none two\nthree four\n")
    (tmp_path / "fr.txt").write_text("un deux\ntrois quatre\n")
    (tmp_path / "gold.tsv").write_text("2\t1\n3\t2\n")
    arguments = ("mine", tmp_path / "en.txt", tmp_path / "fr.txt", "--gold", tmp_path / "gold.tsv", "--encoder", toy_encoder)
    result = miner(*arguments, "--collapse", "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert "may have been collapsed into another line by --collapse; embed without --collapse" in result.stderr
    assert miner(*arguments, "--output", tmp_path / "out2").exit_code == 0


def test_stopped_run_resumes_with_other_gold(toy_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "en.txt").write_text("one two\nthree four\n")
    (tmp_path / "fr.txt").write_text("un deux\ntrois quatre\n")
    (tmp_path / "gold.tsv").write_text("1\t1\n2\t2\n")
    embedded = ("mine", tmp_path / "en.txt", tmp_path / "fr.txt", "--encoder", toy_encoder, "--threshold", "-inf")
    assert miner(*embedded, "--output", tmp_path / "out").exit_code == 0
    arguments = ("mine", "--from-candidates", tmp_path / "out", "--threshold", "-inf")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(writers, "write_bitext", stopped)
        assert miner(*arguments, "--output", tmp_path / "again").exit_code == 130
    scores = []
    for output in ("again", "whole"):
        output_of(*arguments, "--gold", tmp_path / "gold.tsv", "--output", tmp_path / output, "--json", tmp_path / "figures.json")
        scores.append([json.loads((tmp_path / "figures.json").read_text())[name] for name in ("precision", "recall")])
    assert scores[0] == scores[1] == [1.0, 1.0]


def test_no_flipped_bit_of_marks_goes_unnoticed(toy_encoder: Path, tmp_path: Path) -> None:
    """A mark that changes is of no known word, or its pair of no text; right and wrong differ in more than one bit."""
    numbers = [["one two", "three four", "five six", "seven", "eight two", "two", "one"], ["un deux", "trois quatre", "cinq six", "sept"]]
    for name, lines in zip(("en.txt", "fr.txt"), numbers, strict=True):
        (tmp_path / name).write_text("\n".join(lines))
    sides = (tmp_path / "en.txt", tmp_path / "fr.txt", "--encoder", toy_encoder, "--threshold", "1.01", "--filter", "none")
    command = ("mine", *sides, "--output", tmp_path / "out", "--gold", tmp_path / "marks.tsv")
    rows = [f"right\t{source}\t{target}\n" for source, target in zip(*numbers, strict=False)]
    intact = ("mark\tsource\ttarget\n" + "".join(rows)).encode()
    (tmp_path / "marks.tsv").write_bytes(intact)
    expected = output_of(*command)
    assert "marks" in expected
    chance = random.Random(11)
    for _ in range(30):
        damaged = bytearray(intact)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        (tmp_path / "marks.tsv").write_bytes(damaged)
        result = miner(*command)
        is_reported = result.exit_code == 1 and result.stderr.count("\n") == 1
        assert is_reported or comparable(result.stdout) == comparable(expected), bytes(damaged)


def comparable(summary: str) -> list[str]:
    return [line for line in summary.splitlines() if "marked" in line or "pairs" in line]
