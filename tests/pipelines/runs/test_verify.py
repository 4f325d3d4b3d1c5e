"""`miner verify` names every kind of damage, and its remedy repairs it."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from command import miner

from miner.io import lock, records

ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
FRENCH = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]
SHARD = "part-00001-of-00002.parquet"


@pytest.fixture(scope="module")
def output(toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two texts, their embeddings, an index of one, and the bitext."""
    folder = tmp_path_factory.mktemp("verify")
    rng = random.Random(4)
    numbers = [[rng.randrange(10) for _ in range(6)] for _ in range(60)]
    for name, words in (("en", ENGLISH), ("fr", FRENCH)):
        (folder / f"{name}.txt").write_text("".join(" ".join(words[number] for number in row) + "\n" for row in numbers))
    run_commands(folder, toy_encoder)
    return folder


def embed(folder: Path, encoder: Path, name: str) -> Result:
    return miner("embed", folder / f"{name}.txt", "--output", folder / name, "--lang", name, "--encoder", encoder, "--shards", 2)


def run_commands(folder: Path, encoder: Path) -> None:
    """Run the commands that a user repeats to repair damage."""
    for name in ("en", "fr"):
        result = embed(folder, encoder, name)
        assert result.exit_code == 0, result.output
    assert miner("index", folder / "fr", "--output", folder / "index").exit_code == 0
    result = miner("mine", folder / "en", folder / "fr", "--output", folder / "mined", "--engine", "exact")
    assert result.exit_code == 0, result.output


@pytest.fixture
def folder(output: Path, tmp_path: Path) -> Iterator[Path]:
    """The directory `output`, restored after the test. It keeps its path, because manifests contain paths."""
    shutil.copytree(output, tmp_path / "backup")
    yield output
    shutil.rmtree(output)
    shutil.copytree(tmp_path / "backup", output, copy_function=shutil.copy2)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def flip_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


@pytest.mark.parametrize("name", ["en/sentences/increments.json", "mined/neighbours/engine.json"])
def test_damage_of_small_files_is_a_fault(name: str, folder: Path) -> None:
    path = folder / name
    if not path.exists():  # the engine of this run was given
        records.write(str(path), {"key": "x", "engine": "exact", "reason": "it is faster", "searched_shards": {}})
    data = path.read_bytes()
    for position in (data.index(b"xxh3") + 8, 20, len(data) - 20):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        result = miner("verify", folder)
        assert result.exit_code == 1
        assert f"{path}: " in result.stdout
    path.write_bytes(data)
    assert miner("verify", folder).exit_code == 0


def test_intact_output_is_reported_and_not_changed(folder: Path) -> None:
    expected = contents(folder)
    result = miner("verify", folder)
    assert (result.exit_code, result.stderr) == (0, "")
    # 2 corpora x (sentences, embeddings) x 2 shards, 2 directions x 2 and 2 of candidates, the index and 2 of its vectors, 2 of pairs
    assert result.stdout == "intact: 19 files of 10 stages, 2 other JSON files and the files listed there\n"
    assert contents(folder) == expected


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a flipped byte of vectors": (flip_byte, f"en/embeddings/{SHARD}", "changed since it was written: its checksum is "),
    "a flipped byte of neighbours": (flip_byte, f"mined/neighbours/backward/{SHARD}", "changed since it was written"),
    "a flipped byte of an index": (flip_byte, "index/part-00000-of-00001.faiss", "changed since it was written"),
    "a flipped byte of pairs": (flip_byte, "mined/bitext.tsv.gz", "changed since it was written"),
    "a flipped byte of a marker": (flip_byte, f"en/sentences/_shards/{SHARD}.json", "differs from the manifest"),
    "a flipped byte of the increments": (flip_byte, "en/sentences/increments.json", ""),
    "truncated sentences": (truncate, f"fr/sentences/{SHARD}", "not a complete Parquet file: truncated"),
    "truncated candidates": (truncate, f"mined/candidates/{SHARD}", "not a complete Parquet file: truncated"),
    "missing vectors": (Path.unlink, f"fr/embeddings/{SHARD}", "missing"),
    "missing pairs": (Path.unlink, "mined/bitext.parquet", "missing"),
    "an unfinished stage": (
        lambda path: path.rename(path.with_name("manifest.started.json")),
        "en/embeddings/manifest.json",
        "missing, so this stage is not finished; it has 2 shards",
    ),
    "a missing manifest": (Path.unlink, "mined/candidates/manifest.json", "missing, so this stage is not finished; it has 2 shards"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_repaired_by_running_again(damage: str, folder: Path, toy_encoder: Path) -> None:
    expected = contents(folder)
    apply_damage, name, problem = DAMAGES[damage]
    apply_damage(folder / name)
    result = miner("verify", folder, "--json", folder.parent / "faults.json")
    assert result.exit_code == 1
    (fault,) = (line for line in result.stdout.splitlines() if line.startswith(f"{folder / name}: {problem}"))
    assert fault.endswith(("run the same command again", "delete it and run the command that made it again"))
    assert result.stderr.count("\n") == 1
    assert f"{folder}: " in result.stderr
    faults = json.loads((folder.parent / "faults.json").read_text())["faults"]
    assert str(folder / name) in {fault["path"] for fault in faults}
    run_commands(folder, toy_encoder)
    assert miner("verify", folder).exit_code == 0
    assert contents(folder) == expected


def test_a_manifest_of_another_encoder_is_a_fault_that_names_both(folder: Path, toy_encoder: Path) -> None:
    expected = contents(folder)
    path = folder / "en/embeddings/manifest.json"
    manifest = records.read(str(path), dict)
    fingerprint, manifest["config"]["fingerprint"] = manifest["config"]["fingerprint"], "static-foreign"
    records.write(str(path), manifest)
    result = miner("verify", folder / "en")
    assert result.exit_code == 1
    assert result.stdout == (
        f"{path}: of the encoder static-foreign, but the vectors of part-00000-of-00002.parquet are of {fingerprint};"
        f" delete {folder}/en/embeddings and run the same command again\n"
    )
    assert embed(folder, toy_encoder, "en").exit_code == 1
    shutil.rmtree(folder / "en/embeddings")
    run_commands(folder, toy_encoder)
    assert contents(folder) == expected


def test_changed_inputs_are_a_fault(folder: Path, toy_encoder: Path) -> None:
    (folder / "en.txt").write_text((folder / "en.txt").read_text() + "one one one\n")
    assert embed(folder, toy_encoder, "en").exit_code == 0
    result = miner("verify", folder)
    assert result.exit_code == 1
    (fault,) = result.stdout.splitlines()
    assert fault.startswith(f"{folder}/mined/candidates/manifest.json: its inputs have changed or are missing: {folder}/en: changed since")
    assert fault.endswith("; run `miner mine` on it again")
    run_commands(folder, toy_encoder)
    assert miner("verify", folder).exit_code == 0


def test_an_unlisted_shard_is_a_fault(folder: Path) -> None:
    shutil.copy(folder / "en/embeddings" / SHARD, folder / "en/embeddings/part-00002-of-00003.parquet")
    result = miner("verify", folder / "en")
    assert result.stdout.startswith(f"{folder}/en/embeddings/part-00002-of-00003.parquet: not in manifest.json; delete it, or run")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stage": "mine"}'])
def test_an_unreadable_manifest_is_a_fault(text: str, folder: Path) -> None:
    (folder / "en/embeddings/manifest.json").write_text(text)
    result = miner("verify", folder)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{folder}/en/embeddings/manifest.json: ")
    assert isinstance(result.exception, SystemExit)


def test_folders_without_output_are_errors(tmp_path: Path) -> None:
    result = miner("verify", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "holds no output of `miner`" in result.stderr
    assert "no such folder" in miner("verify", tmp_path / "none").stderr


def test_the_output_of_an_active_run_is_not_verified(folder: Path) -> None:
    with lock.hold(str(folder / "en")):
        result = miner("verify", folder / "en")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is active there" in result.stderr


def test_an_edited_input_is_a_fault_and_a_removed_one_is_none(folder: Path) -> None:
    (folder / "en.txt").write_text((folder / "en.txt").read_text() + "one one one\n")
    result = miner("verify", folder)
    assert (result.exit_code, result.stdout) == (
        1,
        f"{folder}/en.txt: changed since it was read into {folder}/en/sentences; run the same command again\n",
    )
    assert "stale    en/sentences" in miner("status", folder).stdout
    (folder / "en.txt").unlink()
    assert miner("verify", folder).exit_code == 0
