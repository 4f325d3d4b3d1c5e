"""Files: fsspec URIs, atomic writes, and what goes wrong with them told in one line."""

import contextlib
import errno
import json
import logging
import os
import posixpath
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from fsspec.implementations.local import LocalFileSystem

from miner.errors import StorageError

TEMPORARY = ".tmp"

logger = logging.getLogger(__name__)


def filesystem(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """A path or fsspec URI -> its file system and the path there."""
    try:
        fs, path = fsspec.core.url_to_fs(str(uri))
    except (ValueError, ImportError) as error:
        raise StorageError(f"{uri}: {error}") from error
    return fs, path


def join(folder: str, *names: str) -> str:
    """Names below a folder or URI."""
    return posixpath.join(str(folder), *names)


def exists(uri: str) -> bool:
    fs, path = filesystem(uri)
    fs.invalidate_cache(posixpath.dirname(path))  # object stores remember listings, and other processes write too
    with _clear_errors(uri):
        return bool(fs.exists(path))


def is_folder(uri: str) -> bool:
    fs, path = filesystem(uri)
    with _clear_errors(uri):
        return bool(fs.isdir(path))


def names_in(uri: str) -> list[str]:
    """The names in a folder, sorted; none where there is no folder."""
    fs, path = filesystem(uri)
    fs.invalidate_cache(path)
    with _clear_errors(uri):
        return sorted(posixpath.basename(str(name).rstrip("/")) for name in fs.ls(path, detail=False)) if fs.isdir(path) else []


def files_below(uri: str) -> list[str]:
    """The files of a folder and of all those in it, as names to `join` to it, sorted."""
    fs, path = filesystem(uri)
    fs.invalidate_cache()
    with _clear_errors(uri):
        return sorted(posixpath.relpath(str(name), path) for name in fs.find(path))


def size(uri: str) -> int:
    """The bytes of a file."""
    fs, path = filesystem(uri)
    with _clear_errors(uri):
        return int(fs.size(path) or 0)


def sizes(uri: str) -> dict[str, int]:
    """The files in a folder, by name, and their bytes."""
    fs, path = filesystem(uri)
    fs.invalidate_cache(path)
    with _clear_errors(uri):
        return {
            posixpath.basename(str(info["name"])): int(info["size"] or 0) for info in fs.ls(path, detail=True) if info["type"] == "file"
        }


def make_folder(uri: str) -> None:
    fs, path = filesystem(uri)
    with _clear_errors(uri):
        try:
            fs.makedirs(path, exist_ok=True)
        except FileExistsError as error:  # a file of that name
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def remove(uri: str) -> None:
    """Remove a file or folder; nothing happens where there is none."""
    fs, path = filesystem(uri)
    with _clear_errors(uri), contextlib.suppress(FileNotFoundError):
        if fs.exists(path):
            fs.rm(path, recursive=True)


@contextlib.contextmanager
def _clear_errors(uri: str) -> Iterator[None]:
    """Turn what an operating system or Arrow says about a file into one clear line."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(f"{uri}: no such file or folder") from error
    except OSError as error:
        reason = error.strerror or _first_line(error)
        raise StorageError(f"{uri}: {reason}; {_REMEDIES.get(error.errno or 0, _REMEDY)}, then run the same command again") from error


_REMEDY = "see to it or choose another place"
_REMEDIES = {
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some space or choose another place",
    errno.EFBIG: "allow larger files or choose another place",
    errno.EACCES: "allow access or choose another place",
    errno.EROFS: "choose another place",
    errno.EEXIST: "choose another place",
    errno.ENOTDIR: "choose another place",
    errno.EISDIR: "choose another place",
}


def is_permanent(error: OSError) -> bool:
    """Whether to try again is of no use before somebody has seen to it."""
    return error.errno in _REMEDIES or isinstance(error, FileNotFoundError)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def atomic(uri: str) -> Iterator[BinaryIO]:
    """Open `uri` to write bytes; it appears whole when the block ends, and not at all when the block raises."""
    fs, path = filesystem(uri)
    parent, name = posixpath.split(path)
    # The temporary name is unique, so that two workers given the same shard never write one file.
    aside = posixpath.join(parent, f".{name}.{uuid.uuid4().hex}{TEMPORARY}")
    with _clear_errors(uri):
        try:
            fs.makedirs(parent, exist_ok=True)
            with fs.open(aside, "wb") as handle:
                yield handle
            _rename(fs, aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                if fs.exists(aside):
                    fs.rm(aside)
            raise


def move(uri: str, place: str) -> None:
    """Give a file of a folder another place in the same file system. Nothing happens where it is gone."""
    fs, path = filesystem(uri)
    _, target = filesystem(place)
    with _clear_errors(uri):
        if fs.exists(path):
            fs.makedirs(posixpath.dirname(target), exist_ok=True)
            _rename(fs, path, target)


def _rename(fs: fsspec.AbstractFileSystem, aside: str, path: str) -> None:
    if isinstance(fs, LocalFileSystem):
        Path(aside).replace(path)  # `mv` is not atomic across file systems, and moves a file *into* a folder of that name
    else:
        fs.mv(aside, path)


def write_json(uri: str, value: Any) -> None:
    with atomic(uri) as handle:
        handle.write(_json(value))


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode()


def create_json(uri: str, value: Any) -> bool:
    """Write a file unless there is one; False where there is. Of several that try one succeeds, where the file system can tell."""
    fs, path = filesystem(uri)
    with _clear_errors(uri):
        try:
            if not isinstance(fs, LocalFileSystem):
                fs.pipe_file(path, _json(value), mode="create")
            else:
                with Path(path).open("xb") as handle:
                    _write_or_remove(handle, _json(value))
        except FileExistsError:
            return False
    return True


def _write_or_remove(handle: BinaryIO, data: bytes) -> None:
    try:
        handle.write(data)
        handle.flush()
    except OSError:
        Path(handle.name).unlink()
        raise


def read_json(uri: str) -> Any:
    fs, path = filesystem(uri)
    with _clear_errors(uri), fs.open(path, "rb") as handle:
        data = handle.read()
    try:
        return json.loads(data)
    except ValueError as error:
        raise StorageError(f"{uri}: not JSON ({error}); delete it and run its stage again") from error


def checksum(uri: str) -> str:
    """The xxh3-128 of a file's bytes, in hexadecimal."""
    fs, path = filesystem(uri)
    digest = xxhash.xxh3_128()
    with _clear_errors(uri), fs.open(path, "rb") as handle:
        while block := handle.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def key(value: Any) -> str:
    """A short name for a JSON value: equal values, equal names."""
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())


@contextlib.contextmanager
def parquet_writer(uri: str, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Write row groups to `uri`, atomically.

    Vectors are random bits and do not compress, so they are stored as they are. Dictionaries are for columns that are one: to
    build them of ids and sentences, which hardly repeat, takes twice the time to write and seven times the time to read.
    """
    plain = "embedding" in schema.names
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    compression = "none" if plain else "zstd"
    with (
        atomic(uri) as handle,
        pq.ParquetWriter(handle, schema, compression=compression, use_dictionary=dictionaries, write_statistics=not plain) as writer,
    ):
        yield writer


def write_table(uri: str, table: pa.Table) -> None:
    with parquet_writer(uri, table.schema) as writer:
        writer.write_table(table)


@contextlib.contextmanager
def open_parquet(uri: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file to read by row group; a missing or truncated one is a StorageError."""
    fs, path = filesystem(uri)
    with _clear_errors(uri), fs.open(path, "rb") as handle:
        try:
            with pq.ParquetFile(handle, pre_buffer=False) as file:
                yield file
        except pa.ArrowInvalid as error:
            raise StorageError(f"{uri}: not a whole Parquet file ({_first_line(error)}); run the command that made it again") from error


def read_table(uri: str, columns: Sequence[str] | None = None) -> pa.Table:
    with open_parquet(uri) as file:
        return file.read(columns=list(columns) if columns else None)


def available_cores() -> int:
    """Cores this process may use (containers often allow fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
