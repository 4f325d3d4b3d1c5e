"""Every sentence of a file, whatever its columns are called: what an evaluation file forbids to learn from."""

import json
from collections.abc import Iterator

import pyarrow.parquet as pq

from miner import storage
from miner.errors import DataError
from miner.text import streams
from miner.text.formats import refuse


def sentences(uri: str) -> Iterator[str]:
    """The cells of text and TSV, the strings in the values of JSONL and Parquet; those without a letter or figure say nothing.

    DataError where the file cannot be read or holds no sentence, ConfigError where it is of a kind that is not read.
    """
    kind, compression = streams.extensions(uri)
    refuse(uri, kind)
    empty = True
    for text in _parquet(uri) if kind == ".parquet" else _lines(uri, compression, kind in (".jsonl", ".ndjson")):
        if any(map(str.isalnum, text)):
            empty = False
            yield text
    if empty:
        raise DataError(f"{uri}: not one sentence in it to keep from being learnt; check the file")


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
    """The strings of a value, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode(errors="replace")
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def _parquet(uri: str) -> Iterator[str]:
    fs, path = storage.filesystem(uri)
    with streams.clear_errors(uri, "Parquet"), fs.open(path, "rb") as handle, pq.ParquetFile(handle, pre_buffer=False) as file:
        for batch in file.iter_batches():
            yield from _strings(batch.to_pydict())
