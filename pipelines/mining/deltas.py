"""What changed in the pairs since the run before, of the same settings: OUTPUT/deltas/00001.tsv.gz and so on, one for each run that
found the corpora other than the run before had.

The first run's pairs and all deltas in their order give the present pairs. The pairs of before wait as `00001.before.parquet` until
the new ones are complete, so that a run that is stopped at any moment writes the same delta when it goes on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from miner import stages, storage
from miner.errors import StorageError
from miner.mining import writers
from miner.stages import Manifest, Stage
from miner.tables import BITEXT, DELTA
from pipelines.beam import shuffle
from pipelines.beam.runner import ShardTask
from pipelines.beam.shuffle import ShuffleSteps
from pipelines.mining import sort_pairs
from pipelines.mining.sort_pairs import RANGE

FOLDER, STEPS = "deltas", ".delta"
BEFORE = ".before.parquet"
CHANGES = ("added", "removed", "changed")
GROUPS = RANGE // writers.ROWS  # row groups that are read at a time
TEXTS = ("source_text", "target_text")  # which the ids tell


Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class BitextDelta:
    """What a run changed."""

    file: str
    counts: Mapping[str, int]  # of CHANGES

    def figures(self) -> dict[str, Any]:
        """The same for a program."""
        return {"file": self.file, **self.counts}


def stage_of(output: str, asked: Mapping[str, Any]) -> Stage:
    """The deltas of pairs that were decided on as `asked`."""
    return Stage(storage.join(output, FOLDER), FOLDER, asked, {})


def begin(output: str, deltas: Stage, inputs: Mapping[str, str]) -> str | None:
    """Put the pairs of the run before aside, and return where they are; None where there is nothing to compare.

    `inputs` are the keys of the corpora. Pairs of other settings begin anew: their deltas go.
    """
    finished = all(storage.exists(storage.join(output, name)) for name in (writers.PARQUET, stages.MANIFEST))
    if not finished and not storage.exists(deltas.folder):
        return None
    try:
        deltas.start()
    except StorageError:  # of other settings
        storage.remove(deltas.folder)
    if not finished:
        waiting = [name for name in deltas.marked_shards() if name.endswith(BEFORE)]
        whole = [name for name in waiting if deltas.find_shard(name, deltas.key()) is not None]
        return deltas.path(whole[0]) if whole else None  # a run that was stopped has put them aside
    manifest = stages.read_manifest(output)
    decided = {**manifest.config, **({"threshold": "auto"} if "choice" in manifest.details else {})}
    if storage.key(decided) != storage.key(deltas.config):
        storage.remove(deltas.folder)
        return None
    end(deltas)
    if dict(manifest.inputs) == dict(inputs):
        return None
    place = f"{1 + len(deltas.marked_shards()) // 2:05d}{BEFORE}"
    deltas.mark_done(
        place, manifest.details["pairs"], deltas.key(), checksum=pairs_of(manifest)
    )  # first: what is moved and not known is lost
    storage.move(storage.join(output, writers.PARQUET), deltas.path(place))
    return deltas.path(place)


def pairs_of(manifest: Manifest) -> str | None:
    """The checksum of the pairs that a manifest tells of, if it does."""
    return next((shard.checksum for shard in manifest.shards if shard.name == writers.PARQUET), None)


def end(deltas: Stage) -> None:
    """Finish the deltas there are, and remove the pairs of before."""
    for name in {*storage.names_in(deltas.folder), *deltas.marked_shards()}:
        if name.endswith(BEFORE):
            storage.remove(deltas.path(f"{stages.MARKERS}/{name}.json"))
            storage.remove(deltas.path(name))
    made = sorted(deltas.marked_shards())
    if made:
        deltas.finish(dict.fromkeys(made, deltas.key()))
    else:
        storage.remove(deltas.folder)


def write(before: str, output: str, deltas: Stage, options: Sequence[str]) -> BitextDelta:
    """Compare the pairs of before with those that are in `output` now, by ranges of their sources, and write what changed."""
    after = storage.join(output, writers.PARQUET)
    extents = {uri: _extent(uri) for uri in (before, after)}
    sizes = [rows for rows, _ in extents.values()]
    key = storage.key([storage.checksum(uri) for uri in (before, after)])
    steps = ShuffleSteps("comparing", storage.join(output, STEPS), key, sum(sizes), options)
    ranges = shuffle.names(max(1, math.ceil(max(sizes) / RANGE)))
    sides = []
    for name, uri in (("before", before), ("after", after)):
        parts = shuffle.names(max(1, math.ceil(extents[uri][1] / GROUPS)))
        steps.run(name, parts, _Cut(uri, len(ranges), steps.place(name)))
        sides.append((steps.place(name), parts))
    compared = steps.run("compared", ranges, _Compare(sides, steps.place("compared")))
    changes = sort_pairs.order_rows([storage.join(steps.place("compared"), name) for name in ranges], compared.rows, steps)
    stem = before.rpartition("/")[2].removesuffix(BEFORE)
    names = (f"{stem}.tsv.gz", f"{stem}.parquet")
    with storage.parquet_writer(deltas.path(names[1]), DELTA) as writer, writers.tsv_writer(deltas.path(names[0])) as text:
        for part in changes.parts():
            writer.write_table(writers.same_bytes(part, DELTA))
            rows = zip(*(part[name].to_pylist() for name in ("change", "margin", *TEXTS)), strict=True)
            text.writelines(f"{change}\t{margin:.8f}\t{source}\t{target}\n" for change, margin, source, target in rows)
    for name in names:
        deltas.mark_done(name, compared.rows, deltas.key())
    steps.remove()
    return BitextDelta(deltas.path(names[0]), {name: sum(shard.counts[name] for shard in compared.shards) for name in CHANGES})


def _extent(uri: str) -> tuple[int, int]:
    """The rows and the row groups of a Parquet file."""
    with storage.open_parquet(uri) as file:
        return file.metadata.num_rows, file.num_row_groups


class _Cut(ShardTask):
    """Some row groups of a bitext -> their pairs by the range of the sources."""

    row_unit = None

    def __init__(self, uri: str, ranges: int, folder: str) -> None:
        self.uri = uri
        self.ranges = ranges
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        start = stages.shard_index(name) * GROUPS
        with storage.open_parquet(self.uri) as file:
            groups = range(start, min(start + GROUPS, file.num_row_groups))
            table = shuffle.together([BITEXT.empty_table(), *(file.read_row_group(group) for group in groups)])
        shuffle.scatter_by_id(storage.join(self.folder, name), table, "source_id", self.ranges)
        return len(table), {}


class _Compare(ShardTask):
    """One range of sources -> the pairs of it that changed."""

    row_unit = None

    def __init__(self, sides: Sequence[tuple[str, Sequence[str]]], folder: str) -> None:
        self.sides = sides
        self.folder = folder

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        before, after = (shuffle.gather(*side, stages.shard_index(name)) for side in self.sides)
        changes = compare(before, after)
        counts = {change: pc.sum(pc.equal(changes["change"], change)).as_py() or 0 for change in CHANGES}
        nowhere = np.zeros(len(changes), dtype=np.int64)
        shuffle.scatter(storage.join(self.folder, name), changes, nowhere, 1, sort_pairs.sample(changes))
        return len(changes), counts


def compare(before: pa.Table, after: pa.Table) -> pa.Table:
    """Two tables of the schema BITEXT, a pair once in each -> one of the schema DELTA: pairs that are new, gone, or not as they were."""
    both = shuffle.together([before, after])
    sources, targets = both["source_id"].to_numpy(), both["target_id"].to_numpy()
    order = np.lexsort((np.arange(len(both)), targets, sources))
    again = (sources[order][1:] == sources[order][:-1]) & (targets[order][1:] == targets[order][:-1])
    old, new = order[:-1][again], order[1:][again]
    change = np.where(np.arange(len(both)) < len(before), "removed", "added")
    change[new] = "changed"
    stays = np.ones(len(both), dtype=bool)
    stays[old], stays[new] = False, _differ(both, old, new)
    return both.add_column(0, "change", pa.array(change, pa.string())).filter(pa.array(stays))


def _differ(table: pa.Table, some: Rows, others: Rows) -> npt.NDArray[np.bool_]:
    """(n,): whether one row and the other, which are the same pair, differ."""
    differ = np.zeros(len(some), dtype=bool)
    for name in BITEXT.names:
        if name not in TEXTS:
            column = table[name].cast(pa.string()) if pa.types.is_dictionary(table[name].type) else table[name]
            differ |= pc.not_equal(column.take(pa.array(some)), column.take(pa.array(others))).to_numpy()
    return differ
