"""Stages that can be stopped and resumed.

A stage writes a directory of shards and a `manifest.json`. Each shard is written under a temporary name and renamed, then leaves a
marker under `_shards/` with its rows, its checksum and the key of its inputs. A rerun keeps the shards whose marker still has the same
key and checksum, and writes the others again. The manifest is written last, so a stage with a manifest is complete.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from miner import storage
from miner.errors import StorageError

MANIFEST = "manifest.json"
STARTED = "manifest.started.json"
MARKERS = "_shards"
SHARD_NAME = re.compile(r"part-\d{5,}-of-\d{5,}(\.\d+)?\.[a-z]+")  # with the number of an increment


def shard_name(index: int, shards: int, suffix: str = ".parquet") -> str:
    return f"part-{index:05d}-of-{shards:05d}{suffix}"


def shard_index(name: str) -> int:
    """Parse the index of a shard, from 0, from its name."""
    return int(name.split("-")[1])


@dataclass(frozen=True)
class Shard:
    """A finished shard, as the manifest lists it."""

    name: str
    rows: int
    checksum: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The description of a complete stage."""

    stage: str
    config: Mapping[str, Any]
    inputs: Mapping[str, str]  # name of an input -> its checksum (of its manifest if it is a stage)
    shards: Sequence[Shard]
    details: Mapping[str, Any] = field(default_factory=dict)  # counts, timings, fingerprint, recall

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.shards)


def read_manifest(folder: str, stage: str | None = None) -> Manifest:
    """Read the manifest of a complete stage.

    Raises StorageError if there is none, or if it is not of the stage `stage`.
    """
    uri = storage.join(folder, MANIFEST)
    if not storage.exists(uri):
        raise StorageError(f"{folder}: no {MANIFEST}, so {stage or 'this stage'} is not finished; run its command again")
    value = storage.read_json(uri)
    try:
        manifest = Manifest(**{**value, "shards": [Shard(**shard) for shard in value["shards"]]})
    except (TypeError, KeyError) as error:
        raise StorageError(f"{uri}: not a manifest of this program ({error}); delete the directory and run its stage again") from error
    if stage is not None and manifest.stage != stage:
        raise StorageError(f"{folder}: contains {manifest.stage}, but {stage} was expected")
    return manifest


class Stage:
    """A directory of shards that is being written. The driver calls `reopen` and `finish`, workers call `mark_done`.

    `config` must not change between runs in one directory. `inputs` is what the shards are derived from; `key(shard_inputs)` narrows
    it to the inputs of one shard, so that a change to one input does not invalidate every shard.
    """

    def __init__(self, folder: str, stage: str, config: Mapping[str, Any], inputs: Mapping[str, str]) -> None:
        self.folder = str(folder)
        self.stage = stage
        self.config = dict(config)
        self.inputs = dict(inputs)

    def start(self) -> None:
        """Claim the directory. Raises StorageError if it contains another stage or the same stage with another configuration."""
        for name in (MANIFEST, STARTED):
            uri = self.path(name)
            if storage.exists(uri):
                self._check_config(storage.read_json(uri), uri)
        if not storage.exists(self.path(MANIFEST)):
            self._check_files()
            storage.make_folder(self.folder)
            self._write_started()

    def _check_files(self) -> None:
        """Raise StorageError if the directory holds files, but nothing that says that they are of a stage."""
        if storage.exists(self.path(STARTED)) or storage.exists(self.path(MARKERS)):
            return
        foreign = [name for name in storage.sizes(self.folder) if not name.startswith((".", "_"))] if storage.exists(self.folder) else []
        if foreign:
            raise StorageError(f"{self.folder}: contains {foreign[0]}, which is not of this program; choose another --output")

    def _write_started(self) -> None:
        storage.write_json(self.path(STARTED), {"stage": self.stage, "config": self.config})

    def _check_config(self, manifest: Any, uri: str) -> None:
        if not isinstance(manifest, dict):
            raise StorageError(f"{uri}: not a manifest of this program; delete {self.folder} and run again")
        if manifest.get("stage") != self.stage:
            raise StorageError(f"{uri}: contains {manifest.get('stage')}, not {self.stage}; choose another --output")
        previous, current = manifest.get("config", {}), json.loads(json.dumps(self.config))
        changed = [name for name in sorted({*previous, *current}) if previous.get(name) != current.get(name)]
        if changed:
            name = changed[0]
            values = f"{name} {previous.get(name)!r}, now {current.get(name)!r}"
            raise StorageError(f"{uri}: made with {values}; choose another --output, or delete {self.folder}")

    def path(self, name: str) -> str:
        return storage.join(self.folder, name)

    def _marker(self, name: str) -> str:
        return storage.join(self.folder, MARKERS, name + ".json")

    def key(self, shard_inputs: Mapping[str, str] | None = None) -> str:
        """Return the key of a shard's inputs: it changes when the stage, its configuration or the inputs change."""
        return storage.key([self.stage, self.config, dict(self.inputs if shard_inputs is None else shard_inputs)])

    def mark_done(self, name: str, rows: int, key: str, counts: Mapping[str, int] | None = None, checksum: str | None = None) -> None:
        """Write the marker of a shard with the given input key. The file must exist unless its `checksum` is given."""
        shard = Shard(name, rows, checksum or storage.checksum(self.path(name)), dict(counts or {}))
        storage.write_json(self._marker(name), {"key": key, **asdict(shard)})

    def find_shard(self, name: str, key: str) -> Shard | None:
        """Return the shard if its file exists, is intact, and was written from inputs with this key; otherwise None."""
        shard = self._read_marker(name, key)
        if shard is None or not storage.exists(self.path(name)) or storage.checksum(self.path(name)) != shard.checksum:
            return None
        return shard

    def _read_marker(self, name: str, key: str) -> Shard | None:
        """Return the shard that a marker describes; None if it is missing, unreadable or has another key."""
        marker = self._marker(name)
        if not storage.exists(marker):
            return None
        try:
            value = storage.read_json(marker)
            return Shard(**value) if value.pop("key") == key else None
        except (StorageError, AttributeError, KeyError, TypeError):
            return None

    def marked_shards(self) -> set[str]:
        """Return the names of the shards that have a marker, for progress reports."""
        return {name.removesuffix(".json") for name in storage.names_in(self.path(MARKERS)) if not name.startswith(".")}

    def read_rows(self, name: str) -> int:
        """Read the number of rows of a shard from its marker."""
        return int(storage.read_json(self._marker(name))["rows"])

    def is_complete(self, shard_keys: Mapping[str, str]) -> bool:
        """Whether the manifest and every shard {name: key} are present and intact."""
        return storage.exists(self.path(MANIFEST)) and all(self.find_shard(name, key) is not None for name, key in shard_keys.items())

    def reopen(self, shard_keys: Mapping[str, str]) -> list[str]:
        """Return which of the shards {name: key} must be written. If there are any, remove the manifest and their markers."""
        pending = [name for name, key in shard_keys.items() if self.find_shard(name, key) is None]
        if pending:
            self._write_started()
            storage.remove(self.path(MANIFEST))
            for name in pending:
                storage.remove(self._marker(name))
        return pending

    def finish(self, shard_keys: Mapping[str, str], details: Callable[[Sequence[Shard]], Mapping[str, Any]] | None = None) -> Manifest:
        """Write the manifest of the shards {name: key} and remove files that it does not list. Raises StorageError if one is missing."""
        shards = []
        for name, key in shard_keys.items():
            shard = self._read_marker(name, key)
            if shard is None:
                raise StorageError(f"{self.path(name)}: this shard was not written; run the same command again to resume")
            shards.append(shard)
        manifest = Manifest(self.stage, self.config, self.inputs, shards, dict(details(shards)) if details else {})
        storage.write_json(self.path(MANIFEST), asdict(manifest))
        self._remove_stale_files(self.marked_shards() - {shard.name for shard in shards})
        return manifest

    def _remove_stale_files(self, stale_shards: Set[str]) -> None:
        """Remove the temporary files of killed workers, and the shards of an earlier partition, which their markers name."""
        storage.remove(self.path(STARTED))
        for name in stale_shards:
            if SHARD_NAME.fullmatch(name):
                storage.remove(self.path(name))
            storage.remove(self._marker(name))
        for folder in (self.folder, self.path(MARKERS)):
            for name in storage.names_in(folder):
                if name.startswith(".") and name.endswith(storage.TEMPORARY):
                    storage.remove(storage.join(folder, name))
