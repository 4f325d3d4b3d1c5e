"""Texts in many languages and domains, by which an encoder is measured. `configs/calibration_texts.py` collects them."""

from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from miner.io import table_files

TEXTS = Path(str(files("miner.encoders") / "assets" / "calibration" / "texts.parquet"))
SCHEMA = pa.schema(
    [
        pa.field("source", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("group", pa.int32(), nullable=False),  # the texts of a group are translations of each other
        pa.field("lang", pa.dictionary(pa.int8(), pa.string()), nullable=False),  # canonical
        pa.field("text", pa.string(), nullable=False),  # cleaned, in no other row of the language
    ]
)


def num_bytes() -> int:
    """Return the bytes of all texts."""
    return int(pc.sum(pc.binary_length(read()["text"])).as_py())


def read() -> pa.Table:
    """Return the texts, with the columns of SCHEMA."""
    return table_files.read_table(str(TEXTS))
