"""Write files and folders that appear complete, or not at all: under a temporary name and renamed, or uploaded to an object store."""

import contextlib
import io
import posixpath
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import xxhash
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from miner.io import object_stores

TEMPORARY, REPLACED = ".tmp", ".old"


def open_whole(fs: fsspec.AbstractFileSystem, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """Open a file for writing, which appears when the block ends, and not at all if the block raises."""
    appears_whole = object_stores.is_object_store(fs) or isinstance(fs, MemoryFileSystem)
    return object_stores.put(fs, path) if appears_whole else _write_and_rename(fs, path)


@contextlib.contextmanager
def _write_and_rename(fs: fsspec.AbstractFileSystem, path: str) -> Iterator[BinaryIO]:
    parent, name = posixpath.split(path)
    # A unique temporary name: two workers with the same shard must not write to one file.
    temporary = posixpath.join(parent, f".{name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        fs.makedirs(parent, exist_ok=True)
        with fs.open(temporary, "wb") as handle:
            yield handle
        rename(fs, temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            if fs.exists(temporary):
                fs.rm(temporary)
        raise


def rename(fs: fsspec.AbstractFileSystem, source: str, target: str) -> None:
    if isinstance(fs, LocalFileSystem):
        Path(source).replace(target)  # `mv` is not atomic across file systems, and moves a file *into* a directory of that name
    else:
        fs.mv(source, target)


@contextlib.contextmanager
def write_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that replaces a local folder when the block ends; when the block raises, the folder stays as it was.

    A process that dies between the two renames leaves the replaced folder, as `.NAME.<hex>.old`.
    """
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}{TEMPORARY}")
    replaced = temporary.with_suffix(REPLACED)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if folder.exists():
            folder.rename(replaced)
        temporary.rename(folder)
    finally:
        if replaced.exists() and not folder.exists():
            replaced.rename(folder)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)


class HashedFile:
    """A file that is hashed while it is written, from start to end."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest, self.num_bytes = file, xxhash.xxh3_128(), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.num_bytes += memoryview(data).nbytes
        return self.file.write(data)

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("files are written in order")
