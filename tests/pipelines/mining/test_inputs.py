"""Invalid inputs of `miner mine`: an error of one line, before anything is embedded if possible, and nothing is written."""

from pathlib import Path

import command
import dense
import numpy as np
import pytest
import tiny

from miner.encoders import load_encoder
from miner.encoders.int8_linear import is_exact


def mine_error(*arguments: object, output: Path, stdin: bytes | None = None) -> str:
    """Return the error message; nothing is written."""
    message = command.error_of("mine", *arguments, "--output", output, stdin=stdin)
    assert not output.exists()
    return message


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "en.txt").write_text("one two\nthree four\n")
    (tmp_path / "fr.txt").write_text("trois quatre\nun deux\n")
    return tmp_path / "en.txt", tmp_path / "fr.txt"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return dense.write_corpus(tmp_path / "embedded", dense.text_ids(9, 0), dense.unit(9, 32, 0), shards=2)


@pytest.mark.parametrize("side", ["source", "target"])
def test_unknown_language(side: str, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    options = (f"--{side}-lang", "klingonese", "--encoder", toy_encoder)
    assert "unknown language code 'klingonese'" in mine_error(*texts, *options, output=tmp_path / "out")


@pytest.mark.parametrize("text_first", [True, False])
def test_text_and_vectors_of_another_encoder(
    text_first: bool, texts: tuple[Path, Path], corpus: Path, toy_encoder: Path, tmp_path: Path
) -> None:
    sides = (texts[0], corpus) if text_first else (corpus, texts[0])
    message = mine_error(*sides, "--encoder", toy_encoder, output=tmp_path / "out")
    assert f"{corpus} was embedded by vectors" in message
    assert load_encoder(str(toy_encoder)).fingerprint in message


@pytest.mark.skipif(not is_exact(), reason="needs exact int8 products")
def test_text_in_int8_and_vectors_in_float32(texts: tuple[Path, Path], tmp_path: Path) -> None:
    tiny.save_transformer(tmp_path / "model")
    encoder = ("--encoder", tmp_path / "model", "--pooling", "mean", "--device", "cpu")
    for dtype in ("float32", "int8"):
        command.output_of("embed", texts[0], *encoder, "--dtype", dtype, "--output", tmp_path / dtype)
    message = mine_error(tmp_path / "float32", texts[1], *encoder, "--dtype", "int8", output=tmp_path / "out")
    assert f"{tmp_path / 'float32'} was embedded by transformer-" in message
    message = mine_error(tmp_path / "float32", tmp_path / "int8", output=tmp_path / "out")
    assert "embed both with one encoder" in message
    command.output_of("mine", tmp_path / "int8", texts[1], *encoder, "--dtype", "int8", "--output", tmp_path / "out")


def test_standard_input_without_a_sentence(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    message = mine_error(texts[0], "-", "--encoder", toy_encoder, output=tmp_path / "out", stdin=b"\n \n")
    assert "-: no sentence in 2 lines" in message


def test_bad_line_late_in_the_second_text(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    texts[1].write_bytes(b"un deux\n" * 200_000 + b"\xff\n")
    message = mine_error(*texts, "--strict", "--encoder", toy_encoder, output=tmp_path / "out")
    assert "fr.txt:200001: not UTF-8" in message


@pytest.mark.parametrize("table", ["embeddings", "sentences"])
def test_missing_shard(table: str, corpus: Path, tmp_path: Path) -> None:
    shard = corpus / table / "part-00001-of-00002.parquet"
    shard.unlink()
    assert f"{shard}: this shard is missing; run the same `miner embed` again" in mine_error(corpus, corpus, output=tmp_path / "out")


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    return (
        dense.write_corpus(tmp_path / "x", dense.text_ids(40, 0), dense.unit(40, 16, 0)),
        dense.write_corpus(tmp_path / "y", dense.text_ids(50, 1), dense.unit(50, 16, 1)),
    )


def test_other_files_in_the_output_are_kept(sides: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    broken = dense.write_corpus(tmp_path / "z", dense.text_ids(9, 2), np.full((9, 16), np.nan, np.float16))
    assert command.miner("mine", sides[0], broken, "--output", tmp_path / "out").exit_code == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_missing_file(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    message = mine_error(texts[0], tmp_path / "missing.txt", "--encoder", toy_encoder, output=tmp_path / "out")
    assert "missing.txt: no such file" in message


@pytest.mark.parametrize("text", [b"", b"\n \n\t\n", b"\xff\xfe\n"])
@pytest.mark.parametrize("empty", ["source", "target"])
def test_empty_text(text: bytes, empty: str, texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(text)
    sides = [texts[0], tmp_path / "empty.txt"]
    message = mine_error(*(sides if empty == "target" else sides[::-1]), "--encoder", toy_encoder, output=tmp_path / "out")
    assert "empty.txt: no sentence in the text" in message


def test_empty_corpus(sides: tuple[Path, Path], tmp_path: Path) -> None:
    empty = dense.write_corpus(tmp_path / "nothing", dense.text_ids(0, 0), np.zeros((0, 16), np.float16))
    assert "nothing: has no sentences" in mine_error(sides[0], empty, output=tmp_path / "out")


@pytest.mark.parametrize("table", ["embeddings", "sentences"])
def test_truncated_shard(table: str, sides: tuple[Path, Path], tmp_path: Path) -> None:
    shard = sides[1] / table / "part-00000-of-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-100])
    assert f"{shard}: not a complete Parquet file" in mine_error(*sides, output=tmp_path / "out")


def test_vectors_of_different_encoders(sides: tuple[Path, Path], tmp_path: Path) -> None:
    other = dense.write_corpus(tmp_path / "z", dense.text_ids(9, 2), dense.unit(9, 16, 2), fingerprint="test-2")
    message = mine_error(sides[0], other, output=tmp_path / "out")
    assert "embedded by vectors" in message
    assert "test-2" in message


def test_vectors_of_different_dimensions(sides: tuple[Path, Path], tmp_path: Path) -> None:
    other = dense.write_corpus(tmp_path / "z", dense.text_ids(9, 2), dense.unit(9, 24, 2))
    message = mine_error(sides[0], other, output=tmp_path / "out")
    assert "16 dimensions" in message
    assert "24" in message


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_vectors_that_are_not_finite(value: float, sides: tuple[Path, Path], tmp_path: Path) -> None:
    vectors = dense.unit(9, 16, 2)
    vectors[5, 3] = value
    broken = dense.write_corpus(tmp_path / "z", dense.text_ids(9, 2), vectors)
    assert "not finite" in mine_error(sides[0], broken, output=tmp_path / "out")


def test_folder_that_is_no_corpus(sides: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert "not a finished output of `miner embed`" in mine_error(sides[0], tmp_path / "folder", output=tmp_path / "out")


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        (None, "gold.tsv: no such file"),
        ("", "no pair of lines"),
        ("1\t2\n3\n", "gold.tsv:2: not `source line<TAB>target line`"),
        ("1\tzwei\n", "gold.tsv:1: not `source line<TAB>target line`"),
        ("0\t1\n", "gold.tsv:1: not `source line<TAB>target line`"),
    ],
)
def test_invalid_gold(gold: str | None, message: str, sides: tuple[Path, Path], tmp_path: Path) -> None:
    if gold is not None:
        (tmp_path / "gold.tsv").write_text(gold)
    assert message in mine_error(*sides, "--gold", tmp_path / "gold.tsv", output=tmp_path / "out")


def test_gold_line_after_the_end(texts: tuple[Path, Path], toy_encoder: Path, tmp_path: Path) -> None:
    gold = tmp_path / "gold.tsv"
    gold.write_text("1\t1\n3\t1\n")
    for text in texts:
        command.output_of("embed", text, "--output", tmp_path / text.stem, "--encoder", toy_encoder)
    message = mine_error(tmp_path / "en", tmp_path / "fr", "--gold", gold, output=tmp_path / "out")
    assert "there is no line 3" in message
    assert "ends at line 2" in message


@pytest.mark.parametrize(
    "options", [("--k", "0"), ("--shards", "0"), ("--device", "abacus"), ("--threshold", "nan"), ("--threshold", "inf")]
)
def test_options_out_of_range(options: tuple[str, str], sides: tuple[Path, Path], tmp_path: Path) -> None:
    assert options[0][2:] in mine_error(*sides, *options, output=tmp_path / "out")


def test_output_of_another_stage(sides: tuple[Path, Path], tmp_path: Path) -> None:
    indexed = tmp_path / "indexed"
    command.output_of("index", sides[0], "--output", indexed)
    before = sorted(indexed.rglob("*"))
    assert "an output of `miner index`; choose another --output" in command.error_of("mine", *sides, "--output", indexed)
    assert sorted(indexed.rglob("*")) == before
