"""Inputs that are made to take memory, or are in another encoding."""

import bz2
import gzip
import lzma
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import error_of, output_of

from miner.config.commands import TextSettings
from miner.errors import DataError
from miner.text import streams
from miner.text.formats import read_rows, read_values
from miner.text.readers import read_sentences
from miner.text.records import NOT_UTF8

MEGABYTE = 1 << 20
COUNT_BYTES = (
    "import sys\n"
    "from miner.config.commands import TextSettings\n"
    "from miner.text.formats import read_values\n"
    "settings = TextSettings(text_column='text', max_expansion=1e9)\n"
    "print(sum(len(value) for _, values in read_values(sys.argv[1], settings, 'x') for value in values))\n"
    "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_small_file_of_large_cells_takes_little_memory(tmp_path: Path) -> None:
    rows, path = 1500, tmp_path / "bomb.parquet"
    cells = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * MEGABYTE]))
    options = {"compression": "zstd", "dictionary_pagesize_limit": 16 * MEGABYTE, "store_schema": False}
    pq.write_table(pa.table({"text": cells}), path, **options)
    assert path.stat().st_size < 1000
    done = subprocess.run([sys.executable, "-c", COUNT_BYTES, path], capture_output=True, text=True, check=True, timeout=100)
    num_bytes, max_kilobytes = map(int, done.stdout.split())
    assert num_bytes == rows * MEGABYTE
    assert max_kilobytes < 900_000, "all cells together take 1.5 GB"
    message = error_of("embed", path, "--text-column", "text", "--lang", "en", "--output", tmp_path / "out")
    assert "bomb.parquet: expands to more than 67,108,864 bytes; decompress it, or raise --max-expansion" in message


def test_a_page_that_expands_without_bounds_is_an_error(tmp_path: Path) -> None:
    table = pa.table({"text": pa.array(["x" * MEGABYTE] * 300)})
    pq.write_table(table, tmp_path / "bomb.parquet", use_dictionary=False, compression="zstd")
    message = error_of("embed", tmp_path / "bomb.parquet", "--text-column", "text", "--lang", "en", "--output", tmp_path / "out")
    assert "bomb.parquet: column 'text' expands to 314,5" in message


@pytest.mark.parametrize("dtype", [pa.string(), pa.binary(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_batches_hold_all_rows_in_order(dtype: pa.DataType, tmp_path: Path) -> None:
    texts = [f"text {number % 977}" if number % 11 else None for number in range(10_000)]
    values = texts if dtype != pa.binary() else [text and text.encode() for text in texts]
    pq.write_table(pa.table({"n": range(10_000), "text": pa.array(values).cast(dtype)}), tmp_path / "t.parquet", row_group_size=3000)
    blocks = list(read_values(str(tmp_path / "t.parquet"), TextSettings(text_column="text"), "t"))
    assert [value for _, block in blocks for value in block] == [text or "" for text in texts]
    assert [first for first, _ in blocks] == [1 + sum(len(block) for _, block in blocks[:index]) for index in range(len(blocks))]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["hello world\nnothing else\n", "Грузия страна\n"])
def test_utf16_is_an_error(encoding: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(text.encode(encoding))
    message = error_of("embed", tmp_path / "text.txt", "--lang", "en", "--output", tmp_path / "out")
    name = re.search(r"text.txt: UTF-16 text; convert it, as in `iconv -f (\S+) -t utf-8`, or give --encoding \1", message)
    assert name, message
    assert (tmp_path / "text.txt").read_bytes().decode(name[1]) == text


OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


@pytest.mark.slow
@pytest.mark.parametrize("extension", OPENERS)
def test_a_compression_bomb_is_an_error(extension: str, tmp_path: Path) -> None:
    path, text = tmp_path / f"bomb.txt{extension}", b"one two three\n" * (8 * MEGABYTE // 14)
    with OPENERS[extension](path, "wb") as file:
        file.write(text)
    message = rf"bomb.txt{extension}: expands to more than 1,048,576 bytes; decompress it, or raise --max-expansion"
    with (
        pytest.raises(DataError, match=message),
        streams.open_bytes(str(path), extension, max_expansion=2, min_bomb_bytes=MEGABYTE) as handle,
    ):
        handle.read()
    for limits in ({"max_expansion": 1e6, "min_bomb_bytes": 1}, {"max_expansion": 1}, {"max_expansion": None}):
        with streams.open_bytes(str(path), extension, **limits) as handle:
            assert handle.read(5) + handle.read() == text


@pytest.mark.slow
def test_the_limit_of_expansion_is_an_option_that_changes_no_result(tmp_path: Path, toy_encoder: Path) -> None:
    with gzip.open(tmp_path / "bomb.txt.gz", "wb") as file:
        file.write(b"one two three\n" * (70 * MEGABYTE // 14))
    embed = ("embed", tmp_path / "bomb.txt.gz", "--lang", "en", "--encoder", toy_encoder, "--output", tmp_path / "out")
    assert "expands to more than 67,108,864 bytes" in error_of(*embed)
    output_of(*embed, "--max-expansion", 2000)
    output_of(*embed, "--max-expansion", 3000)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_a_line_of_a_gigabyte_takes_little_memory(name: str, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        file.write(b"x" * 100)
        file.truncate(1 << 30)  # a sparse file of NUL
    program = COUNT_BYTES.replace("len(value)", "isinstance(value, str)").replace("'text'", "'1'" if name == "a.csv" else "None")
    program = program.replace("None", "'text'") if name == "a.jsonl" else program
    done = subprocess.run([sys.executable, "-c", program, tmp_path / name], capture_output=True, text=True, check=False, timeout=200)
    if done.returncode:
        assert "DataError" in done.stderr.splitlines()[-1]
    else:
        num_texts, max_kilobytes = map(int, done.stdout.split())
        assert num_texts == 0
        assert max_kilobytes < 900_000


def test_a_million_empty_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n" * 500_000 + b" \t\r\n" * 500_000 + b"one\n")
    counts: Counter[str] = Counter()
    texts = []
    for block in read_sentences(str(tmp_path / "a.txt"), TextSettings()):
        counts.update(block.counts)
        texts += zip(block.texts, block.lines.tolist(), strict=True)
    assert texts == [("one", 1_000_001)]
    assert (counts["lines"], counts["empty"], counts["kept"]) == (1_000_001, 1_000_000, 1)


HOSTILE_LINES = {
    "NUL": (b"one\x00two", "one two"),
    "surrogates in UTF-8": (b"one \xed\xa0\x80 two", None),
    "overlong UTF-8": (b"one \xc0\xaf two", None),
    "beyond Unicode": (b"one \xf4\x90\x80\x80 two", None),
    "line separator": ("one\u2028two\u2029three".encode(), "one two three"),
    "next line": ("one\u0085two".encode(), "one two"),
    "escape sequence": (b"one \x1b[31mtwo\x1b]0;title\x07", "one [31mtwo ]0;title"),
    "writing direction": ("one \u202etwo\u2066three".encode(), "one \u202etwo\u2066three"),
    "combining flood": (("a" + "\u0301" * 400).encode(), "\u00e1" + "\u0301" * 399),
    "byte order marks": ("\ufeffone\ufeff \ufefftwo".encode(), "one two"),
    "noncharacters": ("one \ufffe\uffff two".encode(), "one \ufffe\uffff two"),
    "formula": (b'=HYPERLINK("http://x","y")', '=HYPERLINK("http://x","y")'),
}


@pytest.mark.parametrize("kind", HOSTILE_LINES)
def test_hostile_lines(kind: str, tmp_path: Path) -> None:
    line, expected = HOSTILE_LINES[kind]
    (tmp_path / "a.txt").write_bytes(b"first\n" + line + b"\nlast\n")
    (block,) = read_sentences(str(tmp_path / "a.txt"), TextSettings())
    assert block.texts == ["first", *([] if expected is None else [expected]), "last"]
    assert block.lines.tolist() == [1, *([] if expected is None else [2]), 3]
    assert block.counts["invalid"] == (expected is None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a\nb.txt", "cannot be printed; rename"),
        ("a\x1b[31m.txt", "cannot be printed; rename"),
        ("a\u202eb.txt", "cannot be printed; rename"),
    ],
)
def test_names_that_cannot_be_printed(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("one two\n")
    for argument in (tmp_path / name, tmp_path / "*.txt"):
        assert message in error_of("embed", argument, "--lang", "en", "--output", tmp_path / "out")


@pytest.mark.parametrize("name", ["-rf.txt", "--output.txt", "a b'\"$(x).txt", "ünï 日本.txt", "%s{0}.txt", "#?.txt"])
def test_odd_names_that_can_be_printed(name: str, tmp_path: Path, toy_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("one two\n")
    output_of("embed", f"./{name}", "--lang", "en", "--encoder", toy_encoder, f"--output=./out {name}")
    output_of("mine", f"./out {name}", f"./out {name}", "--threshold", 0, "--filter", "none", f"--output=./mined {name}")
    table = pq.read_table(tmp_path / f"mined {name}" / "bitext.parquet")
    assert table["source_text"].to_pylist() == ["one two"]
    assert set(table["source_file"].to_pylist()) == {f"./{name}"}


def test_damaged_parquet_is_one_line(tmp_path: Path) -> None:
    """In a table of five texts in eight rows: an index that is not in the dictionary, and names and a text that are not UTF-8."""
    indices = sum(number % 5 << 3 * number for number in range(8)).to_bytes(3, "little")  # 3 bits each
    table = pa.table({"name": [f"text {number % 5}" for number in range(8)]})
    damaged = {"indices": (indices, b"\xff\xff\xff"), "names": (b"name", b"nam\xff"), "cells": (b"text 3", b"text \xff")}
    for kind, (intact, bad) in damaged.items():
        pq.write_table(table, tmp_path / f"{kind}.parquet", compression="none", store_schema=False)
        data = (tmp_path / f"{kind}.parquet").read_bytes()
        assert intact in data
        (tmp_path / f"{kind}.parquet").write_bytes(data.replace(intact, bad))
    for kind, reason in (("indices", "a cell is not in its dictionary"), ("names", "'utf-8' codec can't decode byte 0xff")):
        with pytest.raises(DataError, match=rf"{kind}.parquet: truncated or not Parquet \({reason}"):
            list(read_rows(str(tmp_path / f"{kind}.parquet"), ["name"]))
    (rows,) = read_rows(str(tmp_path / "cells.parquet"), ["name"])
    assert rows.columns == [[*(f"text {number % 5}" for number in range(3)), NOT_UTF8, *(f"text {number % 5}" for number in range(4, 8))]]


@pytest.mark.parametrize(("extension", "compress"), [(".bz2", bz2.compress), (".xz", lzma.compress)])
def test_damage_between_compressed_streams_is_an_error(
    extension: str, compress: Callable[[bytes], bytes], tmp_path: Path, toy_encoder: Path
) -> None:
    """Parallel compressors write several streams. The standard library ends at one whose header is damaged."""
    path, first, second = tmp_path / f"text{extension}", compress(b"one two\n"), compress(b"three four\n")
    embed = ("embed", path, "--lang", "en", "--encoder", toy_encoder, "--output", tmp_path / "out")
    for bit in range(8):
        path.write_bytes(first + bytes([second[0] ^ 1 << bit]) + second[1:])
        assert f"text{extension}: truncated or not {extension}" in error_of(*embed)
    path.write_bytes(first + b"\0" * 8 + second + b"\0" * 4)
    assert "2 lines" in output_of(*embed) or "2 sentences" in output_of(*embed)
