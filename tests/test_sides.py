"""The two sides of `miner mine`: what cannot be mined is told before anything is embedded."""

from pathlib import Path

import command
import dense
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
