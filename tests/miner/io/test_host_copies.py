"""Copies of a host: complete or not there, one writer, and nothing left of writers that were killed."""

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from miner.errors import StorageError
from miner.io import checksums, host_copies


class Writer:
    """Fill a folder, and count how often."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, folder: Path) -> None:
        self.count += 1
        (folder / "a").write_text("one")
        time.sleep(0.05)
        (folder / "b").write_text("two")
        checksums.write(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache/key"


def test_one_of_many_writes(folder: Path) -> None:
    writer = Writer()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: host_copies.provide(folder, writer), range(8))) == {folder}
    assert writer.count == 1
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b", "checksums.json"]


@pytest.mark.parametrize("name", ["a", "checksums.json"])
@pytest.mark.parametrize("is_missing", [True, False])
def test_a_damaged_copy_is_written_again(folder: Path, name: str, is_missing: bool) -> None:
    writer = Writer()
    host_copies.provide(folder, writer)
    (folder / name).unlink() if is_missing else (folder / name).write_text("other")
    host_copies.provide(folder, writer)
    host_copies.provide(folder, writer)
    assert writer.count == 2
    assert (folder / "a").read_text() == "one"


def test_leftovers_of_a_killed_writer_are_removed(folder: Path) -> None:
    leftover = folder.parent / f".{folder.name}.0123.tmp"
    leftover.mkdir(parents=True)
    (leftover / "a").write_text("on")
    host_copies.provide(folder, Writer())
    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [folder]


def test_a_full_disk_is_an_error_that_leaves_nothing(folder: Path) -> None:
    def write(new: Path) -> None:
        (new / "a").write_text("one")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match=r"key: No space left on device; free some space, or set MINER_CACHE to another directory$"):
        host_copies.provide(folder, lambda new: host_copies.retry("s3://bucket", lambda: write(new)))
    assert not [path for path in folder.parent.iterdir() if path.is_dir()]


def test_copies_that_are_not_used_are_removed(folder: Path) -> None:
    old, used, killed = folder.with_name("old"), folder.with_name("used"), folder.with_name(".killed.0123.tmp")
    for each in (old, used):
        host_copies.provide(each, Writer())
    killed.mkdir()
    last_use = time.time() - host_copies.UNUSED_SECONDS - 60
    for each in (old, used, killed):
        os.utime(each, (last_use, last_use))
    host_copies.provide(used, lambda _: pytest.fail("it is intact"))
    host_copies.remove_unused(folder.parent)
    assert [path for path in folder.parent.iterdir() if path.is_dir()] == [used]
