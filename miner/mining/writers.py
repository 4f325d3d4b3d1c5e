"""Candidates and pairs on disk."""

import gzip
import io

import pyarrow as pa
import pyarrow.compute as pc

from miner import storage
from miner.mining.candidates import Candidates
from miner.tables import BITEXT, CANDIDATES

TSV, PARQUET = "bitext.tsv.gz", "bitext.parquet"
ROWS = 1 << 16  # pairs formatted, or put into a row group, at a time


def candidates_to_arrow(candidates: Candidates) -> pa.Table:
    """A table of the schema CANDIDATES."""
    direction = pc.if_else(pc.and_(candidates.forward, candidates.backward), "both", pc.if_else(candidates.forward, "forward", "backward"))
    columns = candidates.source_ids, candidates.target_ids, candidates.similarities.astype("f4"), candidates.margins, direction
    return pa.table([pa.array(column) for column in columns], schema=CANDIDATES)


def candidates_from_arrow(table: pa.Table) -> Candidates:
    """What `candidates_to_arrow` was given, its similarities rounded to float32."""
    source_ids, target_ids, similarities, margins = (table[name].to_numpy() for name in CANDIDATES.names[:4])
    forward, backward = (pc.not_equal(table["direction"], other).to_numpy() for other in ("backward", "forward"))
    return Candidates(source_ids, target_ids, similarities.astype("f8"), margins, forward, backward)


def bitext(pairs: Candidates, sources: pa.Table, targets: pa.Table) -> pa.Table:
    """n pairs and their sentences, row by row, of the schema SENTENCES -> a table of the schema BITEXT."""
    columns = {
        "source_id": pa.array(pairs.source_ids),
        "target_id": pa.array(pairs.target_ids),
        "margin": pa.array(pairs.margins),
        "similarity": pa.array(pairs.similarities.astype("f4")),
    }
    for side, sentences in (("source", sources), ("target", targets)):
        columns |= {f"{side}_text": sentences["text"], f"{side}_file": sentences["source"], f"{side}_line": sentences["line"]}
    return pa.table([columns[name] for name in BITEXT.names], schema=BITEXT)


def write_bitext(folder: str, pairs: pa.Table) -> None:
    """Pairs of the schema BITEXT -> FOLDER/bitext.parquet, and FOLDER/bitext.tsv.gz of `margin<TAB>source<TAB>target`."""
    with storage.parquet_writer(storage.join(folder, PARQUET), BITEXT) as writer:
        writer.write_table(pairs, row_group_size=ROWS)
    # Without a time and a name, so that the same pairs give the same bytes.
    with (
        storage.atomic(storage.join(folder, TSV)) as handle,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=handle, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text,
    ):
        for batch in pairs.select(["margin", "source_text", "target_text"]).to_batches(max_chunksize=ROWS):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            text.writelines(f"{margin:.8f}\t{source}\t{target}\n" for margin, source, target in rows)
