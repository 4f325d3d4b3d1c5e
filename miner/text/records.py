"""Formats whose records are not lines: CSV, JSON and TMX. Records are numbered from 1 and read in bounded memory."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, BinaryIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from miner.errors import DataError
from miner.text import streams
from miner.text.values import BLANK, NumberedRecords, Record, Rows, Value, checked, select_columns

BATCH_RECORDS = 4096
CHUNK_CHARS = 1 << 16  # of JSON, read at a time
MAX_RECORD_CHARS = 1 << 24  # of JSON
ARRAY_IN_OBJECT = re.compile(r'\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\[')
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
CODES = {"bpt", "ept", "it", "ph", "ut"}  # elements of a TMX segment whose content is markup of another program


def number_records(records: Iterable[Record]) -> Iterator[NumberedRecords]:
    """Group records in batches, numbered from 1."""
    remaining, first = iter(records), 1
    while batch := list(islice(remaining, BATCH_RECORDS)):
        yield first, batch
        first += len(batch)


def csv_rows(handle: BinaryIO, name: str) -> Iterator[Record]:
    """Yield rows of cells by RFC 4180. The separator is that of `, ; TAB` which the first line has most often."""
    text = io.TextIOWrapper(handle, encoding="utf-8-sig", errors="surrogateescape", newline="")
    csv.field_size_limit(streams.MAX_LINE_BYTES)
    first_line = text.readline()
    if not first_line:
        return
    separator = max(",;\t", key=first_line.count)
    rows = csv.reader(_chain(first_line, text), delimiter=separator)
    try:
        for row in rows:
            yield BLANK if not row else row if "".join(row).isascii() else [checked(cell) for cell in row]
    except csv.Error as error:
        raise DataError(f"{name}:{rows.line_num}: not CSV ({error}); correct the line, or write TSV") from error


def _chain(first: str, rest: Iterable[str]) -> Iterator[str]:
    yield first
    yield from rest


def json_records(handle: BinaryIO, name: str, is_record: Callable[[dict[str, Any]], bool]) -> Iterator[Record]:
    """Yield the records of an array, of an object that holds one (such as {"data": [...]}), or objects one after the other.

    Bytes that are not UTF-8 are escaped. `is_record` is whether an object that begins with an array is a record rather than its holder.
    """
    decoder, num_records, is_end = json.JSONDecoder(), 0, False
    text = io.TextIOWrapper(handle, encoding="utf-8-sig", errors="surrogateescape")
    buffer, is_array = _open_array(text, is_record)
    while True:
        while buffer := buffer.lstrip(" \t\r\n,"):
            if is_array and buffer[0] == "]":
                return
            try:
                record, end = decoder.raw_decode(buffer)
            except (ValueError, RecursionError) as error:
                if is_end or len(buffer) > MAX_RECORD_CHARS:
                    raise DataError(f"{name}: not JSON after {num_records} records ({error}); correct the file, or write JSONL") from error
                break
            if end == len(buffer) and not is_end and not isinstance(record, dict | list | str):
                break  # a number may continue in the next chunk
            yield record
            num_records, buffer = num_records + 1, buffer[end:]
        if is_end:
            if is_array:
                raise DataError(f"{name}: ends within its JSON array after {num_records} records; copy the file again")
            return
        chunk = text.read(CHUNK_CHARS)
        is_end, buffer = not chunk, buffer + chunk


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
            if not chunk or len(start) > MAX_RECORD_CHARS:  # longer than a record, or cut off
                return start[array.end() :], True
            start += chunk
        else:
            start += text.read(CHUNK_CHARS)
            return (start, False) if is_record(first) or start[end:].strip() else (start[array.end() :], True)


def tmx_units(handle: BinaryIO, name: str) -> Iterator[dict[str, str]]:
    """Yield the segments of each translation unit by their language."""
    num_units = 0
    try:
        parents: list[Element] = []
        for event, element in ElementTree.iterparse(handle, events=("start", "end")):
            if event == "start":
                parents.append(element)
                continue
            parents.pop()
            if element.tag.rpartition("}")[2] == "tu":
                num_units += 1
                yield dict(_segments(element))
                parents[-1].clear()  # what was read of the body
    except ElementTree.ParseError as error:
        raise DataError(f"{name}: not TMX after {num_units} units ({error}); correct the file") from error


def select_segments(batches: Iterator[NumberedRecords], langs: Sequence[str], name: str) -> Iterator[Rows]:
    """Yield the segments of some languages, "" for a unit without it. Raises DataError for a language that no unit has."""
    languages = set[str]()

    def note_languages() -> Iterator[NumberedRecords]:
        for first, units in batches:
            languages.update(*units)
            yield first, units

    yield from select_columns(note_languages(), [partial(_pick_segment, lang) for lang in langs])
    for lang in langs:
        if not any(_matches(code, lang) for code in languages):
            raise DataError(f"{name}: no segment in {lang}; its languages are {', '.join(sorted(languages)) or 'none'}")


def _pick_segment(lang: str, unit: dict[str, str]) -> Value:
    return next((text for code, text in unit.items() if _matches(code, lang)), "")


def _segments(unit: Element) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each variant of a translation unit."""
    for variant in unit.iter():
        segment = variant.find("{*}seg") if variant.tag.rpartition("}")[2] == "tuv" else None
        if segment is not None:
            yield variant.get(XML_LANG) or variant.get("lang") or "", "".join(_texts(segment))


def _texts(element: Element) -> Iterator[str]:
    if element.tag.rpartition("}")[2] not in CODES:
        yield element.text or ""
        for child in element:
            yield from _texts(child)
            yield child.tail or ""


def _matches(code: str, lang: str) -> bool:
    """Whether a code such as `en-US` is the language `en-us` or `en`."""
    code, lang = (value.lower().replace("_", "-") for value in (code, lang))
    return code == lang or code.partition("-")[0] == lang
