"""TMX that other tools write is read; TMX that is made to fail or to take memory and time is one line."""

import gzip
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import error_of

from miner.errors import DataError
from miner.text.formats import read_rows

MEGABYTE = 1 << 20
MAX_CHARS = 400  # of a message
UNIT = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv></tu>'
ONE = UNIT.format("one")


def memory(body: str, prolog: str = '<?xml version="1.0"?>') -> str:
    return f'{prolog}<tmx version="1.4"><header/><body>{body}</body></tmx>'


def read(path: Path, lang: str = "en") -> list[object]:
    return [value for rows in read_rows(str(path), [lang], name=path.name) for value in rows.columns[0]]


READ = {
    "codes in a segment": (
        UNIT.format('a <bpt i="1">&lt;b&gt;</bpt><hi>b</hi><ept i="1">&lt;/b&gt;</ept> <ph>x<sub>y</sub></ph>c'),
        ["a b c"],
    ),
    "a segment in CDATA": (UNIT.format("<![CDATA[<one> & two]]>"), ["<one> & two"]),
    "characters by number": (UNIT.format("caf&#233; &#x1F600; &lt;"), ["café \U0001f600 <"]),
    "names in a namespace and in capitals": ('<x:TU><x:tuv xml:lang="EN-us"><x:Seg>one</x:Seg></x:tuv></x:TU>', ["one"]),
    "two segments of a language": (
        UNIT.format("one") + '<tu><tuv lang="en"><seg>two</seg></tuv><tuv lang="en"><seg>2</seg></tuv></tu>',
        ["one", "two"],
    ),
    "a segment outside a variant, and no segment": (f"<seg>x</seg>{ONE}<tu><seg>y</seg></tu><tu/>", ["one", "", ""]),
    "a property between variants": (f'<tu><prop type="x">1</prop><note>n</note>{ONE[4:]}', ["one"]),
    "segments of many parts": (UNIT.format("&amp;" * 50_000), ["&" * 50_000]),
}


@pytest.mark.parametrize("case", READ)
def test_segments_are_read(case: str, tmp_path: Path) -> None:
    body, texts = READ[case]
    (tmp_path / "a.tmx").write_text(memory(body).replace("<tmx", '<tmx xmlns:x="urn:x"'), encoding="utf-8")
    assert read(tmp_path / "a.tmx") == texts


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1", "windows-1252", "koi8-r", "us-ascii"])
def test_the_encoding_that_a_file_declares_is_used(encoding: str, tmp_path: Path) -> None:
    text = {"koi8-r": "один", "us-ascii": "one"}.get(encoding, "café")
    prolog = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>'
    (tmp_path / "a.tmx").write_bytes(memory(UNIT.format(text), prolog).encode(encoding))
    assert read(tmp_path / "a.tmx") == [text]


WITH_DTD = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
BILLION = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "a.tmx:1: not TMX after 0 units (no element found"),
    "another root": ("<html><body/></html>", "a.tmx:1: not TMX after 0 units (the root is <html>, not <tmx>)"),
    "plain text": ("one\ntwo\n", "a.tmx:1: not TMX after 0 units (syntax error"),
    "cut off": (memory(ONE)[:-13], "a.tmx:1: not TMX after 1 units (no element found"),
    "two roots": (memory(ONE) * 2, "a.tmx:1: not TMX after 1 units (junk after document element"),
    "crossed elements": (memory("\n<tu><tuv></tu></tuv>"), "a.tmx:2: not TMX after 0 units (mismatched tag"),
    "an attribute twice": (memory('<tu a="1" a="2"/>'), "a.tmx:1: not TMX after 0 units (duplicate attribute"),
    "deep nesting": (memory("<a>" * 200_000 + "</a>" * 200_000), "more than 100 elements within one another"),
    "deep codes": (memory(UNIT.format("<hi>" * 5000 + "</hi>" * 5000)), "more than 100 elements within one another"),
    "an encoding that is not known": ('<?xml version="1.0" encoding="klingon"?><tmx/>', "(unknown encoding: klingon)"),
    "an encoding of several bytes": ('<?xml version="1.0" encoding="shift_jis"?><tmx/>', "(multi-byte encodings are not supported)"),
    "an encoding that is no text": ('<?xml version="1.0" encoding="hex"?><tmx/>', "a.tmx:1: not TMX after 0 units ("),
    "a codec that fails": ('<?xml version="1.0" encoding="undefined"?><tmx/>', "a.tmx:1: not TMX after 0 units ("),
    "other bytes than declared": (b'<?xml version="1.0" encoding="UTF-16"?><tmx/>', "a.tmx:1: not TMX after 0 units ("),
    "bytes that are not UTF-8": (memory(UNIT.format("caf\xe9")).encode("latin-1"), "a.tmx:1: not TMX after 0 units (not well-formed"),
    "NUL": (memory(UNIT.format("a\0b")), "a.tmx:1: not TMX after 0 units (not well-formed"),
    "entities of entities": (
        memory(UNIT.format("&e9;"), f'<!DOCTYPE tmx [<!ENTITY e0 "x">{BILLION}]>'),
        "a.tmx:1: not TMX after 0 units (the entity &e0; is not one of XML)",
    ),
    "an entity of a file": (
        memory(UNIT.format("&x;"), '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
        "a.tmx:1: not TMX after 0 units (the entity &x; is not one of XML)",
    ),
    "an entity of a DTD": (
        memory(UNIT.format("a&nbsp;b"), WITH_DTD),
        "a.tmx:1: not TMX after 0 units (the entity &nbsp; is not one of XML)",
    ),
    "an entity without a DTD": (memory(UNIT.format("a&nbsp;b")), "a.tmx:1: not TMX after 0 units (undefined entity"),
    "no segment of the language": (
        memory('<tu><tuv lang="de"><seg>eins</seg></tuv></tu>'),
        "a.tmx: no segment in en; its languages are de",
    ),
    "as many languages as units": (
        memory("".join(f'<tu><tuv lang="x{n}"><seg>a</seg></tuv></tu>' for n in range(20_000))),
        "a.tmx: no segment in en; its languages are x0, x1, x10",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_tmx_is_one_line(case: str, tmp_path: Path) -> None:
    content, message = REFUSED[case]
    (tmp_path / "a.tmx").write_bytes(content if isinstance(content, bytes) else content.encode())
    start = time.monotonic()
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read(tmp_path / "a.tmx")
    assert len(str(caught.value)) < MAX_CHARS
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 10


def test_the_command_line_reports_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(memory("<a>" * 300))
    message = error_of("embed", tmp_path / "a.tmx", "--text-column", "en", "--lang", "en", "--output", tmp_path / "out")
    assert "a.tmx:1: not TMX after 0 units (more than 100 elements within one another); correct the file" in message
    assert not (tmp_path / "out" / "sentences").exists()


# Of 80 MB each: a file that Expat or Python's csv module would keep as a whole, or read again for each of its blocks.
LARGE = {
    "comment.tmx": ("<tmx><!--", "x", "-->"),
    "instruction.tmx": ("<tmx><?x ", "x", "?>"),
    "attribute.tmx": ('<tmx a="', "x", '">'),
    "name.tmx": ("<tmx><", "x", "/>"),
    "segment.tmx": ('<tmx><body><tu><tuv lang="en"><seg>', "one two ", "</seg>"),
    "cdata.tmx": ('<tmx><body><tu><tuv lang="en"><seg><![CDATA[', "x", "]]></seg>"),
    "variants.tmx": ("<tmx><body><tu>", '<tuv lang="en"><seg>x</seg></tuv>', "</tu>"),
    "attributes of a DTD.tmx": ("<!DOCTYPE tmx [", "<!ATTLIST tmx a CDATA 'x'>", "]><tmx/>"),
    "comment of a DTD.tmx": ("<!DOCTYPE tmx [<!--", "x", "-->]><tmx/>"),
    "space.tmx": ("<tmx>", " ", "</tmx>"),
    "header.tmx": ("<tmx><header>", "<prop/>", "</header>"),
    "line.csv": ("en,de\n", "x", "\n"),
    "cells.csv": ("en,de\n", "x,", "\n"),
    "quoted.csv": ('en,de\n"', "x\n", '"\n'),
    "quoted cells.csv": ('en,de\n"', 'x\n","', '"\n'),
    "string.json": ('[{"en": "', "x", '"}]'),
    "array.json": ('[{"en": [', "1,", "]}]"),
    "nested.json": ('{"en":', "[", "]}"),
}
READ_LARGE = """
import json, sys, time
from miner.errors import DataError
from miner.text.formats import read_rows
outcomes = {}
for path in sys.argv[1:]:
    start = time.process_time()
    try:
        outcomes[path] = sum(len(rows.columns[0]) for rows in read_rows(path, ["en"]))
    except DataError as error:
        outcomes[path] = str(error).removeprefix(path)
    assert time.process_time() - start < 10, path
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([peak, outcomes]))
"""


def write_large(path: Path, start: str, part: str, end: str, num_bytes: int = 80 * MEGABYTE) -> None:
    block = part.encode() * (MEGABYTE // len(part))
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(start.encode())
        for _ in range(num_bytes // MEGABYTE):
            file.write(block)
        file.write(end.encode())


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_record_is_bounded_before_it_is_parsed(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.gz" for name in LARGE}
    for name, path in paths.items():
        write_large(path, *LARGE[name])
    done = subprocess.run([sys.executable, "-c", READ_LARGE, *paths.values()], capture_output=True, text=True, check=False, timeout=200)
    assert not done.returncode, done.stderr
    max_kilobytes, outcomes = json.loads(done.stdout)
    too_long = "longer than|a record of more than|field larger than field limit|not JSON after 0 records"
    assert {name: outcome for name, outcome in outcomes.items() if not re.search(too_long, str(outcome))} == {}
    assert max_kilobytes < 500_000, "a file is 80 MB, and some of them take ten times as much when they are parsed"


@pytest.mark.parametrize(
    ("name", "start", "record", "end"),
    [
        ("a.tmx", "<tmx><body>", UNIT, "</body></tmx>"),
        ("a.csv", "en\n", "{}\n", ""),
        ("a.json", "[", '{{"en": "{}"}},', '{"en": ""}]'),
    ],
)
def test_batches_of_long_records_are_bounded(name: str, start: str, record: str, end: str, tmp_path: Path) -> None:
    texts = [f"{number} " + "x" * 500_000 for number in range(100)]
    (tmp_path / name).write_text(start + "".join(map(record.format, texts)) + end)
    batches = list(read_rows(str(tmp_path / name), ["en"]))
    assert [value for rows in batches for value in rows.columns[0] if value] == texts
    assert max(len(rows.columns[0]) for rows in batches) < 50
    assert [rows.first for rows in batches] == [1 + sum(sizes) for sizes in _prefixes([len(rows.columns[0]) for rows in batches], name)]


def _prefixes(sizes: list[int], name: str) -> Iterator[list[int]]:
    for index in range(len(sizes)):
        yield [*sizes[:index], int(name == "a.csv")]  # the header of CSV is a record


@pytest.mark.parametrize("digits", [20, 5000])
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.tmx", "a.parquet"])
def test_a_column_of_many_digits_is_one_line(name: str, digits: int, tmp_path: Path) -> None:
    if name == "a.parquet":
        pq.write_table(pa.table({"a": ["one"]}), tmp_path / name)
    else:
        (tmp_path / name).write_text({"a.tmx": memory(ONE), "a.jsonl": '{"a": "one"}\n'}.get(name, "one\ttwo\n"))
    message = error_of("embed", tmp_path / name, "--strict", "--text-column", "9" * digits, "--lang", "en", "--output", tmp_path / "out")
    assert len(message) < MAX_CHARS
    assert "999" in message
