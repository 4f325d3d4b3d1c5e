"""Shuffle rows between the steps of a stage: a step partitions its output by id range, and a task of the next step reads one range of all.

A step that joins or groups by the ids of the other side then holds only one range of it. The intermediate files are Arrow: one file per
task, with one record batch per range.
"""

import contextlib
import io
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Concatenate, Generic, ParamSpec

import numpy as np
import pyarrow as pa

from miner import progress
from miner.arrays import Ints
from miner.errors import MinerError
from miner.io import stages, storage, table_files
from miner.io.corpus import Span
from miner.io.stages import Manifest, Stage
from miner.io.tables import concat_tables
from miner.text.sharding import range_of, write_range_batches
from pipelines.beam.reporting import watch_progress
from pipelines.beam.runner import Pipeline, is_in_this_process, run_stage
from pipelines.beam.shards import call_with_retries
from pipelines.beam.tasks import ShardTask, StageRun

SUFFIX = ".arrow"
ARROW_MAGIC = b"ARROW1\0\0"  # with which an Arrow file starts; then comes the schema, with the metadata
METADATA_BYTES = 1 << 16  # that hold the schema and some hundred samples
IN_PROCESS_ROWS = 1 << 23  # input rows up to which running the steps in this process takes less time than starting pipelines

Parameters = ParamSpec("Parameters")
ShardFunction = Callable[Concatenate[int, str, Parameters], tuple[int, Mapping[str, int]]]  # shard index and URI -> rows and counts


@dataclass(frozen=True)
class ShuffleSteps:
    """Intermediate steps before a stage.

    The output of small steps is in memory if all shards are written in this process. Otherwise it is kept in `folder` until the stage is
    done, so that a stopped run can resume.
    """

    kind: str  # name of the steps in logs and counters
    folder: str
    key: str  # fingerprint of the inputs
    rows: int  # of the input
    in_process_rows: int = IN_PROCESS_ROWS  # with more rows, the steps run as Beam jobs

    def apply(
        self, name: str, shards: Sequence[str], function: ShardFunction[Parameters], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Pipeline["StepOutput"]:
        """Write FOLDER/name: `function(index, uri, ...)` writes a shard and returns its rows and counts."""
        return (yield from self.run(name, shards, ShuffleTask(self.place(name), function, *args, **kwargs)))

    def run(self, name: str, shards: Sequence[str], task: "ShuffleTask[Parameters]") -> Pipeline["StepOutput"]:
        """Write FOLDER/name by a task whose folder it is."""
        manifest = yield from self._write(name, shards, task)
        counts = Counter[str]()
        for shard in manifest.shards:
            counts.update(shard.counts)  # a sum of counters would lack what is 0
        return StepOutput(self.place(name), shards, manifest.rows, counts, {shard.name: shard.checksum for shard in manifest.shards})

    def _write(self, name: str, shards: Sequence[str], task: ShardTask) -> Pipeline[Manifest]:
        stage = Stage(self.place(name), self.kind, {}, {"key": self.key})
        shard_keys = dict.fromkeys(shards, stage.key())
        if not self._is_small:
            return (yield from run_stage(stage, shard_keys, task))
        try:
            return self._run_in_process(stage, shard_keys, task)
        except MinerError:
            self.remove()  # cheap to write again
            raise

    def _run_in_process(self, stage: Stage, shard_keys: Mapping[str, str], task: ShardTask) -> Manifest:
        missing, is_kept = list(shard_keys), self._root == self.folder
        if is_kept:
            stage.start()
            missing = stage.reopen(shard_keys)
        if missing:
            task.setup()
        is_watched = missing and task.work_unit is not None
        with watch_progress([StageRun(stage, shard_keys, task)]) if is_watched else contextlib.nullcontext():
            for name in missing:
                with progress.count_work(stage.folder, name):
                    rows, counts = call_with_retries(partial(task.write_shard, name), task.retry_policy, stage.stage, name)
                stage.mark_done(name, rows, shard_keys[name], counts)
        return stage.finish(shard_keys) if is_kept else stage.draft_manifest(shard_keys)

    @cached_property
    def _root(self) -> str:
        """Where the output is. What is in memory is removed with this object at the latest."""
        if not self._is_small or not is_in_this_process.get():
            return self.folder
        root = f"{storage.MEMORY}://{uuid.uuid4().hex}"
        weakref.finalize(self, storage.remove, root)
        return root

    @property
    def _is_small(self) -> bool:
        return self.rows <= self.in_process_rows

    def place(self, name: str) -> str:
        return storage.join(self._root, name)

    def remove(self) -> None:
        for folder in {self.folder, self._root}:  # of an earlier run, and of this one
            storage.remove(folder)


@dataclass(frozen=True)
class StepOutput:
    """The files that a step wrote, with their rows and the sums of their counts."""

    folder: str
    shards: Sequence[str]
    rows: int
    counts: Counter[str]
    checksums: Mapping[str, str] = field(default_factory=dict)  # by shard

    @property
    def uris(self) -> list[str]:
        return [storage.join(self.folder, shard) for shard in self.shards]

    def gather(self, index: int) -> pa.Table:
        """Read range `index` of all files, in their order."""
        return concat_tables([self.read(shard, index) for shard in self.shards])

    def read(self, shard: str, index: int) -> pa.Table:
        """Read range `index` of one file."""
        return read(storage.join(self.folder, shard), index, self.checksums.get(shard))


class ShuffleTask(ShardTask, Generic[Parameters]):
    """Write each shard of a step by calling a function. The function and its arguments are pickled to the workers."""

    row_unit = None

    def __init__(self, folder: str, function: ShardFunction[Parameters], *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        self.folder = folder
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        return self.function(stages.shard_index(name), storage.join(self.folder, name), *self.args, **self.kwargs)


def names(ranges: int) -> list[str]:
    """Return the file names of the tasks that process one range each."""
    return [stages.shard_name(index, ranges, SUFFIX) for index in range(ranges)]


def arrow_name(shard: str) -> str:
    """Return the file name of the task that processes a Parquet shard."""
    return shard.removesuffix(".parquet") + SUFFIX


def scatter(uri: str, table: pa.Table, range_indexes: Ints, ranges: int, metadata: Mapping[str, str] | None = None) -> None:
    """Write a table of n rows as a file with one batch per range. `range_indexes` (n,) is the range of each row, from 0."""
    order = np.argsort(range_indexes, kind="stable")
    table = table.take(pa.array(order)).replace_schema_metadata(metadata)
    with storage.atomic(uri) as handle, pa.ipc.new_file(handle, table.schema) as writer:
        write_range_batches(writer, table, range_indexes[order], ranges)


def scatter_by_id(uri: str, table: pa.Table, column: str, ranges: int, metadata: Mapping[str, str] | None = None) -> None:
    """Write a table with one batch per id range of a column (see `miner.text.sharding`)."""
    scatter(uri, table, range_of(table[column].to_numpy(), ranges), ranges, metadata)


def read(uri: str, index: int, expected: str | None = None) -> pa.Table:
    """Read range `index` of one file, whose checksum is `expected` unless nobody recorded it."""
    with table_files.open_arrow(uri, expected) as reader:
        return pa.Table.from_batches([reader.get_batch(index)])


def metadata_of(uris: Sequence[str]) -> list[dict[str, str]]:
    """Read the metadata that `scatter` stored with the rows of several files; of object stores side by side, without the rows."""
    starts = storage.read_parts(uris, 0, METADATA_BYTES) if uris and storage.is_on_object_store(uris[0]) else [b""] * len(uris)
    return [_parse_metadata(start) or _read_metadata(uri) for uri, start in zip(uris, starts, strict=True)]


def _parse_metadata(start: bytes | None) -> dict[str, str]:
    """Return the metadata in the first message of an Arrow file; none if it is not all in the start of the file."""
    try:
        return _decode_metadata(pa.ipc.read_schema(io.BytesIO((start or b"")[len(ARROW_MAGIC) :])))
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return {}


def _read_metadata(uri: str) -> dict[str, str]:
    with table_files.open_arrow(uri, None) as reader:
        return _decode_metadata(reader.schema)


def _decode_metadata(schema: pa.Schema) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in (schema.metadata or {}).items()}


@dataclass(frozen=True)
class TextsById:
    """Tables that are sorted by their first column, an id, and read by ranges of it. Picklable."""

    spans: Mapping[str, Span]  # file -> its first and last id
    column: str = "id"

    def read(self, index: int, ranges: int) -> list[pa.Table]:
        """Read the rows of an id range from every shard that overlaps it, one table per shard."""
        tables = []
        for uri, span in self.spans.items():
            low, high = range_of(np.array(span), ranges)
            if low <= index <= high:
                table = table_files.read_table(uri)
                tables.append(table if low == high else table.filter(pa.array(range_of(table[self.column].to_numpy(), ranges) == index)))
        return tables
