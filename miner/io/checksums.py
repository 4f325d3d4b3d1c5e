"""Directories that are written as a whole, such as encoders and checkpoints, carry the checksums of their files."""

from collections.abc import Mapping, Set
from pathlib import Path

from typing_extensions import TypedDict

from miner.errors import DamagedError
from miner.io import records, storage

FILE = "checksums.json"
STARTED = "checksums.started.json"  # in a directory to which `miner fetch` copies an encoder
INCOMPLETE = "a copy of an encoder that is not complete; wait for `miner fetch`, or run it again"
USER_FILES = frozenset({"miner.json", "mining.json"})  # of an encoder, which may not be in FILE (see `user_files`)


class ChecksumRecord(TypedDict):
    """The content of FILE."""

    files: dict[str, str]  # relative path -> checksum


def write(folder: Path, exempt: Set[str] = frozenset()) -> None:
    """Record the checksums of all files in a directory and its subdirectories, except those that users may edit."""
    records.write(str(folder / FILE), {"files": compute(folder, exempt)})


def user_files(folder: Path) -> frozenset[str]:
    """Return the files of an encoder that users edit: its thresholds and, where it has two sides, the file with their languages."""
    settings = folder / "miner.json"
    values = storage.read_json(str(settings)) if settings.exists() else {}
    return USER_FILES if isinstance(values, dict) and "sides" in values else USER_FILES - {settings.name}


def compute(folder: Path, exempt: Set[str] = frozenset()) -> dict[str, str]:
    """Return what `write` records."""
    names = [name for name in storage.files_below(str(folder)) if name not in exempt and not name.endswith(FILE)]
    return {name: storage.checksum(str(folder / name)) for name in names}


def check(folder: Path, remedy: str) -> None:
    """Compare the files of a directory with its checksums. A directory of another program has none.

    Raises StorageError for a file that is missing or has changed, and for a device or pipe, whose reading may not end.
    """
    if (folder / STARTED).exists():
        raise DamagedError(f"{folder}: {INCOMPLETE}")
    endless = [path for path in folder.rglob("*") if path.exists() and not path.is_file() and not path.is_dir()]
    if endless:
        raise DamagedError(f"{endless[0]}: not a regular file; do not trust this directory")
    path = folder / FILE
    if not path.exists():
        return
    advice = f"{remedy}, or delete {path} if it was changed on purpose"
    name = find_damaged(folder, read(str(folder), remedy))
    if name is not None:
        raise DamagedError(f"{folder / name}: missing, or changed since it was written; {advice}")


def find_damaged(folder: Path, files: Mapping[str, str]) -> str | None:
    """Return the first of the files {relative path: checksum} that is missing or differs, None if all are intact."""
    for name, checksum in files.items():
        if not (folder / name).is_file() or storage.checksum(str(folder / name)) != checksum:
            return name
    return None


def read(folder: str, remedy: str) -> dict[str, str]:
    """Return the checksums of the files of a directory or URI by relative path. Raises StorageError if a path leads out of it."""
    uri = storage.join(folder, FILE)
    files = records.read(uri, ChecksumRecord, remedy)["files"]
    foreign = [name for name in files if Path(name).is_absolute() or ".." in Path(name).parts]
    if foreign:
        raise DamagedError(f"{uri}: {foreign[0]!r} is not a file in {folder}; do not trust this directory")
    return files
