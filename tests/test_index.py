"""`miner index`: the FAISS files answer with sentence ids, and what cannot be indexed is refused in one line."""

import sys
from pathlib import Path

import dense
import numpy as np
import pytest
from click.testing import CliRunner, Result

from miner import storage
from miner.cli.main import main
from miner.search import faiss_index


def miner(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return dense.write_corpus(tmp_path / "embedded", dense.ids(90, 0), dense.unit(90, 16, 0), shards=2)


def test_an_index_answers_with_the_ids_of_the_nearest(corpus: Path, tmp_path: Path) -> None:
    result = miner("index", corpus, "--output", tmp_path / "indexed")
    assert result.exit_code == 0, result.output
    assert "90 vectors x 16 dimensions" in result.stdout
    ids, vectors = dense.ids(90, 0), dense.unit(90, 16, 0)
    for shard, rows in enumerate(np.array_split(np.arange(90), 2)):
        data = np.fromfile(tmp_path / "indexed" / storage.shard_name(shard, 2, ".faiss"), dtype=np.uint8)
        found = faiss_index.load(data).search(vectors.astype(np.float32), 3)[1]
        np.testing.assert_array_equal(found, ids[rows][dense.neighbours(vectors, vectors[rows], ids[rows], 3)[0]])


def test_the_manifest_names_the_embeddings(corpus: Path, tmp_path: Path) -> None:
    miner("index", corpus, "--output", tmp_path / "indexed")
    manifest = storage.read_manifest(str(tmp_path / "indexed"), "index")
    assert manifest.details["embeddings"] == str(corpus)
    assert manifest.config == {"factory": "Flat", "dim": 16, "fingerprint": "test-1"}
    assert manifest.rows == 90


def test_an_index_of_embeddings_that_changed_is_not_mined(corpus: Path, tmp_path: Path) -> None:
    miner("index", corpus, "--output", tmp_path / "indexed")
    dense.write_corpus(corpus, dense.ids(90, 0), dense.unit(90, 16, 1), shards=2)
    result = miner("mine", tmp_path / "indexed", corpus, "--output", tmp_path / "out")
    assert result.exit_code == 1
    assert "made from other embeddings" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("arguments", "said"), [(("--factory", "Flt"), "unknown --factory 'Flt'; one of Flat")])
def test_an_unknown_kind_of_index(arguments: tuple[str, ...], said: str, corpus: Path, tmp_path: Path) -> None:
    refused(miner("index", corpus, "--output", tmp_path / "indexed", *arguments), said, tmp_path / "indexed")


def test_what_is_no_folder_of_embeddings(tmp_path: Path) -> None:
    refused(miner("index", tmp_path, "--output", tmp_path / "indexed"), "no manifest.json", tmp_path / "indexed")


def test_without_faiss_the_extra_is_named(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)  # importing it now fails as if it were not installed
    refused(miner("index", corpus, "--output", tmp_path / "indexed"), "pip install 'bitext-miner[cpu]'", tmp_path / "indexed")
    assert miner("mine", corpus, corpus, "--output", tmp_path / "out").exit_code == 0


def refused(result: Result, said: str, output: Path) -> None:
    assert result.exit_code == 1, result.output
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not output.exists()
