"""Read files of scored pairs: the outputs of `miner score` in any format, and bitext.tsv.gz of `miner mine`."""

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from miner.errors import DataError
from miner.io.tables import SCORED, SCORED_TSV
from miner.text import formats, streams
from miner.text.records import Fault

ENDINGS = (".tsv", ".jsonl", ".parquet")
NUM_REQUIRED = 3  # columns of SCORED_TSV that every file has: margin, source and target
SCHEMA = pa.schema([pa.field(name, SCORED.field(name).type) for name in SCORED_TSV])


def read_scored_pairs(uri: str) -> Iterator[pa.Table]:
    """Yield the pairs of a file with the columns SCORED_TSV, in batches; margins are NaN, and other values null, where there are none.

    Raises DataError for a file of another kind.
    """
    extension = streams.split_extensions(uri)[0]
    if extension not in ENDINGS:
        raise DataError(f"{uri}: not a file of scored pairs; give one of `miner score`, or bitext.tsv.gz of `miner mine`")
    columns = [str(number) for number in range(1, len(SCORED_TSV) + 1)] if extension == ".tsv" else SCORED_TSV
    for rows in formats.read_rows(uri, columns, formats.TABLE):
        for values in rows.columns[:NUM_REQUIRED]:
            if (number := next((number for number, value in enumerate(values, rows.first) if isinstance(value, Fault)), None)) is not None:
                raise DataError(f"{uri}:{number}: no margin, source and target; give a file of `miner score` or `miner mine`")
        texts = ([None if isinstance(value, Fault) else value or None for value in values] for values in rows.columns)
        cells = dict(zip(SCORED_TSV, texts, strict=True))
        numbers = {
            name: np.array([_number(uri, number, value) for number, value in enumerate(cells[name], rows.first)], np.float64)
            for name in ("margin", "probability", "line")
        }
        values = [
            pa.array(cells[name], pa.string())
            if name not in numbers
            else pa.array(numbers[name], mask=None if name == "margin" else np.isnan(numbers[name])).cast(SCHEMA.field(name).type)
            for name in SCORED_TSV
        ]
        yield pa.table(values, schema=SCHEMA)


def _number(uri: str, line: int, value: str | None) -> float:
    """Return the number of a cell, NaN for none. Raises DataError for other text."""
    if value is None:
        return math.nan
    try:
        return float(value)
    except ValueError:
        remedy = "give a file of `miner score`, or bitext.tsv.gz of `miner mine`"
        raise DataError(f"{uri}:{line}: {value[:40]!r} is not a number; {remedy}") from None
