"""Every input format and every kind of invalid line, against answers written by hand."""

import bz2
import gzip
import io
import json
import lzma
import os
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError
from miner.text import readers, streams

PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


def read(uri: Path | str, **settings: object) -> tuple[list[tuple[int, str]], dict[str, int]]:
    """Read all of one input: [(line, text)] and the counts that are not 0."""
    counts: Counter[str] = Counter()
    sentences = []
    for block in readers.read_sentences(str(uri), TextSettings.check(**settings)):
        counts.update(block.counts)
        sentences += list(zip(block.lines.tolist(), block.texts, strict=True))
    assert counts["lines"] == sum(counts[name] for name in readers.LINE_COUNTS if name != "lines")
    return sentences, {name: count for name, count in counts.items() if count}


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "sentences", "counts"),
    [
        (b"", [], {}),
        (b"\n", [], {"lines": 1, "empty": 1}),
        (b"one\ntwo\n", [(1, "one"), (2, "two")], {"lines": 2, "kept": 2}),
        (b"one\ntwo", [(1, "one"), (2, "two")], {"lines": 2, "kept": 2}),
        (b"one\r\n\r\ntwo\r\n", [(1, "one"), (3, "two")], {"lines": 3, "kept": 2, "empty": 1}),
        (b"\xef\xbb\xbfone\n", [(1, "one")], {"lines": 1, "kept": 1}),
        (b"\xef\xbb\xbf", [], {}),
        (b"o\x00ne\n\x00\n", [(1, "o ne")], {"lines": 2, "kept": 1, "empty": 1}),
        (b"\xff\xfe\nin\xe9\nok\n", [(3, "ok")], {"lines": 3, "kept": 1, "invalid": 2}),
        # U+2028, U+0085 and a lone CR are white space, not the end of a line
        ("a\u2028b\nc\x85d\ne\rf\n".encode(), [(1, "a b"), (2, "c d"), (3, "e f")], {"lines": 3, "kept": 3}),
        (b'"a\tb ""c\n', [(1, '"a b ""c')], {"lines": 1, "kept": 1}),
        (b"x" * 12 + b"\n" + b"y" * 11 + b"\n" + b" " * 20 + b"z\n", [(2, "y" * 11), (3, "z")], {"lines": 3, "kept": 2, "too_long": 1}),
    ],
)
def test_plain_text(tmp_path: Path, data: bytes, sentences: list[tuple[int, str]], counts: dict[str, int]) -> None:
    assert read(write(tmp_path / "a.txt", data), max_chars=11) == (sentences, counts)


@pytest.mark.parametrize("extension", PACK)
def test_compressed_text(tmp_path: Path, extension: str) -> None:
    data = PACK[extension](b"one\n") + PACK[extension](b"two\n\n") + PACK[extension](b"drei\xc3\xa4")  # as `cat` joins files
    path = write(tmp_path / f"a.txt{extension.upper()}", data)
    assert read(path) == ([(1, "one"), (2, "two"), (4, "dreiä")], {"lines": 4, "kept": 3, "empty": 1})


@pytest.mark.parametrize("extension", PACK)
def test_corrupt_archive_is_an_error_with_its_name_and_a_remedy(tmp_path: Path, extension: str) -> None:
    complete = PACK[extension]("\n".join(map(str, range(5000))).encode())
    for data in (complete[: len(complete) // 2], complete[:-1], b"", b"not an archive at all, but text\n"):
        path = write(tmp_path / f"a{extension}", data)
        with pytest.raises(DataError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: truncated or not {extension} (")
        assert str(caught.value).endswith("; copy or download it again")
        assert "\n" not in str(caught.value)


TSV = b'\xef\xbb\xbfid\ttext\tnote\r\n1\t"a ""b\tx\r\n2\tc\n3\n\n\xff\tz\n6\t \ty\n7\tseven'


@pytest.mark.parametrize(
    ("column", "sentences", "counts"),
    [
        ("text", [(2, '"a ""b'), (3, "c"), (8, "seven")], {"lines": 7, "kept": 3, "empty": 2, "invalid": 2}),
        ("2", [(1, "text"), (2, '"a ""b'), (3, "c"), (8, "seven")], {"lines": 8, "kept": 4, "empty": 2, "invalid": 2}),
        ("note", [(2, "x"), (7, "y")], {"lines": 7, "kept": 2, "empty": 1, "invalid": 4}),
        ("id", [(2, "1"), (3, "2"), (4, "3"), (7, "6"), (8, "7")], {"lines": 7, "kept": 5, "empty": 1, "invalid": 1}),
    ],
)
def test_tsv_by_name_and_by_number(tmp_path: Path, column: str, sentences: list[tuple[int, str]], counts: dict[str, int]) -> None:
    assert read(write(tmp_path / "a.tsv", TSV), text_column=column) == (sentences, counts)
    assert read(write(tmp_path / "spooled", TSV), text_column=column) == (sentences, counts)
    assert read(write(tmp_path / "a.tsv.gz", gzip.compress(TSV)), text_column=column) == (sentences, counts)


def test_jsonl(tmp_path: Path) -> None:
    lines = [
        '\ufeff{"text": "one"}',
        json.dumps({"text": "zwei\nZeilen\u00e4"}),
        '{"text": null}',
        "",
        '{"other": "x"}',
        '{"text": 7}',
        '{"text": "cut',
        '["text"]',
        "[" * 100_000,
        r'{"text": "half a pair \ud800"}',
        '{"text": "last", "text2": "x"}',
    ]
    expected = [(1, "one"), (2, "zwei Zeilenä"), (11, "last")], {"lines": 11, "kept": 3, "empty": 2, "invalid": 6}
    data = "\n".join(lines).encode()
    assert read(write(tmp_path / "a.jsonl", data), text_column="text") == expected
    assert read(write(tmp_path / "a.ndjson.zst", PACK[".zst"](data)), text_column="text") == expected


def test_a_key_within_an_object_of_json(tmp_path: Path) -> None:
    records = [
        {"translation": {"en": "one", "de": "eins"}},
        {"translation": {"de": "zwei"}},
        {"translation": "three"},
        {"translation.en": "four"},  # a key with a dot comes first
        {"translation": {"en": None}},
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, records)).encode())
    assert read(path, text_column="translation.en") == ([(1, "one"), (4, "four")], {"lines": 5, "kept": 2, "empty": 1, "invalid": 2})


def parquet(path: Path, column: pa.Array) -> Path:
    pq.write_table(pa.table({"id": pa.array(range(len(column))), "text": column}), path, row_group_size=2)
    return path


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()])
def test_parquet_rows_are_lines(tmp_path: Path, kind: pa.DataType) -> None:
    path = parquet(tmp_path / "a.parquet", pa.array(["one", None, "zwei\nZeilen", "", "one"]).cast(kind))
    for column in ("text", "2"):
        assert read(path, text_column=column) == ([(1, "one"), (3, "zwei Zeilen"), (5, "one")], {"lines": 5, "kept": 3, "empty": 2})


def test_parquet_strings_that_are_not_utf8_are_invalid(tmp_path: Path) -> None:
    unchecked = pa.array([b"good", b"\xffbad"], pa.binary()).view(pa.string())
    assert read(parquet(tmp_path / "a.parquet", unchecked), text_column="text") == ([(1, "good")], {"lines": 2, "kept": 1, "invalid": 1})


def test_corrupt_parquet_is_an_error(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", pa.array(["one", "two"]))
    complete = path.read_bytes()
    for data in (complete[: len(complete) // 2], complete[:-3], b"", b"text, not Parquet\n"):
        path.write_bytes(data)
        with pytest.raises(DataError, match=r"a\.parquet: truncated or not Parquet \(.*\); copy or download it again$"):
            read(path, text_column="text")


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("a.tsv", None, "a.tsv: is a table; name the column with the text by --text-column"),
        ("a.jsonl", None, "a.jsonl: is a table; name the column"),
        ("a.parquet", None, "; that of one side by --source-column or --target-column"),
        ("a.tsv", "texts", "a.tsv:1: no column 'texts' in the header (id, text)"),
        ("a.tsv", "0", "column 0: columns count from 1"),
        ("a.parquet", "texts", "a.parquet: no column 'texts' (id, text)"),
        ("a.parquet", "id", "a.parquet: column 'id' holds int64, not text"),
        ("a.csv", None, "a.csv: is a table; name the column"),
        ("a.parquet.gz", "text", "a.parquet.gz: compressed Parquet is not read"),
    ],
)
def test_missing_or_unsupported_column_is_an_error(tmp_path: Path, name: str, column: str | None, message: str) -> None:
    path = parquet(tmp_path / name, pa.array(["one"])) if name == "a.parquet" else write(tmp_path / name, b"id\ttext\n1\tone\n")
    with pytest.raises((ConfigError, DataError)) as caught:
        read(path, text_column=column)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"ok\n\n\xff\n" + b"x" * 99 + b"\n", ":3: not UTF-8"),
        ("a.txt", b"ok\n" + b"x" * 99 + b"\n\xff\n", ":2: longer than 50 characters"),
        ("a.txt", b"ok\n" + b"x" * (streams.MAX_LINE_BYTES + 1) + b"\n\xff\n", ":2: longer than 1048576 bytes"),
        ("a.tsv", b"a\tb\n1\n", ":2: 1 column, expected at least 2"),
        ("a.jsonl", b'{"2": "x"}\n{"3": "x"}\n', ":2: no key '2'"),
        ("a.jsonl", b'{"2": "x"}\n{\n', ":2: not JSON"),
    ],
)
def test_strict_stops_at_the_first_invalid_line(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = write(tmp_path / name, data)
    with pytest.raises(DataError) as caught:
        read(path, strict=True, max_chars=50, text_column=None if name == "a.txt" else "2")
    assert str(caught.value).startswith(f"{path}{message}")
    assert str(caught.value).endswith("or leave out --strict to drop such lines")


def test_strict_accepts_empty_lines(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.txt", b"a\n\n \r\nb"), strict=True) == ([(1, "a"), (4, "b")], {"lines": 4, "kept": 2, "empty": 2})


class LongLineStream(io.RawIOBase):
    """One line of `length` bytes between two short ones, generated while it is read."""

    def __init__(self, length: int) -> None:
        self.parts: Iterator[bytes] = iter([b"first\n", *[b"x" * (1 << 16)] * (length >> 16), b"\nlast\n"])

    def read(self, _size: int = -1) -> bytes:
        return next(self.parts, b"")


def test_long_line_is_not_kept_in_memory() -> None:
    tracemalloc.start()
    try:
        blocks = list(streams.read_line_blocks(LongLineStream(64 << 20), streams.MAX_LINE_BYTES))  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert blocks == [b"first\n", None, b"last\n"]
    assert peak < 8 << 20


@pytest.mark.parametrize("extension", ["", *PACK])
def test_lines_after_a_long_line_are_read(tmp_path: Path, extension: str) -> None:
    data = b"first\n" + b"x" * (9 << 20) + b"\nnext\n" + b"y" * streams.MAX_LINE_BYTES + b"\n" + b"z" * (3 << 20)
    path = write(tmp_path / f"a.txt{extension}", PACK[extension](data) if extension else data)
    assert read(path) == ([(1, "first"), (3, "next")], {"lines": 5, "kept": 2, "too_long": 3})


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=12), st.integers(4, 9), st.booleans())
def test_blocks_are_the_lines_for_any_block_size(lines: list[bytes], block_bytes: int, newline: bool) -> None:
    data = b"\n".join(lines) + b"\n" * newline
    expected = data.removeprefix(streams.BOM).split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    actual: list[bytes | None] = []
    for block in streams.read_line_blocks(io.BytesIO(data), 9, block_bytes):
        actual += [None] if block is None else block.removesuffix(b"\n").split(b"\n")
    assert actual == [line if len(line) <= 9 else None for line in expected]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "c.tsv", "deep/d.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("x\n")
    return tmp_path


def test_expand_sorts_and_keeps_the_spelling_of_the_user(folder: Path) -> None:
    assert readers.expand(["b.txt", "a.txt", "b.txt", "-"]) == ["-", "a.txt", "b.txt"]
    assert readers.expand(["*.txt"]) == ["a.txt", "b.txt"]
    assert readers.expand(["*"]) == ["a.txt", "b.txt", "c.tsv"]  # without the directory
    assert readers.expand(["**/*.txt", "./a.txt"]) == ["./a.txt", "b.txt", "deep/d.txt"]  # one file, one spelling
    assert readers.expand([f"{folder}/[bc].*"]) == [f"{folder}/b.txt", f"{folder}/c.tsv"]
    assert readers.expand([f"file://{folder}/*.tsv"]) == [f"file://{folder}/c.tsv"]
    Path("[x].txt").write_text("x\n")
    assert readers.expand(["[x].txt"]) == ["[x].txt"]  # an existing name takes precedence over the pattern


def test_expand_accepts_uris() -> None:
    for name in ("b", "a"):
        fsspec.filesystem("memory").pipe(f"/texts/{name}.txt.gz", gzip.compress(name.encode()))
    assert readers.expand(["memory://texts/*.gz", "memory://texts/a.txt.gz"]) == ["memory://texts/a.txt.gz", "memory://texts/b.txt.gz"]
    assert read("memory://texts/b.txt.gz") == ([(1, "b")], {"lines": 1, "kept": 1})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["deep"], "deep: a directory, not a text; name its files, as in `deep/*.txt`"),
        (["a.txt", "none.txt"], "none.txt: no such file; check the name"),
        (["none/*.txt"], "none/*.txt: no file matches this pattern; check it"),
        (["dee*"], "dee*: no file matches this pattern"),
        (["pipe"], "pipe: not a regular file; send it to standard input and give `-`"),
        (["b*.tx*", "bad*"], "'bad\\udcff.dat': a file name that cannot be printed; rename the file"),
        ([], "no input; name text files"),
    ],
)
def test_input_that_is_not_a_file_is_an_error(folder: Path, inputs: list[str], message: str) -> None:
    os.mkfifo(folder / "pipe")
    Path(os.fsdecode(b"bad\xff.dat")).touch()
    with pytest.raises(DataError) as caught:
        readers.expand(inputs)
    assert str(caught.value).startswith(message)


def test_missing_or_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.txt: no such file; check the name$"):
        read(tmp_path / "gone.txt")
    with pytest.raises(DataError, match=r": cannot be read \(Is a directory\); check the file"):
        read(tmp_path)


def test_standard_input_is_spooled_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\xef\xbb\xbfone\r\n" * 300_000
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    path = tmp_path / "new" / "stdin"
    assert readers.spool_stdin(str(path)) == xxhash.xxh3_128_hexdigest(data)
    assert path.read_bytes() == data
    assert [child.name for child in path.parent.iterdir()] == ["stdin"]
