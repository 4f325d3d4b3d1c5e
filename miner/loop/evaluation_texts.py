"""Every sentence of a file, whatever its columns are called: what an evaluation file forbids to learn from."""

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from miner import storage
from miner.errors import DataError
from miner.text import streams


def sentences(uri: str) -> Iterator[str]:
    """The cells of text and TSV, the string values of JSONL, the string columns of Parquet; those without a letter or figure say nothing.

    DataError where the file cannot be read.
    """
    kind, compression = streams.extensions(uri)
    found = _parquet(uri) if kind == ".parquet" else _lines(uri, compression, kind in (".jsonl", ".ndjson"))
    yield from (text for text in found if any(map(str.isalnum, text)))


def _lines(uri: str, compression: str, json_lines: bool) -> Iterator[str]:
    number = 0
    with streams.open_bytes(uri, compression) as handle:
        for block in streams.line_blocks(handle, streams.MAX_LINE):
            for line in (block or b"").splitlines():
                number += 1
                try:
                    text = line.removeprefix(streams.BOM).decode()
                    yield from _strings(json.loads(text)) if json_lines and text else text.split("\t")
                except ValueError as error:
                    raise DataError(f"{uri}:{number}: {'not JSON' if json_lines else 'not UTF-8'} ({error}); mend the line") from error


def _strings(value: object) -> Iterator[str]:
    """The strings of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def _parquet(uri: str) -> Iterator[str]:
    fs, path = storage.filesystem(uri)
    with streams.clear_errors(uri, "Parquet"), fs.open(path, "rb") as handle, pq.ParquetFile(handle, pre_buffer=False) as file:
        columns = [field.name for field in file.schema_arrow if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
        for batch in file.iter_batches(columns=columns):
            for column in batch.columns:
                yield from (text for text in column.to_pylist() if text)
