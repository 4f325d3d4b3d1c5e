"""One table in every format: mining, training, evaluation and decontamination read the same texts, and report the same faults."""

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import error_of

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError
from miner.evaluation.lines import read_lines
from miner.research.datasets.columns import load_columns, read_columns, read_texts
from miner.text import readers
from miner.training.data.datasets import open_dataset, read_source
from miner.training.data.strategies import ParallelSettings

HEADER = ("en", "fr", "score")
ROWS = [
    ("one two", "un deux", 4),
    ('say "three", please', "dites « trois »; merci", 0.5),
    ("  four   ", "quatre 四\u00a0", 3),
    ("five", "cinq", 1),
]
CELLS = [
    ["one two", 'say "three", please', "four", "five"],
    ["un deux", "dites « trois »; merci", "quatre 四", "cinq"],
    ["4", "0.5", "3", "1"],
]
NESTED = [{"translation": {"en": en, "fr": fr}, "score": score} for en, fr, score in ROWS]
NAMES, NUMBERS, PATHS = HEADER, ("1", "2", "3"), ("translation.en", "translation.fr", "score")


def tsv(rows: Sequence[Sequence[object]], end: str = "\n") -> bytes:
    return "".join("\t".join(map(str, row)) + end for row in rows).encode()


def comma_separated(rows: Sequence[Sequence[object]], separator: str = ",") -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator).writerows(rows)
    return file.getvalue().encode()


def json_lines(records: Sequence[object]) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def parquet(records: list[dict[str, object]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), file)
    return file.getvalue()


def tmx() -> bytes:
    units = [f'<tu><tuv xml:lang="en"><seg>{en}</seg></tuv><tuv xml:lang="fr"><seg>{fr}</seg></tuv></tu>' for en, fr, _ in ROWS]
    return f'<?xml version="1.0"?><tmx version="1.4"><header/><body>{"".join(units)}</body></tmx>'.encode()


FLAT = [dict(zip(HEADER, row, strict=True)) for row in ROWS]
BLANK_LINE = [*ROWS[:2], ("",), *ROWS[2:]]
TABLES: dict[str, tuple[bytes, tuple[str, ...]]] = {  # file name -> content, columns
    "header.tsv": (tsv([HEADER, *ROWS]), NAMES),
    "numbers.tsv": (tsv(ROWS), NUMBERS),
    "crlf.tsv": (b"\xef\xbb\xbf" + tsv([HEADER, *ROWS], "\r\n"), NAMES),
    "blank.tsv": (tsv([HEADER, *BLANK_LINE]), NAMES),
    "table.txt": (tsv([HEADER, *ROWS]), NAMES),
    "header.csv": (comma_separated([HEADER, *ROWS]), NAMES),
    "numbers.csv": (comma_separated(ROWS), NUMBERS),
    "semicolon.csv": (b"\xef\xbb\xbf" + comma_separated([HEADER, *ROWS], ";"), NAMES),
    "breaks.csv": (comma_separated([HEADER, ("one\ntwo", *ROWS[0][1:]), *ROWS[1:]]), NAMES),
    "flat.jsonl": (json_lines(FLAT), NAMES),
    "nested.jsonl": (json_lines(NESTED), PATHS),
    "array.json": (json.dumps(FLAT, indent=1).encode(), NAMES),
    "object.json": (json.dumps({"data": FLAT}).encode(), NAMES),
    "nested.json": (json.dumps(NESTED).encode(), PATHS),
    "names.parquet": (parquet(FLAT), NAMES),
    "numbers.parquet": (parquet(FLAT), NUMBERS),
    "nested.parquet": (parquet(NESTED), PATHS),
    "table.tmx": (tmx(), ("en", "fr")),
    "header.tsv.gz": (gzip.compress(tsv([HEADER, *ROWS])), NAMES),
    "header.csv.bz2": (bz2.compress(comma_separated([HEADER, *ROWS])), NAMES),
    "flat.jsonl.xz": (lzma.compress(json_lines(FLAT)), NAMES),
    "array.json.zst": (pa.compress(json.dumps(FLAT).encode(), "zstd", asbytes=True), NAMES),
}


def mined_texts(uri: str, column: str) -> list[str]:
    return [text for block in readers.read_sentences(uri, TextSettings(text_column=column, strict=True)) for text in block.texts]


def training_texts(uri: str, columns: Sequence[str], folder: Path) -> list[list[str]]:
    settings = ParallelSettings(strategy="parallel", files=(uri,), columns=dict(zip(("source", "target"), columns, strict=True)))
    read_source(settings, folder)
    texts = [text for chunk in open_dataset(settings, folder).texts.iter_chunks() for text in chunk]
    return [texts[::2], texts[1::2]]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_same_columns_in_every_format_and_command(name: str, tmp_path: Path) -> None:
    content, columns = TABLES[name]
    path = tmp_path / name
    path.write_bytes(content)
    cells, uri = CELLS[: len(columns)], str(path)
    assert [mined_texts(uri, column) for column in columns[:2]] == cells[:2]
    assert training_texts(uri, columns[:2], tmp_path / "work") == cells[:2]
    assert load_columns(uri, *columns) == cells
    assert [[line for line in read_lines(uri, column) if line] for column in columns[:2]] == cells[:2]
    texts = {" ".join(text.split()) for text in read_texts(uri)}
    assert texts >= {*cells[0], *cells[1]}


FAULTS = [  # file name, content, columns, message
    ("a.tsv", b"en\tfr\none\tun\n\xff\tdeux\n", NAMES[:2], "a.tsv:3: not UTF-8; convert the file"),
    ("a.csv", b"en,fr\none,un\n\xff,deux\n", NAMES[:2], "a.csv:3: not UTF-8; convert the file"),
    ("a.json", b'[{"en": "one", "fr": "un"}, {"en": "\xff", "fr": "deux"}]', NAMES[:2], "a.json:2: not UTF-8; convert the file"),
    ("a.jsonl", b'{"en": "\\ud800", "fr": "un"}\n', NAMES[:2], "a.jsonl:1: an unpaired surrogate, which UTF-8 cannot encode; fix"),
    ("a.tsv", b"en\tfr\n\none\n", ("fr", "en"), "a.tsv:3: 1 column, expected at least 2; fix or delete the line"),
    ("a.csv", b"en,fr\none\n", ("fr", "en"), "a.csv:2: 1 column, expected at least 2; fix or delete the line"),
    (
        "a.jsonl",
        b'{"en": "one", "fr": "un"}\n{"fr": "deux"}\n',
        NAMES[:2],
        "a.jsonl:2: no key 'en'; choose another column, or fix the line",
    ),
    ("a.jsonl", b'{"en": ["one"], "fr": "un"}\n', NAMES[:2], "a.jsonl:1: 'en' is not text; choose another column"),
    ("a.tsv", b"en\tfr\none\tun\n", ("de",), "a.tsv:1: no column 'de' in the header (en, fr); name one of them, or give numbers from 1"),
    ("a.csv", "größe,fr\none,un\n".encode("latin-1"), ("de",), "a.csv:1: no column 'de' in the header (, fr); name one of them"),
    ("a.parquet", parquet(FLAT), ("de",), "a.parquet: no column 'de' (en, fr, score); name one of them"),
    ("a.parquet", parquet(NESTED), ("translation.de",), "a.parquet: no column 'translation.de' (translation, score); name one of them"),
    ("a.parquet", parquet(NESTED), ("translation",), "a.parquet: column 'translation' holds struct"),
    ("a.parquet.gz", b"", ("en",), "a.parquet.gz: compressed Parquet is not read; decompress the file first"),
    ("a.zip", b"", ("en",), "a.zip: .zip files are not read; unpack it first"),
    ("a.tsv", b"one\tun\n", ("0",), "column 0: columns count from 1"),
    *(
        (f"a.{kind}", "en,日本語\n".encode("utf-16"), ("en",), f"a.{kind}: UTF-16 text; convert it")
        for kind in ("tsv", "csv", "jsonl", "json")
    ),
]


@pytest.mark.parametrize(("name", "content", "columns", "message"), FAULTS)
def test_faults_have_one_message(name: str, content: bytes, columns: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    uri = str(tmp_path / name)
    readings: list[Callable[[], object]] = [
        lambda: mined_texts(uri, columns[0]),
        lambda: training_texts(uri, (columns * 2)[:2], tmp_path / "work"),
        lambda: load_columns(uri, *columns),
        lambda: read_lines(uri, columns[0]),
    ]
    for reading in readings:
        with pytest.raises((ConfigError, DataError)) as error:
            reading()
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def test_whole_lines_are_texts_of_plain_text_only(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ttwo\n\n \nthree\n")
    (tmp_path / "a.json").write_text('["one", "", "two"]')
    assert list(read_columns(str(tmp_path / "a.txt"), [None])) == [[["one two", "three"]]]
    assert list(read_columns(str(tmp_path / "a.json"), [None])) == [[["one", "two"]]]
    for name in ("a.tsv", "a.csv", "a.jsonl", "a.parquet"):
        (tmp_path / name).write_bytes(b"one\n")
        with pytest.raises(ConfigError, match=f"{name}: is a table; name the column with the text by --text-column, or by `columns`"):
            list(read_columns(str(tmp_path / name), [None]))


def test_names_and_numbers_are_not_mixed(tmp_path: Path) -> None:
    """A number alone is for tables without a header, so the sides of a bitext would differ by a row."""
    (tmp_path / "a.tsv").write_text("en\tfr\none\tun\n")
    with pytest.raises(DataError, match=r"a\.tsv:1: no column '2' in the header \(en, fr\); name one of them, or give numbers from 1"):
        list(read_columns(str(tmp_path / "a.tsv"), ["en", "2"]))


def test_rows_in_errors_count_header_and_blank_lines(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("en\tfr\n\none\tun\n\ntwo\t \n")
    with pytest.raises(DataError, match=r"a\.tsv: row 5 has nothing in column 'fr'; drop such rows"):
        list(read_columns(str(tmp_path / "a.tsv"), ["en", "fr"]))


def test_numbers_are_cells_of_tables_but_not_sentences(tmp_path: Path) -> None:
    """They are written alike in JSON and Parquet."""
    records: list[dict[str, object]] = [{"x": 4.0, "y": True}, {"x": 0.1, "y": False}, {"x": 1e20, "y": True}]
    (tmp_path / "a.jsonl").write_bytes(json_lines(records))
    (tmp_path / "a.parquet").write_bytes(parquet(records))
    for name in ("a.jsonl", "a.parquet"):
        assert load_columns(str(tmp_path / name), "x", "y") == [["4", "0.1", "1e+20"], ["true", "false", "true"]]
        with pytest.raises(DataError, match="not text; choose another column"):
            mined_texts(str(tmp_path / name), "x")


def test_a_table_in_a_small_file_of_repeated_fields_is_read_in_parts(tmp_path: Path) -> None:
    """Strings in structs are read as dictionaries too, so that repeated ones are counted before they take memory."""
    rows = 500
    struct = pa.StructArray.from_arrays([pa.array(["x" * (1 << 20)] * rows)], ["en"])
    pq.write_table(pa.table({"translation": struct}), tmp_path / "bomb.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "bomb.parquet").stat().st_size < 1 << 16
    arguments = ("embed", tmp_path / "bomb.parquet", "--text-column", "translation.en", "--lang", "en", "--output", tmp_path / "out")
    assert "bomb.parquet: expands to more than 67,108,864 bytes" in error_of(*arguments)
