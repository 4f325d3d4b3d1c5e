"""Candidates and pairs on disk."""

import contextlib
import gzip
import io
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import BinaryIO, TextIO

import pyarrow as pa

from miner import storage
from miner.mining.candidates import Candidates
from miner.tables import BITEXT, CANDIDATES

TSV, PARQUET = "bitext.tsv.gz", "bitext.parquet"
ROWS = 1 << 16  # pairs formatted, or put into a row group, at a time


def candidates_to_arrow(candidates: Candidates) -> pa.Table:
    """A table of the schema CANDIDATES."""
    columns = [getattr(candidates, field.name) for field in fields(Candidates)]
    return pa.table([pa.array(column) for column in columns], schema=CANDIDATES)


def candidates_from_arrow(table: pa.Table) -> Candidates:
    """What `candidates_to_arrow` was given."""
    return Candidates(*(table[name].to_numpy() for name in CANDIDATES.names))


def write_bitext(folder: str, parts: Iterable[pa.Table]) -> None:
    """Pairs of the schema BITEXT -> FOLDER/bitext.parquet, and FOLDER/bitext.tsv.gz of `margin<TAB>source<TAB>target`.

    They come in parts of at most ROWS pairs, so that few of their texts are held at a time.
    """
    with storage.parquet_writer(storage.join(folder, PARQUET), BITEXT) as writer, tsv_writer(storage.join(folder, TSV)) as text:
        for part in parts:
            writer.write_table(same_bytes(part, BITEXT))
            rows = zip(*(part[name].to_pylist() for name in ("margin", "source_text", "target_text")), strict=True)
            text.writelines(f"{margin:.8f}\t{source}\t{target}\n" for margin, source, target in rows)


def same_bytes(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table whose columns of names have dictionaries of their own rows, so that equal rows are equal bytes, wherever they were."""
    columns = []
    for field in schema:
        column = part[field.name]
        if pa.types.is_dictionary(field.type):
            column = column.cast(pa.string()).combine_chunks().dictionary_encode()
        columns.append(column)
    return pa.table(columns, schema=schema)


@contextlib.contextmanager
def tsv_writer(uri: str) -> Iterator[TextIO]:
    """Write lines to `uri`, atomically; packed where its name ends in .gz. The same lines give the same bytes."""
    with contextlib.ExitStack() as stack:
        handle: BinaryIO = stack.enter_context(storage.atomic(uri))
        if uri.endswith(".gz"):  # without a time and a name
            handle = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=handle, mtime=0))  # type: ignore[assignment]
        yield stack.enter_context(io.TextIOWrapper(handle, encoding="utf-8", newline="\n"))
