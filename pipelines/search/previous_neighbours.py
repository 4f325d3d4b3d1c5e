"""Reuse neighbours after the corpora grew: those of shards that still exist, among shards that still exist.

Before new neighbours are written, the previous ones move to FOLDER/previous; they are removed when the new ones are complete. The list of
shards they cover is written before anything moves, so a run that stops at any moment can resume.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from miner.errors import DamagedError, MinerError, StorageError
from miner.io import records, stages, storage
from miner.io.corpus import Corpus

FOLDER = "previous"
COVERAGE = "previous.json"
SEARCHED_SHARDS = "searched_shards"  # key of the details of a manifest
DIRECTIONS = ("forward", "backward")

Checksums = Mapping[str, str]  # name of a shard -> checksum


@dataclass(frozen=True)
class PreviousNeighbours:
    """Neighbours of all shards of one side among all shards of the other, in FOLDER/previous/DIRECTION."""

    folder: str
    source: Checksums
    target: Checksums
    files: Checksums  # DIRECTION/shard -> checksum

    def covers(self, source_shard: str, target_shard: str) -> bool:
        """Return whether these two shards were compared."""
        return source_shard in self.source and target_shard in self.target

    def path(self, direction: str, shard: str) -> str | None:
        """Return the file with the neighbours of a shard, None if there is none. Raises StorageError if it is missing or changed."""
        name = f"{direction}/{shard}"
        if name not in self.files:
            return None
        uri = storage.join(self.folder, FOLDER, name)
        if not storage.exists(uri) or storage.checksum(uri) != self.files[name]:
            raise DamagedError(f"{uri}: missing, or changed since it was written; delete {self.folder} and run the same command again")
        return uri

    def move_files(self) -> None:
        """Move the files to FOLDER/previous, except those that are there already."""
        for name in self.files:
            destination = storage.join(self.folder, FOLDER, name)
            if not storage.exists(destination):
                storage.move(storage.join(self.folder, name), destination)

    def remove(self) -> None:
        """Remove the files. The coverage goes first: without it, no file is taken for one of them."""
        storage.remove(storage.join(self.folder, FOLDER, COVERAGE))
        storage.remove(storage.join(self.folder, FOLDER))


def manifest_details(source: Corpus, target: Corpus) -> dict[str, Any]:
    """Return what the manifests of neighbours record about the shards that were compared."""
    return {SEARCHED_SHARDS: {"source": _checksums(source), "target": _checksums(target)}}


def keep_previous(folder: str, source: Corpus, target: Corpus) -> PreviousNeighbours:
    """Move the neighbours in FOLDER to FOLDER/previous if both sides have only grown since they were written."""
    uri, previous = storage.join(folder, FOLDER, COVERAGE), _previous(folder, source, target)
    nothing = PreviousNeighbours(folder, {}, {}, {})
    if previous is None:
        nothing.remove()
        return nothing
    if not storage.exists(uri) and (previous.source, previous.target) == (_checksums(source), _checksums(target)):
        return nothing  # neither side grew; a file that is missing is searched again
    if not storage.exists(uri):
        records.write(uri, {"source": previous.source, "target": previous.target, "files": previous.files})
    previous.move_files()
    return previous


def previous_targets(folder: str, source: Corpus, target: Corpus) -> set[str]:
    """Return the target shards that the neighbours in FOLDER cover, if both sides have only grown since."""
    previous = _previous(folder, source, target)
    return set(previous.target) if previous is not None else set()


def _previous(folder: str, source: Corpus, target: Corpus) -> PreviousNeighbours | None:
    """Return the neighbours that an interrupted run kept, or else the complete ones, if both sides have only grown since."""
    uri = storage.join(folder, FOLDER, COVERAGE)
    try:
        previous = _read_kept(folder, uri) if storage.exists(uri) else _complete_neighbours(folder)
    except StorageError:
        return None
    if previous is None or not has_grown_from({"source": previous.source, "target": previous.target}, source, target):
        return None
    return previous


def _read_kept(folder: str, uri: str) -> PreviousNeighbours:
    """Return the neighbours that COVERAGE lists. Raises StorageError for a damaged list, or files that are not in FOLDER/previous."""
    values = records.read(uri, dict[str, dict[str, str]])
    previous: PreviousNeighbours = records.parse({"folder": folder, **values}, PreviousNeighbours, uri)
    for name in previous.files:
        direction, _, shard = name.partition("/")
        if direction not in DIRECTIONS or not stages.is_plain_name(shard):
            raise StorageError(f"{uri}: {name!r} is not a file of neighbours; do not trust this directory")
    return previous


def _complete_neighbours(folder: str) -> PreviousNeighbours | None:
    """Return the neighbours of both directions, if they are complete and record the shards they cover."""
    try:
        manifests = {direction: stages.read_manifest(storage.join(folder, direction)) for direction in DIRECTIONS}
    except MinerError:
        return None
    forward, backward = (manifest.details.get(SEARCHED_SHARDS) for manifest in manifests.values())
    if forward is None or forward != backward:
        return None
    files = {f"{direction}/{shard.name}": shard.checksum for direction, manifest in manifests.items() for shard in manifest.shards}
    return PreviousNeighbours(folder, forward["source"], forward["target"], files)


def has_grown_from(previous: Mapping[str, Checksums], source: Corpus, target: Corpus) -> bool:
    """Return whether all previous shards {side: checksums} still exist unchanged."""
    current = {"source": _checksums(source), "target": _checksums(target)}
    return all(side in previous and previous[side].items() <= shards.items() for side, shards in current.items())


def _checksums(corpus: Corpus) -> dict[str, str]:
    return {shard.name: shard.checksum for shard in corpus.shards}
