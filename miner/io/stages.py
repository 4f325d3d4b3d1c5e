"""Stages that can be stopped and resumed.

A stage writes a directory of shards and a `manifest.json`. Each shard is written under a temporary name and renamed, then leaves a
marker under `_shards/` with its rows, its checksum and the key of its inputs. A rerun keeps the shards whose marker still has the same
key and checksum, and writes the others again. The manifest is written last, so a stage with a manifest is complete.
"""

import json
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any, NotRequired

from typing_extensions import TypedDict

from miner.errors import DamagedError, SettingsError, StorageError
from miner.io import checksums, records, storage

# The names of stages that several packages read.
SENTENCES, EMBEDDINGS, TOKENS, INDEX = "sentences", "embeddings", "tokens", "index"
NEIGHBOURS, CANDIDATES, MINE = "neighbours", "candidates", "mine"
EMBED, RUN, TRAIN = "embed", "run", "train"  # commands whose outputs consist of several stages, or of none

# What shows which command writes a directory: a record in it, and the directories in it that have stages.
WRITERS_OF_RECORDS = {
    "train.json": TRAIN,
    "run.json": RUN,
    "export.json": "export",
    checksums.FILE: "fetch",
    checksums.STARTED: "fetch",
    "loop.json": "loop",
    "started.json": "loop",  # of a round
}
WRITERS_OF_FOLDERS = {
    **dict.fromkeys((SENTENCES, EMBEDDINGS, TOKENS), EMBED),
    **dict.fromkeys(("vectors", "trained", "parts", "tuning"), INDEX),
    **dict.fromkeys((NEIGHBOURS, CANDIDATES, "source", "target"), MINE),
    **dict.fromkeys(("corpora", "pairs", "indexes"), RUN),
}

MANIFEST = storage.MANIFEST
DELETE_FOLDER = "delete the directory and run the command that made it again"
STARTED = "manifest.started.json"
MARKERS = "_shards"
SKIPPED = "skipped"  # key of the details
MARKER_DEPTH = 5  # of PAIRS/PAIR/neighbours/forward/manifest.json, the deepest first file of a command
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


@dataclass(frozen=True, kw_only=True)
class ShardMarker(Shard):
    """A finished shard, as its marker describes it."""

    key: str  # of its inputs
    version: str | None = None  # of its file as its worker left it on an object store

    @property
    def shard(self) -> Shard:
        return Shard(self.name, self.rows, self.checksum, self.counts)


@dataclass(frozen=True)
class StartedStage:
    """A stage that has been started, and the settings that must not change."""

    stage: str
    config: Mapping[str, Any]


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

    @property
    def skipped(self) -> Mapping[str, str]:
        """The inputs or shards that were skipped, with the reasons."""
        skipped: Mapping[str, str] = self.details.get(SKIPPED, {})
        return skipped


class EmbeddingsConfig(TypedDict):
    """The config of embeddings, as far as other stages read it."""

    dim: int
    fingerprint: str
    lang: str
    side: NotRequired[str | None]


class TokensConfig(TypedDict):
    """The config of the tokens of sentences, as far as other stages read it."""

    fingerprint: str
    token_layer: int
    token_dim: int
    side: NotRequired[str | None]


class SkippedDetails(TypedDict, total=False):
    """The details of a stage that may skip inputs or shards."""

    skipped: dict[str, str]  # input or shard -> reason
    counts: dict[str, int]


class EmbeddingsDetails(SkippedDetails, total=False):
    """The details of embeddings."""

    encoder: str  # its folder or hub id at the time


class IndexDetails(TypedDict):
    """The details of an index."""

    embeddings: str
    factory: str
    effort_name: str | None
    parameters: dict[str, float]


class CorpusDetails(TypedDict):
    """A corpus of a search."""

    folder: str
    key: str


class EngineDetails(TypedDict):
    """The engine of a search, as far as it is always printed."""

    name: str
    reason: str


class CandidatesConfig(TypedDict, total=False):
    """The config of candidates; empty where they were not rescored."""

    k: int
    rescore: str
    rescore_candidates: int
    token_layer: int
    token_dim: int


class CandidatesDetails(TypedDict, total=False):
    """The details of candidates; empty where they were not mined by `miner mine`."""

    k: int
    engine: EngineDetails
    fingerprint: str
    source: CorpusDetails
    target: CorpusDetails


class MinedConfig(TypedDict, total=False):
    """The config of a bitext, as far as reports read it."""

    margin: str
    threshold: float | None


class MinedDetails(TypedDict):
    """The details of a bitext, as far as other commands read them."""

    pairs: int
    languages: dict[str, str]


# Schema of a part of the manifests of a stage.
SCHEMAS: dict[tuple[str, str], Any] = {
    (SENTENCES, "details"): SkippedDetails,
    (EMBEDDINGS, "config"): EmbeddingsConfig,
    (EMBEDDINGS, "details"): EmbeddingsDetails,
    (TOKENS, "config"): TokensConfig,
    (INDEX, "details"): IndexDetails,
    (CANDIDATES, "config"): CandidatesConfig,
    (CANDIDATES, "details"): CandidatesDetails,
    (MINE, "config"): MinedConfig,
    (MINE, "details"): MinedDetails,
}


def read_manifest(folder: str, stage: str | None = None) -> Manifest:
    """Read the manifest of a complete stage.

    Raises StorageError if there is none, or if it is not of the stage `stage`.
    """
    uri = storage.join(folder, MANIFEST)
    if not storage.exists(uri):
        remedy = "check the path, or run the command that writes it again"
        raise StorageError(f"{folder}: no finished stage{f' `{stage}`' if stage else ''} (no {MANIFEST}); {remedy}")
    manifest = records.read(uri, Manifest, DELETE_FOLDER)
    if stage is not None and manifest.stage != stage:
        raise SettingsError(f"{folder}: contains the stage `{manifest.stage}`, but `{stage}` was expected; check the path")
    for name, values in (("config", manifest.config), ("details", manifest.details)):
        schema = SCHEMAS.get((manifest.stage, name))
        if schema is not None:
            records.parse(dict(values), schema, f"{uri}: {name}", DELETE_FOLDER)
    for shard in manifest.shards:
        if not is_plain_name(shard.name):
            raise DamagedError(f"{uri}: {shard.name!r} is not the name of a shard; do not trust this directory")
    return manifest


def read_marker(uri: str) -> ShardMarker:
    """Read the marker of a shard. Raises StorageError if it is damaged."""
    return records.read(uri, ShardMarker)


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Write the manifest of a complete stage."""
    records.write(storage.join(folder, MANIFEST), asdict(manifest))


def is_plain_name(name: str) -> bool:
    """Whether a name is that of a file in a directory, not a path out of it."""
    return re.fullmatch(r"[\w-][\w.-]*", name) is not None


def recorded_config(folder: str) -> Mapping[str, Any] | None:
    """Return the settings of a stage that is complete or was started; None if there is none."""
    for name in (MANIFEST, STARTED):
        uri = storage.join(folder, name)
        if storage.exists(uri):
            return records.read(uri, StartedStage, DELETE_FOLDER).config
    return None


DetailsFunction = Callable[[Sequence[Shard]], Mapping[str, Any]]  # shards -> details of the manifest


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
        self._markers = records.RecordFolder(self.path(MARKERS), ShardMarker)

    def start(self) -> list[str]:
        """Claim the directory, and return the names in it.

        Raises SettingsError if it contains another stage, the same stage with another configuration, or files, but no markers of shards.
        """
        names = storage.names_in(self.folder)
        for name in {MANIFEST, STARTED}.intersection(names):
            self._check_config(records.read(self.path(name), StartedStage, DELETE_FOLDER), self.path(name))
        if not {MANIFEST, STARTED, MARKERS}.intersection(names):
            unmarked = [name for name in names if not name.startswith((".", "_"))]
            sizes = storage.sizes(self.folder) if unmarked else {}  # of files, not of directories
            foreign = [name for name in unmarked if name in sizes]
            if foreign:
                raise SettingsError(f"{self.folder}: contains {foreign[0]}, which miner did not write; choose another --output")
        if not {MANIFEST, STARTED}.intersection(names):
            self._write_started()
        return names

    def _write_started(self) -> None:
        records.write(self.path(STARTED), {"stage": self.stage, "config": self.config})

    def _check_config(self, started: "StartedStage", uri: str) -> None:
        if started.stage != self.stage:
            raise SettingsError(f"{uri}: contains the stage `{started.stage}`, not `{self.stage}`; choose another --output")
        previous, current = started.config, json.loads(json.dumps(self.config))
        changed = [name for name in sorted({*previous, *current}) if previous.get(name) != current.get(name)]
        if changed:
            name = changed[0]
            label = "encoder" if name == "fingerprint" else name
            values = f"{label} {previous.get(name)!r}, now {current.get(name)!r}"
            stale = posixpath.dirname(self.folder) if name == "lang" else self.folder  # sentences and embeddings have a language
            raise SettingsError(f"{uri}: made with {values}; choose another --output, or delete {stale}")

    def path(self, name: str) -> str:
        return storage.join(self.folder, name)

    def _marker(self, name: str) -> str:
        return storage.join(self.folder, MARKERS, name + ".json")

    def key(self, shard_inputs: Mapping[str, str] | None = None) -> str:
        """Return the key of a shard's inputs: it changes when the stage, its configuration or the inputs change."""
        return storage.key([self.stage, self.config, dict(self.inputs if shard_inputs is None else shard_inputs)])

    def mark_done(self, name: str, rows: int, key: str, counts: Mapping[str, int] | None = None, checksum: str | None = None) -> int:
        """Write the marker of a shard with the given input key, and return the size of its file, 0 if its `checksum` is given.

        The file must exist unless its checksum is given.
        """
        state = storage.describe(self.path(name)) if checksum is None else storage.FileState(checksum)
        shard = Shard(name, rows, state.checksum, dict(counts or {}))
        records.write(self._marker(name), asdict(ShardMarker(**asdict(shard), key=key, version=state.version)))
        return state.size

    def find_shards(self, shard_keys: Mapping[str, str]) -> dict[str, Shard]:
        """Return those of the shards {name: key} whose files are intact, and were written from inputs with these keys.

        On object stores, a file that a listing shows as its worker left it is intact; every other file is read for its checksum.
        """
        valid = self._read_markers()
        markers = {name: valid[name] for name, key in shard_keys.items() if name in valid and valid[name].key == key}
        versions = storage.versions(self.folder) if markers else {}
        return {
            name: marker.shard
            for name, marker in markers.items()
            if name in versions and (marker.version == versions[name] or storage.checksum(self.path(name)) == marker.checksum)
        }

    def _read_markers(self) -> dict[str, ShardMarker]:
        """Return the markers that are valid, by the name of the shard."""
        return {file.removesuffix(".json"): marker for file, marker in self._markers.read().items()}

    def has_marker(self, name: str, key: str) -> bool:
        """Whether a shard was written from inputs with this key since `reopen`, which removes the markers of missing shards."""
        try:
            return read_marker(self._marker(name)).key == key
        except StorageError:
            return False

    def marked_shards(self) -> set[str]:
        """Return the names of the shards that have a marker, for progress reports."""
        return {file.removesuffix(".json") for file in self._markers.names()}

    def read_rows(self) -> dict[str, int]:
        """Return the number of rows of the shards that have a marker, for progress reports."""
        return {name: marker.rows for name, marker in self._read_markers().items()}

    def is_complete(self, shard_keys: Mapping[str, str]) -> bool:
        """Whether the manifest and every shard {name: key} are present and intact."""
        return storage.exists(self.path(MANIFEST)) and self.find_shards(shard_keys).keys() == shard_keys.keys()

    def reopen(self, shard_keys: Mapping[str, str]) -> list[str]:
        """Return which of the shards {name: key} must be written. If there are any, remove the manifest and their markers."""
        intact = self.find_shards(shard_keys)
        pending = [name for name in shard_keys if name not in intact]
        if pending:
            if storage.exists(self.path(MANIFEST)):
                self._write_started()
                storage.remove(self.path(MANIFEST))
            self._remove_markers(self.marked_shards().intersection(pending))
        return pending

    def _remove_markers(self, names: Set[str]) -> None:
        storage.remove_files([self._marker(name) for name in sorted(names)])

    def finish(self, shard_keys: Mapping[str, str], details: DetailsFunction | None = None) -> Manifest:
        """Write the manifest of the shards {name: key} and remove files that it does not list. Raises StorageError if one is missing."""
        manifest = self.draft_manifest(shard_keys, details)
        write_manifest(self.folder, manifest)
        self._remove_stale_files(self.marked_shards() - {shard.name for shard in manifest.shards})
        return manifest

    def draft_manifest(self, shard_keys: Mapping[str, str], details: DetailsFunction | None = None) -> Manifest:
        """Return the manifest of the shards {name: key}, which is not written. Raises StorageError if a shard is missing."""
        shards = self.written_shards(shard_keys)
        return Manifest(self.stage, self.config, self.inputs, shards, dict(details(shards)) if details else {})

    def written_shards(self, shard_keys: Mapping[str, str]) -> list[Shard]:
        """Return the shards {name: key} by their markers. Raises StorageError if one is missing."""
        markers, shards = self._read_markers(), []
        for name, key in shard_keys.items():
            if name not in markers or markers[name].key != key:
                raise StorageError(f"{self.path(name)}: this shard was not written; run the same command again to resume")
            shards.append(markers[name].shard)
        return shards

    def _remove_stale_files(self, stale_shards: Set[str]) -> None:
        """Remove the temporary files of killed workers, and the shards of an earlier partition, which their markers name."""
        storage.remove_files([self.path(STARTED)])
        storage.remove_files([self.path(name) for name in sorted(stale_shards) if SHARD_NAME.fullmatch(name)])
        self._remove_markers(stale_shards)
        for folder in (self.folder, self.path(MARKERS)):
            storage.remove_temporary(folder)


def check_output(folder: str, command: str | None = None) -> None:
    """Raise SettingsError if a directory holds files, but none that says that it is an output of this program, or of `command`."""
    files = _files_to_depth(folder)
    foreign = [name for name in files if not name.startswith((".", "_"))]
    if command is None:
        is_ours = any(_is_marker(storage.join(folder, name)) for name in files)
    else:
        is_ours = _check_writer(folder, files, command) is not None
    if foreign and not is_ours and not any(name.startswith(storage.LOCK_PREFIX) for name in files):
        raise SettingsError(f"{folder}: contains {foreign[0]}, which miner did not write; choose another --output, new or empty")


def check_writer(folder: str, command: str) -> None:
    """Raise SettingsError if a file says that another command than `command` wrote a directory."""
    _check_writer(folder, _files_to_depth(folder), command)


def writer_of(folder: str) -> str | None:
    """Return the command that wrote a directory, by a record in it, its stage or the stages below; None if no file says so."""
    files = _files_to_depth(folder)
    return _writer_by_record(folder, files) or _writer_by_stage(_stage_in(folder), files)


def _check_writer(folder: str, files: Sequence[str], command: str) -> str | None:
    """Return the writer of a directory with these files, if it is not another one than `command`."""
    stage = _stage_in(folder)
    writer = _writer_by_record(folder, files) or _writer_by_stage(stage, files)
    if writer not in (None, command):
        raise SettingsError(f"{folder}: an output of `miner {writer}`; choose another --output, new or empty")
    if stage not in (None, INDEX, MINE):
        raise SettingsError(f"{folder}: contains the stage `{stage}`, a part of an output; choose another --output, new or empty")
    return writer


def _writer_by_record(folder: str, files: Sequence[str]) -> str | None:
    names = sorted(WRITERS_OF_RECORDS.keys() & set(files))
    return next((WRITERS_OF_RECORDS[name] for name in names if records.has_checksum(storage.join(folder, name))), None)


def _writer_by_stage(stage: str | None, files: Sequence[str]) -> str | None:
    """Return which command has a stage in its output, or where that is None, has these files below."""
    if stage is not None:
        return stage if stage in (INDEX, MINE) else None
    tops = {name.split("/")[0] for name in map(stage_folder, files) if name is not None}
    return next((WRITERS_OF_FOLDERS[top] for top in sorted(tops & WRITERS_OF_FOLDERS.keys())), None)


def _files_to_depth(folder: str) -> list[str]:
    return storage.files_below(folder, MARKER_DEPTH) if storage.is_folder(folder) else []


def _stage_in(folder: str) -> str | None:
    """Return the stage that a directory has itself, complete or started; None if there is none."""
    started = (records.find(storage.join(folder, name), StartedStage, DELETE_FOLDER) for name in (MANIFEST, STARTED))
    return next((record.stage for record in started if record is not None), None)


def _is_marker(uri: str) -> bool:
    """Whether a file says that its directory is an output: a manifest, the marker of a shard, or a record other than those of encoders."""
    if stage_folder(uri) is not None:
        return True
    if posixpath.basename(uri) in (checksums.FILE, checksums.STARTED):
        return False
    try:
        return uri.endswith(".json") and records.has_checksum(uri)
    except StorageError:
        return False  # a large file, a device or a pipe


def stage_folder(name: str) -> str | None:
    """Return the directory of the stage that a manifest, a started manifest or a shard marker belongs to; None for other files."""
    folder, file = posixpath.split(name)
    if posixpath.basename(folder) == MARKERS:
        return posixpath.dirname(folder)
    return folder if file in (MANIFEST, STARTED) else None
