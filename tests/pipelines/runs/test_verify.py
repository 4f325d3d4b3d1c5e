"""`miner verify`: every kind of damage is found and named, and the remedy that is told mends it."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import miner

from miner import lock

ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
FRENCH = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]
SHARD = "part-00001-of-00002.parquet"


@pytest.fixture(scope="module")
def made(toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, both sides embedded, an index of one, and the bitext."""
    folder = tmp_path_factory.mktemp("verify")
    shuffled = random.Random(4)
    drawn = [[shuffled.randrange(10) for _ in range(6)] for _ in range(60)]
    for name, words in (("en", ENGLISH), ("fr", FRENCH)):
        (folder / f"{name}.txt").write_text("".join(" ".join(words[number] for number in row) + "\n" for row in drawn))
    make(folder, toy_encoder)
    return folder


def make(folder: Path, encoder: Path) -> None:
    """What the user runs: the same commands each time."""
    for name in ("en", "fr"):
        arguments = ("--output", folder / name, "--lang", name, "--encoder", encoder, "--shards", 2)
        result = miner("embed", folder / f"{name}.txt", *arguments)
        assert result.exit_code == 0, result.output
    assert miner("index", folder / "fr", "--output", folder / "index").exit_code == 0
    result = miner("mine", folder / "en", folder / "fr", "--output", folder / "mined", "--engine", "exact")
    assert result.exit_code == 0, result.output


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """The same, where it was made: manifests tell of places."""
    shutil.copytree(made, tmp_path / "kept")
    yield made
    shutil.rmtree(made)
    shutil.copytree(tmp_path / "kept", made, copy_function=shutil.copy2)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def test_what_is_whole_is_told_and_left_as_it_is(folder: Path) -> None:
    before = contents(folder)
    result = miner("verify", folder)
    assert (result.exit_code, result.stderr) == (0, "")
    # 2 corpora x (sentences, embeddings) x 2 shards, 2 directions x 2 and 2 of candidates, the index and 2 of its vectors, 2 of pairs
    assert result.stdout == "19 files of 10 stages are whole\n"
    assert contents(folder) == before


DAMAGES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "a flipped byte of vectors": (flip, f"en/embeddings/{SHARD}", "changed since it was written: its checksum is "),
    "a flipped byte of neighbours": (flip, f"mined/neighbours/backward/{SHARD}", "changed since it was written"),
    "a flipped byte of an index": (flip, "index/part-00000-of-00001.faiss", "changed since it was written"),
    "a flipped byte of pairs": (flip, "mined/bitext.tsv.gz", "changed since it was written"),
    "a flipped byte of a marker": (flip, f"en/sentences/_shards/{SHARD}.json", "does not tell of its shard"),
    "sentences that are cut off": (cut, f"fr/sentences/{SHARD}", "not a whole Parquet file: cut off"),
    "candidates that are cut off": (cut, f"mined/candidates/{SHARD}", "not a whole Parquet file: cut off"),
    "vectors that are missing": (Path.unlink, f"fr/embeddings/{SHARD}", "missing"),
    "pairs that are missing": (Path.unlink, "mined/bitext.parquet", "missing"),
    "a manifest that is missing": (Path.unlink, "mined/candidates/manifest.json", "not there, so this is not finished; 2 shards are made"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_mended_by_running_again(damage: str, folder: Path, toy_encoder: Path) -> None:
    before = contents(folder)
    act, name, words = DAMAGES[damage]
    act(folder / name)
    result = miner("verify", folder, "--json", folder.parent / "found.json")
    assert result.exit_code == 1
    (fault,) = (line for line in result.stdout.splitlines() if line.startswith(f"{folder / name}: {words}"))
    assert fault.endswith("; run the same command again")
    assert result.stderr.count("\n") == 1
    assert f"{folder}: " in result.stderr
    told = json.loads((folder.parent / "found.json").read_text())["faults"]
    assert str(folder / name) in {fault["place"] for fault in told}
    make(folder, toy_encoder)
    assert miner("verify", folder).exit_code == 0
    assert contents(folder) == before


def test_a_stage_that_is_not_finished_is_told(folder: Path) -> None:
    (folder / "en/embeddings/manifest.json").rename(folder / "en/embeddings/manifest.started.json")
    result = miner("verify", folder)
    assert result.exit_code == 1
    said = f"{folder}/en/embeddings/manifest.json: not there, so this is not finished; 2 shards are made; run the same command again\n"
    assert said in result.stdout


def test_a_manifest_of_another_encoder_is_named_with_both(folder: Path, toy_encoder: Path) -> None:
    before = contents(folder)
    manifest = folder / "en/embeddings/manifest.json"
    told = json.loads(manifest.read_text())
    ours, told["config"]["fingerprint"] = told["config"]["fingerprint"], "static-foreign"
    manifest.write_text(json.dumps(told))
    result = miner("verify", folder / "en")
    assert result.exit_code == 1
    assert result.stdout == (
        f"{manifest}: of the encoder static-foreign, and the vectors of part-00000-of-00002.parquet are of {ours};"
        f" delete {folder}/en/embeddings and run the same command again\n"
    )
    assert (
        miner("embed", folder / "en.txt", "--output", folder / "en", "--lang", "en", "--encoder", toy_encoder, "--shards", 2).exit_code == 1
    )
    shutil.rmtree(folder / "en/embeddings")
    make(folder, toy_encoder)
    assert contents(folder) == before


def test_what_was_made_from_other_sentences_is_told(folder: Path, toy_encoder: Path) -> None:
    (folder / "en.txt").write_text((folder / "en.txt").read_text() + "one one one\n")
    assert (
        miner("embed", folder / "en.txt", "--output", folder / "en", "--lang", "en", "--encoder", toy_encoder, "--shards", 2).exit_code == 0
    )
    result = miner("verify", folder)
    assert result.exit_code == 1
    (fault,) = result.stdout.splitlines()
    assert fault.startswith(f"{folder}/mined/candidates/manifest.json: made from what is no longer there: {folder}/en: not what")
    assert fault.endswith("; run `miner mine` on it again")
    make(folder, toy_encoder)
    assert miner("verify", folder).exit_code == 0


def test_a_file_that_no_manifest_names_is_told(folder: Path) -> None:
    shutil.copy(folder / "en/embeddings" / SHARD, folder / "en/embeddings/part-00002-of-00003.parquet")
    result = miner("verify", folder / "en")
    assert result.stdout.startswith(f"{folder}/en/embeddings/part-00002-of-00003.parquet: not in manifest.json; delete it, or run")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stage": "mine"}'])
def test_a_manifest_that_cannot_be_read_is_told(text: str, folder: Path) -> None:
    (folder / "en/embeddings/manifest.json").write_text(text)
    result = miner("verify", folder)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{folder}/en/embeddings/manifest.json: ")
    assert isinstance(result.exception, SystemExit)


def test_what_no_one_made_is_an_error(tmp_path: Path) -> None:
    result = miner("verify", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "holds nothing that `miner` made" in result.stderr
    assert "no such folder" in miner("verify", tmp_path / "none").stderr


def test_a_folder_at_work_is_not_verified(folder: Path) -> None:
    with lock.held(str(folder / "en")):
        result = miner("verify", folder / "en")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is at work there" in result.stderr
