"""Files of the user that are in or near an output are never deleted or overwritten."""

import re
from pathlib import Path

import pytest
import yaml
from command import error_of, output_of

TEXT = "one two three\nfour five six\nseven eight nine\n"


@pytest.fixture
def embedded(tmp_path: Path, toy_encoder: Path) -> Path:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    output_of("embed", tmp_path / "text.txt", "--lang", "en", "--encoder", toy_encoder, "--output", tmp_path / "embedded")
    return tmp_path / "embedded"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_inputs_inside_the_output_are_refused(tmp_path: Path, toy_encoder: Path) -> None:
    folder = tmp_path / "corpus" / "sentences"
    folder.mkdir(parents=True)
    (folder / "part-a.txt").write_text(TEXT, encoding="utf-8")
    before = contents(tmp_path)
    message = error_of("embed", folder / "*.txt", "--lang", "en", "--encoder", toy_encoder, "--output", tmp_path / "corpus")
    assert re.search("part-a.txt.*choose another --output", message)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["part-00000", "part-r-00000.txt", "part-00000-of-00007.parquet", "notes.txt"])
def test_an_output_with_other_files_is_refused(name: str, tmp_path: Path, toy_encoder: Path, embedded: Path) -> None:
    for folder, command in {
        tmp_path / "index": ["index", embedded, "--output", tmp_path / "index"],
        tmp_path / "other" / "embeddings": [
            *("embed", tmp_path / "text.txt", "--lang", "en", "--encoder", toy_encoder),
            *("--output", tmp_path / "other"),
        ],
    }.items():
        folder.mkdir(parents=True)
        (folder / name).write_text("mine", encoding="utf-8")
        assert f"{name}, which miner did not write" in error_of(*command)
        assert contents(folder) == {name: b"mine"}


@pytest.mark.parametrize("name", ["bitext.tsv.gz", "report.html", "run.json", "texts/de.txt"])
def test_mining_refuses_a_folder_of_others(name: str, tmp_path: Path, embedded: Path) -> None:
    output = tmp_path / "theirs"
    (output / name).parent.mkdir(parents=True)
    (output / name).write_text("mine", encoding="utf-8")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"output": str(output), "corpora": {"a": str(embedded), "b": str(embedded)}}))
    for command in (["mine", embedded, embedded, "--output", output], ["run", tmp_path / "run.yaml"]):
        assert f"theirs: contains {name}, which miner did not write" in error_of(*command)
    assert contents(output) == {name: b"mine"}


def test_a_rerun_removes_only_shards_that_it_wrote(tmp_path: Path, toy_encoder: Path, embedded: Path) -> None:
    kept = [embedded / "embeddings" / name for name in ("part-00000-of-00009.parquet", "part-00000", "notes.txt")]
    for path in kept:
        path.write_text("mine", encoding="utf-8")
    (tmp_path / "more.txt").write_text("ten one two\n", encoding="utf-8")
    texts = [tmp_path / name for name in ("text.txt", "more.txt")]
    output_of("embed", *texts, "--lang", "en", "--encoder", toy_encoder, "--output", embedded)
    assert [path.read_text(encoding="utf-8") for path in kept] == ["mine"] * 3


@pytest.fixture
def training(tmp_path: Path) -> Path:
    rows = [f"one {number}\tun {number}" for number in range(40)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["source\ttarget", *rows]) + "\n", encoding="utf-8")
    config = {
        "encoder": {"kind": "static", "dim": 8, "spelling_buckets": 64, "vocabulary": {"size": 16}},
        "data": [{"strategy": "parallel", "files": [str(tmp_path / "pairs.tsv")], "columns": {"source": "source", "target": "target"}}],
        "objective": [{"loss": "info_nce"}],
        "training": {"steps": 3, "batch_size": 4},
    }
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["work", "checkpoints", "encoder", "tensorboard"])
def test_training_refuses_a_folder_with_such_names_of_others(name: str, training: Path, tmp_path: Path) -> None:
    output = tmp_path / "theirs"
    (output / name).mkdir(parents=True)
    (output / name / "notes").write_text("mine", encoding="utf-8")
    assert f"contains {name}, but no train.json" in error_of("train", training, "--output", output)
    (tmp_path / "pairs.tsv").unlink()
    error_of("train", training, "--output", output)
    assert contents(output) == {f"{name}/notes": b"mine"}


def test_training_that_fails_leaves_other_files_and_no_folder(training: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").unlink()
    error_of("train", training, "--output", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "notes").write_text("mine", encoding="utf-8")
    error_of("train", training, "--output", tmp_path / "old")
    assert contents(tmp_path / "old") == {"notes": b"mine"}


def test_two_trainings_do_not_share_a_folder(training: Path, tmp_path: Path) -> None:
    from miner.io import lock

    with lock.hold(str(tmp_path / "out")):
        assert "out" in error_of("train", training, "--output", tmp_path / "out")
    output_of("train", training, "--output", tmp_path / "out")
    assert (tmp_path / "out" / "encoder" / "miner.json").exists()


def test_figures_do_not_overwrite_an_input(tmp_path: Path, toy_encoder: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    for given in (path, tmp_path / "*.txt"):
        message = error_of("embed", given, "--lang", "en", "--encoder", toy_encoder, "--output", tmp_path / "out", "--json", path)
        assert "both input and output" in message
    config = tmp_path / "run.json"
    config.write_text("{}", encoding="utf-8")
    assert "both input and output" in error_of("run", config, "--json", config)
    assert path.read_text(encoding="utf-8") == TEXT
    assert not (tmp_path / "out").exists()


def test_figures_replace_figures_only(tmp_path: Path, embedded: Path) -> None:
    figures, manifest = tmp_path / "figures.json", embedded / "sentences" / "manifest.json"
    for _ in range(2):
        output_of("verify", embedded, "--json", figures)
    before = manifest.read_bytes()
    assert "this file exists" in error_of("verify", embedded, "--json", manifest)
    assert manifest.read_bytes() == before
