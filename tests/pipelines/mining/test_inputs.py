"""What cannot be mined: it is told in one line, before anything is embedded where that can be known, and nothing is written."""

from pathlib import Path

import command
import dense
import numpy as np
import pytest

from miner.encoders import load_encoder


def refused(*arguments: object, output: Path, stdin: bytes | None = None) -> str:
    """What is said of it; nothing was written."""
    said = command.refused("mine", *arguments, "--output", output, stdin=stdin)
    assert not output.exists()
    return said


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "en.txt").write_text("one two\nthree four\n")
    (tmp_path / "fr.txt").write_text("trois quatre\nun deux\n")
    return tmp_path / "en.txt", tmp_path / "fr.txt"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return dense.write_corpus(tmp_path / "embedded", dense.ids(9, 0), dense.unit(9, 32, 0), shards=2)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_language_that_is_not_one(side: str, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    options = (f"--{side}-lang", "klingonese", "--encoder", toy_encoder)
    assert "unknown language code 'klingonese'" in refused(*texts, *options, output=tmp_path / "out")


@pytest.mark.parametrize("text_first", [True, False])
def test_a_text_beside_vectors_of_another_encoder(
    text_first: bool, texts: tuple[Path, Path], corpus: Path, toy_encoder: Path, tmp_path: Path
) -> None:
    sides = (texts[0], corpus) if text_first else (corpus, texts[0])
    said = refused(*sides, "--encoder", toy_encoder, output=tmp_path / "out")
    assert f"{corpus} was embedded by test-1" in said
    assert load_encoder(str(toy_encoder)).fingerprint in said


def test_standard_input_without_a_sentence(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    said = refused(texts[0], "-", "--encoder", toy_encoder, output=tmp_path / "out", stdin=b"\n \n")
    assert "-: not one sentence in 2 lines" in said


def test_a_bad_line_far_into_the_second_text(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    texts[1].write_bytes(b"un deux\n" * 200_000 + b"\xff\n")
    said = refused(*texts, "--strict", "--encoder", toy_encoder, output=tmp_path / "out")
    assert "fr.txt:200001: not UTF-8" in said


@pytest.mark.parametrize("table", ["embeddings", "sentences"])
def test_a_shard_that_is_gone(table: str, corpus: Path, tmp_path: Path) -> None:
    shard = corpus / table / "part-00001-of-00002.parquet"
    shard.unlink()
    assert f"{shard}: this shard is missing; run the same `miner embed` again" in refused(corpus, corpus, output=tmp_path / "out")


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    return (
        dense.write_corpus(tmp_path / "x", dense.ids(40, 0), dense.unit(40, 16, 0)),
        dense.write_corpus(tmp_path / "y", dense.ids(50, 1), dense.unit(50, 16, 1)),
    )


def test_what_was_in_the_output_before_stays(sides: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    broken = dense.write_corpus(tmp_path / "z", dense.ids(9, 2), np.full((9, 16), np.nan, np.float16))
    assert command.miner("mine", sides[0], broken, "--output", tmp_path / "out").exit_code == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_file_that_is_missing(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    said = refused(texts[0], tmp_path / "missing.txt", "--encoder", toy_encoder, output=tmp_path / "out")
    assert "missing.txt: no such file" in said


@pytest.mark.parametrize("text", [b"", b"\n \n\t\n", b"\xff\xfe\n"])
@pytest.mark.parametrize("empty", ["source", "target"])
def test_a_side_that_is_empty(text: bytes, empty: str, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(text)
    sides = [texts[0], tmp_path / "empty.txt"]
    said = refused(*(sides if empty == "target" else sides[::-1]), "--encoder", toy_encoder, output=tmp_path / "out")
    assert "empty.txt: no sentence in the text" in said


def test_an_embedded_side_that_is_empty(sides: tuple[Path, Path], tmp_path: Path) -> None:
    nothing = dense.write_corpus(tmp_path / "nothing", dense.ids(0, 0), np.zeros((0, 16), np.float16))
    assert "nothing: has no sentences" in refused(sides[0], nothing, output=tmp_path / "out")


@pytest.mark.parametrize("table", ["embeddings", "sentences"])
def test_a_shard_that_is_truncated(table: str, sides: tuple[Path, Path], tmp_path: Path) -> None:
    shard = sides[1] / table / "part-00000-of-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-100])
    assert f"{shard}: not a complete Parquet file" in refused(*sides, output=tmp_path / "out")


def test_vectors_of_another_encoder(sides: tuple[Path, Path], tmp_path: Path) -> None:
    other = dense.write_corpus(tmp_path / "z", dense.ids(9, 2), dense.unit(9, 16, 2), fingerprint="test-2")
    said = refused(sides[0], other, output=tmp_path / "out")
    assert "test-1" in said
    assert "test-2" in said


def test_vectors_of_another_dimension(sides: tuple[Path, Path], tmp_path: Path) -> None:
    other = dense.write_corpus(tmp_path / "z", dense.ids(9, 2), dense.unit(9, 24, 2))
    said = refused(sides[0], other, output=tmp_path / "out")
    assert "16 dimensions" in said
    assert "24" in said


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_vectors_that_are_not_finite(value: float, sides: tuple[Path, Path], tmp_path: Path) -> None:
    vectors = dense.unit(9, 16, 2)
    vectors[5, 3] = value
    broken = dense.write_corpus(tmp_path / "z", dense.ids(9, 2), vectors)
    assert "not finite" in refused(sides[0], broken, output=tmp_path / "out")


def test_a_folder_that_is_neither(sides: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert "neither a text nor a finished folder" in refused(sides[0], tmp_path / "folder", output=tmp_path / "out")


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        (None, "gold.tsv: no such file"),
        ("", "no pair of lines"),
        ("1\t2\n3\n", "gold.tsv:2: not `source line<TAB>target line`"),
        ("1\tzwei\n", "gold.tsv:1: not `source line<TAB>target line`"),
        ("0\t1\n", "gold.tsv:1: not `source line<TAB>target line`"),
    ],
)
def test_gold_that_is_none(gold: str | None, said: str, sides: tuple[Path, Path], tmp_path: Path) -> None:
    if gold is not None:
        (tmp_path / "gold.tsv").write_text(gold)
    assert said in refused(*sides, "--gold", tmp_path / "gold.tsv", output=tmp_path / "out")


def test_gold_of_a_line_that_is_not_there(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    gold = tmp_path / "gold.tsv"
    gold.write_text("1\t1\n3\t1\n")
    for text in texts:
        command.told("embed", text, "--output", tmp_path / text.stem, "--encoder", toy_encoder)
    said = refused(tmp_path / "en", tmp_path / "fr", "--gold", gold, output=tmp_path / "out")
    assert "there is no line 3" in said
    assert "ends at line 2" in said


@pytest.mark.parametrize(
    "options", [("--k", "0"), ("--shards", "0"), ("--device", "abacus"), ("--threshold", "nan"), ("--threshold", "inf")]
)
def test_options_out_of_range(options: tuple[str, str], sides: tuple[Path, Path], tmp_path: Path) -> None:
    assert options[0][2:] in refused(*sides, *options, output=tmp_path / "out")


def test_an_output_that_holds_something_else(sides: tuple[Path, Path], tmp_path: Path) -> None:
    indexed = tmp_path / "indexed"
    command.told("index", sides[0], "--output", indexed)
    before = sorted(indexed.rglob("*"))
    assert "holds index" in command.refused("mine", *sides, "--output", indexed)
    assert sorted(indexed.rglob("*")) == before
