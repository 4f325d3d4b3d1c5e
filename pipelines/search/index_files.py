"""The files of an index on the local disk, to be mapped into memory.

Those of a local directory are mapped in place. Those of a remote one are copied once per host, with the ids of the vectors, so that the
processes of a host share one copy on the disk and its pages in memory.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fsspec.implementations.local import LocalFileSystem

from miner.arrays import Ids, Vectors
from miner.errors import DamagedError
from miner.io import checksums, host_copies, stages, storage, table_files
from miner.io.corpus import Corpus
from miner.io.stages import EMBEDDINGS, Manifest

VECTORS = "vectors"  # folder
IDS = "ids.npy"  # of a copy
REMEDY = "run the same `miner index` again"


@dataclass(frozen=True)
class IndexedSide:
    """The index of one side, and the corpus that it indexes."""

    folder: str
    file: str
    checksum: str
    factory: str
    corpus: Corpus

    @classmethod
    def describe(cls, folder: str, manifest: Manifest, corpus: Corpus) -> "IndexedSide":
        """Return the side of a complete index."""
        (shard,) = manifest.shards
        return cls(folder, shard.name, shard.checksum, manifest.details["factory"], corpus)

    def files(self) -> dict[str, str]:
        """Return the checksums of the files by relative path."""
        vectors = stages.read_manifest(storage.join(self.folder, VECTORS)).shards
        return {self.file: self.checksum, **{f"{VECTORS}/{shard.name}": shard.checksum for shard in vectors}}


def vectors_name(shard: str) -> str:
    """Return the name of the array with the vectors of a shard."""
    return shard.removesuffix(".parquet") + ".npy"


def local_folder(side: IndexedSide) -> str:
    """Return a local directory with the files of an index: its own, or the copy of this host if it is remote.

    Raises StorageError if a file has changed: a truncated file that is mapped into memory would kill the process.
    """
    if is_local(side.folder):
        check_in_place(side)
        return str(storage.filesystem(side.folder)[1])
    files = side.files()
    folder = host_copies.cache_folder("indexes") / storage.key([files, side.corpus.key])
    return str(host_copies.provide(folder, lambda new: _copy(side, files, new)))


def check_in_place(side: IndexedSide) -> None:
    """Raise StorageError if a file of a local index is missing or has changed. Those of a remote one are checked when they are copied."""
    for name, checksum in side.files().items() if is_local(side.folder) else ():
        uri = storage.join(side.folder, name)
        if not storage.exists(uri) or storage.checksum(uri) != checksum:
            raise DamagedError(f"{uri}: missing, or not as it was written; {REMEDY}")


def is_local(folder: str) -> bool:
    """Whether the files of a directory can be mapped in place."""
    return isinstance(storage.filesystem(folder)[0], LocalFileSystem)


def _copy(side: IndexedSide, files: Mapping[str, str], folder: Path) -> None:
    """Copy an index to a folder. A lost connection costs one file, not all."""
    host_copies.remove_unused(folder.parent)
    with (folder / IDS).open("wb") as handle:
        np.save(handle, host_copies.retry(side.corpus.folder, lambda: _read_ids(side.corpus)))
    for name, checksum in files.items():
        host_copies.retry(side.folder, functools.partial(_copy_file, storage.join(side.folder, name), folder / name, checksum))
    checksums.write(folder)


def _copy_file(uri: str, target: Path, checksum: str) -> None:
    host_copies.copy_file(uri, target)
    if storage.checksum(str(target)) != checksum:
        raise DamagedError(f"{uri}: not as it was written; {REMEDY}")


def read_ids(side: IndexedSide, folder: str) -> Ids:
    """Return the ids (n,) of the vectors of an index, in their order; `folder` is its local directory."""
    if is_local(side.folder):
        return _read_ids(side.corpus)
    ids: Ids = _map_array(f"{folder}/{IDS}")
    return ids


def _read_ids(corpus: Corpus) -> Ids:
    tables = (table_files.read_table(storage.join(corpus.folder, EMBEDDINGS, shard.name), ["id"]) for shard in corpus.shards)
    return np.concatenate([table["id"].to_numpy() for table in tables])


def map_vectors(folder: str, shard: str) -> Vectors:
    """Map the vectors (n, dim) of a shard of the corpus; `folder` is the local directory of the index."""
    vectors: Vectors = _map_array(f"{folder}/{VECTORS}/{vectors_name(shard)}")
    return vectors


def _map_array(path: str) -> Any:
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path}: not a complete array ({str(error).splitlines()[0]}); run `miner index` again") from error
