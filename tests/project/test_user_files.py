"""Files of the user that are in or near an output are never deleted or overwritten."""

import json
import re
from pathlib import Path

import pytest
import yaml
from command import error_of, miner, output_of

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


def test_training_does_not_replace_a_config_of_its_name(training: Path, tmp_path: Path) -> None:
    config = tmp_path / "theirs" / "train.json"
    config.parent.mkdir()
    config.write_text(json.dumps(yaml.safe_load(training.read_text())))
    before = config.read_bytes()
    assert "train.json: not written by a training run, or damaged; choose" in error_of("train", config, "--output", config.parent)
    assert contents(config.parent) == {"train.json": before}


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


def test_an_output_of_another_command_is_refused(tmp_path: Path, toy_encoder: Path, embedded: Path, training: Path) -> None:
    text, encoder = tmp_path / "text.txt", ("--encoder", toy_encoder)
    mined = tmp_path / "mined"
    output_of("mine", embedded, embedded, *encoder, "--output", mined, "--threshold", 0)
    output_of("index", embedded, "--output", tmp_path / "index")
    output_of("fetch", toy_encoder, "--output", tmp_path / "encoder")
    output_of("train", training, "--output", tmp_path / "trained")
    output_of("export", mined, "--format", "jsonl", "--output", tmp_path / "exported")
    (tmp_path / "run.yaml").write_text(
        yaml.safe_dump({"output": str(tmp_path / "ran"), "corpora": {"a": str(embedded), "b": str(embedded)}})
    )
    output_of("run", tmp_path / "run.yaml")
    commands = {
        "embed": ["embed", text, "--lang", "en", *encoder],
        "mine": ["mine", embedded, embedded, *encoder, "--threshold", 0],
        "index": ["index", embedded],
        "fetch": ["fetch", toy_encoder],
        "train": ["train", training],
        "export": ["export", mined, "--format", "moses"],
    }
    outputs = {"embed": embedded, "mine": mined, "index": tmp_path / "index", "fetch": tmp_path / "encoder"}
    outputs |= {"train": tmp_path / "trained", "export": tmp_path / "exported", "run": tmp_path / "ran"}
    parts = [embedded / "sentences", embedded / "embeddings", tmp_path / "index" / "vectors", mined / "candidates"]
    before = contents(tmp_path)
    for name, command in commands.items():
        for output in [*(path for writer, path in outputs.items() if writer != name), *parts, tmp_path / "trained" / "encoder"]:
            assert "choose another --output" in error_of(*command, "--output", output), (name, output)
        assert contents(tmp_path) == before, name


def test_an_index_of_another_corpus_is_kept(tmp_path: Path, toy_encoder: Path, embedded: Path) -> None:
    (tmp_path / "other.txt").write_text("ten one two\n", encoding="utf-8")
    embed = ("embed", "--lang", "en", "--encoder", toy_encoder)
    output_of(*embed, tmp_path / "other.txt", "--output", tmp_path / "other")
    index = ("--output", tmp_path / "index")
    output_of("index", embedded, *index)
    before = contents(tmp_path / "index")
    assert "made from the embeddings ../embedded, not " in error_of("index", tmp_path / "other", *index)
    assert contents(tmp_path / "index") == before
    (tmp_path / "moved").mkdir()
    embedded.rename(tmp_path / "moved" / "embedded")
    output_of("index", tmp_path / "moved" / "embedded", *index)
    output_of(*embed, tmp_path / "text.txt", tmp_path / "other.txt", "--output", tmp_path / "moved" / "embedded")
    assert "4 vectors" in output_of("index", tmp_path / "moved" / "embedded", *index)


def test_mining_refuses_a_folder_of_texts_and_outputs(tmp_path: Path, toy_encoder: Path, embedded: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    before = contents(tmp_path)
    message = error_of("mine", embedded, embedded, "--encoder", toy_encoder, "--threshold", 0, "--output", tmp_path)
    assert "README.md, which miner did not write" in message
    assert contents(tmp_path) == before


def test_scores_do_not_replace_a_bitext(tmp_path: Path, toy_encoder: Path, embedded: Path) -> None:
    output_of("mine", embedded, embedded, "--encoder", toy_encoder, "--output", tmp_path / "mined", "--threshold", 0)
    bitext = tmp_path / "mined" / "bitext.tsv.gz"
    before = bitext.read_bytes()
    sides = (tmp_path / "text.txt", tmp_path / "text.txt", "--source-lang", "en", "--target-lang", "en", "--encoder", toy_encoder)
    assert "this command did not write it" in error_of("score", *sides, "--output", bitext)
    assert bitext.read_bytes() == before
    for _ in range(2):
        output_of("score", *sides, "--output", tmp_path / "scored.tsv.gz")


def test_a_report_of_somebody_else_is_kept(embedded: Path, tmp_path: Path, toy_encoder: Path) -> None:
    mine = ("mine", embedded, embedded, "--encoder", toy_encoder, "--output", tmp_path / "mined", "--threshold", 0)
    output_of(*mine)
    page = tmp_path / "mined" / "report.html"
    page.write_text("<html>mine</html>")
    assert "this command did not write it; rename it, or remove it" in error_of("report", tmp_path / "mined")
    result = miner(*mine, report=True)
    assert result.exit_code == 0
    assert "no report: " in result.stderr
    assert page.read_text() == "<html>mine</html>"


def test_a_page_beside_scored_pairs_is_kept(tmp_path: Path, toy_encoder: Path) -> None:
    for name, line in (("en", "one two three"), ("fr", "un deux trois")):
        (tmp_path / name).write_text(f"{line}\n{line} {line}\n")
    score = ("score", tmp_path / "en", tmp_path / "fr", "--encoder", toy_encoder, "--output", tmp_path / "scored.tsv")
    output_of(*score)
    page = tmp_path / "scored.tsv.report.html"
    page.write_text("<html>mine</html>")
    assert "this command did not write it; rename it, or remove it" in error_of("report", tmp_path / "scored.tsv")
    result = miner(*score, report=True)
    assert result.exit_code == 0
    assert "no report: " in result.stderr
    assert page.read_text() == "<html>mine</html>"


def test_figures_do_not_replace_the_json_of_others(embedded: Path, tmp_path: Path, toy_encoder: Path) -> None:
    output_of("fetch", toy_encoder, "--output", tmp_path / "encoder")
    before = contents(tmp_path)
    for name in ("miner.json", "checksums.json"):
        assert "this command did not write it" in error_of("verify", embedded, "--json", tmp_path / "encoder" / name)
    assert contents(tmp_path) == before
    path = tmp_path / "package.json"
    for text in ('{"name": "x"}', '{\n  "name": "x"\n}\n', "[]", "{}", "[" * 5000, '{"written_by": "npm"}'):
        path.write_text(text)
        assert "this command did not write it" in error_of("verify", embedded, "--json", path)
        assert path.read_text() == text


def test_a_score_that_cannot_be_computed_leaves_nothing(tmp_path: Path, toy_encoder: Path) -> None:
    (tmp_path / "one.txt").write_text("one two three\n")
    sides = (tmp_path / "one.txt", tmp_path / "one.txt", "--encoder", toy_encoder, "--source-lang", "en", "--target-lang", "fr")
    error_of("score", *sides, "--output", tmp_path / "scored.tsv")
    assert [path.name for path in tmp_path.iterdir()] == ["one.txt"]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_an_output_without_a_name_is_refused(name: str, toy_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert re.search("--output is empty|a null character", error_of("fetch", toy_encoder, "--output", name))
    assert list(tmp_path.iterdir()) == []
