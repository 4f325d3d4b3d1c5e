"""A text that was changed is found by its id even where every checksum was computed again after the change."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from command import error_of, miner, output_of

from miner.errors import DataError
from miner.io import records, stages, storage, table_files
from miner.io.tables import check_ids, hash_ids

SHARD = "part-00000-of-00001.parquet"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    (folder / "en.txt").write_text("one two\nthree four\nfive six seven\n")
    (folder / "fr.txt").write_text("un deux\ntrois quatre\ncinq six sept\n")
    return folder


@pytest.fixture
def folder(texts: Path, toy_encoder: Path, tmp_path: Path) -> Path:
    for lang in ("en", "fr"):
        shutil.copy(texts / f"{lang}.txt", tmp_path)
        output_of("embed", tmp_path / f"{lang}.txt", "--lang", lang, "--encoder", toy_encoder, "--output", tmp_path / lang, "--strict")
    return tmp_path


def change_text(corpus: Path, old: str, new: str) -> None:
    """Change a text, and write every checksum again that depends on it."""
    path = corpus / "sentences" / SHARD
    table = table_files.read_table(str(path))
    changed = pa.array([new if text == old else text for text in table["text"].to_pylist()])
    assert changed != table["text"].combine_chunks()
    table_files.write_table(str(path), table.set_column(1, table.schema.field("text"), changed))
    checksum = storage.checksum(str(path))
    for name in ("sentences/manifest.json", f"sentences/_shards/{SHARD}.json", "embeddings/manifest.json"):
        record = records.read(str(corpus / name), dict)
        for shard in [record, *record.get("shards", [])] if name.startswith("sentences") else []:
            shard.update({"checksum": checksum} if "checksum" in shard else {})
        if name.startswith("embeddings"):
            record["inputs"] = {SHARD: checksum}
        records.write(str(corpus / name), record)


def test_a_changed_text_is_not_mined(folder: Path) -> None:
    mine = ("mine", folder / "en", folder / "fr", "--threshold", -1, "--output", folder / "out")
    change_text(folder / "fr", "trois quatre", "trois chats")
    assert miner("verify", folder / "fr").exit_code == 0, "every checksum fits"
    message = error_of(*mine)
    assert f"fr/sentences/{SHARD}: the id of 'trois chats' is not the hash of the text" in message
    assert f"delete {folder}/fr/sentences and run `miner embed` again" in message
    assert not (folder / "out" / "bitext.parquet").exists()


def test_a_changed_text_is_not_embedded(folder: Path, toy_encoder: Path) -> None:
    change_text(folder / "fr", "trois quatre", "trois chats")
    shutil.rmtree(folder / "fr" / "embeddings")
    embed = ("embed", folder / "fr.txt", "--lang", "fr", "--encoder", toy_encoder, "--output", folder / "fr", "--strict")
    assert "the id of 'trois chats' is not the hash of the text" in error_of(*embed)
    shutil.rmtree(folder / "fr" / "sentences")
    output_of(*embed)
    assert "trois quatre" in table_files.read_table(str(folder / "fr" / "sentences" / SHARD))["text"].to_pylist()


def test_a_changed_text_does_not_hide_a_new_one(folder: Path, toy_encoder: Path) -> None:
    """Without the check, the new line counts as a collision of ids."""
    change_text(folder / "fr", "trois quatre", "trois chats")
    (folder / "more.txt").write_text("trois quatre\nhuit\n")
    files = [folder / name for name in ("fr.txt", "more.txt")]
    message = error_of("embed", *files, "--lang", "fr", "--encoder", toy_encoder, "--output", folder / "fr", "--strict")
    assert "the id of 'trois chats' is not the hash of the text" in message


@pytest.mark.parametrize("sentences", [[], ["a"], ["a", "", "ünï", "a\u2028b", "日本"]])
def test_intact_ids_pass(sentences: list[str]) -> None:
    table = pa.table({"id": hash_ids([text.encode() for text in sentences]), "text": pa.array(sentences, pa.string())})
    check_ids("x", table)
    check_ids("x", pa.concat_tables([table, table]))
    for row in range(len(sentences)):
        ids = table["id"].to_numpy().copy()
        ids[row] ^= np.int64(1) << 62
        with pytest.raises(DataError, match="is not the hash of the text"):
            check_ids("folder/x", table.set_column(0, "id", pa.array(ids)))


def test_a_manifest_is_what_the_next_command_reads(folder: Path) -> None:
    """The tests above rewrite manifests as the program does."""
    path = folder / "fr" / "sentences" / stages.MANIFEST
    content = path.read_bytes()
    records.write(str(path), {name: value for name, value in json.loads(content).items() if name != records.CHECKSUM})
    assert path.read_bytes() == content
