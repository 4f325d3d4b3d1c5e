"""Formats whose records are not lines: CSV, JSON and TMX. Records are numbered from 1 and read in bounded memory."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError
from miner.text import streams
from miner.text.values import NOT_UTF8, Fault, NumberedValues, Value, column_number, find_in_header, require_column

BATCH_RECORDS = 4096
CHUNK_CHARS = 1 << 16  # of JSON, read at a time
MAX_RECORD_CHARS = 1 << 24  # of JSON
ARRAY_IN_OBJECT = re.compile(r'\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\[')
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
CODES = {"bpt", "ept", "it", "ph", "ut"}  # elements of a TMX segment whose content is markup of another program


def read_records(uri: str, extension: str, compression: str, settings: TextSettings, name: str) -> Iterator[NumberedValues]:
    """Yield the values of one column (of TMX: one language) of a .csv, .json or .tmx file. Raises DataError for a malformed file."""
    with streams.open_bytes(uri, compression, settings.max_expansion) as handle:
        if extension == ".csv":
            values = _csv_values(handle, require_column(name, settings.text_column), name)
        elif extension == ".tmx":
            values = _tmx_values(handle, settings.text_column, name)
        else:
            values = _json_values(handle, settings.text_column, name)
        yield from _number(values)


def _number(values: Iterable[tuple[int, Value]]) -> Iterator[NumberedValues]:
    """Group numbered values, whose numbers are consecutive."""
    first, batch = 1, list[Value]()
    for number, value in values:
        if not batch:
            first = number
        batch.append(value)
        if len(batch) == BATCH_RECORDS:
            yield first, batch
            batch = []
    if batch:
        yield first, batch


def _csv_values(handle: BinaryIO, column: str, name: str) -> Iterator[tuple[int, Value]]:
    """RFC 4180, with quotes and line breaks in them; the separator is that of `, ; TAB` which the first line has most often."""
    text = io.TextIOWrapper(handle, encoding="utf-8-sig", errors="surrogateescape", newline="")
    csv.field_size_limit(streams.MAX_LINE_BYTES)
    first_line = text.readline()
    separator = max(",;\t", key=first_line.count)
    rows = csv.reader(_chain(first_line, text), delimiter=separator)
    index = column_number(column)
    try:
        for number, row in enumerate(rows, start=1):
            if index is None:
                index = find_in_header(row, column, name)
            elif not row:
                yield number, ""
            elif len(row) <= index:
                yield number, Fault("invalid", f"{len(row)} columns where the text is in column {index + 1}")
            else:
                yield number, _checked(row[index])
    except csv.Error as error:
        raise DataError(f"{name}:{rows.line_num}: not CSV ({error}); correct the line, or write TSV") from error


def _chain(first: str, rest: Iterable[str]) -> Iterator[str]:
    yield first
    yield from rest


def _checked(text: str) -> Value:
    try:
        text.encode()
    except UnicodeEncodeError:
        return NOT_UTF8
    return text


def _json_values(handle: BinaryIO, key: str | None, name: str) -> Iterator[tuple[int, Value]]:
    """An array, an object that holds one (such as {"data": [...]}), or objects one after the other. Records are objects or strings."""
    text = io.TextIOWrapper(handle, encoding="utf-8-sig", errors="surrogateescape")
    for number, record in enumerate(_json_records(text, key, name), start=1):
        if isinstance(record, str):
            yield number, _checked(record)
        else:
            yield number, record_value(record, require_column(name, key))


def record_value(record: Any, key: str) -> Value:
    """Return the text of a JSON object under a key, such as `text`, or `translation.en` of an object within it; null is an empty text."""
    value = record
    for name in [key] if isinstance(record, dict) and key in record else key.split("."):
        if not isinstance(value, dict) or name not in value:
            return Fault("invalid", f"no key {key!r}; choose another --text-column")
        value = value[name]
    if value is None:
        return ""
    return _checked(value) if isinstance(value, str) else Fault("invalid", f"{key!r} is not text")


def _json_records(text: io.TextIOWrapper, key: str | None, name: str) -> Iterator[Any]:
    """Yield the records of JSON one at a time, as they are read."""
    decoder, num_records, is_end = json.JSONDecoder(), 0, False
    buffer, is_array = _open_array(text, key)
    while True:
        while buffer := buffer.lstrip(" \t\r\n,"):
            if is_array and buffer[0] == "]":
                return
            try:
                record, end = decoder.raw_decode(buffer)
            except ValueError as error:
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


def _open_array(text: io.TextIOWrapper, key: str | None) -> tuple[str, bool]:
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
        except ValueError:
            chunk = text.read(len(start))  # twice as much to decode again
            if not chunk or len(start) > MAX_RECORD_CHARS:  # longer than a record, or cut off
                return start[array.end() :], True
            start += chunk
        else:
            start += text.read(CHUNK_CHARS)
            return (start[array.end() :], True) if _is_wrapper(first, key) and not start[end:].strip() else (start, False)


def _is_wrapper(first: dict[str, Any], key: str | None) -> bool:
    """Whether an object whose first value is an array holds the records in it, and is not a record that has a list, such as of tags."""
    if key is not None and isinstance(record_value(first, key), str):
        return False
    return len(first) == 1 or all(isinstance(item, dict) for item in next(iter(first.values())))


def _tmx_values(handle: BinaryIO, lang: str | None, name: str) -> Iterator[tuple[int, Value]]:
    """Yield the segments of one language, "" for a unit without it."""
    if lang is None:
        raise ConfigError(f"{name}: has several languages; name one as the column, as in --text-column en")
    number, languages = 0, set[str]()
    try:
        parents: list[Element] = []
        for event, element in ElementTree.iterparse(handle, events=("start", "end")):
            if event == "start":
                parents.append(element)
                continue
            parents.pop()
            if element.tag.rpartition("}")[2] != "tu":
                continue
            number += 1
            segments = dict(_segments(element))
            languages |= set(segments)
            yield number, next((text for code, text in segments.items() if _matches(code, lang)), "")
            parents[-1].clear()  # what was read of the body
    except ElementTree.ParseError as error:
        raise DataError(f"{name}: not TMX after {number} units ({error}); correct the file") from error
    if not any(_matches(code, lang) for code in languages):
        raise DataError(f"{name}: no segment in {lang}; its languages are {', '.join(sorted(languages)) or 'none'}")


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
