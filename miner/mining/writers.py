"""Candidates and bitexts on disk."""

import contextlib
import gzip
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import BinaryIO, TextIO

import numpy as np
import pyarrow as pa

from miner.arrays import Bools
from miner.io import storage, table_files
from miner.io.tables import BITEXT, CANDIDATES, PROBABILITY, RESCORED_CANDIDATES
from miner.mining.candidates import Candidates, LateScores, ScoredPairs

COLUMNS = tuple(field.name for field in fields(Candidates) if field.name != "late")  # in the order of the schema CANDIDATES
TSV, PARQUET = "bitext.tsv.gz", "bitext.parquet"
CARD = "README.md"
# `datasets.load_dataset` reads the files that the front matter of a README.md names, instead of every Parquet file of the run. It caches
# them by the name of the directory and the front matter, so that without the checksum it would return those of an earlier run.
CARD_TEXT = f"""---
configs:
- config_name: default
  description: Checksum CHECKSUM
  data_files:
  - split: train
    path: {PARQUET}
---

# Mined sentence pairs

`{PARQUET}` and `{TSV}` hold the pairs that `miner mine` found, best first. `datasets.load_dataset` reads them from this directory. To
publish a dataset, run `miner export`: it adds splits, language codes, and a card with the settings of the run.
"""
ROW_GROUP_PAIRS = 1 << 16  # pairs per row group, which are in memory at a time
PAIR_COLUMNS = {
    "source_ids": "source_id",
    "target_ids": "target_id",
    "similarities": "similarity",
    "margins": "margin",
    "forward": "forward",
    "backward": "backward",
}


def candidates_to_arrow(candidates: Candidates) -> pa.Table:
    """Return a table of the schema CANDIDATES, or RESCORED_CANDIDATES."""
    columns = [getattr(candidates, name) for name in COLUMNS]
    if candidates.late is None:
        return pa.table([pa.array(column) for column in columns], schema=CANDIDATES)
    columns += [getattr(candidates.late, field.name) for field in fields(LateScores)]
    return pa.table([pa.array(column) for column in columns], schema=RESCORED_CANDIDATES)


def candidates_from_arrow(table: pa.Table) -> Candidates:
    """Invert `candidates_to_arrow`."""
    columns = {name: table[column].to_numpy() for name, column in zip(COLUMNS, CANDIDATES.names, strict=True)}
    late_names = RESCORED_CANDIDATES.names[len(COLUMNS) :]
    is_rescored = set(late_names) <= set(table.column_names)
    return Candidates(**columns, late=LateScores(*(table[name].to_numpy() for name in late_names)) if is_rescored else None)


def pairs_to_arrow(pairs: ScoredPairs, **flags: Bools) -> pa.Table:
    """Return a table of pairs (n,) with additional columns (n,)."""
    columns = {column: getattr(pairs, name) for name, column in PAIR_COLUMNS.items()} | flags
    return pa.table({name: pa.array(column) for name, column in columns.items()})


def pairs_from_arrow(table: pa.Table) -> ScoredPairs:
    """Invert `pairs_to_arrow`."""
    return ScoredPairs(**{name: table[column].to_numpy() for name, column in PAIR_COLUMNS.items()})


def sort_best_first(table: pa.Table) -> pa.Table:
    """Sort a table of pairs as `matching.rank` does."""
    margins, sources, targets = (table[name].to_numpy() for name in ("margin", "source_id", "target_id"))
    return table.take(pa.array(np.lexsort((targets, sources, -margins))))


def write_bitext(folder: str, row_groups: Iterable[pa.Table], has_probabilities: bool = False) -> None:
    """Write FOLDER/bitext.parquet, FOLDER/bitext.tsv.gz with lines `margin<TAB>source<TAB>target`, and README.md unless the user wrote it.

    The row groups have the schema BITEXT, with PROBABILITY if `has_probabilities`, and at most ROW_GROUP_PAIRS rows.
    """
    schema = pa.schema([*BITEXT, PROBABILITY]) if has_probabilities else BITEXT
    with table_files.parquet_writer(storage.join(folder, PARQUET), schema) as writer, text_writer(storage.join(folder, TSV)) as text:
        for table in row_groups:
            writer.write_table(rebuild_dictionaries(table, schema))
            pairs = zip(*(table[name].to_pylist() for name in ("margin", "source_text", "target_text")), strict=True)
            text.writelines(f"{margin:.8f}\t{source}\t{target}\n" for margin, source, target in pairs)
    _write_card(folder)


def _write_card(folder: str) -> None:
    """Write FOLDER/README.md with the checksum of the Parquet file, unless another text is there."""
    uri = storage.join(folder, CARD)
    (start,) = storage.read_parts([uri], 0, 2 * len(CARD_TEXT))
    own_card = re.escape(CARD_TEXT).replace("CHECKSUM", "[0-9a-f]+")
    if start is not None and not re.fullmatch(own_card, start.decode(errors="replace")):
        return
    with storage.atomic(uri) as handle:
        handle.write(CARD_TEXT.replace("CHECKSUM", storage.checksum(storage.join(folder, PARQUET))).encode())


def row_groups(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the parts of a table that are row groups of a bitext."""
    for start in range(0, max(1, len(table)), ROW_GROUP_PAIRS):
        yield table.slice(start, ROW_GROUP_PAIRS)


def rebuild_dictionaries(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Encode each dictionary column by its own rows, so that equal rows give equal bytes, whichever table they come from."""
    columns = []
    for field in schema:
        column = table[field.name]
        if pa.types.is_dictionary(field.type):
            column = column.cast(pa.string()).combine_chunks().dictionary_encode()
        columns.append(column)
    return pa.table(columns, schema=schema)


@contextlib.contextmanager
def text_writer(uri: str) -> Iterator[TextIO]:
    """Open `uri` for atomic writing of lines, compressed if its name ends in .gz. The same lines give the same bytes."""
    with contextlib.ExitStack() as stack:
        handle: BinaryIO = stack.enter_context(storage.atomic(uri))
        if uri.endswith(".gz"):  # without a time and a name
            handle = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=handle, mtime=0))  # type: ignore[assignment]
        yield stack.enter_context(io.TextIOWrapper(handle, encoding="utf-8", newline="\n"))
