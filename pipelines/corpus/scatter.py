"""Scatter: read each input, or some small ones, into one file of sentences grouped by id range, under `OUTPUT/.ranges`."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import pyarrow as pa
from typing_extensions import TypedDict

from miner.config.commands import TextSettings
from miner.errors import AllSkippedError, DataError
from miner.io import records, stages, storage
from miner.io.credentials import hide
from miner.io.stages import Stage
from miner.text import encodings, readers, sharding
from miner.text.clean_blocks import CleanedBlock
from miner.text.sharding import IngestSizes, InputFile
from miner.units import counted, list_counts
from pipelines.beam.runner import Pipeline, run_stage
from pipelines.beam.shards import call_with_retries
from pipelines.beam.tasks import ShardTask
from pipelines.corpus.increments import Signatures

UNREADABLE = "_unreadable"  # folder in that of the scattered files, with a record for each that lacks inputs


@dataclass(frozen=True)
class ScatteredFiles:
    """The scattered sentences of one increment, and the shards that they become."""

    folder: str
    num_ranges: int
    increment: int  # 0 for the inputs of the first run
    sizes: IngestSizes

    def shard_names(self) -> list[str]:
        """Return the names of the shards, one per id range."""
        suffix = f".{self.increment}.parquet" if self.increment else ".parquet"
        return [stages.shard_name(index, self.num_ranges, suffix) for index in range(self.num_ranges)]

    def gather(self, shard: str) -> pa.Table:
        """Return the unique sentences of the id range of a shard, sorted by id."""
        return sharding.gather_range(self.folder, self.checksums, stages.shard_index(shard), self.num_ranges, self.sizes)

    @cached_property
    def checksums(self) -> dict[str, str]:
        """The checksums of the scattered files, which a worker reads once, when all are written."""
        return {shard.name: shard.checksum for shard in stages.read_manifest(self.folder).shards}


@dataclass(frozen=True)
class ScatterResult:
    """What was read, and what could not be."""

    counts: Mapping[str, int]  # lines by outcome, see `readers.LINE_COUNTS`
    skipped: Mapping[str, str]  # input -> error


class ScatterTask(ShardTask):
    """Read one input, or some small ones, into one scattered file."""

    processed_counts = frozenset({"lines", "split", "kept"})
    work_unit = "byte"

    def __init__(
        self,
        scattered: ScatteredFiles,
        files: Sequence[InputFile],
        settings: TextSettings,
        split_lang: str | None = None,
        num_processes: int = 1,
    ) -> None:
        self.scattered = scattered
        self.settings = settings
        self.split_lang = split_lang  # language of lines that are split into sentences; None: each line is one
        self.num_processes = num_processes  # that clean a long input
        self.groups = sharding.group_inputs(files)  # scattered file -> its inputs

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        """Return the bytes of each group of inputs, without those that are not known."""
        sizes = dict.fromkeys(names, 0)
        for name in names:
            with contextlib.suppress(DataError):  # raised when the input is read
                sizes[name] = sum(file.size(unknown_bytes=0) for file in self.groups[name])
        return sizes

    def errors_by_input(self, errors: Mapping[str, str]) -> dict[str, str]:
        """Return the errors of scattered files by the inputs that could not be read, in the order of the inputs."""
        return {file.source: errors[name] for name, files in self.groups.items() if name in errors for file in files}

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        scattered, files = self.scattered, self.groups[name]
        unreadable: dict[str, str] = {}
        read_group = partial(self._read_whole, unreadable)
        read = self._read if len(files) == 1 or self.settings.strict else read_group
        counts = sharding.scatter_inputs(files, scattered.folder, scattered.num_ranges, read, scattered.sizes)
        if unreadable:
            records.write(storage.join(scattered.folder, UNREADABLE, name), {"inputs": unreadable})
        return counts["kept"], counts

    def _read(self, file: InputFile) -> Iterator[CleanedBlock]:
        return sharding.read_blocks(file, self.settings, self.scattered.sizes, self.split_lang, self.num_processes)

    def _read_whole(self, unreadable: dict[str, str], file: InputFile) -> list[CleanedBlock]:
        """Read a small input. If it cannot be read, add the reason to `unreadable`: the others of its group do not depend on it."""
        try:
            return call_with_retries(lambda: list(self._read(file)), self.retry_policy, "ranges", file.source)
        except DataError as error:
            unreadable[file.source] = hide(str(error))
            return []


class UnreadableRecord(TypedDict):
    """The inputs of one scattered file that could not be read."""

    inputs: dict[str, str]  # input -> error


def scatter_inputs(task: ScatterTask, signatures: Signatures, lang: str) -> Pipeline[ScatterResult]:
    """Scatter every input that is not scattered yet. Skips an input that cannot be read, unless the settings are strict.

    Raises DataError if no input can be read, and if the inputs of the first run have no sentence. `lang` is a canonical code.
    """
    folder, settings = task.scattered.folder, task.settings
    stage = Stage(folder, "ranges", {}, signatures)
    config_key = {"settings": storage.key(settings.model_dump()), "ranges": str(task.scattered.num_ranges)}
    if task.split_lang is not None:
        config_key["split"] = task.split_lang
    file_keys = {
        name: stage.key({**{file.source: signatures[file.source] for file in files}, **config_key}) for name, files in task.groups.items()
    }
    for name in set(storage.names_in(folder)) - set(file_keys):
        if name.endswith(sharding.ARROW_SUFFIX):  # from an input that is no longer given: no shard is read from it
            storage.remove(stage.path(name))
            storage.remove(stage.path(f"{stages.MARKERS}/{name}.json"))
    unreadable = stage.path(UNREADABLE)
    for name in storage.names_in(unreadable):  # of a run that was stopped: they are tried again
        storage.remove(stage.path(f"{stages.MARKERS}/{name}.json"))
    storage.remove(unreadable)
    try:
        manifest = yield from run_stage(stage, file_keys, task, skip_failed=not settings.strict)
    except AllSkippedError as error:
        raise AllSkippedError(task.errors_by_input(error.reasons)) from error
    skipped = task.errors_by_input(manifest.skipped)
    for name in storage.names_in(unreadable):
        skipped |= records.read(storage.join(unreadable, name), UnreadableRecord)["inputs"]
    if len(skipped) == sum(map(len, task.groups.values())):
        raise AllSkippedError(skipped)
    counts = Counter(dict.fromkeys(readers.LINE_COUNTS, 0))
    for shard in manifest.shards:
        counts.update(shard.counts)
    if not counts["kept"] and not task.scattered.increment:
        storage.remove(folder)
        reasons = list_counts({name: counts[name] for name in readers.LINE_COUNTS if name not in ("lines", "kept")})
        detail, remedy = f" ({reasons})" if reasons else "", "give a text with sentences; --strict names the first problem"
        first = next(iter(task.groups.values()))[0].uri
        if counts["invalid"] and (encoding := encodings.guess_encoding(first, lang)):
            remedy = f"the text looks like {encoding}, so give --encoding {encoding}"
        raise DataError(f"{', '.join(signatures)}: no sentence in {counted(counts['lines'], 'line')}{detail}; {remedy}")
    return ScatterResult(dict(counts), skipped)
