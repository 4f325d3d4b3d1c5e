"""Whether what lies in a folder is what was written there: every manifest, every file it names, and what each was made from.

A fault comes with the remedy that mends it. Most often that is to run the same command again: it makes anew what is not whole.
"""

import logging
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from miner import lock, stages, storage
from miner.corpus import EMBEDDINGS, SENTENCES
from miner.errors import DataError, MinerError, StorageError
from miner.stages import MANIFEST, MARKERS, STARTED, Manifest, Shard
from pipelines.beam.retry import set_aside_in
from pipelines.mining import candidates, select_pairs
from pipelines.search import build_index
from pipelines.search.engine import NEIGHBOURS
from pipelines.search.exact import BACKWARD, FORWARD

AGAIN = "run the same command again"
ANEW = "delete {} and run the same command again"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DamageReport:
    """What is wrong, where, and what mends it."""

    place: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}; {self.remedy}"


@dataclass(frozen=True)
class VerifyResult:
    """What `miner verify` looked at, and what it found."""

    folder: str
    stages: int
    files: int
    faults: tuple[DamageReport, ...]

    def figures(self) -> dict[str, Any]:
        """The same for a program."""
        return asdict(self)


def run(folder: str) -> VerifyResult:
    """Look at all that was made in `folder`.

    StorageError while a run works there, DataError where nothing was ever made there.
    """
    if not storage.is_folder(folder):
        raise DataError(f"{folder}: no such folder")
    holder = lock.holder(folder)
    if holder is not None and holder.alive:
        raise StorageError(f"{folder}: {holder.told()} is at work there; verify when it is done")
    return check(folder)


def check(folder: str) -> VerifyResult:
    """The same of a folder that this run may hold itself."""
    files = storage.files_below(folder)
    places = sorted({place for name in files if (place := stage_of(name)) is not None})
    if not places:
        raise DataError(f"{folder}: holds nothing that `miner` made; give the --output of a command")
    found = [_Stage(storage.join(folder, place).rstrip("/"), _below(place, files)) for place in places]
    faults: list[DamageReport] = []
    done, total = 0, sum(len(stage.shards) for stage in found)
    for stage in found:
        faults += stage.faults()
        done += len(stage.shards)
        progress = {"stage": "verify", "done": done, "total": total, "unit": "file"}
        logger.info("verified %d of %d files", done, total, extra={"progress": progress})
    return VerifyResult(folder, len(found), total, tuple(faults))


def stage_of(name: str) -> str | None:
    """The folder of a stage that a file shows to be one: by its manifest, the start of one, or the marker of a shard."""
    place, file = posixpath.split(name)
    if posixpath.basename(place) == MARKERS:
        return posixpath.dirname(place)
    return place if file in (MANIFEST, STARTED) else None


def _below(place: str, files: Sequence[str]) -> set[str]:
    """Those of the files that are in `place`, as names seen from there."""
    prefix = f"{place}/" if place else ""
    return {name.removeprefix(prefix) for name in files if name.startswith(prefix)}


class _Stage:
    """One folder with a manifest, or with the start of one."""

    def __init__(self, folder: str, files: set[str]) -> None:
        self.folder = folder
        self.files = files  # relative to the folder
        self.manifest: Manifest | None = None
        self.unreadable: DamageReport | None = None
        if MANIFEST in files:
            try:
                self.manifest = stages.read_manifest(folder)
            except StorageError as error:
                what, _, remedy = str(error).removeprefix(f"{self.path(MANIFEST)}: ").partition("; ")
                self.unreadable = DamageReport(self.path(MANIFEST), what, remedy)

    @property
    def shards(self) -> list[Shard]:
        return list(self.manifest.shards) if self.manifest else []

    def path(self, *names: str) -> str:
        return storage.join(self.folder, *names)

    def faults(self) -> Iterator[DamageReport]:
        if self.unreadable is not None:
            yield self.unreadable
        elif self.manifest is None:
            made = sum(name.startswith(f"{MARKERS}/") for name in self.files)
            yield DamageReport(self.path(MANIFEST), f"not there, so this is not finished; {made} shards are made", AGAIN)
        elif (foreign := self.foreign(self.manifest)) is not None:
            yield foreign
        else:
            for shard in self.manifest.shards:
                yield from self.of_shard(shard)
            for name in sorted(self.files - {shard.name for shard in self.manifest.shards}):
                if name.startswith("part-") and "/" not in name:
                    yield DamageReport(self.path(name), f"not in {MANIFEST}", f"delete it, or {AGAIN}")
            for reason in set_aside_in(self.manifest).values():
                place, _, rest = reason.partition(": ")
                what, _, remedy = rest.partition("; ")
                yield DamageReport(place, f"set aside: {what}", remedy or AGAIN)
            yield from _lineage(self.folder, self.manifest)

    def foreign(self, manifest: Manifest) -> DamageReport | None:
        """A manifest of embeddings that tells another encoder than the vectors do."""
        told = manifest.config.get("fingerprint")
        for name in sorted(self.files) if manifest.stage == EMBEDDINGS else ():
            if name.startswith("part-"):
                try:
                    with storage.open_parquet(self.path(name)) as file:
                        made = ((file.schema_arrow.metadata or {}).get(b"fingerprint") or b"").decode()
                except StorageError:
                    continue  # told with the shard
                if made != told:
                    what = f"of the encoder {told}, and the vectors of {name} are of {made}"
                    return DamageReport(self.path(MANIFEST), what, ANEW.format(self.folder))
        return None

    def of_shard(self, shard: Shard) -> Iterator[DamageReport]:
        """What is wrong with a file, or with the marker that lets the next run keep it."""
        uri, marker = self.path(shard.name), f"{MARKERS}/{shard.name}.json"
        if shard.name not in self.files:
            yield DamageReport(uri, "missing", AGAIN)
            return
        found = storage.checksum(uri)
        if found != shard.checksum:
            yield DamageReport(uri, self.damage(uri, shard, found), AGAIN)
        if marker in self.files and not _says(self.path(marker), shard):
            yield DamageReport(self.path(marker), "does not tell of its shard what the manifest does", AGAIN)

    def damage(self, uri: str, shard: Shard, found: str) -> str:
        if uri.endswith(".parquet"):
            try:
                with storage.open_parquet(uri) as file:
                    if file.metadata.num_rows != shard.rows:
                        return f"{file.metadata.num_rows} rows, where the manifest says {shard.rows}"
            except StorageError:
                return "not a whole Parquet file: cut off, or changed since it was written"
        return f"changed since it was written: its checksum is {found}, the manifest says {shard.checksum}"


def _says(uri: str, shard: Shard) -> bool:
    try:
        told = storage.read_json(uri)
    except StorageError:
        return False
    return isinstance(told, dict) and {**told, "key": None} == {**asdict(shard), "key": None}


def _lineage(folder: str, manifest: Manifest) -> Iterator[DamageReport]:
    """Where a stage was made from something else than what is now there."""
    parent = posixpath.dirname(folder) if "://" in folder else posixpath.normpath(storage.join(folder, ".."))
    try:
        if manifest.stage == EMBEDDINGS:
            yield from _unlike(folder, manifest.inputs, _checksums(storage.join(parent, SENTENCES)), SENTENCES)
        elif manifest.stage == candidates.STAGE and manifest.details:
            beside = storage.join(parent, NEIGHBOURS)
            parts = (_checksums(storage.join(beside, direction), f"{direction}/") for direction in (FORWARD, BACKWARD))
            yield from _unlike(folder, manifest.inputs, {name: made for part in parts for name, made in part.items()}, NEIGHBOURS)
            candidates.searched(parent)  # DataError where a side is not what it was
        elif manifest.stage == build_index.STAGE:
            build_index.indexed_corpus(folder)
        elif manifest.stage == select_pairs.STAGE and storage.exists(storage.join(folder, candidates.STAGE, MANIFEST)):
            sides = stages.read_manifest(storage.join(folder, candidates.STAGE)).details
            keys = {side: sides[side]["key"] for side in ("source", "target")}
            yield from _unlike(folder, manifest.inputs, keys, candidates.STAGE)
    except MinerError as error:
        what, _, remedy = str(error).rpartition("; ")
        yield DamageReport(storage.join(folder, MANIFEST), f"made from what is no longer there: {what}", remedy)


def _checksums(folder: str, prefix: str = "") -> dict[str, str]:
    return {f"{prefix}{shard.name}": shard.checksum for shard in stages.read_manifest(folder).shards}


def _unlike(folder: str, made_from: Mapping[str, str], there: Mapping[str, str], name: str) -> Iterator[DamageReport]:
    """A fault where a stage was made from other things than those that are there."""
    different = sorted(part for part in {*made_from, *there} if made_from.get(part) != there.get(part))
    if different:
        what = f"made from other {name} than are beside it ({different[0]}{' and more' if len(different) > 1 else ''})"
        yield DamageReport(storage.join(folder, MANIFEST), what, AGAIN)
