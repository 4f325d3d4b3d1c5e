"""Rows of JSON lines, of JSON arrays and of Parquet files."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from miner.errors import DataError
from miner.research.datasets.delimited import TOO_LONG
from miner.research.datasets.layout import SOLE, Cells, Dropped, FileGroup, Record
from miner.research.datasets.release import ReleaseFile, read_release_lines
from miner.text import parquet
from miner.text.records import find_key

PARQUET_ROWS = 1024  # read at a time
MAX_JSON_BYTES = 1 << 28  # size of a file that is one value

Keys = Mapping[str, str]  # our column -> key; a dot leads into an object


@dataclass(frozen=True)
class JsonLines:
    """One JSON object per line."""

    keys: Keys
    optional: tuple[str, ...] = ()  # columns that may be absent

    @property
    def expected(self) -> str:
        return f"one JSON object per line, with the keys {', '.join(self.keys.values())}"

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        for line, text in read_release_lines(group.files[SOLE]):
            if text is None:
                yield line, TOO_LONG
            elif not text.strip():
                yield line, Dropped("blank", "a blank line")
            else:
                yield line, self._parse(text)

    def _parse(self, text: str) -> Cells | Dropped:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            return Dropped("not JSON", f"{text[:40]!r}")
        return pick(record, self.keys, self.optional)


@dataclass(frozen=True)
class JsonArray:
    """One JSON array of objects."""

    keys: Keys

    @property
    def expected(self) -> str:
        return f"one JSON array of objects with the keys {', '.join(self.keys.values())}"

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        file = group.files[SOLE]
        records = load_json(file)
        if not isinstance(records, list):
            raise DataError(f"{file.uri}:1: expected {self.expected}, found {_kind(records)}; check that the file is as published")
        for number, record in enumerate(records, start=1):
            yield number, pick(record, self.keys)


@dataclass(frozen=True)
class ParquetRows:
    """Rows of a Parquet file."""

    keys: Keys

    @property
    def expected(self) -> str:
        return f"Parquet columns {', '.join(self.keys.values())}"

    def __call__(self, group: FileGroup) -> Iterator[Record]:
        file = group.files[SOLE]
        if file.member:
            raise DataError(f"{file.uri}: a Parquet file in an archive; unpack the archive first")
        number = 1
        with parquet.open_parquet(file.path, file.uri) as table:
            missing = [key for key in self.keys.values() if key not in table.schema_arrow.names]
            if missing:
                listed = ", ".join(table.schema_arrow.names[:20])
                raise DataError(f"{file.uri}: expected {self.expected}, found {listed}; check that the file is as published")
            for batch in parquet.read_batches(file.uri, table, list(self.keys.values()), PARQUET_ROWS):
                for row in batch.to_pylist():
                    yield number, pick(row, self.keys)
                    number += 1


def load_json(file: ReleaseFile) -> Any:
    """The value of a file that is JSON as a whole; DataError where it is not."""
    with file.open() as handle:
        data = handle.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise DataError(f"{file.uri}: one JSON value of more than {MAX_JSON_BYTES:,} bytes; check that it is as published")
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{file.uri}: not UTF-8; download the file again, or convert it") from error
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise DataError(
            f"{file.uri}:{line}: expected one JSON value, found what is not ({error}); check that it is as published"
        ) from error


def pick(record: Any, keys: Keys, optional: tuple[str, ...] = ()) -> Cells | Dropped:
    """The values of some keys as text. Null is an empty cell."""
    cells: Cells = {}
    for column, key in keys.items():
        has_key, value = find_key(record, key)
        if not has_key and column not in optional:
            return Dropped("missing key", _missing(record, key))
        if isinstance(value, dict | list):
            return Dropped("value is not text", f"{_kind(value)} under {key!r}")
        cells[column] = _text(value)
    return cells


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    # JSON can spell half of a surrogate pair, UTF-8 cannot.
    return str(value).encode(errors="replace").decode()


def _missing(record: Any, key: str) -> str:
    return f"no key {key!r} among {', '.join(list(record)[:10])}" if isinstance(record, dict) else _kind(record)


def _kind(value: Any) -> str:
    return "an object" if isinstance(value, dict) else "an array" if isinstance(value, list) else f"{value!r:.40}"
