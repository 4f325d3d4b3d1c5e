"""Values of text and tables, and how the columns of a table are named."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal

from miner.errors import ConfigError, DataError
from miner.units import counted

MAX_LISTED_COLUMNS = 20  # in an error message
MAX_WHOLE_FLOAT = 1e15  # larger ones are written with an exponent


@dataclass(frozen=True)
class Fault:
    """Why a line or record has no value: the count that it adds to, and the reason with its remedy."""

    kind: Literal["invalid", "too_long", "empty"]
    reason: str


Value = str | Fault
NumberedValues = tuple[int, list[Value]]  # number of the first line, values
Record = Any  # a line of TSV, cells of CSV, a value of JSON or the segments of a TMX unit; a Fault if it cannot be read
NumberedRecords = tuple[int, list[Record]]  # number of the first record, records

NOT_UTF8 = Fault("invalid", "not UTF-8; convert the file")
SURROGATE = Fault("invalid", "an unpaired surrogate, which UTF-8 cannot encode; fix or delete the line")
BLANK = Fault("empty", "a blank line")  # a record of which each value is empty


@dataclass(frozen=True)
class Rows:
    """Columns of n consecutive lines of a text, or records of a table."""

    first: int  # number of the first, from 1
    columns: Sequence[list[Value]]  # column by column, n values each
    blank: Sequence[int] = ()  # rows of a table, from 0, that are blank lines; their values are ""


def select_columns(batches: Iterator[NumberedRecords], picks: Sequence[Callable[[Record], Value]]) -> Iterator[Rows]:
    """Yield the values that functions, one per column, pick from each record."""
    for first, records in batches:
        faults = [row for row, record in enumerate(records) if isinstance(record, Fault)]
        blank = [row for row in faults if records[row] is BLANK]
        if faults:
            columns = [[pick(record) if not isinstance(record, Fault) else record for record in records] for pick in picks]
            for column, row in product(columns, blank):
                column[row] = ""
        else:
            columns = [list(map(pick, records)) for pick in picks]
        yield Rows(first, columns, blank)


def select_cells(batches: Iterator[NumberedRecords], columns: Sequence[str], name: str) -> Iterator[Rows]:
    """Yield columns of TSV lines or rows of cells. The first row is the header, unless all columns are numbers."""
    has_header = not all(map(str.isdecimal, columns))
    first, records = next(batches, (1, []))
    if not records:
        return
    if not has_header:
        positions = [_position(column) for column in columns]
    elif isinstance(records[0], Fault) and records[0] is not BLANK:
        raise DataError(f"{name}:{first}: {records[0].reason}")
    else:
        cells = [] if records[0] is BLANK else split_cells(records[0])
        header = [cell.strip() if isinstance(cell, str) else "" for cell in cells]
        positions = [_find_in_header(header, column, name) for column in columns]
        first, records = first + 1, records[1:]
    yield from select_columns(_chain((first, records), batches), [partial(_pick_cell, position) for position in positions])


def _chain(batch: NumberedRecords, batches: Iterator[NumberedRecords]) -> Iterator[NumberedRecords]:
    yield batch
    yield from batches


def split_cells(row: str | Sequence[Value], max_cells: int = sys.maxsize) -> Sequence[Value]:
    """Cut a line at its tabs, `max_cells` at most being cells; quotes have no meaning. Cells of CSV remain as they are."""
    return row.split("\t", max_cells) if isinstance(row, str) else row


def _pick_cell(position: int, row: Record) -> Value:
    cells = split_cells(row, position + 1)  # line by line, because many lists of cells take more time than cutting for each column
    if len(cells) > position:
        return cells[position]
    return Fault("invalid", f"{counted(len(cells), 'column')}, expected at least {position + 1}; fix or delete the line")


def _position(column: str) -> int:
    """Return the position, from 0, of a column that is given by its number."""
    if int(column) == 0:
        raise ConfigError("column 0: columns count from 1")
    return int(column) - 1


def list_columns(names: Sequence[str]) -> str:
    """Return the names of columns for an error message."""
    return ", ".join(name.encode(errors="replace").decode() for name in names[:MAX_LISTED_COLUMNS])


def _find_in_header(header: Sequence[str], column: str, name: str) -> int:
    if column not in header:
        listed = list_columns(header)
        raise DataError(f"{name}:1: no column {column!r} in the header ({listed}); name one of them, or give numbers from 1")
    return header.index(column)


def require_column(name: str, column: str | None) -> str:
    """Return the column. Raises ConfigError if the settings name none."""
    if column is None:
        raise ConfigError(f"{name}: is a table; name the column with the text by --text-column, or by `columns` in a training config")
    return column


def find_key(record: Record, key: str) -> tuple[bool, Any]:
    """Return whether a JSON object has a key, and its value: `text`, or `translation.en` for `en` in the object `translation`."""
    if isinstance(record, dict) and key in record:
        return True, record[key]
    value = record
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return False, None
        value = value[part]
    return True, value


def pick_key(record: Record, key: str, numbers: bool = False) -> Value:
    """Return the text of a JSON object under a key, see `find_key`. Null is an empty text; with `numbers`, a number is one too."""
    has_key, value = find_key(record, key)
    if not has_key:
        return Fault("invalid", f"no key {key!r}; choose another column, or fix the line")
    if isinstance(value, str):
        return checked(value)
    if value is None:
        return ""
    if numbers and isinstance(value, bool | int | float):
        return _number_text(value)
    return Fault("invalid", f"{key!r} is not text; choose another column")


def _number_text(value: float) -> str:
    """Return a number as Arrow writes it, so that a table has the same cells in JSON and in Parquet."""
    if isinstance(value, bool):
        return str(value).lower()
    is_whole = isinstance(value, int) or (value.is_integer() and abs(value) < MAX_WHOLE_FLOAT)
    return str(int(value)) if is_whole else str(value)


def checked(text: str) -> Value:
    """Return a text, or the Fault of one that UTF-8 cannot encode: of bytes that were escaped to be read, or of JSON escapes."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return NOT_UTF8 if "\udc80" <= text[error.start] <= "\udcff" else SURROGATE
    return text
