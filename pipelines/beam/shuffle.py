"""From one step to the next: what a step makes of a shard is cut by id range, and an element of the next takes one range of all.

So a step that joins or groups by the id of the other side holds no more than a range of it. What is on its way is Arrow: a file
for each element, with a batch for each range.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Concatenate, Generic, ParamSpec

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from miner import stages, storage
from miner.corpus import id_span
from miner.errors import MinerError, StorageError
from miner.stages import Manifest, Shard, Stage
from miner.text.sharding import range_of
from pipelines.beam.runner import ShardTask, run_stage

SUFFIX = ".arrow"
IN_PROCESS_ROWS = 1 << 23  # input rows up to which running the steps in this process takes less time than starting pipelines

Numbers = npt.NDArray[np.int64]
Parameters = ParamSpec("Parameters")
WriteShard = Callable[Concatenate[int, str, Parameters], tuple[int, Mapping[str, int]]]  # shard index and URI -> rows and counts


@dataclass(frozen=True)
class ShuffleSteps:
    """Steps that lead from one stage to another. They lie in `folder` until it is done; a run that was stopped goes on from there."""

    kind: str  # what they are called in reports
    folder: str
    key: str  # of all they are made from
    rows: int  # to begin with
    options: Sequence[str] = ()
    in_process_rows: int = IN_PROCESS_ROWS  # with more rows, the steps run as Beam pipelines

    def apply(
        self, name: str, shards: Sequence[str], function: WriteShard[Parameters], *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> "StepOutput":
        """Make FOLDER/name, each of whose shards `function(index, uri, ...)` writes, which returns its rows and counts."""
        manifest = self.run(name, shards, ShuffleTask(self.place(name), function, *args, **kwargs))
        counts = sum((Counter(shard.counts) for shard in manifest.shards), Counter[str]())
        return StepOutput(self.place(name), shards, manifest.rows, counts)

    def run(self, name: str, shards: Sequence[str], work: ShardTask) -> Manifest:
        """Make FOLDER/name, whose shards are made by `work`."""
        stage = Stage(self.place(name), self.kind, {}, {"made from": self.key})
        made_from = dict.fromkeys(shards, stage.key())
        if self.rows > self.in_process_rows:
            return run_stage(stage, made_from, work, self.options)
        try:
            return _run_here(stage, made_from, work)
        except MinerError:
            self.remove()  # it is soon made again
            raise

    def place(self, name: str) -> str:
        return storage.join(self.folder, name)

    def remove(self) -> None:
        storage.remove(self.folder)


@dataclass(frozen=True)
class StepOutput:
    """The files that a step wrote, with their rows and the sums of their counts."""

    folder: str
    shards: Sequence[str]
    rows: int
    counts: Counter[str]

    @property
    def uris(self) -> list[str]:
        return [storage.join(self.folder, shard) for shard in self.shards]

    def gather(self, index: int) -> pa.Table:
        """Read range `index` of all files."""
        return gather(self.folder, self.shards, index)


class ShuffleTask(ShardTask, Generic[Parameters]):
    """Write each shard of a step by calling a function. The function and its arguments are pickled to the workers."""

    row_unit = None

    def __init__(self, folder: str, function: WriteShard[Parameters], *args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        self.folder = folder
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        return self.function(stages.shard_index(name), storage.join(self.folder, name), *self.args, **self.kwargs)


def _run_here(stage: Stage, made_from: Mapping[str, str], work: ShardTask) -> Manifest:
    stage.start()
    pending = stage.reopen(made_from)
    if pending:
        work.setup()
    for name in pending:
        rows, counts = work.write_shard(name)
        stage.mark_done(name, rows, made_from[name], counts)
    return stage.finish(made_from)


def names(ranges: int) -> list[str]:
    """The files of the elements that take one range each."""
    return [stages.shard_name(index, ranges, SUFFIX) for index in range(ranges)]


def arrow_name(shard: str) -> str:
    """The file that an element makes of a Parquet shard."""
    return shard.removesuffix(".parquet") + SUFFIX


def scatter(uri: str, table: pa.Table, numbers: Numbers, ranges: int, metadata: Mapping[str, str] | None = None) -> None:
    """Write the rows (n,) of a table as a file with one batch for each range, by their numbers (n,) from 0."""
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(ranges + 1))
    table = table.take(pa.array(order)).combine_chunks()
    schema = table.schema.with_metadata(metadata)
    batch = table.to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], schema=table.schema)
    with storage.atomic(uri) as handle, pa.ipc.new_file(handle, schema) as writer:
        for start, end in pairwise(bounds):
            writer.write_batch(batch.slice(start, end - start).replace_schema_metadata(metadata))


def scatter_by_id(uri: str, table: pa.Table, column: str, ranges: int, metadata: Mapping[str, str] | None = None) -> None:
    """The same by the ids of a column, whose ranges are those of `miner.text.sharding`."""
    scatter(uri, table, range_of(table[column].to_numpy(), ranges), ranges, metadata)


def gather(folder: str, shards: Sequence[str], index: int) -> pa.Table:
    """Range `index` of all shards in a folder, in their order."""
    return together([read(storage.join(folder, shard), index) for shard in shards])


def together(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([table.replace_schema_metadata(None) for table in tables]).unify_dictionaries().combine_chunks()


def read(uri: str, index: int) -> pa.Table:
    """Range `index` of one file."""
    with _opened(uri) as reader:
        return pa.Table.from_batches([reader.get_batch(index)])


def metadata_of(uri: str) -> dict[str, str]:
    """What `scatter` was told to write beside the rows."""
    with _opened(uri) as reader:
        return {name.decode(): value.decode() for name, value in (reader.schema.metadata or {}).items()}


@contextlib.contextmanager
def _opened(uri: str) -> Iterator[Any]:
    """A file that `scatter` wrote; StorageError where it is not whole."""
    fs, path = storage.filesystem(uri)
    try:
        with fs.open(path, "rb") as handle, pa.ipc.open_file(handle) as reader:
            yield reader
    except (pa.ArrowInvalid, OSError) as error:
        raise StorageError(f"{uri}: not a whole Arrow file; delete it and run the same command again") from error


class TextsById:
    """Tables in shards that are sorted by id, read by id range. Opened in each worker: reads the ends of the files."""

    def __init__(self, folder: str, shards: Sequence[Shard]) -> None:
        found = {uri: id_span(uri) for uri in (storage.join(folder, shard.name) for shard in shards if shard.rows)}
        self.spans = {uri: ends for uri, ends in found.items() if ends is not None}

    def read(self, index: int, ranges: int) -> list[pa.Table]:
        """What each shard has in a range, by shard; none that has nothing."""
        found = []
        for uri, span in self.spans.items():
            low, high = range_of(np.array(span), ranges)
            if low <= index <= high:
                table = storage.read_table(uri)
                found.append(table if low == high else table.filter(pa.array(range_of(table["id"].to_numpy(), ranges) == index)))
        return found
