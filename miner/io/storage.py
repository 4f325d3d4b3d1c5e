"""Read, write and list files by fsspec URI: atomic writes, checksums, and errors of one line that say how to fix them."""

import contextlib
import errno
import io
import json
import os
import posixpath
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit
from zipfile import BadZipFile

import fsspec
import xxhash
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from miner.errors import REMOTE_REMEDY, STORAGE_REMEDIES, DamagedError, StorageError, first_line, is_remote_error
from miner.io import object_stores
from miner.io.object_stores import is_object_store, repeat

MANIFEST = "manifest.json"  # of a directory of shards, with the checksum of each
TEMPORARY, REPLACED = ".tmp", ".old"  # suffixes of what is being written, and of what a folder replaces
LOCK_PREFIX = "_lock-"  # of the names of locks
HASHED_BYTES = 1 << 16  # from which the checksum of a written file is remembered; reading a smaller one takes less time than asking for it
MAX_OBJECT_BYTES = 1 << 48  # of a file on an object store, whose size is not asked for
MAX_SMALL_BYTES = 1 << 28  # of a JSON file; a manifest of a million shards has fewer

MAKE_AGAIN = "delete it and run the command that made it again"  # remedy of a damaged file
MEMORY = "memory"  # protocol of files in the memory of this process

_LOCAL = LocalFileSystem()


def filesystem(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system of a path or fsspec URI, and the path in it. Raises StorageError for an unknown protocol."""
    if "\0" in str(uri):
        raise StorageError(f"{uri!r}: a name with a null character; correct it")
    if ":" not in str(uri):  # a path, of which fsspec takes five times as long to find that it is one
        return _LOCAL, str(_LOCAL._strip_protocol(str(uri)))
    try:
        if "://" in str(uri) and not any(urlsplit(str(uri))[1:3]):  # neither a host or bucket, nor a path
            raise ValueError("names no file or folder")
        fs, path = fsspec.core.url_to_fs(str(uri))
    except (ValueError, ImportError, OSError, BadZipFile) as error:
        raise StorageError(f"{uri}: {first_line(error)}; check the address") from error
    return fs, path


def absolute(uri: str) -> str:
    """Return a path as an absolute one, and a URI as it is."""
    return uri if ":" in uri else filesystem(uri)[1]


def join(folder: str, *names: str) -> str:
    """Append names to a directory."""
    return posixpath.join(str(folder), *names)


def is_on_object_store(uri: str) -> bool:
    """Whether a URI is of S3 or GCS, where every look at a file is a request."""
    return is_object_store(filesystem(uri)[0])


def real_path(uri: str) -> Path | None:
    """Return the path of a local file or directory with its links resolved, None for one of another file system."""
    fs, path = filesystem(uri)
    return Path(path).resolve() if isinstance(fs, LocalFileSystem) else None


def is_inside(uri: str, folder: str) -> bool:
    """Whether a path is below a directory, at any depth."""
    fs, path = filesystem(uri)
    folder_fs, folder_path = filesystem(folder)
    return type(fs) is type(folder_fs) and path.startswith(folder_path.rstrip("/") + "/")


@contextlib.contextmanager
def storage_errors(uri: str) -> Iterator[None]:
    """Raise an OSError as a StorageError that names the file and a remedy."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(f"{uri}: no such file or folder; check the path, or run the command that makes it again") from error
    except OSError as error:
        reason, remedy = error.strerror or first_line(error), STORAGE_REMEDIES.get(error.errno or 0, "fix this or choose another path")
        raise StorageError(f"{uri}: {reason}; {remedy}, then run the same command again") from error
    except Exception as error:
        if is_remote_error(error):
            raise StorageError(f"{uri}: {first_line(error)}; {REMOTE_REMEDY}") from error
        raise


@repeat
def exists(uri: str) -> bool:
    fs, path = filesystem(uri)
    fs.invalidate_cache(posixpath.dirname(path))  # object stores cache listings, and other processes write files
    with storage_errors(uri):
        return bool(fs.exists(path))


@repeat
def is_folder(uri: str) -> bool:
    fs, path = filesystem(uri)
    with storage_errors(uri):
        return bool(fs.isdir(path))


@repeat
def is_file(uri: str) -> bool:
    """Whether there is a regular file."""
    fs, path = filesystem(uri)
    with storage_errors(uri):
        return bool(fs.isfile(path))


def names_in(uri: str) -> list[str]:
    """List the names in a directory, sorted. A missing directory has none."""
    return sorted(_list(uri, detail=False))


@repeat
def _list(uri: str, detail: bool) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a directory by name, as `fs.ls` describes them; nothing without `detail`. A missing directory has none."""
    fs, path = filesystem(uri)
    fs.invalidate_cache(path)
    try:
        with storage_errors(uri):
            listed = fs.ls(path, detail=detail) if is_object_store(fs) or fs.isdir(path) else []
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise
    if detail:
        fs.invalidate_cache(path)
    entries = {str(info["name"] if detail else info).rstrip("/"): info if detail else {} for info in listed}
    return {posixpath.basename(name): info for name, info in entries.items() if name != path.rstrip("/")}  # stores list a file as itself


@repeat
def files_below(uri: str, max_depth: int | None = None) -> list[str]:
    """List the files in a directory and its subdirectories, down to a depth, by their relative paths, sorted."""
    fs, path = filesystem(uri)
    fs.invalidate_cache()
    with storage_errors(uri):
        return sorted(posixpath.relpath(str(name), path) for name in fs.find(path, maxdepth=max_depth))


@repeat
def size(uri: str) -> int:
    """Return the size of a file in bytes."""
    fs, path = filesystem(uri)
    with storage_errors(uri):
        return int(fs.size(path) or 0)


def sizes(uri: str) -> dict[str, int]:
    """Return the size in bytes of each file in a directory, by name."""
    return {name: int(info["size"] or 0) for name, info in _list(uri, detail=True).items() if info["type"] == "file"}


VERSION_KEYS = ("generation", "ETag", "etag", "md5Hash", "content_settings", "mtime", "LastModified", "last_modified", "created")


def version_of(info: Mapping[str, Any]) -> str:
    """Return what identifies the content of a file, from its entry in a listing: its size, and its hash or time of change."""
    version = next((info[key] for key in VERSION_KEYS if info.get(key) is not None), None)
    return f"{info.get('size')} {version}"


def remote_checksum(fs: fsspec.AbstractFileSystem, path: str, info: Mapping[str, Any]) -> str:
    """Return `fs.checksum` of a file. That of an object on S3 follows from its entry in a listing, for which it would ask again."""
    if is_object_store(fs) and "ETag" in info:
        return str(int(info["ETag"].strip('"').partition("-")[0], 16))
    return str(fs.checksum(path))


def versions(uri: str) -> dict[str, str]:
    """Return what identifies the content of each entry of a directory, by name, from one listing. A missing directory has none."""
    return {name: version_of(info) for name, info in _list(uri, detail=True).items()}


@repeat
def versions_below(uri: str) -> dict[str, str]:
    """Return what identifies the content of each file in a directory and its subdirectories, by relative path, from one listing."""
    fs, path = filesystem(uri)
    fs.invalidate_cache()
    with storage_errors(uri):
        return {posixpath.relpath(str(name), path): version_of(info) for name, info in fs.find(path, detail=True).items()}


@repeat
def make_folder(uri: str) -> None:
    fs, path = filesystem(uri)
    with storage_errors(uri):
        try:
            fs.makedirs(path, exist_ok=True)
        except FileExistsError as error:  # there is a file of that name
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


@repeat
def remove(uri: str) -> None:
    """Remove a file or directory if it exists."""
    fs, path = filesystem(uri)
    with storage_errors(uri), contextlib.suppress(FileNotFoundError):
        if fs.exists(path):
            fs.rm(path, recursive=True)


@repeat
def remove_files(uris: Sequence[str]) -> None:
    """Remove files of one directory that exist."""
    if not uris:
        return
    fs, _ = filesystem(uris[0])
    if is_object_store(fs):
        with storage_errors(posixpath.dirname(uris[0])):
            object_stores.delete(fs, [filesystem(uri)[1] for uri in uris])
        return
    for uri in uris:
        remove(uri)


def remove_temporary(folder: str) -> None:
    """Remove the temporary files that killed processes left in a directory. On object stores there are none."""
    if is_on_object_store(folder):
        return
    for name in names_in(folder):
        if name.startswith(".") and name.endswith(TEMPORARY):
            remove(join(folder, name))


@dataclass(frozen=True)
class FileState:
    """A file at one moment."""

    checksum: str
    size: int = 0  # 0 if it is not known
    version: str | None = None  # of an object, as a listing shows it; None where only reading a file shows that it has changed


@contextlib.contextmanager
def atomic(uri: str) -> Iterator[BinaryIO]:
    """Open `uri` for writing bytes in order. The file appears complete when the block ends, and not at all if the block raises.

    `checksum` and `describe` then know that of a larger file, and of an object, without reading it.
    """
    fs, path = filesystem(uri)
    with storage_errors(uri):
        with _open_whole(fs, path) as handle:
            hashed = HashedFile(handle)
            yield cast(BinaryIO, hashed)
        if is_object_store(fs):
            version = _uploaded_version(fs, path, hashed)
            _written[path] = FileState(hashed.digest.hexdigest(), hashed.num_bytes, version)
            _checksums[_memo_key(path, version)] = hashed.digest.hexdigest()
        elif hashed.num_bytes >= HASHED_BYTES:
            _checksums[_version(fs, path)] = hashed.digest.hexdigest()


_written: dict[str, FileState] = {}  # path of an object that was written, until `describe` is asked for it by the writer of its marker


def describe(uri: str) -> FileState:
    """Return the state of a file. That of an object that this process has just written takes no request."""
    fs, path = filesystem(uri)
    state = _written.pop(path, None)
    if state is not None:
        return state
    with storage_errors(uri):
        version = _object_version(fs, path) if is_object_store(fs) else None
    return FileState(checksum(uri), size(uri), version)


def _open_whole(fs: fsspec.AbstractFileSystem, path: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """Open a file for writing, which appears when the block ends, and not at all if the block raises."""
    appears_whole = is_object_store(fs) or isinstance(fs, MemoryFileSystem)
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


@repeat
def move(uri: str, destination: str) -> None:
    """Move a file within a file system, if it exists."""
    fs, path = filesystem(uri)
    _, target = filesystem(destination)
    with storage_errors(uri):
        if fs.exists(path):
            fs.makedirs(posixpath.dirname(target), exist_ok=True)
            rename(fs, path, target)


@repeat
def write_json(uri: str, value: Any) -> None:
    fs, path = filesystem(uri)
    with storage_errors(uri), _open_whole(fs, path) as handle:
        handle.write(json_text(value).encode())


def json_text(value: Any) -> str:
    """Return a value as JSON, the same for equal values."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


@repeat
def create_json(uri: str, value: Any) -> bool:
    """Create a file and return True, or return False if it exists. Atomic where the file system supports it."""
    fs, path = filesystem(uri)
    with storage_errors(uri):
        try:
            if not isinstance(fs, LocalFileSystem):
                fs.pipe_file(path, json_text(value).encode(), mode="create")
            else:
                with Path(path).open("xb") as handle:
                    _write_or_remove(handle, json_text(value).encode())
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


@repeat
def read_bytes(uri: str, max_bytes: int = MAX_SMALL_BYTES) -> bytes:
    """Read a small file. Raises DamagedError for one of more bytes, and for a device or pipe, whose reading may not end."""
    fs, path = filesystem(uri)
    check_regular(uri)
    with storage_errors(uri):
        if is_object_store(fs):
            data = object_stores.read_range(fs, path, 0, max_bytes + 1)
        else:
            with open_file(fs, path) as handle:
                data = handle.read(max_bytes + 1)
    return _check_small(uri, data, max_bytes)


def open_file(fs: fsspec.AbstractFileSystem, path: str, **options: Any) -> BinaryIO:
    """Open a file for reading. Files in memory are copied: all that have one of these open would share its position."""
    if isinstance(fs, MemoryFileSystem):
        return io.BytesIO(fs.cat_file(path))
    return cast(BinaryIO, fs.open(path, "rb", **options))


@repeat
def read_whole(uri: str, expected: str) -> bytes:
    """Read a file of any size, in one request if it is an object. Raises StorageError if its checksum is not the expected one."""
    fs, path = filesystem(uri)
    with storage_errors(uri):
        data: bytes = object_stores.read_range(fs, path, 0, MAX_OBJECT_BYTES) if is_object_store(fs) else fs.cat_file(path)
    if xxhash.xxh3_128_hexdigest(data) != expected:
        raise DamagedError(f"{uri}: changed since it was written; run the command that made it again")
    return data


def find_bytes(uri: str, max_bytes: int = MAX_SMALL_BYTES) -> bytes | None:
    """Read a small file as `read_bytes` does; None if it does not exist. An object takes one request."""
    try:
        return read_bytes(uri, max_bytes)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _check_small(uri: str, data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise DamagedError(f"{uri}: more than {max_bytes:,} bytes, so not written by this program; delete it")
    return data


@repeat
def read_parts(uris: Sequence[str], start: int, end: int | None = None) -> list[bytes | None]:
    """Return the bytes of objects from `start` to `end`, as slices have them, read side by side; None for one that is missing."""
    fs, _ = filesystem(uris[0])
    with storage_errors(posixpath.dirname(uris[0]) if len(uris) > 1 else uris[0]):
        return object_stores.read_parts(fs, [filesystem(uri)[1] for uri in uris], start, end)


@repeat
def read_range(uri: str, start: int, stop: int) -> bytes:
    """Return the bytes of an object from `start` up to `stop`."""
    fs, path = filesystem(uri)
    with storage_errors(uri):
        return object_stores.read_range(fs, path, start, stop)


def read_files(folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """Read small files of a directory, of object stores side by side. Those that are missing or are no small files are left out."""
    fs, _ = filesystem(folder)
    contents: list[bytes | None] = []
    if names and is_object_store(fs):
        contents = read_parts([join(folder, name) for name in names], 0, MAX_SMALL_BYTES)
    else:
        for name in names:
            try:
                contents.append(find_bytes(join(folder, name)))
            except StorageError:
                contents.append(None)
    return {name: content for name, content in zip(names, contents, strict=True) if content is not None}


def check_regular(uri: str) -> None:
    """Raise DamagedError for a device, pipe or socket."""
    fs, path = filesystem(uri)
    if isinstance(fs, LocalFileSystem) and Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
        raise DamagedError(f"{uri}: not a regular file; delete it, or do not trust this directory")


def read_json(uri: str, remedy: str = MAKE_AGAIN) -> Any:
    return parse_json(read_bytes(uri), uri, remedy)


def parse_json(data: bytes, uri: str, remedy: str = MAKE_AGAIN) -> Any:
    """Return the value of a JSON file. Raises DamagedError, which ends in the remedy, if it is not valid."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{uri}: not JSON ({error}); {remedy}") from error


_checksums: dict[str, str] = {}  # name and version of a file -> its checksum, which stages ask for several times in a run


@repeat
def checksum(uri: str) -> str:
    """Return the xxh3-128 hash of a file in hexadecimal. A process reads each version of a file once."""
    fs, path = filesystem(uri)
    with storage_errors(uri):
        version = _version(fs, path)
        if version not in _checksums:
            digest = xxhash.xxh3_128()
            check_regular(uri)
            with open_file(fs, path) as handle:
                while block := handle.read(1 << 22):
                    digest.update(block)
            _checksums[version] = digest.hexdigest()
    return _checksums[version]


def _version(fs: fsspec.AbstractFileSystem, path: str) -> str:
    """Return the key of the current version of a file in the memory of this process."""
    return _memo_key(path, _object_version(fs, path)) if is_object_store(fs) else str(fs.ukey(path))


def _memo_key(path: str, version: str) -> str:
    return f"{path} {version}"


def _object_version(fs: fsspec.AbstractFileSystem, path: str) -> str:
    fs.invalidate_cache(posixpath.dirname(path))
    return version_of(fs.info(path))


def _uploaded_version(fs: fsspec.AbstractFileSystem, path: str, file: HashedFile) -> str:
    """Return the version of an object that this process has just uploaded. That of one in parts on S3 takes a request."""
    info = file.info
    return version_of({**info, "size": file.num_bytes}) if info else _object_version(fs, path)


def key(value: Any) -> str:
    """Return a hash of a JSON value."""
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass"))
