"""Sharding by id range, against a dictionary: the sentences do not depend on the order of files, block sizes or ranges."""

import bz2
import gzip
import lzma
import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError, MinerError, StorageError
from miner.io import storage
from miner.io.tables import SENTENCES
from miner.text import clean_blocks, readers, sharding
from miner.text.normalise import clean, sentence_id
from miner.text.sharding import DEFAULT_SIZES, IngestSizes, InputFile

TEXT = TextSettings()
ID_MIN, ID_MAX = -(2**63), 2**63 - 1


def expected_rows(files: dict[str, list[str]]) -> list[dict[str, object]]:
    """Return the unique sentences of `files` {name: lines}, sorted by id, with count and first occurrence."""
    occurrences: dict[str, list[tuple[str, int]]] = {}
    for name, lines in files.items():
        for number, text in enumerate(lines, 1):
            if clean(text):
                occurrences.setdefault(clean(text), []).append((name, number))
    rows = []
    for text in sorted(occurrences, key=sentence_id):
        source, number = min(occurrences[text])
        rows.append({"id": sentence_id(text), "text": text, "count": len(occurrences[text]), "source": source, "line": number})
    return rows


def shard(
    files: dict[str, list[str]], folder: Path, order: Sequence[str], num_ranges: int, sizes: IngestSizes = DEFAULT_SIZES
) -> tuple[list[pa.Table], dict[str, int]]:
    """Write the files to `folder`, scatter them in this order and gather every range; sources are file names.

    Of three files, two are read together.
    """
    scattered = folder / "scattered"
    counts: Counter[str] = Counter()
    for name in order:
        (folder / name).write_bytes("\n".join(files[name]).encode())
    inputs = [InputFile(name, str(folder / name)) for name in order]
    for group in (sorted(inputs[:2], key=lambda file: file.source), inputs[2:3], inputs[3:]) if len(inputs) > 2 else map(list, zip(inputs)):
        read = partial(sharding.read_blocks, settings=TEXT, sizes=sizes)
        counts.update(sharding.scatter_inputs(group, str(scattered), num_ranges, read, sizes) if group else {})
    checksums = {path.name: storage.checksum(str(path)) for path in scattered.glob("*.arrow")}
    tables = [sharding.gather_range(str(scattered), checksums, index, num_ranges, sizes) for index in range(num_ranges)]
    assert all(table.schema.equals(SENTENCES) for table in tables)
    return tables, dict(counts)


line = st.one_of(st.sampled_from(["a", "b ", " b", "cafe\u0301", "caf\u00e9", "", " ", "\x00"]), st.text("abcd é\t", max_size=4))
corpus = st.dictionaries(st.sampled_from(["a.txt", "b.txt", "aa", "Z"]), st.lists(line, max_size=12), min_size=1)


@settings(max_examples=40, deadline=None)
@given(corpus, st.data(), st.integers(1, 5), st.sampled_from([1, 8, 1 << 20]))
def test_shards_do_not_depend_on_order_ranges_or_sizes(
    files: dict[str, list[str]], data: st.DataObject, num_ranges: int, range_bytes: int
) -> None:
    order = data.draw(st.permutations(sorted(files)))
    sizes = IngestSizes(block_bytes=8, range_bytes=range_bytes)  # files are written in several rounds
    with tempfile.TemporaryDirectory() as folder:
        tables, counts = shard(files, Path(folder), order, num_ranges, sizes)
    rows = pa.concat_tables(tables).to_pylist()
    assert rows == expected_rows(files)
    assert counts["kept"] == sum(row["count"] for row in rows)
    for index, table in enumerate(tables):  # each id is in its range, by exact arithmetic
        assert all((row - ID_MIN) * num_ranges // 2**64 == index for row in table["id"].to_pylist())


def test_splitting_a_file_changes_only_source_and_line(tmp_path: Path) -> None:
    lines = [f"line {number % 37}" for number in range(200)]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    whole, _ = shard({"x": lines}, tmp_path / "one", ["x"], 3)
    split, _ = shard({"p": lines[:50], "q": lines[50:]}, tmp_path / "two", ["q", "p"], 3)
    for table, split_table in zip(whole, split, strict=True):
        assert table.select(["id", "text", "count"]).equals(split_table.select(["id", "text", "count"]))


def test_ranges_are_equal_parts_of_the_signed_ids() -> None:
    quarters = [ID_MIN, -(2**62) - 1, -(2**62), -1, 0, 2**62 - 1, 2**62, ID_MAX]
    assert sharding.range_of(np.array(quarters), 4).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sharding.range_of(np.array([ID_MIN, ID_MAX]), 99_999).tolist() == [0, 99_998]
    assert sharding.range_of(np.array([ID_MIN, 0, ID_MAX]), 1).tolist() == [0, 0, 0]


def test_scattering_again_replaces_the_scattered_file(tmp_path: Path) -> None:
    shard({"a": ["x", "y"]}, tmp_path, ["a"], 2)
    tables, _ = shard({"a": ["z"]}, tmp_path, ["a"], 2)
    assert pa.concat_tables(tables)["text"].to_pylist() == ["z"]
    assert len(list((tmp_path / "scattered").iterdir())) == 1


def test_failed_scatter_leaves_no_files(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\xff\n")

    def scatter(source: str) -> None:
        read = partial(sharding.read_blocks, settings=TextSettings(strict=True))
        sharding.scatter_inputs([InputFile(source, str(path))], str(tmp_path / "scattered"), 1, read)

    with pytest.raises(DataError, match=r"a\.txt:2: not UTF-8"):
        scatter(str(path))
    assert list((tmp_path / "scattered").iterdir()) == []
    with pytest.raises(DataError, match=r"^-:2: not UTF-8"):  # standard input, read from the file it is spooled to
        scatter("-")


def scattered_table(ids: Sequence[int], texts: Sequence[str]) -> pa.Table:
    table = pa.table({"id": ids, "text": texts, "count": [1] * len(ids), "line": range(1, len(ids) + 1)})
    return table.cast(clean_blocks.SCHEMA)


def test_two_texts_with_one_id_are_never_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sharding.deduplicate(scattered_table([5, 3, 5], ["a", "b", "a"])).to_pylist() == [
        {"id": 3, "text": "b", "count": 1, "line": 2},
        {"id": 5, "text": "a", "count": 2, "line": 1},
    ]
    with pytest.raises(DataError, match=r"^'a' \(line 1\) and 'c' \(line 4\) have the same id 5; remove one of them$"):
        sharding.deduplicate(scattered_table([5, 3, 5, 5], ["a", "b", "a", "c"]))
    # Across files, with a hash that collides for all texts.
    monkeypatch.setattr(clean_blocks, "hash_ids", lambda encoded: np.full(len(encoded), 7))
    with pytest.raises(DataError, match=r"^'one' \(p:1\) and 'two' \(q:2\) have the same id 7; remove one of them$"):
        shard({"p": ["one"], "q": ["", "two"]}, tmp_path, ["q", "p"], 2)


def test_text_without_sentences_gives_empty_shards(tmp_path: Path) -> None:
    tables, counts = shard({"a": ["", " "], "b": []}, tmp_path, ["a", "b"], 2)
    assert [len(table) for table in tables] == [0, 0]
    assert counts == {"lines": 2, "kept": 0, "empty": 2, "invalid": 0, "too_long": 0}
    assert sharding.gather_range(str(tmp_path / "missing"), {}, 0, 1).schema.equals(SENTENCES)


def test_scattered_files_of_another_run_are_refused(tmp_path: Path) -> None:
    shard({"a": ["x"]}, tmp_path, ["a"], 2)
    path = next((tmp_path / "scattered").iterdir())
    checksums = {path.name: storage.checksum(str(path))}
    with pytest.raises(StorageError, match=r"written for 2 shards, not 3; delete .* and run again"):
        sharding.gather_range(str(tmp_path / "scattered"), checksums, 0, 3)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"changed since it was written|not a complete Arrow file"):
        sharding.gather_range(str(tmp_path / "scattered"), checksums, 0, 2)


def test_range_with_more_text_than_a_column_can_hold_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="range 0 of 1 holds more than 2 GB of text; choose more --shards"):
        shard({"a": ["twelve bytes"]}, tmp_path, ["a"], 1, IngestSizes(column_bytes=10))


def input_files(*paths: Path) -> list[InputFile]:
    return [InputFile(str(path), str(path)) for path in paths]


def test_one_range_per_32_megabytes(tmp_path: Path) -> None:
    plain, compressed, empty = tmp_path / "a.txt", tmp_path / "b.txt.gz", tmp_path / "c.txt"
    for path, size in ((plain, 40 << 20), (compressed, 20 << 20), (empty, 0)):
        with path.open("wb") as handle:
            handle.truncate(size)
    inputs = input_files(plain, compressed)
    assert sharding.num_ranges_for(inputs, TEXT) == math.ceil((40 + 3 * 20) / 32)
    assert sharding.num_ranges_for(input_files(empty), TEXT) == 1
    assert sharding.num_ranges_for(inputs, TextSettings(shards=7)) == 7
    with pytest.raises(MinerError, match="no such file"):
        sharding.num_ranges_for(input_files(tmp_path / "missing"), TEXT)


def test_small_text_has_few_shards(tmp_path: Path) -> None:
    """300 sentences in 1,000 shards took minutes: a step writes a file for each shard, with a part for each of the others."""
    lines = [f"sentence number {number:03d} of a text of ninety bytes per line, with its end {number:014d}" for number in range(300)]
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{line:89}\n" for line in lines))
    expected = {1: 1, 16: 16, 17: 16, 1000: 16}
    assert {shards: sharding.num_ranges_for(input_files(path), TextSettings(shards=shards)) for shards in expected} == expected
    with path.open("wb") as handle:
        handle.truncate(1_000_000)
    expected = {99: 99, 100: 100, 101: 100}
    assert {shards: sharding.num_ranges_for(input_files(path), TextSettings(shards=shards)) for shards in expected} == expected


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_ranges_of_compressed_text_follow_its_uncompressed_size(tmp_path: Path, suffix: str) -> None:
    sizes = IngestSizes(range_bytes=1 << 18, head_bytes=1 << 17)
    text = "".join(f"the {number}th of many sentences that are nearly the same\n" for number in range(60_000)).encode()
    compress = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    for number in range(3):
        (tmp_path / f"{number}.txt{suffix}").write_bytes(compress(text))
    num_ranges = sharding.num_ranges_for(input_files(*sorted(tmp_path.iterdir())), TEXT, sizes)
    compressed_bytes = sum(path.stat().st_size for path in tmp_path.iterdir())
    exact = 3 * len(text) / sizes.range_bytes
    assert num_ranges == pytest.approx(exact, rel=0.3)  # the head of a file is a sample
    assert compressed_bytes * sharding.EXPANSION_RATIOS[suffix] / sizes.range_bytes < exact / 2


def test_input_signature_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    signature = readers.input_signature(str(path))
    assert readers.input_signature(str(path)) == signature
    path.write_text("three")
    assert readers.input_signature(str(path)) != signature
