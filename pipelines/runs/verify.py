"""Verify an output directory: every manifest, every file that it lists, and the inputs of each stage.

Every fault comes with its remedy. Usually that is to run the same command again, which rewrites what is damaged.
"""

import logging
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from miner.errors import DataError, MinerError, StorageError
from miner.io import checksums, lock, records, stages, storage, table_files
from miner.io.stages import (
    CANDIDATES,
    EMBEDDINGS,
    INDEX,
    MANIFEST,
    MARKERS,
    MINE,
    NEIGHBOURS,
    SENTENCES,
    TOKENS,
    Manifest,
    Shard,
    stage_folder,
)
from miner.progress import Progress, report_progress
from pipelines.corpus.increments import IncrementsRecord
from pipelines.corpus.ingest import INCREMENTS
from pipelines.corpus.input_changes import find_changes
from pipelines.mining import candidates
from pipelines.search import build_index
from pipelines.search.engine import CHOICE_FILE, RecordedEngine
from pipelines.search.exact import BACKWARD, FORWARD

RUN_AGAIN = "run the same command again"
DELETE_AND_RUN_AGAIN = "delete {} and run the same command again"

SMALL_RECORDS: Mapping[str, Any] = {CHOICE_FILE: RecordedEngine, INCREMENTS: IncrementsRecord}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OutputFault:
    """A damaged file or stage."""

    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; {self.remedy}"


@dataclass(frozen=True)
class VerifyResult:
    """What `miner verify` checked, and the faults it found."""

    folder: str
    stages: int
    files: int
    records: int  # small files with a checksum, such as run.json, and directories that list the checksums of their files
    faults: tuple[OutputFault, ...]


def run(folder: str) -> VerifyResult:
    """Verify everything in a directory.

    Raises StorageError while a run is active there, and DataError if the directory has no output.
    """
    if not storage.is_folder(folder):
        raise DataError(f"{folder}: no such folder")
    owner = lock.read_owner(folder)
    if owner is not None and owner.is_alive:
        raise StorageError(f"{folder}: {owner.describe()} is active there; verify when it is done")
    return check(folder)


def check(folder: str) -> VerifyResult:
    """Verify a directory without regard to its lock, which the caller may hold."""
    files = storage.files_below(folder)
    stage_folders = sorted({path for name in files if (path := stage_folder(name)) is not None})
    other_files = [name for name in files if stage_folder(name) is None and _is_record(storage.join(folder, name))]
    if not stage_folders and not other_files:
        raise DataError(f"{folder}: holds no output of `miner`; give the --output of a command")
    stage_files = {storage.join(folder, path).rstrip("/"): _names_below(path, files) for path in stage_folders}
    manifests = {path: _read_manifest(path, names) for path, names in stage_files.items()}
    shard_counts = {path: len(manifest.shards) if isinstance(manifest, Manifest) else 0 for path, manifest in manifests.items()}
    faults: list[OutputFault] = []
    num_done, num_files = 0, sum(shard_counts.values())
    for path, manifest in manifests.items():
        faults += [manifest] if isinstance(manifest, OutputFault) else _stage_faults(path, stage_files[path], manifest)
        num_done += shard_counts[path]
        report_progress(logger, Progress("verify", num_done, num_files, "file"))
    for name in other_files:
        faults += _record_faults(storage.join(folder, name))
    return VerifyResult(folder, len(manifests), num_files, len(other_files), tuple(faults))


def _is_record(uri: str) -> bool:
    """Whether this is a JSON file that carries a checksum, or one that should be."""
    if not uri.endswith(".json"):
        return False
    try:
        return posixpath.basename(uri) in SMALL_RECORDS or records.has_checksum(uri)
    except StorageError:
        return False  # not of this program


def _record_faults(uri: str) -> Iterator[OutputFault]:
    """Check a small file that lists no shards against its checksum and schema, and the files whose checksums it lists."""
    folder, name = posixpath.split(uri)
    try:
        records.read(uri, SMALL_RECORDS.get(name, dict[str, Any]))
        if name in (checksums.FILE, checksums.STARTED):
            checksums.check(Path(folder), DELETE_AND_RUN_AGAIN.format(folder))
    except StorageError as error:
        yield _fault_of(uri, error)


def _fault_of(uri: str, error: StorageError) -> OutputFault:
    """Split an error message, `path: problem; remedy`."""
    problem, _, remedy = str(error).removeprefix(f"{uri}: ").rpartition("; ")
    return OutputFault(uri, problem, remedy)


def _names_below(folder: str, files: Sequence[str]) -> set[str]:
    """Return the files in `folder` by their names relative to it."""
    prefix = f"{folder}/" if folder else ""
    return {name.removeprefix(prefix) for name in files if name.startswith(prefix)}


def _read_manifest(folder: str, files: set[str]) -> Manifest | OutputFault:
    """Read the manifest of a stage with these files, whose names are relative to `folder`."""
    uri = storage.join(folder, MANIFEST)
    if MANIFEST not in files:
        num_shards = sum(name.startswith(f"{MARKERS}/") for name in files)
        return OutputFault(uri, f"missing, so this stage is not finished; it has {num_shards} shards", RUN_AGAIN)
    try:
        return stages.read_manifest(folder)
    except StorageError as error:
        return _fault_of(uri, error)


def _stage_faults(folder: str, files: set[str], manifest: Manifest) -> Iterator[OutputFault]:
    """Check the shards of a stage, its other files and its inputs; nothing else where its vectors are of another encoder."""
    if manifest.stage in (EMBEDDINGS, TOKENS) and (fault := _encoder_fault(folder, files, manifest)) is not None:
        yield fault
        return
    for shard in manifest.shards:
        yield from _shard_faults(folder, files, shard)
    for name in sorted(files - {shard.name for shard in manifest.shards}):
        if name.startswith("part-") and "/" not in name:
            yield OutputFault(storage.join(folder, name), f"not in {MANIFEST}", f"delete it, or {RUN_AGAIN}")
    for reason in manifest.skipped.values():
        path, _, message = reason.partition(": ")
        problem, _, remedy = message.partition("; ")
        yield OutputFault(path, f"skipped: {problem}", remedy or RUN_AGAIN)
    yield from _input_faults(folder, manifest)


def _encoder_fault(folder: str, files: set[str], manifest: Manifest) -> OutputFault | None:
    """Return a fault if the manifest of embeddings or tokens names another encoder than the vectors."""
    fingerprint = manifest.config.get("fingerprint")
    for name in sorted(name for name in files if name.startswith("part-")):
        try:
            with table_files.open_parquet(storage.join(folder, name)) as file:
                shard_fingerprint = ((file.schema_arrow.metadata or {}).get(b"fingerprint") or b"").decode()
        except StorageError:
            continue  # reported with the shard
        if shard_fingerprint != fingerprint:
            problem = f"of the encoder {fingerprint}, but the vectors of {name} are of {shard_fingerprint}"
            return OutputFault(storage.join(folder, MANIFEST), problem, DELETE_AND_RUN_AGAIN.format(folder))
    return None


def _shard_faults(folder: str, files: set[str], shard: Shard) -> Iterator[OutputFault]:
    """Check a shard's file, and the marker by which the next run keeps it."""
    uri, marker = storage.join(folder, shard.name), f"{MARKERS}/{shard.name}.json"
    if shard.name not in files:
        yield OutputFault(uri, "missing", RUN_AGAIN)
        return
    checksum = storage.checksum(uri)
    if checksum != shard.checksum:
        yield OutputFault(uri, _describe_damage(uri, shard, checksum), RUN_AGAIN)
    if marker in files:
        try:
            is_current = stages.read_marker(storage.join(folder, marker)).shard == shard
        except StorageError:
            is_current = False
        if not is_current:
            yield OutputFault(storage.join(folder, marker), "differs from the manifest", RUN_AGAIN)


def _describe_damage(uri: str, shard: Shard, checksum: str) -> str:
    if uri.endswith(".parquet"):
        try:
            with table_files.open_parquet(uri) as file:
                if file.metadata.num_rows != shard.rows:
                    return f"{file.metadata.num_rows} rows, but the manifest says {shard.rows}"
        except StorageError:
            return "not a complete Parquet file: truncated, or changed since it was written"
    return f"changed since it was written: its checksum is {checksum}, but the manifest says {shard.checksum}"


def _input_faults(folder: str, manifest: Manifest) -> Iterator[OutputFault]:
    """Check that the inputs of a stage are still what it was derived from."""
    parent = posixpath.dirname(folder) if "://" in folder else posixpath.normpath(storage.join(folder, ".."))
    try:
        if manifest.stage == SENTENCES:
            for uri in find_changes(manifest).edited:
                yield OutputFault(uri, f"changed since it was read into {folder}", RUN_AGAIN)
        elif manifest.stage in (EMBEDDINGS, TOKENS):
            yield from _compare_inputs(folder, manifest.inputs, _checksums(storage.join(parent, SENTENCES)), SENTENCES)
        elif manifest.stage == CANDIDATES and manifest.details:
            neighbours = storage.join(parent, NEIGHBOURS)
            checksums: dict[str, str] = {}
            for direction in (FORWARD, BACKWARD):
                checksums |= _checksums(storage.join(neighbours, direction), f"{direction}/")
            yield from _compare_inputs(folder, manifest.inputs, checksums, NEIGHBOURS)
            candidates.open_search_result(parent)  # raises DataError if a side has changed
        elif manifest.stage == INDEX:
            build_index.indexed_corpus(folder)
        elif manifest.stage == MINE and storage.exists(storage.join(folder, CANDIDATES, MANIFEST)):
            sides = stages.read_manifest(storage.join(folder, CANDIDATES)).details
            keys = {side: sides[side]["key"] for side in ("source", "target")}
            yield from _compare_inputs(folder, manifest.inputs, keys, CANDIDATES)
    except MinerError as error:
        problem, _, remedy = str(error).rpartition("; ")
        yield OutputFault(storage.join(folder, MANIFEST), f"its inputs have changed or are missing: {problem}", remedy)


def _checksums(folder: str, prefix: str = "") -> dict[str, str]:
    """Return the checksum of each shard of a stage, by its name with the prefix."""
    return {f"{prefix}{shard.name}": shard.checksum for shard in stages.read_manifest(folder).shards}


def _compare_inputs(folder: str, recorded: Mapping[str, str], current: Mapping[str, str], name: str) -> Iterator[OutputFault]:
    """Yield a fault if the checksums of the inputs have changed since the stage was written."""
    changed = sorted(part for part in {*recorded, *current} if recorded.get(part) != current.get(part))
    if changed:
        problem = f"derived from other {name} than the current ones ({changed[0]}{' and more' if len(changed) > 1 else ''})"
        yield OutputFault(storage.join(folder, MANIFEST), problem, RUN_AGAIN)
