"""Copy an encoder to a folder or URI, from which other machines and images take it."""

from dataclasses import asdict, dataclass
from typing import Any

from miner.encoders import find_folder
from miner.errors import StorageError
from miner.io import checksums, records, storage
from miner.units import format_bytes


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
    """Copy the files of an encoder (`builtin`, a folder, a URI or a hub id) to a new folder or URI, with `checksums.json` as the last.

    Raises ModelError if there is no such encoder, StorageError if the output exists.
    """
    folder = find_folder(name)
    if storage.exists(output) and storage.files_below(output):
        raise StorageError(f"{output}: is not empty; choose another --output")
    checksums.check(folder, "download or train the encoder again")
    names = [file for file in storage.files_below(str(folder)) if file != checksums.FILE]
    fs, path = storage.filesystem(output)
    for file in names:
        storage.make_folder(storage.join(output, file).rpartition("/")[0])
        fs.put_file(str(folder / file), storage.join(path, file))
    records.write(storage.join(output, checksums.FILE), {"files": checksums.compute(folder, checksums.user_files(folder))})
    return FetchResult(name, output, len(names) + 1, sum((folder / file).stat().st_size for file in names))
