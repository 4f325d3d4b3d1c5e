"""CSV, JSON and TMX: values that other tools wrote are read back, and malformed files are one line."""

import csv
import gzip
import json
from pathlib import Path

import bitexts
import fsspec
import pytest
from command import error_of, miner, output_of
from hypothesis import given, settings
from hypothesis import strategies as st
from translate.storage.tmx import tmxfile

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError
from miner.text import readers
from miner.text.formats import read_values
from miner.text.records import Fault

TEXTS = ["one", 'two "quoted", with comma', "line\nbreak", "", "; semi\ttab", "naïve 日本語"]


def values(path: Path, column: str | None = None) -> list[str | Fault]:
    numbered = list(read_values(str(path), TextSettings(text_column=column), str(path)))
    numbers = [first + index for first, batch in numbered for index in range(len(batch))]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    return [value for _, batch in numbered for value in batch]


def write_csv(path: Path, rows: list[list[str]], **dialect: str) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, **dialect).writerows(rows)
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_that_python_wrote_is_read_back(tmp_path: Path, separator: str) -> None:
    path = write_csv(
        tmp_path / "a.csv", [["id", "text", "more"], *([str(n), text, "x"] for n, text in enumerate(TEXTS))], delimiter=separator
    )
    assert values(path, "text") == TEXTS
    assert values(path, "2") == ["text", *TEXTS]
    path.rename(tmp_path / "plain")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + (tmp_path / "plain").read_bytes()))
    assert values(tmp_path / "a.csv.gz", "text") == TEXTS


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=20), min_size=1, max_size=5))
def test_any_csv_cell_is_read_back(tmp_path_factory: pytest.TempPathFactory, cells: list[str]) -> None:
    path = write_csv(tmp_path_factory.mktemp("csv") / "a.csv", [["a", "b"], *(["x", cell] for cell in cells)])
    assert values(path, "b") == cells


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("shape", ["array", "wrapped", "lines", "strings"])
def test_json_is_read_by_its_content(tmp_path: Path, shape: str, indent: int | None) -> None:
    texts = [*TEXTS, "long " * 30_000, "end"]  # longer than what is read at a time
    rows = [{"id": number, "text": text, "more": {"list": [1, "]"]}} for number, text in enumerate(texts)]
    content = {"array": rows, "wrapped": {"data": rows}, "strings": texts}.get(shape)
    dumped = "".join(json.dumps(row, indent=indent) + "\n" for row in rows) if content is None else json.dumps(content, indent=indent)
    (tmp_path / "a.json").write_text(dumped)
    assert values(tmp_path / "a.json", None if shape == "strings" else "text") == texts
    if shape != "strings":
        assert [type(value) for value in values(tmp_path / "a.json", "none")] == [Fault] * len(texts)
        with pytest.raises(ConfigError, match="name the column with the text by --text-column"):
            values(tmp_path / "a.json")


@pytest.mark.parametrize("shape", ["one", "lines", "array"])
def test_json_record_that_begins_with_a_list_is_no_array_of_records(tmp_path: Path, shape: str) -> None:
    rows = [{"tags": ["news", "sport"], "spans": [{"start": 0}], "text": text} for text in TEXTS]
    shapes = {"one": json.dumps(rows[0]), "lines": "\n".join(map(json.dumps, rows)), "array": json.dumps(rows)}
    (tmp_path / "a.json").write_text(shapes[shape])
    assert values(tmp_path / "a.json", "text") == (TEXTS[:1] if shape == "one" else TEXTS)
    assert all(isinstance(value, Fault) for value in values(tmp_path / "a.json", "txt"))
    with pytest.raises(ConfigError, match="name the column with the text by --text-column"):
        values(tmp_path / "a.json")


def test_json_record_that_begins_with_a_list_of_objects_is_a_record(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"entities": [{"text": "Paris"}], "text": "I like Paris."}')
    assert values(tmp_path / "a.json", "text") == ["I like Paris."]


@pytest.mark.parametrize("more", ["", ', "version": {"a": [1]}'])
@pytest.mark.parametrize("num_rows", [0, 1, 3000])
def test_json_array_in_an_object_may_be_followed_by_other_keys(tmp_path: Path, more: str, num_rows: int) -> None:
    rows = [{"text": f"line {number} " + "x" * 100} for number in range(num_rows)]
    (tmp_path / "a.json").write_text(f'\n{{ "data" : {json.dumps(rows)}{more}}}\n')
    assert values(tmp_path / "a.json", "text") == [row["text"] for row in rows]


def test_several_json_objects_with_arrays_are_not_read_as_the_first_array(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"texts": ["one", "two"]}\n{"texts": ["three"]}\n')
    assert values(tmp_path / "a.json", "texts") == [Fault("invalid", "'texts' is not text; choose another column")] * 2


def test_tmx_of_translate_toolkit_is_read_back(tmp_path: Path) -> None:
    pairs = [("one & <two>", "un & <deux>"), ("three\nfour", "trois\nquatre"), ("five", "cinq")]
    memory = tmxfile()
    for source, target in pairs:
        memory.addtranslation(source, "en-US", target, "fr")
    memory.savefile(str(tmp_path / "memory.tmx"))
    assert values(tmp_path / "memory.tmx", "en") == values(tmp_path / "memory.tmx", "en_us") == [source for source, _ in pairs]
    assert values(tmp_path / "memory.tmx", "fr") == [target for _, target in pairs]
    with pytest.raises(DataError, match="no segment in de; its languages are en-US, fr"):
        values(tmp_path / "memory.tmx", "de")


def test_inline_codes_and_missing_variants_of_tmx() -> None:
    body = (
        '<tu><tuv xml:lang="en"><seg>press <bpt i="1">&lt;b&gt;</bpt><hi>OK</hi><ept i="1">&lt;/b&gt;</ept> now</seg></tuv></tu>'
        '<tu><tuv lang="de"><seg>nur</seg></tuv></tu>'
    )
    uri = "memory://records/a.tmx"
    with fsspec.open(uri, "wb") as file:
        file.write(f'<?xml version="1.0"?><tmx version="1.4"><header/><body>{body}</body></tmx>'.encode())
    read = [value for _, batch in read_values(uri, TextSettings(text_column="en"), uri) for value in batch]
    assert read == ["press OK now", ""]


@pytest.mark.parametrize(
    ("name", "content", "column", "message"),
    [
        ("a.json", "[{}, {", "text", "a.json: not JSON after 1 records"),
        ("a.json", '[{"text": "a"}', "text", "a.json: ends within its JSON array after 1 records"),
        ("a.tmx", "<tmx><body><tu></tu>", "en", "a.tmx:1: not TMX after 1 units"),
        ("a.tmx", "<tmx/>", None, "a.tmx: has several languages; name one"),
        ("a.csv", "a,b\n1,2\n", "c", r"a.csv:1: no column 'c' in the header \(a, b\)"),
        ("a.csv", "a,b\n", None, "a.csv: is a table"),
        ("a.csv", "a,b\n", "0", "columns count from 1"),
        ("a.csv", "a,b\nx," + "y" * 2_000_000 + "\n", "b", "a.csv:2: not CSV .field larger than field limit"),
    ],
)
def test_malformed_files_are_one_line(tmp_path: Path, name: str, content: str, column: str | None, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises((ConfigError, DataError), match=message):
        values(tmp_path / name, column)


def test_invalid_cells_are_dropped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1\n2,\xff\n3,good\n")
    (block,) = readers.read_sentences(str(tmp_path / "a.csv"), TextSettings(text_column="b"))
    assert (block.texts, block.lines.tolist(), block.counts["invalid"]) == (["good"], [4], 2)


@pytest.fixture
def forms(tmp_path: Path) -> dict[str, list[object]]:
    """The same pairs in every form, and the arguments that name them; the second pair is out of order in meaning, not in lines."""
    pairs = [("one two", "un deux"), ("three four", "trois quatre"), ("five", "cinq"), ("nine ten", "neuf dix")]
    for side, lang in enumerate(("en", "fr")):
        (tmp_path / f"moses.{lang}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    write_csv(tmp_path / "a.csv", [["en", "fr"], *map(list, pairs)])
    (tmp_path / "a.json").write_text(json.dumps([{"en": source, "fr": target} for source, target in pairs]))
    folder = bitexts.write(tmp_path / "mined", [(1.5, *pair) for pair in pairs], ("eng_Latn", "fra_Latn"))
    output_of("export", folder, "--format", "tmx", "--output", tmp_path / "tmx")
    (tmx,) = (tmp_path / "tmx").glob("*.tmx")
    columns = ["--source-column", "en", "--target-column", "fr"]
    return {
        "two files": [tmp_path / "moses.en", tmp_path / "moses.fr"],
        "moses stem": [tmp_path / "moses"],
        "csv": [tmp_path / "a.csv", *columns],
        "json": [tmp_path / "a.json", *columns],
        "tmx": [tmx],
    }


@pytest.mark.slow
def test_score_and_mine_read_every_form_of_a_bitext(forms: dict[str, list[object]], toy_encoder: Path, tmp_path: Path) -> None:
    common = ["--source-lang", "en", "--target-lang", "fr", "--encoder", toy_encoder]
    scored, mined = {}, {}
    for name, words in forms.items():
        output_of("score", *words, *common, "--output", tmp_path / f"{name}.tsv")
        rows = (tmp_path / f"{name}.tsv").read_text().splitlines()
        scored[name] = tuple(row.rpartition("\t")[0] for row in rows)  # without the number of the line, where a header counts
        output_of("mine", *words, *common, "--threshold", 0, "--output", tmp_path / f"mined {name}")
        mined[name] = gzip.decompress((tmp_path / f"mined {name}" / "bitext.tsv.gz").read_bytes())
    assert len(scored["two files"]) == 4
    assert len(mined["two files"].splitlines()) == 4
    assert set(scored.values()) == {scored["two files"]}
    assert set(mined.values()) == {mined["two files"]}


def test_a_file_without_columns_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    for command in ("mine", "score"):
        result = miner(command, tmp_path / "a.csv", "--output", tmp_path / "out")
        assert result.exit_code == 2
        assert "give TARGET, or one file with --source-column and --target-column" in result.stderr
    assert "no column 'c'" in error_of(
        "mine", tmp_path / "a.csv", "--source-column", "a", "--target-column", "c", "--output", tmp_path / "out"
    )


def test_records_are_read_as_a_stream(tmp_path: Path) -> None:
    """A value arrives before the file ends, so memory does not depend on the size of the file."""
    rows = ",".join(json.dumps({"text": f"sentence {number}"}) for number in range(20_000))
    (tmp_path / "a.json").write_text(f"[{rows}]")
    stream = read_values(str(tmp_path / "a.json"), TextSettings(text_column="text"), "a.json")
    first, batch = next(stream)
    assert (first, len(batch), batch[0]) == (1, 4096, "sentence 0")
    assert sum(len(batch) for _, batch in stream) == 20_000 - 4096
