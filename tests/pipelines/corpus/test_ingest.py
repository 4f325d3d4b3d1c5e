"""Sharding by id range, against a dictionary: what the sentences of some files are does not depend on how they were made."""

import bz2
import gzip
import lzma
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError, MinerError, StorageError
from miner.tables import SENTENCES
from miner.text import sentences, streams
from miner.text.normalise import clean, sentence_id

TEXT = TextSettings()
ID_MIN, ID_MAX = -(2**63), 2**63 - 1


def expected(files: dict[str, list[str]]) -> list[dict[str, object]]:
    """The rows of `files` {name: lines}, one by one: unique, sorted by id, with count and first place."""
    seen: dict[str, list[tuple[str, int]]] = {}
    for name, lines in files.items():
        for number, line in enumerate(lines, 1):
            if clean(line):
                seen.setdefault(clean(line), []).append((name, number))
    rows = []
    for text in sorted(seen, key=sentence_id):
        source, number = min(seen[text])
        rows.append({"id": sentence_id(text), "text": text, "count": len(seen[text]), "source": source, "line": number})
    return rows


def make(files: dict[str, list[str]], folder: Path, order: Sequence[str], ranges: int) -> tuple[list[pa.Table], dict[str, int]]:
    """Write the files below `folder`, scatter them in this order and gather every range; sources are the names alone."""
    work = folder / "work"
    counts: dict[str, int] = {}
    for name in order:
        (folder / name).write_bytes("\n".join(files[name]).encode())
        for key, count in sentences.scatter(str(folder / name), str(work), ranges, TEXT, source=name).items():
            counts[key] = counts.get(key, 0) + count
    tables = []
    for index in range(ranges):
        table, more = sentences.gather(str(work), index, ranges)
        assert table.schema.equals(SENTENCES)
        tables.append(table)
        for key, count in more.items():
            counts[key] = counts.get(key, 0) + count
    return tables, counts


line = st.one_of(st.sampled_from(["a", "b ", " b", "cafe\u0301", "caf\u00e9", "", " ", "\x00"]), st.text("abcd é\t", max_size=4))
corpus = st.dictionaries(st.sampled_from(["a.txt", "b.txt", "aa", "Z"]), st.lists(line, max_size=12), min_size=1)


@settings(max_examples=40, deadline=None)
@given(corpus, st.data(), st.integers(1, 5), st.sampled_from([1, 8, 1 << 20]))
def test_any_files_in_any_order_and_any_ranges(files: dict[str, list[str]], data: st.DataObject, ranges: int, held: int) -> None:
    order = data.draw(st.permutations(sorted(files)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", 8)
        patch.setattr(sentences, "RANGE_BYTES", held)  # so that files are written in several rounds
        tables, counts = make(files, Path(folder), order, ranges)
    together = pa.concat_tables(tables).to_pylist()
    assert together == expected(files)
    assert counts["unique"] == len(together)
    assert counts["kept"] == counts["unique"] + counts["duplicate"]
    for index, table in enumerate(tables):  # each id is in the range it belongs to, by exact arithmetic
        assert all((row - ID_MIN) * ranges // 2**64 == index for row in table["id"].to_pylist())


def test_the_same_lines_split_otherwise_differ_in_places_alone(tmp_path: Path) -> None:
    lines = [f"line {number % 37}" for number in range(200)]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    whole, _ = make({"x": lines}, tmp_path / "one", ["x"], 3)
    split, _ = make({"p": lines[:50], "q": lines[50:]}, tmp_path / "two", ["q", "p"], 3)
    for table, other in zip(whole, split, strict=True):
        assert table.select(["id", "text", "count"]).equals(other.select(["id", "text", "count"]))


def test_ranges_are_equal_parts_of_the_signed_ids() -> None:
    quarters = [ID_MIN, -(2**62) - 1, -(2**62), -1, 0, 2**62 - 1, 2**62, ID_MAX]
    assert sentences.range_of(np.array(quarters), 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sentences.range_of(np.array([ID_MIN, ID_MAX]), 99_999).tolist() == [0, 99_998]
    assert sentences.range_of(np.array([ID_MIN, 0, ID_MAX]), 1).tolist() == [0, 0, 0]


def test_reading_again_replaces_and_leaves_nothing_else(tmp_path: Path) -> None:
    files = {"a": ["x", "y"]}
    make(files, tmp_path, ["a"], 2)
    tables, _ = make({"a": ["z"]}, tmp_path, ["a"], 2)
    assert pa.concat_tables(tables)["text"].to_pylist() == ["z"]
    assert len(list((tmp_path / "work").iterdir())) == 1


def test_a_bad_input_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\xff\n")
    with pytest.raises(DataError, match=r"a\.txt:2: not UTF-8"):
        sentences.scatter(str(path), str(tmp_path / "work"), 1, TextSettings(strict=True))
    assert list((tmp_path / "work").iterdir()) == []
    with pytest.raises(DataError, match=r"^-:2: not UTF-8"):  # standard input, read from where it is kept
        sentences.scatter(str(path), str(tmp_path / "work"), 1, TextSettings(strict=True), source="-")


def rows(ids: Sequence[int], texts: Sequence[str]) -> pa.Table:
    table = pa.table({"id": ids, "text": texts, "count": [1] * len(ids), "line": range(1, len(ids) + 1)})
    return table.cast(sentences.SCATTERED)


def test_two_texts_with_one_id_are_never_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sentences.unique(rows([5, 3, 5], ["a", "b", "a"])).to_pylist() == [
        {"id": 3, "text": "b", "count": 1, "line": 2},
        {"id": 5, "text": "a", "count": 2, "line": 1},
    ]
    with pytest.raises(DataError, match=r"^'a' \(line 1\) and 'c' \(line 4\) have the same id 5; take one of them out$"):
        sentences.unique(rows([5, 3, 5, 5], ["a", "b", "a", "c"]))
    # Across files: a hash that gives every text one id.
    monkeypatch.setattr(sentences, "ids_of", lambda encoded: np.full(len(encoded), 7))
    with pytest.raises(DataError, match=r"^'one' \(p:1\) and 'two' \(q:2\) have the same id 7; take one of them out$"):
        make({"p": ["one"], "q": ["", "two"]}, tmp_path, ["q", "p"], 2)


def test_no_text_gives_empty_shards(tmp_path: Path) -> None:
    tables, counts = make({"a": ["", " "], "b": []}, tmp_path, ["a", "b"], 2)
    assert [len(table) for table in tables] == [0, 0]
    assert counts == {"lines": 2, "kept": 0, "empty": 2, "invalid": 0, "too_long": 0, "unique": 0, "duplicate": 0}
    assert sentences.gather(str(tmp_path / "never"), 0, 1)[0].schema.equals(SENTENCES)


def test_files_of_another_run_are_refused(tmp_path: Path) -> None:
    make({"a": ["x"]}, tmp_path, ["a"], 2)
    with pytest.raises(StorageError, match=r"made for 2 shards, not 3; delete .* and run again"):
        sentences.gather(str(tmp_path / "work"), 0, 3)
    path = next((tmp_path / "work").iterdir())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"not a whole Arrow file; delete .* and run again"):
        sentences.gather(str(tmp_path / "work"), 0, 2)


def test_a_range_of_more_text_than_a_column_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "MAX_TEXT", 10)
    with pytest.raises(ConfigError, match="range 0 of 1 holds more than 2 GB of text; choose more --shards"):
        make({"a": ["twelve bytes"]}, tmp_path, ["a"], 1)


def test_one_range_for_every_32_megabytes(tmp_path: Path) -> None:
    plain, packed, empty = tmp_path / "a.txt", tmp_path / "b.txt.gz", tmp_path / "c.txt"
    for path, size in ((plain, 40 << 20), (packed, 20 << 20), (empty, 0)):
        with path.open("wb") as handle:
            handle.truncate(size)
    inputs = [str(plain), str(packed)]
    assert sentences.ranges_for(inputs, TEXT) == math.ceil((40 + 3 * 20) / 32)
    assert sentences.ranges_for([str(empty)], TEXT) == 1
    assert sentences.ranges_for(inputs, TextSettings(shards=7)) == 7
    with pytest.raises(MinerError, match="no such file"):
        sentences.ranges_for([str(tmp_path / "none")], TEXT)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_compressed_text_is_counted_by_what_it_unpacks_to(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "RANGE_BYTES", 1 << 18)
    monkeypatch.setattr(streams, "HEAD", 1 << 17)
    text = "".join(f"the {number}th of many sentences that are nearly the same\n" for number in range(60_000)).encode()
    pack = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    for number in range(3):
        (tmp_path / f"{number}.txt{suffix}").write_bytes(pack(text))
    found = sentences.ranges_for([str(path) for path in sorted(tmp_path.iterdir())], TEXT)
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    true = 3 * len(text) / sentences.RANGE_BYTES
    assert found == pytest.approx(true, rel=0.3)  # a start need not be like the rest
    assert size * sentences.EXPANSION[suffix] / sentences.RANGE_BYTES < true / 2


def test_the_signature_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    first = sentences.signature(str(path))
    assert sentences.signature(str(path)) == first
    path.write_text("three")
    assert sentences.signature(str(path)) != first
