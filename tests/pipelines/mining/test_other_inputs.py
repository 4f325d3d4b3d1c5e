"""An output that was made from other inputs is replaced only on request; files that are added are an increment."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from command import error_of, miner, output_of

import miner as package
from miner.errors import StorageError

LINES = {"en": "one two\nthree four\n", "fr": "un deux\ntrois quatre\n", "de": "eins zwei\ndrei vier\n", "more": "five six\n"}
REMEDY = "choose another --output, or replace it by --replace"


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, Path]:
    files = {name: tmp_path / f"{name}.txt" for name in LINES}
    for name, lines in LINES.items():
        files[name].write_text(lines)
    return files


def sentences(folder: Path) -> set[str]:
    return {text for path in folder.glob("sentences/*.parquet") for text in pq.read_table(path)["text"].to_pylist()}


def test_an_embedded_text_is_not_replaced_by_another(texts: dict[str, Path], toy_encoder: Path, tmp_path: Path) -> None:
    options = ("--encoder", toy_encoder, "--output", tmp_path / "out")
    output_of("embed", texts["en"], *options)
    message = error_of("embed", texts["fr"], *options)
    assert message == f"{tmp_path}/out: made from {texts['en']}, no longer an input; {REMEDY}"
    assert sentences(tmp_path / "out") == set(LINES["en"].splitlines())
    output_of("embed", texts["en"], texts["more"], *options)
    assert sentences(tmp_path / "out") == {*LINES["en"].splitlines(), *LINES["more"].splitlines()}
    texts["more"].rename(tmp_path / "renamed.txt")
    output_of("embed", texts["en"], tmp_path / "renamed.txt", *options)
    assert "and 1 more file, no longer inputs" in error_of("embed", texts["fr"], *options)
    output_of("embed", texts["fr"], *options, "--replace")
    assert sentences(tmp_path / "out") == set(LINES["fr"].splitlines())


@pytest.mark.parametrize("is_embedded", [False, True])
def test_a_bitext_is_not_replaced_by_one_of_other_sides(
    is_embedded: bool, texts: dict[str, Path], toy_encoder: Path, tmp_path: Path
) -> None:
    encoder, sides = ("--encoder", toy_encoder), dict(texts)
    if is_embedded:
        for name, path in texts.items():
            output_of("embed", path, *encoder, "--output", tmp_path / name)
            sides[name] = tmp_path / name
    options = (*encoder, "--threshold", "0.5", "--output", tmp_path / "out")
    output_of("mine", sides["en"], sides["fr"], *options)
    before = (tmp_path / "out/bitext.parquet").read_bytes()
    message = error_of("mine", sides["en"], sides["de"], *options)
    assert str(sides["fr"]) in message
    assert message.endswith(REMEDY)
    assert (tmp_path / "out/bitext.parquet").read_bytes() == before
    output_of("mine", sides["en"], sides["fr"], *options)
    output_of("mine", sides["en"], sides["de"], *options, "--replace")
    assert set(pq.read_table(tmp_path / "out/bitext.parquet")["target_text"].to_pylist()) <= set(LINES["de"].splitlines())


def test_moved_corpora_are_the_same_corpora(texts: dict[str, Path], toy_encoder: Path, tmp_path: Path) -> None:
    for name in ("en", "fr"):
        output_of("embed", texts[name], "--encoder", toy_encoder, "--output", tmp_path / "a" / name)
    options = ("--encoder", toy_encoder, "--output", tmp_path / "out")
    output_of("mine", tmp_path / "a/en", tmp_path / "a/fr", *options)
    shutil.move(tmp_path / "a", tmp_path / "b")
    output_of("mine", tmp_path / "b/en", tmp_path / "b/fr", *options)


def test_a_run_is_not_replaced(texts: dict[str, Path], toy_encoder: Path, tmp_path: Path) -> None:
    def write(german: str) -> Path:
        corpora = {"en": str(texts["en"]), "de": str(texts[german])}
        settings = {"output": str(tmp_path / "out"), "corpora": corpora, "encoder": str(toy_encoder), "threshold": 0.5}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
        return tmp_path / "run.yaml"

    output_of("run", write("de"))
    assert f"made from {texts['de']}" in error_of("run", write("fr"))
    assert sentences(tmp_path / "out/corpora/de") == set(LINES["de"].splitlines())
    assert miner("run", write("fr"), "--replace").exit_code == 0
    assert sentences(tmp_path / "out/corpora/de") == set(LINES["fr"].splitlines())


def test_lists_in_python(toy_encoder: Path, tmp_path: Path) -> None:
    sides = [LINES[name].splitlines() for name in ("en", "fr", "de")]
    options = {"encoder": str(toy_encoder), "output": tmp_path / "out", "threshold": 0.5}
    package.mine(sides[0], sides[1], **options)
    with pytest.raises(StorageError, match="choose another output=, or replace it by replace="):
        package.mine(sides[0], sides[2], **options)
    package.mine(sides[0], sides[2], **options, replace=True)
