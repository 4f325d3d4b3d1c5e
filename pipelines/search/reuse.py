"""What search found before a corpus grew: the neighbours of shards that are there still, among others that are.

They are moved aside, to FOLDER/known, before the neighbours are made anew, and are gone when these are complete. What they were found
among is written down first, so a run that is stopped at any moment goes on from there.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from miner import stages, storage
from miner.corpus import Corpus
from miner.errors import MinerError, StorageError

KNOWN = "known"  # folder
TOLD = "known.json"
SIDES = {"forward": "source", "backward": "target"}  # direction -> whose neighbours these are

Shards = Mapping[str, str]  # name -> checksum


@dataclass(frozen=True)
class PreviousNeighbours:
    """Neighbours by direction and shard, in FOLDER/known, among all shards of the other side."""

    folder: str
    source: Shards
    target: Shards
    files: Shards  # direction/shard -> checksum

    def has(self, row: str, column: str) -> bool:
        """Whether a shard of sources and one of targets were compared."""
        return row in self.source and column in self.target

    def file(self, direction: str, name: str) -> str | None:
        """Where the neighbours of a shard are, None where none are known. StorageError where they are not what was found."""
        if f"{direction}/{name}" not in self.files:
            return None
        uri = storage.join(self.folder, KNOWN, direction, name)
        if not storage.exists(uri) or storage.checksum(uri) != self.files[f"{direction}/{name}"]:
            raise StorageError(f"{uri}: missing, or changed since it was written; delete {self.folder} and run the same command again")
        return uri

    def move(self) -> None:
        """Move the files to where they are looked for, unless they are there."""
        for name in self.files:
            place = storage.join(self.folder, KNOWN, name)
            if not storage.exists(place):
                storage.move(storage.join(self.folder, name), place)

    def remove(self) -> None:
        """What tells of the files goes first: without it nothing is taken for one of them."""
        storage.remove(storage.join(self.folder, KNOWN, TOLD))
        storage.remove(storage.join(self.folder, KNOWN))


def nothing(folder: str) -> PreviousNeighbours:
    return PreviousNeighbours(folder, {}, {}, {})


def details(source: Corpus, target: Corpus) -> dict[str, Any]:
    """What the manifests of neighbours tell of what these were found among."""
    return {"among": {"source": _shards(source), "target": _shards(target)}}


def keep(folder: str, source: Corpus, target: Corpus) -> PreviousNeighbours:
    """Of the neighbours in FOLDER, those of both sides, where they were found before these grew."""
    uri, found = storage.join(folder, KNOWN, TOLD), _found(folder, source, target)
    if found is None:
        nothing(folder).remove()
        return nothing(folder)
    if not storage.exists(uri) and (found.source, found.target) == (_shards(source), _shards(target)):
        return nothing(folder)  # nothing grew; what is not whole is searched again
    if not storage.exists(uri):
        storage.write_json(uri, {name: value for name, value in asdict(found).items() if name != "folder"})
    found.move()
    return found


def targets(folder: str, source: Corpus, target: Corpus) -> set[str]:
    """The shards of targets that neighbours in FOLDER were found among, where both sides have at most grown since."""
    found = _found(folder, source, target)
    return set(found.target) if found is not None else set()


def _found(folder: str, source: Corpus, target: Corpus) -> PreviousNeighbours | None:
    """What was set aside, or else is complete, of these sides before they grew."""
    uri = storage.join(folder, KNOWN, TOLD)
    try:
        found = PreviousNeighbours(folder, **storage.read_json(uri)) if storage.exists(uri) else _finished(folder)
    except (StorageError, TypeError, KeyError):
        return None
    return found if found is not None and within(asdict(found), source, target) else None


def _finished(folder: str) -> PreviousNeighbours | None:
    """The neighbours of both sides, where they are complete and tell among what they were found."""
    try:
        manifests = {name: stages.read_manifest(storage.join(folder, name)) for name in SIDES}
    except MinerError:
        return None
    told = [manifest.details.get("among") for manifest in manifests.values()]
    if told[0] is None or told[0] != told[1]:
        return None
    files = {f"{name}/{shard.name}": shard.checksum for name, manifest in manifests.items() for shard in manifest.shards}
    return PreviousNeighbours(folder, told[0]["source"], told[0]["target"], files)


def within(found: Mapping[str, Shards], source: Corpus, target: Corpus) -> bool:
    """Whether all shards of both sides {side: shards} that something was found among are there still."""
    now = {"source": _shards(source), "target": _shards(target)}
    return all(side in found and found[side].items() <= shards.items() for side, shards in now.items())


def _shards(corpus: Corpus) -> dict[str, str]:
    return {shard.name: shard.checksum for shard in corpus.shards}
