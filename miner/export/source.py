"""Reading a bitext: its manifest, and batches of the pairs that pass the bounds of the settings."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from miner import languages
from miner.config.probability import PROBABILITY
from miner.errors import ConfigError, DataError, StorageError
from miner.export.settings import ExportConfig
from miner.io import stages, storage, table_files
from miner.io.tables import BITEXT
from miner.mining.writers import PARQUET

BATCH_ROWS = 1 << 14


@dataclass(frozen=True)
class MinedPairsFile:
    """A bitext to export: its Parquet file, its languages as BCP 47 tags, and the manifest of the run that made it."""

    uri: str
    langs: tuple[str, str]
    manifest: stages.Manifest | None

    def batches(self, config: ExportConfig) -> Iterator[pa.Table]:
        """Yield the pairs that pass the bounds, best first, BATCH_ROWS at a time. DataError if the file is damaged."""
        remaining = config.top
        with table_files.open_parquet(self.uri) as file:
            names = file.schema_arrow.names
            if missing := [name for name in BITEXT.names if name not in names]:
                raise DataError(f"{self.uri}: no column {missing[0]!r}; give the output of `miner mine` or its {PARQUET}")
            if config.min_probability is not None and PROBABILITY not in names:
                raise ConfigError(f"{self.uri}: no column {PROBABILITY!r}; use --threshold instead of --min-probability")
            try:
                for batch in file.iter_batches(BATCH_ROWS):
                    table = _within_bounds(pa.Table.from_batches([batch]), config)
                    if remaining is not None:
                        table = table.slice(0, remaining)
                        remaining -= len(table)
                    yield table
                    if remaining == 0:
                        return
            except (pa.ArrowException, UnicodeDecodeError) as error:
                raise DataError(f"{self.uri}: damaged ({str(error).splitlines()[0]}); run `miner mine` again") from error


def open_pairs(config: ExportConfig) -> MinedPairsFile:
    """Open the bitext of the settings. DataError if it is none; ConfigError if a language is unknown."""
    folder = config.bitext if storage.is_folder(config.bitext) else None
    uri = storage.join(folder, PARQUET) if folder is not None else config.bitext
    if not storage.exists(uri):
        raise DataError(f"{uri}: no such file; give the output directory of `miner mine`, or its {PARQUET}")
    try:
        manifest = stages.read_manifest(folder or uri.rpartition("/")[0] or ".", stages.MINE)
    except StorageError:
        manifest = None  # a Parquet file that was moved elsewhere
    recorded = {} if manifest is None else manifest.details.get("languages", {})
    tags = []
    for side in ("source", "target"):
        code = getattr(config, f"{side}_lang") or recorded.get(side)
        if code is None:
            remedy = f"give --{side}-lang, or the output of `miner mine`"
            raise ConfigError(f"{config.bitext}: no manifest with the language of the {side}; {remedy}")
        tags.append(languages.bcp47(code))
    if tags[0] == tags[1]:  # two corpora of one language, or both `und`
        tags = [f"{tags[0]}-x-source", f"{tags[1]}-x-target"]
    return MinedPairsFile(uri, (tags[0], tags[1]), manifest)


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
