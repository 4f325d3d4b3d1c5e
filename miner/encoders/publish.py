"""Copy an encoder to a folder or URI, from which other machines and images take it."""

import posixpath
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from miner.encoders import find_folder
from miner.errors import ModelError, StorageError
from miner.io import checksums, lock, records, storage
from miner.units import format_bytes

REMEDY = "choose another --output, or delete it"
COPIED_BYTES = 1 << 22  # at a time


@dataclass(frozen=True)
class FetchResult:
    """The result of `miner fetch`. The field names are keys of its --json output."""

    encoder: str
    output: str
    files: int
    bytes: int

    def summary(self) -> str:
        """Return the result in one line."""
        return f"{self.files} files of {self.encoder}, {format_bytes(self.bytes)}, in {self.output}; give it as --encoder"

    def figures(self) -> dict[str, Any]:
        """Return the values for --json."""
        return asdict(self)


def copy_encoder(name: str, output: str) -> FetchResult:
    """Copy the files of an encoder (`builtin`, a folder, a URI or a hub id) to a folder or URI, with `checksums.json` as the last.

    A copy that was stopped is completed: files that are there and intact are kept. Meanwhile `checksums.started.json` keeps readers out.
    Raises ModelError if there is no such encoder, StorageError if the output holds anything else, or another run is copying to it.
    """
    folder = find_folder(name)
    checksums.check(folder, "download or train the encoder again")
    sources = _list_files(folder)
    target = storage.real_path(output)
    if target is not None and target.is_relative_to(folder.resolve()):
        raise StorageError(f"{output}: inside the encoder {folder}; choose another --output")
    with lock.hold(output):
        _copy_files(sources, output, checksums.compute(folder, checksums.user_files(folder)))
    return FetchResult(name, output, len(sources) + 1, sum(path.stat().st_size for path in sources.values()))


def _list_files(folder: Path) -> dict[str, Path]:
    """Return the files of an encoder by relative path. Raises ModelError for a link that leads out of its folder, or of its hub cache."""
    root = (folder.parents[1] if folder.parent.name == "snapshots" else folder).resolve()
    files = {name: folder / name for name in storage.files_below(str(folder)) if name not in (checksums.FILE, checksums.STARTED)}
    for path in files.values():
        if not path.resolve().is_relative_to(root):
            raise ModelError(f"{path}: a link to a file outside the encoder; replace it by the file, or remove it")
    return files


def _copy_files(sources: Mapping[str, Path], output: str, listed: Mapping[str, str]) -> None:
    """Write the files that OUTPUT lacks. `listed` are the checksums that it will have."""
    started, final = (storage.join(output, name) for name in (checksums.STARTED, checksums.FILE))
    for parent in {posixpath.dirname(name) for name in sources}:
        storage.remove_temporary(storage.join(output, parent))
    present = {name for name in storage.files_below(output) if not name.startswith(storage.LOCK_PREFIX)}
    records_there = present & {checksums.STARTED, checksums.FILE}
    foreign = sorted(present - sources.keys() - records_there)
    is_other = checksums.STARTED not in present and checksums.FILE in present and checksums.read(output, REMEDY) != listed
    if foreign or is_other or (present and not records_there):
        raise StorageError(f"{output}: contains {foreign[0] if foreign else 'another encoder'}; choose another --output, new or empty")
    if records_there == {checksums.FILE} and all(_is_copied(path, storage.join(output, name)) for name, path in sources.items()):
        return
    records.write(started, {"files": listed})
    for name, path in sources.items():
        target = storage.join(output, name)
        if not _is_copied(path, target):
            with path.open("rb") as source, storage.atomic(target) as copy:
                shutil.copyfileobj(source, copy, COPIED_BYTES)
    records.write(final, {"files": listed})
    storage.remove(started)


def _is_copied(path: Path, target: str) -> bool:
    return storage.exists(target) and storage.checksum(target) == storage.checksum(str(path))
