"""No read returns other data than was written: flipped bits are found by the checksums of pages, footers and files, and by schemas."""

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import error_of, output_of

from miner.errors import StorageError
from miner.io import records, stages, storage, table_files
from miner.io.stages import Manifest, Shard, Stage

TABLE = pa.table({"id": np.arange(2000), "text": [f"sentence {number}" for number in range(2000)]})


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(bytes(data))
    os.utime(path, (position, bit))  # file systems round times, and a file of the same time is not read again


def outcome_of(read: Callable[[], bool]) -> bool | str:
    """What a read returns, or the problem that its error names after the path."""
    try:
        return read()
    except StorageError as error:
        return re.split(r"[:;(]", str(error).partition(": ")[2])[0].strip()


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A finished stage of one table."""
    stage = Stage(str(tmp_path / "stage"), "numbers", {}, {})
    stage.start()
    table_files.write_table(stage.path("part-0.parquet"), TABLE)
    stage.mark_done("part-0.parquet", len(TABLE), stage.key())
    stage.finish({"part-0.parquet": stage.key()})
    return tmp_path / "stage"


def test_every_flipped_bit_of_a_table_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    sources = pa.array(["a.txt", "b.txt"] * 4).dictionary_encode()
    table = pa.table({"id": np.arange(8), "source": sources}).replace_schema_metadata({"encoder": "toy"})
    table_files.write_table(str(path), table)
    data, outcomes = path.read_bytes(), Counter[bool | str]()
    for position in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
            outcomes[outcome_of(lambda: table_files.read_table(str(path)).equals(table, check_metadata=True))] += 1
    assert outcomes.keys() == {True, "not a complete Parquet file"}
    assert outcomes[True] < 0.15 * outcomes.total(), "bits of the headers of pages, and of the mark of the hash"


def test_a_table_of_another_program_is_read(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "foreign.parquet")
    assert table_files.read_table(str(tmp_path / "foreign.parquet")).equals(TABLE)


def test_an_arrow_file_is_compared_with_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "t.arrow"
    with storage.atomic(str(path)) as handle, pa.ipc.new_file(handle, TABLE.schema) as writer:
        writer.write_table(TABLE)
    checksum = storage.checksum(str(path))
    with table_files.open_arrow(str(path), checksum) as reader:
        assert reader.read_all().equals(TABLE)
    flip(path, path.read_bytes().index(b"sentence 1000"))
    with pytest.raises(StorageError, match="changed since it was written"), table_files.open_arrow(str(path), checksum):
        pass


def test_a_flipped_bit_of_a_manifest_is_an_error(stage: Path) -> None:
    path = stage / "manifest.json"
    data, expected, outcomes = path.read_bytes(), stages.read_manifest(str(stage)), set()
    for position in range(len(data)):
        path.write_bytes(data)
        flip(path, position, position % 8)
        outcomes.add(outcome_of(lambda: stages.read_manifest(str(stage)) == expected))
    assert outcomes == {"changed since it was written", "not JSON", "not valid"}, "not valid: the name of the checksum changed"


MANIFEST = {"stage": "numbers", "config": {}, "inputs": {}, "shards": [{"name": "part-0", "rows": 1, "checksum": "0"}], "details": {}}


def test_manifests_of_earlier_versions_have_no_checksum(tmp_path: Path) -> None:
    records.write(str(tmp_path / "manifest.json"), MANIFEST)
    assert stages.read_manifest(str(tmp_path)).shards == [Shard("part-0", 1, "0")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shards": [{"rows": 1, "checksum": "0"}]}, "shards.0.name: Field required"),
        ({"shards": [{"name": "x", "rows": "many", "checksum": "0"}]}, "shards.0.rows: Input should be a valid integer"),
        ({"shards": None}, "shards"),
        ({"stage": 3}, "stage: Input should be a valid string"),
        ({"stage": "index", "details": {}}, "details: not valid .embeddings: Field required"),
        ({"stage": "embeddings", "config": {"dim": 3}}, "config: not valid .fingerprint: Field required"),
        ({"stage": "candidates", "details": {"k": "four"}}, "details: not valid .k: "),
        ({"stage": "candidates", "details": {"engine": {"name": "exact"}}}, "details: not valid .engine.reason: Field required"),
        ({"shards": [{"name": "../../x.parquet", "rows": 1, "checksum": "0"}]}, "'../../x.parquet' is not the name of a shard"),
        ({"shards": [{"name": "/etc/passwd", "rows": 1, "checksum": "0"}]}, "'/etc/passwd' is not the name of a shard"),
        ({"shards": [{"name": "..", "rows": 1, "checksum": "0"}]}, "'..' is not the name of a shard"),
    ],
)
def test_a_manifest_that_does_not_fit_its_schema_is_an_error(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    records.write(str(tmp_path / "manifest.json"), {**MANIFEST, **changes})
    with pytest.raises(StorageError, match=f"manifest.json: .*{message}"):
        stages.read_manifest(str(tmp_path))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "\ud800", "1" * 10_000])
def test_odd_json_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(StorageError, match=r"manifest\.json: not "):
        records.read(str(tmp_path / "manifest.json"), Manifest)


@pytest.mark.slow
def test_a_repaired_shard_is_mined_again(tmp_path: Path, toy_encoder: Path) -> None:
    """Damaged vectors are never mined, so a repair leaves no pairs of them."""
    (tmp_path / "en.txt").write_text("one two\nthree four five\nseven nine\nten one one\n")
    (tmp_path / "fr.txt").write_text("un deux\ntrois quatre cinq\nsept neuf\ndix un un\n")
    embed = {
        lang: ("embed", tmp_path / f"{lang}.txt", "--lang", lang, "--encoder", toy_encoder, "--output", tmp_path / lang)
        for lang in ("en", "fr")
    }
    for command in embed.values():
        output_of(*command)
    mine = ("mine", tmp_path / "en", tmp_path / "fr", "--threshold", 0, "--output")
    output_of(*mine, tmp_path / "expected")
    shard = tmp_path / "en" / "embeddings" / "part-00000-of-00001.parquet"
    flip(shard, 40, 6)
    assert f"{shard}: " in error_of(*mine, tmp_path / "out")
    output_of(*embed["en"])
    output_of(*mine, tmp_path / "out")
    assert (tmp_path / "out" / "bitext.tsv.gz").read_bytes() == (tmp_path / "expected" / "bitext.tsv.gz").read_bytes()
