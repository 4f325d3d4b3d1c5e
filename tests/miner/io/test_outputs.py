"""Files that commands write: never an input, through links and patterns, and nothing of another program."""

import os
from pathlib import Path

import pytest
from command import error_of, miner

from miner.errors import ConfigError, StorageError
from miner.io import outputs

PAWS = "id\tsentence1\tsentence2\tlabel\n1\tA dog runs.\tAn animal moves.\t1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with an input, and with other names of it."""
    (tmp_path / "input.txt").write_text("one\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "input.txt")
    os.link(tmp_path / "input.txt", tmp_path / "hard.txt")
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize("name", ["input.txt", "link.txt", "hard.txt", "linked/input.txt", "folder/../input.txt"])
@pytest.mark.parametrize("pattern", ["input.txt", "in*.txt", "link.txt"])
def test_an_input_is_never_an_output(name: str, pattern: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match="this file is both input and output; choose another --output"):
        outputs.claim_file(str(folder / name), [str(folder / pattern)], lambda _: True)


def test_files_of_others_are_not_replaced(folder: Path) -> None:
    claimed = str(folder / "input.txt")
    outputs.claim_file(claimed, [str(folder / "other.txt")], lambda uri: uri == claimed)
    outputs.claim_file(str(folder / "new.txt"), [claimed], lambda _: False)
    for name, is_ours, message in (
        ("input.txt", lambda _: False, "this command did not write it; choose another --output, or remove it"),
        ("input.txt", lambda _: b"\xff".decode(), "this command did not write it"),
        ("folder", lambda _: True, "a folder; name a file"),
        ("pipe", lambda _: True, "a device or pipe; name a file"),
    ):
        with pytest.raises(ConfigError, match=message):
            outputs.claim_file(str(folder / name), [], is_ours)


def test_a_link_out_of_an_output_is_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "folder/data").symlink_to(elsewhere)
    for output in ("folder", "linked/folder"):  # through a link to the output itself, too
        with pytest.raises(StorageError, match="folder/data: a link out of this output; remove it, or choose another --output"):
            outputs.check_links(str(folder / output))
    (folder / "folder/data").unlink()
    (folder / "folder/latest").symlink_to("round-01")  # as `miner loop` has them
    outputs.check_links(str(folder / "folder"))


def test_convert_keeps_its_input_and_files_of_others(tmp_path: Path) -> None:
    release, other = tmp_path / "x-final/de/test_2k.tsv", tmp_path / "other.tsv"
    release.parent.mkdir(parents=True)
    release.write_text(PAWS)
    other.write_text("my notes\n")
    for output, message in ((release, "both input and output"), (other, "this command did not write it")):
        before = output.read_bytes()
        assert message in error_of("data", "convert", "paws-x", release, "--output", output)
        assert output.read_bytes() == before
    for kind in ("tsv", "tsv.gz", "jsonl", "parquet"):
        output = tmp_path / f"out.{kind}"
        for _ in range(2):  # the second run replaces the output of the first
            assert miner("data", "convert", "paws-x", release, "--output", output).exit_code == 0
    (tmp_path / "out.parquet").write_bytes((tmp_path / "out.tsv").read_bytes())
    assert "this command did not write it" in error_of("data", "convert", "paws-x", release, "--output", tmp_path / "out.parquet")


def test_score_keeps_files_of_others(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("one two\nthree\nfour five\n")
    (tmp_path / "fr.txt").write_text("un deux\ntrois\nquatre cinq\n")
    (tmp_path / "notes.tsv").write_text("a\tb\tc\n")
    command = ("score", tmp_path / "en.txt", tmp_path / "fr.txt", "--encoder", toy_encoder, "--output")
    assert "this command did not write it" in error_of(*command, tmp_path / "notes.tsv")
    for _ in range(2):
        assert miner(*command, tmp_path / "scored.tsv").exit_code == 0
