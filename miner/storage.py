"""Read and write files by fsspec URI: atomic writes, and errors of one line that say how to fix them."""

import contextlib
import errno
import io
import json
import logging
import os
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit
from zipfile import BadZipFile

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from fsspec.implementations.local import LocalFileSystem

from miner import object_stores, whole_files
from miner.errors import REMOTE_REMEDY, StorageError, first_line, is_remote_error
from miner.object_stores import is_object_store
from miner.whole_files import HashedFile, open_whole, rename

TEMPORARY = whole_files.TEMPORARY
MANIFEST = "manifest.json"  # of a directory of shards, with the checksum of each
LOCK_PREFIX = "_lock-"  # of the names of locks
READ_AHEAD_BYTES = 1 << 20  # of tables on object storage, of which often a range is read; fsspec's 50 MB would fetch 50 times as much
HASHED_BYTES = 1 << 16  # from which the checksum of a written file is remembered; reading a smaller one takes less time than asking for it
WHOLE_BYTES = 1 << 24  # up to which the first read of an object keeps it in memory, instead of fetching it for its checksum and again
MAX_SMALL_BYTES = 1 << 28  # of a JSON file; a manifest of a million shards has fewer

logger = logging.getLogger(__name__)


def filesystem(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system of a path or fsspec URI, and the path in it. Raises StorageError for an unknown protocol."""
    try:
        if "://" in str(uri) and not any(urlsplit(str(uri))[1:3]):  # neither a host or bucket, nor a path
            raise ValueError("names no file or folder")
        fs, path = fsspec.core.url_to_fs(str(uri))
    except (ValueError, ImportError, OSError, BadZipFile) as error:
        raise StorageError(f"{uri}: {first_line(error)}; check the address") from error
    return fs, path


def join(folder: str, *names: str) -> str:
    """Append names to a directory."""
    return posixpath.join(str(folder), *names)


def is_on_object_store(uri: str) -> bool:
    """Whether a URI is of S3 or GCS, where every look at a file is a request."""
    return is_object_store(filesystem(uri)[0])


def is_inside(uri: str, folder: str) -> bool:
    """Whether a path is below a directory, at any depth."""
    fs, path = filesystem(uri)
    folder_fs, folder_path = filesystem(folder)
    return type(fs) is type(folder_fs) and path.startswith(folder_path.rstrip("/") + "/")


def exists(uri: str) -> bool:
    fs, path = filesystem(uri)
    fs.invalidate_cache(posixpath.dirname(path))  # object stores cache listings, and other processes write files
    with _storage_errors(uri):
        return bool(fs.exists(path))


def is_folder(uri: str) -> bool:
    fs, path = filesystem(uri)
    with _storage_errors(uri):
        return bool(fs.isdir(path))


def is_file(uri: str) -> bool:
    """Whether there is a regular file."""
    fs, path = filesystem(uri)
    with _storage_errors(uri):
        return bool(fs.isfile(path))


def names_in(uri: str) -> list[str]:
    """List the names in a directory, sorted. A missing directory has none."""
    fs, path = filesystem(uri)
    fs.invalidate_cache(path)
    try:
        with _storage_errors(uri):
            names = fs.ls(path, detail=False) if is_object_store(fs) or fs.isdir(path) else []
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise
    paths = [str(name).rstrip("/") for name in names]
    return sorted(posixpath.basename(name) for name in paths if name != path.rstrip("/"))  # object stores list a file as itself


def files_below(uri: str, max_depth: int | None = None) -> list[str]:
    """List the files in a directory and its subdirectories, down to a depth, by their relative paths, sorted."""
    fs, path = filesystem(uri)
    fs.invalidate_cache()
    with _storage_errors(uri):
        return sorted(posixpath.relpath(str(name), path) for name in fs.find(path, maxdepth=max_depth))


def size(uri: str) -> int:
    """Return the size of a file in bytes."""
    fs, path = filesystem(uri)
    with _storage_errors(uri):
        return int(fs.size(path) or 0)


def sizes(uri: str) -> dict[str, int]:
    """Return the size in bytes of each file in a directory, by name."""
    fs, path = filesystem(uri)
    fs.invalidate_cache(path)
    with _storage_errors(uri):
        return {
            posixpath.basename(str(info["name"])): int(info["size"] or 0) for info in fs.ls(path, detail=True) if info["type"] == "file"
        }


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
    fs, path = filesystem(uri)
    fs.invalidate_cache(path)
    try:
        with _storage_errors(uri):
            entries = fs.ls(path, detail=True) if is_object_store(fs) or fs.isdir(path) else []
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise
    fs.invalidate_cache(path)
    return {posixpath.basename(str(info["name"]).rstrip("/")): version_of(info) for info in entries}


def make_folder(uri: str) -> None:
    fs, path = filesystem(uri)
    with _storage_errors(uri):
        try:
            fs.makedirs(path, exist_ok=True)
        except FileExistsError as error:  # there is a file of that name
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error


def remove(uri: str) -> None:
    """Remove a file or directory if it exists."""
    fs, path = filesystem(uri)
    with _storage_errors(uri), contextlib.suppress(FileNotFoundError):
        if fs.exists(path):
            fs.rm(path, recursive=True)


def remove_files(uris: Sequence[str]) -> None:
    """Remove files of one directory that exist."""
    if not uris:
        return
    fs, _ = filesystem(uris[0])
    if is_object_store(fs):
        with _storage_errors(posixpath.dirname(uris[0])):
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


@contextlib.contextmanager
def _storage_errors(uri: str) -> Iterator[None]:
    """Raise an OSError as a StorageError that names the file and a remedy."""
    try:
        yield
    except FileNotFoundError as error:
        raise StorageError(f"{uri}: no such file or folder") from error
    except OSError as error:
        reason = error.strerror or first_line(error)
        raise StorageError(f"{uri}: {reason}; {_REMEDIES.get(error.errno or 0, _REMEDY)}, then run the same command again") from error
    except Exception as error:
        if is_remote_error(error):
            raise StorageError(f"{uri}: {first_line(error)}; {REMOTE_REMEDY}") from error
        raise


_WRITE_AGAIN = "run the command that made it again"
_REMEDY = "fix this or choose another place"
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
    """Whether a retry cannot succeed until the user fixes the cause."""
    return error.errno in _REMEDIES or isinstance(error, FileNotFoundError)


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
    with _storage_errors(uri):
        with open_whole(fs, path) as handle:
            hashed = HashedFile(handle)
            yield cast(BinaryIO, hashed)
        if is_object_store(fs):
            version = _uploaded_version(fs, path, hashed)
            _written[path] = FileState(hashed.digest.hexdigest(), hashed.num_bytes, version)
            _checksums[_memo_key(path, version)] = hashed.digest.hexdigest()
        elif hashed.num_bytes >= HASHED_BYTES:
            _checksums[_version(fs, path)] = hashed.digest.hexdigest()


_written: dict[str, FileState] = {}  # path of an object that this process wrote last -> what it wrote


def describe(uri: str) -> FileState:
    """Return the state of a file. That of an object that this process has just written takes no request."""
    fs, path = filesystem(uri)
    state = _written.pop(path, None)
    if state is not None:
        return state
    with _storage_errors(uri):
        version = _object_version(fs, path) if is_object_store(fs) else None
    return FileState(checksum(uri), size(uri), version)


def move(uri: str, destination: str) -> None:
    """Move a file within a file system, if it exists."""
    fs, path = filesystem(uri)
    _, target = filesystem(destination)
    with _storage_errors(uri):
        if fs.exists(path):
            fs.makedirs(posixpath.dirname(target), exist_ok=True)
            rename(fs, path, target)


def write_json(uri: str, value: Any) -> None:
    fs, path = filesystem(uri)
    with _storage_errors(uri), open_whole(fs, path) as handle:
        handle.write(json_text(value).encode())


def json_text(value: Any) -> str:
    """Return a value as JSON, the same for equal values."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def create_json(uri: str, value: Any) -> bool:
    """Create a file and return True, or return False if it exists. Atomic where the file system supports it."""
    fs, path = filesystem(uri)
    with _storage_errors(uri):
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


def read_bytes(uri: str, max_bytes: int = MAX_SMALL_BYTES) -> bytes:
    """Read a small file. Raises StorageError for one of more bytes, and for a device or pipe, whose reading may not end."""
    fs, path = filesystem(uri)
    check_regular(uri)
    with _storage_errors(uri):
        if is_object_store(fs):
            data = object_stores.read_start(fs, path, max_bytes + 1)
        else:
            with fs.open(path, "rb") as handle:
                data = handle.read(max_bytes + 1)
    return _check_small(uri, data, max_bytes)


def find_bytes(uri: str) -> bytes | None:
    """Read a small file as `read_bytes` does; None if it does not exist. An object takes one request."""
    try:
        return read_bytes(uri)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _check_small(uri: str, data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise StorageError(f"{uri}: more than {max_bytes:,} bytes, so not written by this program; delete it")
    return data


def read_starts(uris: Sequence[str], num_bytes: int) -> list[bytes | None]:
    """Return the first `num_bytes` of objects, or all of smaller ones, read side by side; None for one that is missing."""
    fs, _ = filesystem(uris[0])
    with _storage_errors(posixpath.dirname(uris[0])):
        return object_stores.read_starts(fs, [filesystem(uri)[1] for uri in uris], num_bytes)


def read_ends(uris: Sequence[str], num_bytes: int) -> list[bytes | None]:
    """Return the last `num_bytes` of objects, or all of smaller ones, read side by side; None for one that is missing."""
    fs, _ = filesystem(uris[0])
    with _storage_errors(posixpath.dirname(uris[0]) if len(uris) > 1 else uris[0]):
        return object_stores.read_ends(fs, [filesystem(uri)[1] for uri in uris], num_bytes)


def read_range(uri: str, start: int, stop: int) -> bytes:
    """Return the bytes of an object from `start` up to `stop`."""
    fs, path = filesystem(uri)
    with _storage_errors(uri):
        return bytes(fs.cat_file(path, start=start, end=stop))


def read_files(folder: str, names: Sequence[str]) -> dict[str, bytes]:
    """Read small files of a directory, of object stores side by side. Those that are missing or are no small files are left out."""
    fs, _ = filesystem(folder)
    contents: list[bytes | None] = []
    if names and is_object_store(fs):
        contents = read_starts([join(folder, name) for name in names], MAX_SMALL_BYTES)
    else:
        for name in names:
            try:
                contents.append(find_bytes(join(folder, name)))
            except StorageError:
                contents.append(None)
    return {name: content for name, content in zip(names, contents, strict=True) if content is not None}


def check_regular(uri: str) -> None:
    """Raise StorageError for a device, pipe or socket."""
    fs, path = filesystem(uri)
    if isinstance(fs, LocalFileSystem) and Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():
        raise StorageError(f"{uri}: not a regular file; delete it, or do not trust this directory")


def read_json(uri: str) -> Any:
    return parse_json(read_bytes(uri), uri)


def parse_json(data: bytes, uri: str) -> Any:
    """Return the value of a JSON file. Raises StorageError if it is not valid."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{uri}: not JSON ({error}); delete it and run its stage again") from error


_checksums: dict[str, str] = {}  # name and version of a file -> its checksum


def checksum(uri: str) -> str:
    """Return the xxh3-128 hash of a file in hexadecimal. A process reads each version of a file once."""
    fs, path = filesystem(uri)
    with _storage_errors(uri):
        version = _version(fs, path)
        if version not in _checksums:
            digest = xxhash.xxh3_128()
            check_regular(uri)
            with fs.open(path, "rb") as handle:
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


def check_file(uri: str) -> None:
    """Compare a file with the checksum in the manifest beside it, if that lists the file. Raises StorageError if it has changed."""
    expected = _listed_checksum(uri)
    if expected is not None:
        _compare(uri, checksum(uri), expected, is_listed=True)


def _compare(uri: str, current: str, expected: str, is_listed: bool) -> None:
    """Raise StorageError if a checksum is not the expected one, which `is_listed` in the manifest, as this process has read it."""
    if current != expected and not (is_listed and current == _listed_checksum(uri, is_current=True)):
        raise StorageError(f"{uri}: changed since it was written: its checksum is not that of {MANIFEST}; {_WRITE_AGAIN}")


_sizes_read: dict[str, int] = {}  # path of an object that this process has read -> its size then


def _read_checked(uri: str, expected: str | None) -> bytes | None:
    """Compare a file with its checksum, which is that of the manifest if `expected` is None.

    Returns the content of a small object whose first read in this process this is, so that it is fetched once, and always that of an
    object of a few blocks, which takes one request instead of several.
    """
    is_listed = expected is None
    expected = expected or _listed_checksum(uri)
    if expected is None:
        return None
    fs, path = filesystem(uri)
    if is_object_store(fs) and _sizes_read.get(path, 0) <= READ_AHEAD_BYTES:
        with _storage_errors(uri):
            data = object_stores.read_start(fs, path, WHOLE_BYTES + 1)
        _sizes_read[path] = len(data)
        if len(data) <= WHOLE_BYTES:
            _compare(uri, xxhash.xxh3_128_hexdigest(data), expected, is_listed)
            return data
    _compare(uri, checksum(uri), expected, is_listed)
    return None


@contextlib.contextmanager
def _open_checked(uri: str, expected: str | None) -> Iterator[BinaryIO]:
    """Open a table for reading, after `_read_checked`."""
    data = _read_checked(uri, expected)
    if data is not None:
        yield io.BytesIO(data)
        return
    with _open_unchecked(uri) as handle:
        yield handle


def _open_unchecked(uri: str) -> contextlib.AbstractContextManager[BinaryIO]:
    fs, path = filesystem(uri)
    return cast(contextlib.AbstractContextManager[BinaryIO], fs.open(path, "rb", block_size=READ_AHEAD_BYTES))


def _listed_checksum(uri: str, is_current: bool = False) -> str | None:
    """Return the checksum of a file in the manifest beside it.

    A process reads each version of a manifest once; on object stores, where asking for the version takes a request, only another time
    if it does not list the file, or if `is_current`.
    """
    folder, name = posixpath.split(str(uri))
    manifest = join(folder, MANIFEST)
    fs, path = filesystem(manifest)
    is_object = is_object_store(fs)
    version = path if is_object else str(fs.ukey(path)) if exists(manifest) else None
    if version is None:
        return None
    if is_current or name not in _manifests.get(version, {}):
        _manifests[version] = _read_checksums(manifest)
    return _manifests[version].get(name)


def _read_checksums(manifest: str) -> dict[str, str]:
    """Return the checksums in a manifest; none if it is missing or not one of ours."""
    data = find_bytes(manifest)
    try:
        return {} if data is None else {shard["name"]: shard["checksum"] for shard in parse_json(data, manifest)["shards"]}
    except (StorageError, KeyError, TypeError):
        return {}


_manifests: dict[str, dict[str, str]] = {}  # version of a manifest, or path of an object -> name of a file -> its checksum


def key(value: Any) -> str:
    """Return a hash of a JSON value."""
    return xxhash.xxh3_128_hexdigest(json.dumps(value, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass"))


@contextlib.contextmanager
def parquet_writer(uri: str, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Open a Parquet file for writing row groups, atomically.

    Embeddings do not compress, so they are stored uncompressed. Only dictionary columns are dictionary-encoded: for ids and sentences,
    which hardly repeat, encoding doubles the time to write and takes seven times as long to read.
    """
    has_embeddings = "embedding" in schema.names
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    compression = "none" if has_embeddings else "zstd"
    with (
        atomic(uri) as handle,
        pq.ParquetWriter(
            handle,
            schema,
            compression=compression,
            use_dictionary=dictionaries,
            write_statistics=not has_embeddings,
            write_page_checksum=True,
        ) as writer,
    ):
        yield writer


def write_table(uri: str, table: pa.Table) -> None:
    with parquet_writer(uri, table.schema) as writer:
        writer.write_table(table)


@contextlib.contextmanager
def open_parquet(uri: str, is_whole: bool = True, expected: str | None = None) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file for reading by row group. Raises StorageError if it is missing or damaged.

    Pages are compared with their CRC when they are read, and the file with the checksum `expected`, by default that of its manifest;
    without `is_whole`, for callers that read only the footer, not with the manifest.
    """
    check_regular(uri)
    with (
        _storage_errors(uri),
        _open_checked(uri, expected) if is_whole else _open_unchecked(uri) as handle,
        parquet_errors(uri),
        pq.ParquetFile(handle, pre_buffer=False, page_checksum_verification=True) as file,
    ):
        yield file


@contextlib.contextmanager
def parquet_errors(uri: str) -> Iterator[None]:
    """Raise StorageError for a damaged Parquet file."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise StorageError(f"{uri}: not a complete Parquet file ({first_line(error)}); {_WRITE_AGAIN}") from error


def read_table(uri: str, columns: Sequence[str] | None = None) -> pa.Table:
    with open_parquet(uri) as file:
        return file.read(columns=list(columns) if columns else None)


@contextlib.contextmanager
def open_arrow(uri: str, expected: str | None = None) -> Iterator[pa.RecordBatchFileReader]:
    """Open an Arrow file for reading by batch.

    Raises StorageError if it is missing, damaged, or differs from the checksum `expected`, by default that of the manifest beside it.
    """
    try:
        with _storage_errors(uri), _open_checked(uri, expected) as handle, pa.ipc.open_file(handle) as reader:
            yield reader
    except pa.ArrowException as error:
        raise StorageError(f"{uri}: not a complete Arrow file ({first_line(error)}); {_WRITE_AGAIN}") from error


def available_cores() -> int:
    """Count the cores that this process may use; containers often allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
