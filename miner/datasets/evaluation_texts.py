"""Read every sentence of an evaluation file, whatever its columns, so that none of them becomes training data."""

import json
from collections.abc import Iterator

from miner.config.datasets import DatasetFiles
from miner.datasets.columns import read_dataset_texts
from miner.errors import DataError
from miner.text import streams
from miner.text.formats import check_lines

BATCH_ROWS = 4096


def read_sentences(uri: str | DatasetFiles) -> Iterator[str]:
    """Yield the cells of text and TSV files, and all strings in JSONL and Parquet values, that contain a letter or digit.

    Raises DataError if the file cannot be read or has no sentences, ConfigError if its format is not supported.
    """
    is_empty = True
    for text in read_dataset_texts(uri) if isinstance(uri, DatasetFiles) else _read_file(uri):
        if any(map(str.isalnum, text)):
            is_empty = False
            yield text
    if is_empty:
        raise DataError(f"{uri}: no sentences to exclude from training; check the file")


def _read_file(uri: str) -> Iterator[str]:
    kind, compression = streams.split_extensions(uri)
    check_lines(uri, kind)
    return _read_parquet(uri) if kind == ".parquet" else _read_lines(uri, compression, kind in (".jsonl", ".ndjson"))


def _read_lines(uri: str, compression: str, is_jsonl: bool) -> Iterator[str]:
    number = 0
    with streams.open_bytes(uri, compression) as handle:
        for block in streams.read_line_blocks(handle, streams.MAX_LINE_BYTES):
            for line in (block or b"").splitlines():
                number += 1
                try:
                    text = line.removeprefix(streams.BOM).decode()
                    yield from _strings_in(json.loads(text)) if is_jsonl and text else text.split("\t")
                except ValueError as error:
                    problem = "not JSON" if is_jsonl else "not UTF-8"
                    raise DataError(f"{uri}:{number}: {problem} ({error}); fix the line") from error


def _strings_in(value: object) -> Iterator[str]:
    """Yield all strings of a nested value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode(errors="replace")
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings_in(part)


def _read_parquet(uri: str) -> Iterator[str]:
    with streams.open_parquet(uri) as file:
        for batch in streams.read_batches(uri, file, file.schema_arrow.names, BATCH_ROWS):
            yield from _strings_in(batch.to_pydict())
