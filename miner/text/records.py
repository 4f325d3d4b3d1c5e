"""Lines and records of text files (UTF-8 lines, CSV, JSON), numbered from 1 and read in bounded memory, and their columns."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import Any, BinaryIO, Literal, cast

import pyarrow as pa

from miner.errors import ConfigError, DataError
from miner.text import streams
from miner.units import counted

MAX_LISTED_COLUMNS, MAX_NAME_CHARS = 20, 100  # in an error message
MAX_WHOLE_FLOAT = 1e15  # larger ones are written with an exponent
BATCH_RECORDS = 4096
CHUNK_CHARS = 1 << 16  # of JSON, and bytes of records, read at a time: what is read ahead counts in the sample of a plan
MAX_TRIED_CHARS = 1 << 21  # of JSON, tried as one record
MAX_RECORD_BYTES, BATCH_BYTES = 1 << 24, 1 << 24  # read for one record, and for a batch of them
MAX_POSITION_DIGITS = 9
ARRAY_IN_OBJECT = re.compile(r'\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\[')
SEPARATORS = re.compile(r"[ \t\r\n,]*")  # of JSON records
SNIFFED_BYTES, MIN_SNIFFED_BYTES = 1000, 10
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")  # neither can occur in UTF-8
HIGH_BYTES = 9  # the high bytes of alphabets in UTF-16 are below, and no printed character is
MIN_CONTROLS, MAX_CONTROLS = 0.4, 0.2  # shares of such bytes among the high bytes, and among the low bytes, of UTF-16


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
IS_JSON = {b"format": b"json"}  # metadata of columns whose strings are JSON
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
    yield from select_columns(chain([(first, records)], batches), [partial(_pick_cell, position) for position in positions])


def other_cells(batches: Iterator[NumberedRecords], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the columns of TSV lines or rows of cells that are not among `columns`. The header is that of `select_cells`."""
    names: dict[str, int] | None = None  # column -> position
    for _, records in batches:
        if names is None:
            first = [] if isinstance(records[0], Fault) else split_cells(records[0])
            numbers = [str(position) for position in range(1, len(first) + 1)]
            has_header = not all(map(str.isdecimal, columns))
            cells = [cell.strip() if has_header and isinstance(cell, str) else "" for cell in first]
            names = {
                (f"column_{number}" if not cell or cells.count(cell) > 1 else cell): int(number) - 1
                for number, cell in zip(numbers, cells, strict=True)
                if (cell if has_header else number) not in columns
            }
            records = records[1:] if has_header else records
        rows = [() if isinstance(record, Fault) else split_cells(record) for record in records]
        yield pa.table({name: pa.array([_cell(row, position) for row in rows], pa.string()) for name, position in names.items()})


def _cell(row: Sequence[Value], position: int) -> str | None:
    cell = row[position] if position < len(row) else None
    return cell if isinstance(cell, str) else None


def other_keys(batches: Iterator[NumberedRecords], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the values of JSON objects under other keys than `columns`, as JSON; the keys are those of the first batch."""
    taken, schema = {*columns, *(column.partition(".")[0] for column in columns)}, None
    for _, records in batches:
        rows = [record if isinstance(record, dict) else {} for record in records]
        if schema is None:
            keys = dict.fromkeys(key for row in rows for key in row if key not in taken)
            schema = pa.schema([pa.field(key, pa.string(), metadata=IS_JSON) for key in keys])
        values = [[None if row.get(key) is None else _to_json(row[key]) for row in rows] for key in schema.names]
        yield pa.table([pa.array(column, pa.string()) for column in values], schema=schema)


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()  # without surrogates, which UTF-8 cannot encode


def split_cells(row: str | Sequence[Value]) -> Sequence[Value]:
    """Cut a line at its tabs; quotes have no meaning. Cells of CSV remain as they are."""
    return row.split("\t") if isinstance(row, str) else row


def _pick_cell(position: int, row: Record) -> Value:
    # Line by line, because many lists of cells take more time than cutting for each column.
    cells = row.split("\t", position + 1) if isinstance(row, str) else row
    if len(cells) > position:
        return cells[position]
    return Fault("invalid", f"{counted(len(cells), 'column')}, expected at least {position + 1}; fix or delete the line")


def _position(column: str) -> int:
    """Return the position, from 0, of a column that is given by its number."""
    if len(column) > MAX_POSITION_DIGITS:
        raise ConfigError(f"column {column:.20}: a number of {len(column)} digits; columns count from 1")
    if int(column) == 0:
        raise ConfigError("column 0: columns count from 1")
    return int(column) - 1


def list_columns(names: Sequence[str]) -> str:
    """Return the names of columns for an error message, in one line."""
    return ", ".join(repr(name[:MAX_NAME_CHARS])[1:-1] for name in names[:MAX_LISTED_COLUMNS])


def _find_in_header(header: Sequence[str], column: str, name: str) -> int:
    if column not in header:
        listed = list_columns(header)
        raise DataError(
            f"{name}:1: no column {column[:MAX_NAME_CHARS]!r} in the header ({listed}); name one of them, or give numbers from 1"
        )
    return header.index(column)


def require_column(name: str, column: str | None) -> str:
    """Return the column. Raises ConfigError if the settings name none."""
    if column is None:
        remedy = "name the column with the text by --text-column, or by `columns` in a training config"
        raise ConfigError(f"{name}: is a table; {remedy}; that of one side by --source-column or --target-column")
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
        return Fault("invalid", f"no key {key[:MAX_NAME_CHARS]!r}; choose another column, or fix the line")
    if isinstance(value, str):
        return checked(value)
    if value is None:
        return ""
    if numbers and isinstance(value, bool | int | float):
        return _number_text(value)
    return Fault("invalid", f"{key[:MAX_NAME_CHARS]!r} is not text; choose another column")


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


def refuse_utf16(handle: BinaryIO, name: str, block_bytes: int = streams.BLOCK_BYTES) -> BinaryIO:
    """Return a file with the same bytes. Raises DataError if its first block begins with UTF-16."""
    head = handle.read(min(SNIFFED_BYTES, block_bytes))
    if encoding := _utf16_of(head):
        option = f"--encoding {encoding}"
        raise DataError(f"{name}: UTF-16 text; convert it, as in `iconv -f {encoding} -t utf-8`, or give {option} where a command has it")
    return cast(BinaryIO, io.BufferedReader(_Rejoined(head, handle), CHUNK_CHARS))


def _utf16_of(head: bytes) -> str | None:
    """Return its encoding if it has a byte order mark and NUL, or every other byte is a low control character, as in an alphabet."""
    if head.startswith(UTF16_BOMS) and b"\0" in head:
        return "utf-16"
    shares = [sum(byte < HIGH_BYTES for byte in half) / max(1, len(half)) for half in (head[::2], head[1::2])]
    has_controls = len(head) >= MIN_SNIFFED_BYTES and max(shares) > MIN_CONTROLS and min(shares) < MAX_CONTROLS
    return ("utf-16-be" if shares[0] > shares[1] else "utf-16-le") if has_controls else None


class _Rejoined(io.RawIOBase):
    """A file whose head has been read."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self.head, self.rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.head[: len(buffer)] or self.rest.read(len(buffer))
        self.head = self.head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def decode_lines(handle: BinaryIO, max_line_bytes: int, block_bytes: int = streams.BLOCK_BYTES) -> Iterator[NumberedValues]:
    r"""Yield the lines of a text in blocks, cut at "\n"; a line that is not UTF-8, or too long, is a Fault. See `read_line_blocks`."""
    too_long = Fault("too_long", f"longer than {max_line_bytes} bytes; cut the line")
    first = 1
    for block in streams.read_line_blocks(handle, max_line_bytes, block_bytes):
        values: list[Value] = [too_long] if block is None else _decode_lines(block)
        yield first, values
        first += len(values)


def _decode_lines(block: bytes) -> list[Value]:
    block = block.removesuffix(b"\n")
    try:
        return [*block.decode().split("\n")]
    except UnicodeDecodeError:
        return [decode(line) for line in block.split(b"\n")]


def decode(data: bytes | None) -> Value:
    """Return the text of bytes, "" for None."""
    try:
        return data.decode() if data is not None else ""
    except UnicodeDecodeError:
        return NOT_UTF8


class _LongRecordError(Exception):
    """More bytes were read than a record may have."""


class _RecordSource(io.RawIOBase):
    """A file that counts the bytes that are read for a record."""

    def __init__(self, handle: BinaryIO) -> None:
        self.handle, self.pending_bytes = handle, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.handle.read(len(buffer))
        self.pending_bytes += len(data)
        if self.pending_bytes > MAX_RECORD_BYTES + len(buffer):  # the last block of the record before
            raise _LongRecordError
        buffer[: len(data)] = data
        return len(data)


def read_records(parse: Callable[[BinaryIO, str], Iterator[Record]], handle: BinaryIO, name: str) -> Iterator[NumberedRecords]:
    """Yield the records that `parse` yields for a file, in batches, numbered from 1.

    Memory is bounded by MAX_RECORD_BYTES and BATCH_BYTES. Raises DataError for a longer record, before it is parsed.
    """
    source, first, num_bytes = _RecordSource(handle), 1, 0
    batch: list[Record] = []
    try:
        for record in parse(cast(BinaryIO, io.BufferedReader(source, CHUNK_CHARS)), name):
            batch.append(record)
            if source.pending_bytes:
                num_bytes, source.pending_bytes = num_bytes + source.pending_bytes, 0
            if len(batch) == BATCH_RECORDS or num_bytes > BATCH_BYTES:
                yield first, batch
                first, batch, num_bytes = first + len(batch), [], 0
    except _LongRecordError as error:
        raise DataError(f"{name}:{first + len(batch)}: a record of more than {MAX_RECORD_BYTES:,} bytes; correct the file") from error
    if batch:
        yield first, batch


def csv_reader(lines: Iterable[str], separator: str) -> Any:
    """Return a reader of CSV by RFC 4180. It raises csv.Error for a cell of more than MAX_LINE_BYTES."""
    csv.field_size_limit(streams.MAX_LINE_BYTES)  # of the process; another reader may have set it
    return csv.reader(lines, delimiter=separator)


def csv_rows(handle: BinaryIO, name: str) -> Iterator[Record]:
    """Yield rows of cells. The separator is that of `, ; TAB` which the first line has most often."""
    text = io.TextIOWrapper(handle, encoding="utf-8-sig", errors="surrogateescape", newline="")
    first_line = text.readline()
    if not first_line:
        return
    separator = max(",;\t", key=first_line.count)
    rows = csv_reader(chain([first_line], text), separator)
    try:
        for row in rows:
            yield BLANK if not row else row if "".join(row).isascii() else [checked(cell) for cell in row]
    except csv.Error as error:
        raise DataError(f"{name}:{rows.line_num}: not CSV ({error}); correct the line, or write TSV") from error


def json_records(handle: BinaryIO, name: str, is_record: Callable[[dict[str, Any]], bool]) -> Iterator[Record]:
    """Yield the records of an array, of an object that holds one (such as {"data": [...]}), or objects one after the other.

    Bytes that are not UTF-8 are escaped. `is_record` is whether an object that begins with an array is a record rather than its holder.
    """
    decoder, num_records, is_end = json.JSONDecoder(), 0, False
    text = io.TextIOWrapper(handle, encoding="utf-8-sig", errors="surrogateescape")
    buffer, is_array = _open_array(text, is_record)
    while True:
        start = end = 0
        while (start := _skip_separators(buffer, end)) < len(buffer):
            if is_array and buffer[start] == "]":
                return
            try:
                record, end = decoder.raw_decode(buffer, start)
            except (ValueError, RecursionError) as error:
                if is_end or len(buffer) - start > MAX_RECORD_BYTES // 2:  # it will not end, or be too long
                    raise DataError(f"{name}: not JSON after {num_records} records ({error}); correct the file, or write JSONL") from error
                break
            if end == len(buffer) and not is_end and not isinstance(record, dict | list | str):
                break  # a number may continue in the next chunk
            yield record
            num_records += 1
        if is_end:
            if is_array:
                raise DataError(f"{name}: ends within its JSON array after {num_records} records; copy the file again")
            return
        chunk = text.read(max(CHUNK_CHARS, len(buffer) - start))  # of a long record twice as much, to decode again
        is_end, buffer = not chunk, buffer[start:] + chunk


def _skip_separators(buffer: str, start: int) -> int:
    match = SEPARATORS.match(buffer, start)
    return match.end() if match else start


def _open_array(text: io.TextIOWrapper, is_record: Callable[[dict[str, Any]], bool]) -> tuple[str, bool]:
    """Read the start of JSON: return what follows the bracket that opens its array of records and True, or all of it and False."""
    start = " "
    while start.isspace():
        start = text.read(CHUNK_CHARS)
    start = start.lstrip()
    if start.startswith("["):
        return start[1:], True
    array = ARRAY_IN_OBJECT.match(start)
    if array is None:
        return start, False
    decoder = json.JSONDecoder()
    while True:
        try:
            first, end = decoder.raw_decode(start)
        except (ValueError, RecursionError):
            chunk = text.read(len(start))  # twice as much to decode again
            if not chunk or len(start) > MAX_TRIED_CHARS:  # longer than a record, or cut off
                return start[array.end() :], True
            start += chunk
        else:
            start += text.read(CHUNK_CHARS)
            return (start, False) if is_record(first) or start[end:].strip() else (start[array.end() :], True)
