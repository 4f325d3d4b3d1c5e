"""Changes of the bitext since the previous run with the same settings: OUTPUT/deltas/00001.tsv.gz and so on, one for each run that read
changed corpora.

The pairs of the first run and all deltas in order give the current pairs. The previous pairs are kept as `00001.before.parquet` until
the new ones are complete, so a run that was stopped at any moment writes the same delta when it resumes.
"""

import itertools
import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner.arrays import Bools, Ints, mark_run_starts
from miner.errors import DamagedError, SettingsError
from miner.io import stages, storage, table_files
from miner.io.stages import Manifest, Stage
from miner.io.tables import BITEXT, DELTA, PROBABILITY, concat_tables
from miner.mining import writers
from pipelines.beam import shuffle
from pipelines.beam.runner import Pipeline
from pipelines.beam.shuffle import ShuffleSteps, StepOutput
from pipelines.mining import sort_pairs
from pipelines.mining.candidates import DEFAULT_LIMITS, MiningLimits
from pipelines.mining.match import Written

FOLDER, STEPS = "deltas", ".delta"
BEFORE = ".before.parquet"  # suffix of the previous pairs
CHANGES = ("added", "removed", "changed")
DELIVERED = re.compile(r"\d{5}\.(tsv\.gz|parquet)")
TEXTS = ("source_text", "target_text")  # determined by the ids

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BitextDelta:
    """The changes of one run."""

    file: str
    counts: Mapping[str, int]  # pairs by change, of CHANGES

    def figures(self) -> dict[str, Any]:
        return {"file": self.file, **self.counts}


def stage_of(output: str, config: Mapping[str, Any]) -> Stage:
    """Return the stage of the deltas of pairs that were selected by `config`."""
    return Stage(storage.join(output, FOLDER), FOLDER, config, {})


def stable_config(config: Mapping[str, Any], choice: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of pairs, without what the corpora determine: instead of a threshold, how it was chosen."""
    if "probability_weights" in config:
        fitted = dict.fromkeys(("intercept", "margin", "has_few_right"))
        config = {**config, "probability_weights": {**config["probability_weights"], **fitted}}
    if choice is None or choice["by"] == "recommended":
        return dict(config)
    if choice["by"] == "probability" and "min_precision" in choice:
        return {**config, "threshold": "auto", "min_probability": None, "precision": choice["min_precision"]}
    is_default = choice["by"] in ("probability", "calibrated", "fallback")
    return {**config, "threshold": "default" if is_default else "auto"}


def begin(output: str, deltas: Stage, inputs: Mapping[str, str]) -> str | None:
    """Move the pairs of the previous run away and return their URI; None if there is nothing to compare with.

    `inputs` are the keys of the corpora. Deltas that are damaged or of other settings are moved away.
    """
    is_finished = all(storage.exists(storage.join(output, name)) for name in (writers.PARQUET, stages.MANIFEST))
    is_started = storage.exists(deltas.folder)
    if is_started and (fault := _find_fault(deltas, is_finished)) is not None:
        move_away(deltas.folder, fault)
        is_started = False
    if not is_finished:  # a run that was stopped has moved the pairs
        moved = [name for name in deltas.marked_shards() if name.endswith(BEFORE)]
        return deltas.path(moved[0]) if moved else None
    manifest = stages.read_manifest(output)
    config = stable_config(manifest.config, manifest.details.get("choice"))
    if storage.key(config) != storage.key(deltas.config):
        move_away(deltas.folder, "the previous pairs were selected with other settings")
        return None
    if not is_started:
        deltas.start()
    end(deltas)
    if dict(manifest.inputs) == dict(inputs):
        return None
    name = f"{1 + len(deltas.marked_shards()) // 2:05d}{BEFORE}"
    # The marker comes first: a file that is moved without one would be lost.
    deltas.mark_done(name, manifest.details["pairs"], deltas.key(), checksum=bitext_checksum(manifest))
    storage.move(storage.join(output, writers.PARQUET), deltas.path(name))
    return deltas.path(name)


def _find_fault(deltas: Stage, is_finished: bool) -> str | None:
    """Return why the deltas cannot be continued: they are of other settings, or a file of them is damaged; None if they can."""
    try:
        deltas.start()
        listed = stages.read_manifest(deltas.folder).shards if storage.exists(deltas.path(stages.MANIFEST)) else ()
    except (DamagedError, SettingsError) as error:
        return str(error)
    marked = deltas.marked_shards()
    intact = deltas.find_shards(dict.fromkeys(marked, deltas.key()))
    # Once the pairs are complete, the previous ones are not needed, and may not have been moved yet.
    needed = {name for name in marked if not (is_finished and name.endswith(BEFORE))} | {shard.name for shard in listed}
    damaged = sorted(needed - intact.keys()) + sorted(shard.name for shard in listed if intact.get(shard.name, shard) != shard)
    return f"{deltas.path(damaged[0])}: this file, or its marker, is missing or changed since it was written" if damaged else None


def move_away(folder: str, reason: str) -> None:
    """Move the deltas that were delivered to a directory of their own, and remove their records, so that new ones start from the pairs."""
    names = [name for name in storage.names_in(folder) if DELIVERED.fullmatch(name)]
    if names:
        number = next(number for number in itertools.count(1) if not storage.exists(f"{folder}-{number}"))
        for name in names:
            storage.move(storage.join(folder, name), storage.join(f"{folder}-{number}", name))
        logger.warning("%s; earlier deltas are moved to %s-%d, and the next one starts from the new pairs", reason, folder, number)
    storage.remove(folder)


def bitext_checksum(manifest: Manifest) -> str | None:
    """Return the checksum of the pairs in a manifest of `miner mine`, if it lists them."""
    return next((shard.checksum for shard in manifest.shards if shard.name == writers.PARQUET), None)


def end(deltas: Stage) -> None:
    """Write the manifest of the deltas, and remove the previous pairs."""
    for name in {*storage.names_in(deltas.folder), *deltas.marked_shards()}:
        if name.endswith(BEFORE):
            storage.remove(deltas.path(f"{stages.MARKERS}/{name}.json"))
            storage.remove(deltas.path(name))
    files = sorted(deltas.marked_shards())
    if files:
        deltas.finish(dict.fromkeys(files, deltas.key()))
    else:
        storage.remove(deltas.folder)


def write(before: str, output: str, deltas: Stage, limits: MiningLimits = DEFAULT_LIMITS) -> Pipeline[BitextDelta]:
    """Compare the previous pairs with those in `output`, by ranges of their sources, and write the changes."""
    after = storage.join(output, writers.PARQUET)
    sizes = {uri: _size(uri) for uri in (before, after)}
    num_rows = [size.rows for size in sizes.values()]
    key = storage.key([storage.checksum(uri) for uri in (before, after)])
    steps = ShuffleSteps("comparing", storage.join(output, STEPS), key, sum(num_rows), limits.in_process_rows)
    ranges = shuffle.names(max(1, math.ceil(max(num_rows) / limits.margin_range_rows)))
    groups_per_file = max(1, limits.margin_range_rows // writers.ROW_GROUP_PAIRS)
    bitexts = []
    for name, uri in (("before", before), ("after", after)):
        files = shuffle.names(max(1, math.ceil(sizes[uri].row_groups / groups_per_file)))
        bitexts.append((yield from steps.apply(name, files, _scatter_row_groups, uri, groups_per_file, len(ranges))))
    changes = yield from steps.apply("compared", ranges, _compare_range, bitexts[0], bitexts[1], limits.margin_samples)
    sorted_changes = yield from sort_pairs.sort_rows(changes.uris, changes.rows, steps, limits)
    stem = before.rpartition("/")[2].removesuffix(BEFORE)
    tsv, parquet = f"{stem}.tsv.gz", f"{stem}.parquet"
    schema = _delta_schema(after)
    with table_files.parquet_writer(deltas.path(parquet), schema) as writer, writers.text_writer(deltas.path(tsv)) as text:
        tables = (table.filter(pc.equal(table["change"], change)) for change in CHANGES for table in sorted_changes.row_groups())
        for table in filter(len, tables):
            writer.write_table(writers.rebuild_dictionaries(table, schema))
            rows = zip(*(table[name].to_pylist() for name in ("change", "margin", *TEXTS)), strict=True)
            text.writelines(f"{change}\t{margin:.8f}\t{source}\t{target}\n" for change, margin, source, target in rows)
    for name in (tsv, parquet):
        deltas.mark_done(name, changes.rows, deltas.key())
    steps.remove()
    return BitextDelta(deltas.path(tsv), {name: changes.counts[name] for name in CHANGES})


def _delta_schema(bitext: str) -> pa.Schema:
    with table_files.open_parquet(bitext) as file:
        return pa.schema([*DELTA, PROBABILITY]) if PROBABILITY.name in file.schema_arrow.names else DELTA


@dataclass(frozen=True)
class _ParquetSize:
    rows: int
    row_groups: int


def _size(uri: str) -> _ParquetSize:
    with table_files.open_parquet(uri) as file:
        return _ParquetSize(file.metadata.num_rows, file.num_row_groups)


def _scatter_row_groups(index: int, uri: str, bitext: str, groups_per_file: int, source_ranges: int) -> Written:
    """Send some row groups of a bitext to the ranges of sources."""
    start = index * groups_per_file
    with table_files.open_parquet(bitext) as file:
        groups = range(start, min(start + groups_per_file, file.num_row_groups))
        table = concat_tables([file.schema_arrow.empty_table(), *(file.read_row_group(group) for group in groups)])
    shuffle.scatter_by_id(uri, table, "source_id", source_ranges)
    return len(table), {}


def _compare_range(index: int, uri: str, before: StepOutput, after: StepOutput, num_samples: int) -> Written:
    """Compare the pairs of one range of sources."""
    changes = compare(before.gather(index), after.gather(index))
    sort_pairs.scatter_sampled(uri, changes, num_samples)
    return len(changes), {change: pc.sum(pc.equal(changes["change"], change)).as_py() or 0 for change in CHANGES}


def compare(before: pa.Table, after: pa.Table) -> pa.Table:
    """Compare two tables of bitexts, in which a pair occurs once. Return the changed pairs with the column `change`."""
    both = concat_tables([before, after])
    sources, targets = both["source_id"].to_numpy(), both["target_id"].to_numpy()
    order = np.lexsort((np.arange(len(both)), targets, sources))
    is_repeat = ~mark_run_starts(sources[order], targets[order])[1:]
    old, new = order[:-1][is_repeat], order[1:][is_repeat]
    change = np.where(np.arange(len(both)) < len(before), "removed", "added")
    change[new] = "changed"
    is_change = np.ones(len(both), dtype=bool)
    is_change[old], is_change[new] = False, _differ(both, old, new)
    return both.add_column(0, "change", pa.array(change, pa.string())).filter(pa.array(is_change))


def _differ(table: pa.Table, old: Ints, new: Ints) -> Bools:
    """Mark (n,) whether an old and a new row (n,) of the same pair differ."""
    differ = np.zeros(len(old), dtype=bool)
    for name in BITEXT.names:
        if name not in TEXTS:
            column = table[name].cast(pa.string()) if pa.types.is_dictionary(table[name].type) else table[name]
            differ |= pc.not_equal(column.take(pa.array(old)), column.take(pa.array(new))).to_numpy()
    return differ
