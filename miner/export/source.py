"""Reading a bitext: its manifest, and batches of the pairs that pass the bounds of the settings."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from miner import languages
from miner.arrays import Bools
from miner.config.probability import PROBABILITY
from miner.errors import ConfigError, DataError, SettingsError
from miner.export.settings import ExportConfig
from miner.io import stages, storage, table_files
from miner.io.tables import BITEXT
from miner.mining.writers import PARQUET, TSV
from miner.text import scored_pairs
from miner.text.normalise import sentence_ids

BATCH_ROWS = 1 << 14
SCORED_SCHEMA = pa.schema([pa.field("source_id", pa.int64()), pa.field("target_id", pa.int64()), *scored_pairs.SCHEMA])


@dataclass(frozen=True)
class MinedPairsFile:
    """A bitext to export: its file, its languages as BCP 47 tags, and the manifest of the run that made it."""

    uri: str
    langs: tuple[str, str]
    manifest: stages.Manifest | None
    is_scored: bool = False  # a file of `miner score`, or of text: without ids, and not sorted

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the batches. DataError if the file is no bitext."""
        if self.is_scored:
            return SCORED_SCHEMA
        with table_files.open_parquet(self.uri) as file:
            schema = file.schema_arrow
        if missing := [name for name in BITEXT.names if name not in schema.names]:
            raise DataError(f"{self.uri}: no column {missing[0]!r}; give the output of `miner mine` or its {PARQUET}")
        return schema

    def batches(self, config: ExportConfig) -> Iterator[pa.Table]:
        """Yield the pairs that pass the bounds, best first, or in the order of a scored file. DataError if the file is damaged."""
        if config.min_probability is not None and PROBABILITY not in self.schema.names:
            raise ConfigError(f"{self.uri}: no column {PROBABILITY!r}; use --threshold instead of --min-probability")
        tables = (_within_bounds(table, config) for table in (self._scored() if self.is_scored else self._mined()))
        if config.top is None:
            yield from tables
        elif self.is_scored:
            margins = [table["margin"].to_numpy() for table in (_within_bounds(table, config) for table in self._scored())]
            is_best = _mark_largest(np.concatenate([np.zeros(0), *margins]), config.top)
            start = 0
            for table in tables:
                yield table.filter(pa.array(is_best[start : start + len(table)]))
                start += len(table)
        else:
            remaining = config.top
            for table in tables:
                yield table.slice(0, remaining)
                remaining -= min(len(table), remaining)
                if not remaining:
                    return

    def _mined(self) -> Iterator[pa.Table]:
        with table_files.open_parquet(self.uri) as file:
            try:
                for batch in file.iter_batches(BATCH_ROWS):
                    yield pa.Table.from_batches([batch])
            except (pa.ArrowException, UnicodeDecodeError) as error:
                raise DataError(f"{self.uri}: damaged ({str(error).splitlines()[0]}); run `miner mine` again") from error

    def _scored(self) -> Iterator[pa.Table]:
        """Yield the pairs of a scored file that have a margin and no reason to be dropped, with ids."""
        for table in scored_pairs.read_scored_pairs(self.uri):
            kept = pc.and_(pc.is_finite(table["margin"]), pc.is_null(table["reason"]))
            table = table.filter(pc.and_(kept, pc.and_(pc.is_valid(table["source_text"]), pc.is_valid(table["target_text"]))))
            ids = [pa.array(sentence_ids(table[f"{side}_text"].to_pylist())) for side in ("source", "target")]
            yield pa.table([*ids, *table.columns], schema=SCORED_SCHEMA)


def open_pairs(config: ExportConfig) -> MinedPairsFile:
    """Open the bitext of the settings. DataError if it is none; ConfigError if a language is unknown."""
    folder = config.bitext if storage.is_folder(config.bitext) else None
    uri = storage.join(folder, PARQUET) if folder is not None else config.bitext
    if not storage.exists(uri):
        is_mined = folder is not None and stages.writer_of(folder) == stages.MINE
        others = f"give the output directory of `miner mine`, its {PARQUET}, or an output of `miner score`"
        remedy = "run `miner mine` again" if is_mined else others
        raise DataError(f"{uri}: no such file; {remedy}")
    manifest, (parent, _, name) = None, uri.rpartition("/")
    if name in (PARQUET, TSV) and storage.exists(storage.join(parent or ".", stages.MANIFEST)):
        with contextlib.suppress(SettingsError):  # a file that was moved beside another stage
            manifest = stages.read_manifest(parent or ".", stages.MINE)
    recorded = {} if manifest is None else manifest.details.get("languages", {})
    tags = []
    for side in ("source", "target"):
        code = getattr(config, f"{side}_lang") or recorded.get(side)
        if code is None:
            remedy = f"give --{side}-lang, or {'the output of `miner mine`' if folder is None else 'run `miner mine` again'}"
            raise ConfigError(f"{config.bitext}: no manifest with the language of the {side}; {remedy}")
        tags.append(languages.bcp47(code))
    if tags[0] == tags[1]:  # two corpora of one language, or both `und`
        tags = [f"{tags[0]}-x-source", f"{tags[1]}-x-target"]
    return MinedPairsFile(uri, (tags[0], tags[1]), manifest, _is_scored(uri))


def _is_scored(uri: str) -> bool:
    """Whether a file has scored pairs: text, or Parquet of `miner score`."""
    if not uri.endswith(".parquet"):
        return True
    with table_files.open_parquet(uri) as file:
        return "reason" in file.schema_arrow.names and "source_id" not in file.schema_arrow.names


def _mark_largest(values: np.ndarray, count: int) -> Bools:
    """Mark (n,) the `count` largest of n values; of equal ones, the first."""
    is_largest = np.zeros(len(values), bool)
    is_largest[np.argsort(-values, kind="stable")[:count]] = True
    return is_largest


def _within_bounds(table: pa.Table, config: ExportConfig) -> pa.Table:
    keep = pa.scalar(True)
    if config.threshold is not None:
        keep = pc.and_(keep, pc.greater(table["margin"], config.threshold))
    if config.min_probability is not None:
        keep = pc.and_(keep, pc.greater_equal(table[PROBABILITY], config.min_probability))
    if config.max_chars is not None:
        for column in ("source_text", "target_text"):
            keep = pc.and_(keep, pc.less_equal(pc.utf8_length(table[column]), config.max_chars))
    return table if isinstance(keep, pa.BooleanScalar) else table.filter(keep)
