"""Indexes at a URI: one copy per host, which is that of the bucket or an error; and tuning on workers."""

import errno
import logging
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import dense
import fsspec
import numpy as np
import pytest
from command import error_of, miner, output_of
from moto.server import ThreadedMotoServer

from miner.errors import StorageError
from miner.io import host_copies, stages, storage
from miner.io.corpus import open_corpus
from miner.search import faiss_index
from pipelines.runs.stage_costs import CorpusSize, index_copy_bytes
from pipelines.search import build_index, tune
from pipelines.search.index_files import IndexedSide
from pipelines.search.open_index import SAMPLE_ROWS, OpenIndex, draw_sample

ROWS, DIM = 600, 16
VECTORS = "vectors/part-00001-of-00002.npy"
# A process of its own opens the index and prints the neighbours of some of its sentences.
SEARCH = """
import sys
from miner.io import stages
from miner.search.tuning import SearchParameters
from pipelines.search.build_index import indexed_corpus
from pipelines.search.index_files import IndexedSide
from pipelines.search.open_index import OpenIndex, draw_sample

corpus = indexed_corpus(sys.argv[1])
index = OpenIndex(IndexedSide.describe(sys.argv[1], stages.read_manifest(sys.argv[1]), corpus))
neighbours, _ = index.search(draw_sample(corpus, 20, 0)[1], 4, SearchParameters(8, 16, 1.0, 1.0))
print(neighbours.ids.tolist())
"""


def open_side(folder: str) -> IndexedSide:
    return IndexedSide.describe(folder, stages.read_manifest(folder), build_index.indexed_corpus(folder))


def nearest(folder: str) -> np.ndarray:
    """Return the ids of the exact neighbours of some sentences."""
    index = OpenIndex(open_side(folder))
    return index.search_exhaustively(draw_sample(index.corpus, 20, 0)[1], 4).ids


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an embedded corpus and its index."""
    folder = tmp_path_factory.mktemp("local")
    dense.write_corpus(folder / "embedded", dense.text_ids(ROWS, 0), dense.unit(ROWS, DIM, 0), 2)
    output_of("index", folder / "embedded", "--output", folder / "indexed", "--factory", "IVF8,Flat", "--target-recall", "0.5")
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/indexes"


@pytest.fixture
def remote(local: Path, cache: Path) -> Iterator[str]:  # noqa: ARG001 - which its copies go to
    """The same directory in another file system."""
    uri = f"memory://{uuid.uuid4().hex}"
    fsspec.filesystem("memory").put(str(local), uri, recursive=True)
    yield uri
    fsspec.filesystem("memory").store.clear()


def test_two_processes_of_a_host_fetch_an_index_from_s3_once(
    local: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    values = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "DEFAULT_REGION": "us-east-1"}
    for name, value in {**values, "ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port())}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fs = fsspec.filesystem("s3", skip_instance_cache=True)
    fs.mkdir("host-copies")
    fs.put(str(local), "host-copies", recursive=True)
    with caplog.at_level(logging.INFO, logger="werkzeug"):
        command = [sys.executable, "-c", SEARCH, f"s3://host-copies/{local.name}/indexed"]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        printed = {process.communicate(timeout=120)[0] for process in processes}
    server.stop()
    assert printed == {f"{nearest(str(local / 'indexed')).tolist()}\n"}
    for name in (build_index.FILE, VECTORS):
        assert sum(f"/{name} HTTP" in line and "GET /" in line for line in caplog.messages) == 1, name
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_a_local_index_is_searched_in_place(local: Path, cache: Path) -> None:
    index = OpenIndex(open_side(str(local / "indexed")))
    assert index.folder == str(local / "indexed")
    assert isinstance(index.stored_vectors[0], np.memmap)
    assert not cache.exists()


def test_a_copy_has_the_bytes_of_the_plan(remote: str, cache: Path) -> None:
    index = OpenIndex(open_side(f"{remote}/indexed"))
    assert isinstance(index.stored_ids, np.memmap)
    np.testing.assert_array_equal(index.stored_ids, dense.text_ids(ROWS, 0))
    size = CorpusSize(ROWS, text_bytes=1, row_bytes=1, shards=2, dim=DIM)
    expected = index_copy_bytes(size, "Flat") + 8 * 4 * DIM  # with the centroids of IVF8
    headers = 4096  # of the arrays and the FAISS file, and the checksums
    copied = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    assert expected < copied < expected + headers


@pytest.mark.parametrize("name", [build_index.FILE, VECTORS, "ids.npy"])
def test_a_damaged_copy_is_fetched_again(name: str, remote: str, local: Path, cache: Path) -> None:
    OpenIndex(open_side(f"{remote}/indexed")).stored_ids  # noqa: B018 - fetches a copy
    (copy,) = cache.glob(f"*/{name}")
    intact = copy.read_bytes()
    copy.write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
    np.testing.assert_array_equal(nearest(f"{remote}/indexed"), nearest(str(local / "indexed")))
    assert copy.read_bytes() == intact


def test_a_lost_connection_costs_one_file(remote: str, local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_file, names = host_copies.copy_file, []

    def lose_first(uri: str, target: Path) -> None:
        names.append(uri.removeprefix(f"{remote}/indexed/"))
        if len(names) == 2:
            target.parent.mkdir()
            target.write_bytes(b"half")
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        copy_file(uri, target)

    monkeypatch.setattr(host_copies, "copy_file", lose_first)
    np.testing.assert_array_equal(nearest(f"{remote}/indexed"), nearest(str(local / "indexed")))
    assert names == [build_index.FILE, "vectors/part-00000-of-00002.npy", "vectors/part-00000-of-00002.npy", VECTORS]


@pytest.mark.parametrize("name", [build_index.FILE, VECTORS])
def test_an_index_that_is_damaged_at_its_uri_is_an_error(name: str, remote: str, cache: Path) -> None:
    fsspec.filesystem("memory").pipe_file(f"{remote}/indexed/{name}", b"other")
    with pytest.raises(StorageError, match=rf"^{remote}/indexed/{name}: not as it was written; run the same `miner index` again$"):
        nearest(f"{remote}/indexed")
    assert not [path for path in cache.iterdir() if path.is_dir()]


def test_a_full_cache_is_an_error_of_one_line(remote: str, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(host_copies, "copy_file", full)
    command = ("mine", local / "embedded", f"{remote}/indexed", "--engine", "faiss", "--output", tmp_path / "out")
    assert error_of(*command).endswith("No space left on device; free some space, or set MINER_CACHE to another directory")
    assert not [path for path in (tmp_path / "cache/indexes").iterdir() if path.is_dir()]


def mine(index: object, other: Path, output: object) -> dict[str, bytes]:
    """Mine by FAISS; return the neighbours, and the parameters of the search."""
    options = ("--engine", "faiss", "--threshold", "0", "--target-recall", "0.9")
    output_of("mine", other, index, *options, "--output", output)
    fs, path = storage.filesystem(str(output))
    return {
        name: fs.cat_file(f"{path}/neighbours/{name}")
        for direction in ("forward", "backward")
        for name in (f"{direction}/part-00000-of-00002.parquet", f"{direction}/manifest.json")
    }


def test_a_remote_index_gives_the_bytes_of_a_local_one(remote: str, local: Path, tmp_path: Path) -> None:
    expected = mine(local / "indexed", local / "embedded", tmp_path / "out")
    assert mine(f"{remote}/indexed", local / "embedded", f"{remote}/out") == expected


def test_tuned_parameters_equal_those_of_the_function(local: Path, tmp_path: Path) -> None:
    mine(local / "indexed", local / "embedded", tmp_path / "out")
    index, corpus = OpenIndex(open_side(str(local / "indexed"))), open_corpus(str(local / "embedded"))
    expected = index.tune(draw_sample(corpus, SAMPLE_ROWS, 2)[1], 4, 0.9)
    tuned = tune.read(str(tmp_path / "out/neighbours/tuning-forward"))
    assert (tuned.effort_name, tuned.parameters) == ("nprobe", expected)
    details = stages.read_manifest(str(tmp_path / "out/neighbours/forward")).details
    assert (details["effort"], details["candidates"], details["recall"]) == (expected.effort, expected.candidates, expected.recall)
    own_ids, own_vectors = draw_sample(corpus, SAMPLE_ROWS, 1)
    own = index.tune(own_vectors, 4, 0.5, own_ids)
    assert stages.read_manifest(str(local / "indexed")).details["parameters"]["recall"] == own.recall


def test_tuning_runs_on_workers(local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("index", local / "embedded", "--output", tmp_path / "indexed", "--factory", "IVF8,Flat", "--target-recall", "0.5")
    monkeypatch.setattr(OpenIndex, "tune", lambda *_: pytest.fail("tuned by the driver"))
    output_of(*command, "--", "--direct_running_mode=multi_processing", "--direct_num_workers=1")
    details = [stages.read_manifest(str(folder / "indexed")).details for folder in (tmp_path, local)]
    assert details[0]["parameters"] == details[1]["parameters"]


def test_a_run_that_is_killed_after_tuning_resumes(local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "indexed"
    command = ("index", local / "embedded", "--output", output, "--factory", "IVF8,Flat", "--target-recall", "0.5")
    with monkeypatch.context() as patched:
        patched.setattr(tune, "read", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        assert miner(*command).exit_code != 0
    assert not build_index.is_index(str(output)), "its parameters are missing"
    with monkeypatch.context() as patched:
        patched.setattr(faiss_index, "merge_index", lambda *_: pytest.fail("merged again"))
        patched.setattr(OpenIndex, "tune", lambda *_: pytest.fail("tuned again"))
        output_of(*command)
    assert (output / build_index.FILE).read_bytes() == (local / "indexed" / build_index.FILE).read_bytes()
    resumed, whole = (stages.read_manifest(str(folder)).details for folder in (output, local / "indexed"))
    assert {**resumed, "embeddings": whole["embeddings"]} == whole
    assert sorted(path.name for path in output.iterdir()) == ["_shards", "manifest.json", build_index.FILE, "vectors"]
