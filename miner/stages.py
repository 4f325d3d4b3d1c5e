"""Stages that can be stopped and started again.

A stage writes a folder of shards beside a `manifest.json`. Each shard is written aside and renamed, then leaves a marker
under `_shards/` with its rows, its checksum and a key of what it was made from. A rerun keeps a shard whose marker's key and
checksum still match and makes the others again. The manifest comes last, so a stage is complete when its manifest is there.
"""

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from miner import storage
from miner.errors import StorageError

MANIFEST = "manifest.json"
STARTED = "manifest.started.json"
MARKERS = "_shards"


def shard_name(index: int, shards: int, suffix: str = ".parquet") -> str:
    return f"part-{index:05d}-of-{shards:05d}{suffix}"


def shard_index(name: str) -> int:
    """The number in a shard's name, from 0."""
    return int(name.split("-")[1])


@dataclass(frozen=True)
class Shard:
    """One finished shard: what the manifest says of it."""

    name: str
    rows: int
    checksum: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What a stage did: written last, so that a folder with a manifest is complete."""

    stage: str
    config: Mapping[str, Any]
    inputs: Mapping[str, str]  # name of an input -> checksum of it (of its manifest where it is a stage)
    shards: Sequence[Shard]
    details: Mapping[str, Any] = field(default_factory=dict)  # counts, timings, fingerprint, recall

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)


def read_manifest(folder: str, stage: str | None = None) -> Manifest:
    """The manifest of a complete stage.

    Raises StorageError where there is none, or where it is of another stage than `stage`.
    """
    uri = storage.join(folder, MANIFEST)
    if not storage.exists(uri):
        raise StorageError(f"{folder}: no {MANIFEST}: what makes {stage or 'this folder'} has not finished here; run the command again")
    value = storage.read_json(uri)
    try:
        manifest = Manifest(**{**value, "shards": [Shard(**shard) for shard in value["shards"]]})
    except (TypeError, KeyError) as error:
        raise StorageError(f"{uri}: not a manifest of this program ({error}); delete the folder and run its stage again") from error
    if stage is not None and manifest.stage != stage:
        raise StorageError(f"{folder}: holds {manifest.stage}, where {stage} was expected")
    return manifest


class Stage:
    """A folder of shards being made. Used by the driver (`pending`, `finish`) and by workers (`done`), which share only names.

    `config` is what must not change between runs in one folder; `inputs` is what the shards are made from. `shard_inputs`
    narrows the inputs to those of one shard, so that a change in one place does not redo everything.
    """

    def __init__(self, folder: str, stage: str, config: Mapping[str, Any], inputs: Mapping[str, str]) -> None:
        self.folder = str(folder)
        self.stage = stage
        self.config = dict(config)
        self.inputs = dict(inputs)

    def start(self) -> None:
        """Claim the folder, or raise StorageError where it holds the work of another configuration."""
        for name in (MANIFEST, STARTED):
            uri = storage.join(self.folder, name)
            if storage.exists(uri):
                self._check(storage.read_json(uri), uri)
        if not storage.exists(storage.join(self.folder, MANIFEST)):
            storage.make_folder(self.folder)
            storage.write_json(storage.join(self.folder, STARTED), {"stage": self.stage, "config": self.config})

    def _check(self, found: Any, uri: str) -> None:
        if not isinstance(found, dict):
            raise StorageError(f"{uri}: not a manifest of this program; delete {self.folder} and run again")
        if found.get("stage") != self.stage:
            raise StorageError(f"{uri}: holds {found.get('stage')}, not {self.stage}; choose another --output")
        theirs, ours = found.get("config", {}), json.loads(json.dumps(self.config))
        different = [name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name)]
        if different:
            name = different[0]
            raise StorageError(
                f"{uri}: made with {name} {theirs.get(name)!r}, now {ours.get(name)!r}; choose another --output, or delete {self.folder}"
            )

    def path(self, name: str) -> str:
        return storage.join(self.folder, name)

    def key(self, shard_inputs: Mapping[str, str] | None = None) -> str:
        return storage.key([self.stage, self.config, dict(self.inputs if shard_inputs is None else shard_inputs)])

    def done(self, name: str, rows: int, made_from: str, counts: Mapping[str, int] | None = None, checksum: str | None = None) -> None:
        """Leave the marker of a shard whose file is in place, or will be with this `checksum`. `made_from` is `key(...)` of what it was
        made from."""
        shard = Shard(name, rows, checksum or storage.checksum(self.path(name)), dict(counts or {}))
        storage.write_json(storage.join(self.folder, MARKERS, name + ".json"), {"key": made_from, **asdict(shard)})

    def finished(self, name: str, made_from: str) -> Shard | None:
        """The shard, where it is in place, whole, and made from the same things; otherwise None."""
        shard = self._marked(name, made_from)
        if shard is None or not storage.exists(self.path(name)) or storage.checksum(self.path(name)) != shard.checksum:
            return None
        return shard

    def _marked(self, name: str, made_from: str) -> Shard | None:
        """What the marker of a shard made from the same things says; None where there is none that can be read."""
        marker = storage.join(self.folder, MARKERS, name + ".json")
        if not storage.exists(marker):
            return None
        try:
            value = storage.read_json(marker)
            return Shard(**value) if value.pop("key") == made_from else None
        except (StorageError, AttributeError, KeyError, TypeError):
            return None

    def marked(self) -> set[str]:
        """The shards that have left a marker: what a progress bar counts, wherever the workers are."""
        return {name.removesuffix(".json") for name in storage.names_in(storage.join(self.folder, MARKERS)) if not name.startswith(".")}

    def rows_of(self, name: str) -> int:
        """The rows of a shard that has left a marker."""
        return int(storage.read_json(storage.join(self.folder, MARKERS, name + ".json"))["rows"])

    def complete(self, made_from: Mapping[str, str]) -> bool:
        """Whether the manifest is there, and every shard {name: key}."""
        return storage.exists(self.path(MANIFEST)) and all(self.finished(name, made) is not None for name, made in made_from.items())

    def pending(self, made_from: Mapping[str, str]) -> list[str]:
        """Of the shards {name: key}, those still to be made. If there are any, takes back the manifest and their markers."""
        names = [name for name, made in made_from.items() if self.finished(name, made) is None]
        if names:
            storage.write_json(storage.join(self.folder, STARTED), {"stage": self.stage, "config": self.config})
            storage.remove(storage.join(self.folder, MANIFEST))
            for name in names:
                storage.remove(storage.join(self.folder, MARKERS, name + ".json"))
        return names

    def finish(self, made_from: Mapping[str, str], details: Callable[[Sequence[Shard]], Mapping[str, Any]] | None = None) -> Manifest:
        """Write the manifest of the shards {name: key}, all of which must be finished, and clear away what it does not name."""
        shards = []
        for name, made in made_from.items():
            shard = self._marked(name, made)
            if shard is None:
                raise StorageError(f"{self.path(name)}: this shard was not written; run the same command again to go on")
            shards.append(shard)
        manifest = Manifest(self.stage, self.config, self.inputs, shards, dict(details(shards)) if details else {})
        storage.write_json(storage.join(self.folder, MANIFEST), asdict(manifest))
        self._sweep({shard.name for shard in shards})
        return manifest

    def _sweep(self, kept: Set[str]) -> None:
        """Remove what killed workers left half-written, and the shards and markers of an earlier partition."""
        storage.remove(storage.join(self.folder, STARTED))
        for folder, suffix in ((self.folder, ""), (storage.join(self.folder, MARKERS), ".json")):
            for name in storage.names_in(folder):
                stale = name.startswith("part-") and name.removesuffix(suffix) not in kept
                if stale or (name.startswith(".") and name.endswith(storage.TEMPORARY)):
                    storage.remove(storage.join(folder, name))
