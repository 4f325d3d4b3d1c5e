"""A folder is replaced as a whole, or not at all."""

import shutil
from pathlib import Path

import pytest

from miner.io.whole_files import write_folder


def write(folder: Path, text: str) -> None:
    with write_folder(folder) as temporary:
        (temporary / "file").write_text(text)


def test_a_folder_replaces_the_one_before(tmp_path: Path) -> None:
    for text in ("first", "second"):
        write(tmp_path / "new" / "folder", text)
        assert (tmp_path / "new" / "folder" / "file").read_text() == text
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["folder"]


def test_an_error_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write(folder, "first")
    with pytest.raises(UnicodeEncodeError), write_folder(folder) as temporary:
        (temporary / "file").write_text("\udc80", encoding="utf-8")
    with pytest.raises(FileNotFoundError), write_folder(folder) as temporary:
        shutil.rmtree(temporary)  # the rename to the folder fails
    assert (folder / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
