"""`miner index` and mining with an index: sentence ids, exact scores and a true recall."""

import errno
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import dense
import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from command import error_lines, miner, output_of

from miner.errors import StorageError
from miner.io import stages
from miner.search import cost_model, faiss_index
from pipelines.search import build_index as stage

ROWS, DIM = 600, 16


def corpus(folder: Path, rows: int = ROWS, seed: int = 0, shards: int = 2, **extra: str) -> Path:
    return dense.write_corpus(folder, dense.text_ids(rows, seed), dense.unit(rows, DIM, seed), shards, **extra)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sides")
    return corpus(folder / "source"), corpus(folder / "target", 400, seed=1, shards=3)


@pytest.fixture(scope="module")
def exact(sides: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("exact") / "out"
    assert miner("mine", *sides, "--output", output, "--engine", "exact", "--threshold", "0").exit_code == 0
    return output


def read_index(folder: Path) -> faiss.Index:
    return faiss.read_index(str(folder / stage.FILE))


def read_similarities(output: Path, direction: str) -> dict[int, list[float]]:
    """Return the similarities of the neighbours of each sentence."""
    tables = [pq.read_table(path).to_pydict() for path in sorted((output / "neighbours" / direction).glob("part-*.parquet"))]
    return {id: similarities for table in tables for id, similarities in zip(table["id"], table["similarities"], strict=True)}


Build = Callable[[str, int], Path]


@pytest.fixture(scope="module")
def built(sides: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build an index by factory and number of the side. Each is built once, for the tests that only read it."""
    folder = tmp_path_factory.mktemp("built")

    @cache
    def build(factory: str, side: int) -> Path:
        output = folder / f"{factory}-{side}"
        stdout = output_of("index", sides[side], "--output", output, "--factory", factory, "--target-recall", "0.5")
        assert f"{(600, 400)[side]} vectors x 16 dimensions ({factory})" in stdout
        return output

    return build


@pytest.mark.parametrize("factory", ["Flat", "IVF8,PQ8x4", "PCA8,IVF8,SQ8", "HNSW8", "IVF8_HNSW8,Flat"])
def test_index_stores_every_id(factory: str, built: Build) -> None:
    index = read_index(built(factory, 0))
    assert index.ntotal == ROWS
    inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index
    if isinstance(inner, faiss.IndexIVF):
        lists = inner.invlists
        stored_ids = np.concatenate([faiss.rev_swig_ptr(lists.get_ids(i), lists.list_size(i)) for i in range(inner.nlist)])
    else:
        stored_ids = faiss.vector_to_array(index.id_map)
    np.testing.assert_array_equal(np.sort(stored_ids), dense.text_ids(ROWS, 0))


@pytest.mark.parametrize("factory", ["IVF8,PQ8x4", "IVF8,PQ8x4fs", "HNSW8"])
def test_the_same_command_gives_the_same_bytes(factory: str, built: Build, sides: tuple[Path, Path]) -> None:
    first = built(factory, 0)
    again = first.with_name(f"again-{factory}")
    assert miner("index", sides[0], "--output", again, "--factory", factory, "--target-recall", "0.5").exit_code == 0
    for path in (file for file in again.rglob("*") if file.is_file()):
        assert path.read_bytes() == (first / path.relative_to(again)).read_bytes(), path.name


def test_resume_gives_the_same_bytes(sides: tuple[Path, Path], built: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("index", sides[0], "--factory", "IVF8,PQ8x4", "--target-recall", "0.5", "--output")
    merge = faiss_index.merge_index
    monkeypatch.setattr(faiss_index, "merge_index", lambda *_: (_ for _ in ()).throw(StorageError("stopped")))
    assert miner(*command, tmp_path / "stopped").exit_code != 0
    monkeypatch.setattr(faiss_index, "merge_index", merge)
    monkeypatch.setattr(faiss_index, "train_index", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr(faiss_index, "add_vectors", lambda *_: pytest.fail("added again"))
    assert miner(*command, tmp_path / "stopped").exit_code == 0
    monkeypatch.undo()
    whole, details = built("IVF8,PQ8x4", 0), []
    assert (tmp_path / "stopped" / stage.FILE).read_bytes() == (whole / stage.FILE).read_bytes()
    for folder in (whole, tmp_path / "stopped"):
        details.append({**stages.read_manifest(str(folder)).details, "embeddings": None})  # relative to the index
    assert details[0] == details[1]


def test_recall_in_the_manifest_equals_a_dense_comparison(sides: tuple[Path, Path], tmp_path: Path) -> None:
    output = tmp_path / "indexed"
    result = miner("index", sides[0], "--output", output, "--factory", "IVF32,Flat", "--target-recall", "0.9")
    details = stages.read_manifest(str(output), "index").details
    assert f"recall@4 {details['parameters']['recall']:.4f}" in result.stdout
    index = read_index(output)
    index.nprobe = details["parameters"]["effort"]
    vectors, ids = dense.unit(ROWS, DIM, 0), dense.text_ids(ROWS, 0)
    got = index.search(vectors.astype(np.float32), details["parameters"]["candidates"] + 1)[1]
    true = ids[dense.neighbours(vectors, vectors, ids, 5)[0][:, 1:]]  # without the vector itself: the sample is the whole corpus
    assert details["parameters"]["recall"] == pytest.approx(
        np.mean([np.isin(near, row).mean() for near, row in zip(true, got, strict=True)]), abs=2e-3
    )
    assert 0.9 <= details["parameters"]["low"] < details["parameters"]["recall"] < 1
    assert details["parameters"]["effort"] < 32


def test_index_and_embeddings_may_move_together(tmp_path: Path) -> None:
    corpus(tmp_path / "old/embedded", 90)
    assert miner("index", tmp_path / "old/embedded", "--output", tmp_path / "old/indexed").exit_code == 0
    assert str(tmp_path) not in (tmp_path / "old/indexed" / stages.MANIFEST).read_text()
    (tmp_path / "old").rename(tmp_path / "new")
    output_of("mine", *[tmp_path / "new/indexed"] * 2, "--output", tmp_path / "out", "--engine", "faiss")


def test_an_unreachable_target_is_reported(sides: tuple[Path, Path], tmp_path: Path) -> None:
    stdout = output_of("index", sides[0], "--output", tmp_path / "indexed", "--factory", "IVF8,PQ2x4", "--k", "1", "--target-recall", "1")
    assert "the target of 1 is not surely reached" in stdout


@pytest.mark.slow
@pytest.mark.parametrize("factory", [None, "IVF8,PQ8x4", "HNSW8"])
def test_faiss_finds_what_exact_search_finds(
    factory: str | None, sides: tuple[Path, Path], built: Build, exact: Path, tmp_path: Path
) -> None:
    """With a target recall of 1, every neighbour and every pair equals exact search: the similarities are not those of FAISS."""
    paths = sides if factory is None else (built(factory, 0), built(factory, 1))
    output_of("mine", *paths, "--output", tmp_path / "out", "--engine", "faiss", "--target-recall", "1", "--threshold", "0")
    for direction in ("forward", "backward"):
        assert read_similarities(tmp_path / "out", direction) == read_similarities(exact, direction)
    assert (tmp_path / "out/bitext.tsv.gz").read_bytes() == (exact / "bitext.tsv.gz").read_bytes()
    assert (tmp_path / "out/indexes").exists() == (factory is None)


def test_manifest_records_the_engine_and_the_reason(sides: tuple[Path, Path], exact: Path, tmp_path: Path) -> None:
    assert miner("mine", *sides, "--output", tmp_path / "out").exit_code == 0
    engine = stages.read_manifest(str(tmp_path / "out/candidates")).details["engine"]
    assert engine["name"] == "exact"
    assert "600 x 400 vectors x 16 dimensions by exact search in about 0 s, by FAISS at recall 0.98 in" in engine["reason"]
    assert stages.read_manifest(str(exact / "candidates")).details["engine"] == {"name": "exact", "reason": "requested"}


@pytest.mark.slow
def test_resume_keeps_the_engine(sides: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate depends on a measured speed, which changes with the load of the machine."""
    assert miner("mine", *sides, "--output", tmp_path / "out").exit_code == 0
    before = (tmp_path / "out/candidates/manifest.json").read_bytes()
    monkeypatch.setattr(cost_model, "estimate_search", lambda *_: cost_model.SearchEstimate(exact=2.0, faiss=1.0))
    assert miner("mine", *sides, "--output", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out/candidates/manifest.json").read_bytes() == before
    assert not (tmp_path / "out/indexes").exists()
    assert miner("mine", *sides, "--output", tmp_path / "other").exit_code == 0
    assert stages.read_manifest(str(tmp_path / "other/candidates")).details["engine"]["name"] == "faiss"


@pytest.mark.slow
def test_rerun_keeps_neighbours_and_gives_the_same_bytes(sides: tuple[Path, Path], tmp_path: Path) -> None:
    command = ("mine", *sides, "--output", tmp_path / "out", "--engine", "faiss", "--threshold", "0")
    assert miner(*command).exit_code == 0
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files if "neighbours" in path.parts and path.suffix == ".parquet"
    }
    manifests = {path: path.read_bytes() for path in files if path.name == stages.MANIFEST}
    assert miner(*command).exit_code == 0
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    assert {path: path.read_bytes() for path in manifests} == manifests


def test_a_query_with_too_few_candidates_is_searched_again_and_counted(tmp_path: Path) -> None:
    """Nine vectors in eight lists: probing one list gives fewer than four candidates."""
    target = corpus(tmp_path / "target", 9, seed=3, shards=1)
    source = corpus(tmp_path / "source", 50, seed=4, shards=1)
    assert miner("index", target, "--output", tmp_path / "indexed", "--factory", "IVF8,Flat", "--target-recall", "0.1").exit_code == 0
    command = ("mine", source, tmp_path / "indexed", "--engine", "faiss", "--target-recall", "0.1", "--output", tmp_path / "out")
    assert miner(*command).exit_code == 0
    engine = stages.read_manifest(str(tmp_path / "out/candidates")).details["engine"]
    similarities = read_similarities(tmp_path / "out", "forward")
    assert engine["forward"]["searched_again"] > 0
    assert not np.isnan(list(similarities.values())).any()
    queries, keys = dense.unit(50, DIM, 4), dense.unit(9, DIM, 3)
    true = dense.neighbours(queries, keys, dense.text_ids(9, 3), 4)[1]
    is_exact = [similarities[id] == list(row) for id, row in zip(dense.text_ids(50, 4), true, strict=True)]
    assert sum(is_exact) >= engine["forward"]["searched_again"]


def test_fewer_vectors_than_k(tmp_path: Path) -> None:
    source, target = corpus(tmp_path / "source", 3, seed=5), corpus(tmp_path / "target", 2, seed=6)
    for engine in ("exact", "faiss"):
        output_of("mine", source, target, "--output", tmp_path / engine, "--engine", engine, "--threshold", "0")
    for direction in ("forward", "backward"):
        exact, by_faiss = (read_similarities(tmp_path / engine, direction) for engine in ("exact", "faiss"))
        np.testing.assert_array_equal(list(by_faiss.values()), list(exact.values()))


class TestRefused:
    def assert_refused(self, result: Result, message: str, output: Path) -> None:
        assert result.exit_code == 1, result.output
        assert message in result.stderr
        assert len(error_lines(result)) == 1, result.stderr
        assert not output.exists()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--factory", "Flt"), "--factory 'Flt': FAISS cannot build such an index of 16 dimensions"),
            (("--factory", "IVF8,PQ5"), "should be a multiple of the number of subquantizers"),
            (("--factory", "IVF5000,Flat"), "cannot be trained on 600 vectors"),
            (("--memory", "much"), "memory: expected a size with its unit, like 8GB"),
            (("--memory", "8"), "memory: expected a size with its unit, like 8GB"),
            (("--target-recall", "1.5"), "--target-recall: expected at most 1"),
            (("--k", "0"), "--k: expected at least 1"),
            (("--device", "gpu"), "gpu"),
        ],
    )
    def test_invalid_settings(self, arguments: tuple[str, str], message: str, sides: tuple[Path, Path], tmp_path: Path) -> None:
        self.assert_refused(miner("index", sides[0], "--output", tmp_path / "indexed", *arguments), message, tmp_path / "indexed")

    def test_a_directory_without_embeddings(self, tmp_path: Path) -> None:
        self.assert_refused(miner("index", tmp_path, "--output", tmp_path / "indexed"), "no manifest.json", tmp_path / "indexed")

    def test_an_empty_corpus(self, tmp_path: Path) -> None:
        empty = dense.write_corpus(tmp_path / "empty", np.zeros(0, np.int64), np.zeros((0, DIM), np.float16))
        self.assert_refused(miner("index", empty, "--output", tmp_path / "indexed"), "holds no sentences", tmp_path / "indexed")

    def test_an_index_of_embeddings_that_changed(self, tmp_path: Path) -> None:
        source = corpus(tmp_path / "source", 90)
        miner("index", source, "--output", tmp_path / "indexed")
        dense.write_corpus(source, dense.text_ids(90, 0), dense.unit(90, DIM, 1), shards=2)
        result = miner("mine", tmp_path / "indexed", source, "--output", tmp_path / "out")
        self.assert_refused(result, "made from other embeddings", tmp_path / "out")

    def test_an_index_of_another_encoder(self, sides: tuple[Path, Path], tmp_path: Path) -> None:
        other = corpus(tmp_path / "other", 90, fingerprint="test-2")
        miner("index", other, "--output", tmp_path / "indexed")
        result = miner("mine", sides[0], tmp_path / "indexed", "--engine", "faiss", "--output", tmp_path / "out")
        self.assert_refused(result, "was embedded by vectors and", tmp_path / "out")

    @pytest.mark.parametrize("name", [stage.FILE, "vectors/part-00001-of-00002.npy"])
    def test_a_truncated_file(self, name: str, sides: tuple[Path, Path], tmp_path: Path) -> None:
        command = ("index", sides[0], "--output", tmp_path / "indexed", "--factory", "Flat")
        miner(*command)
        with (tmp_path / "indexed" / name).open("r+b") as file:
            file.truncate(1000)
        result = miner("mine", tmp_path / "indexed", sides[1], "--engine", "faiss", "--output", tmp_path / "out")
        self.assert_refused(result, "missing, or not as it was written; run the same `miner index` again", tmp_path / "out")
        assert miner(*command).exit_code == 0, "which repairs only that file"
        assert miner("mine", tmp_path / "indexed", sides[1], "--engine", "faiss", "--output", tmp_path / "out").exit_code == 0

    def test_a_full_disk(self, sides: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(np.lib.format, "write_array_header_2_0", full)
            result = miner("index", sides[0], "--output", tmp_path / "indexed")
        assert result.exit_code == 1
        assert "No space left on device; free some space" in result.stderr
        assert len(error_lines(result)) == 1, result.stderr
        assert not list(tmp_path.rglob("*.npy")), "nothing half-written"
        assert miner("index", sides[0], "--output", tmp_path / "indexed").exit_code == 0

    def test_another_kind_of_index_in_the_same_folder(self, sides: tuple[Path, Path], tmp_path: Path) -> None:
        miner("index", sides[0], "--output", tmp_path / "indexed")
        result = miner("index", sides[0], "--output", tmp_path / "indexed", "--factory", "IVF8,Flat")
        assert result.exit_code == 1
        assert "made with factory 'auto', now 'IVF8,Flat'" in result.stderr

    def test_without_faiss_the_extra_is_named(self, sides: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "faiss", None)  # importing it now fails as if it were not installed
        for command in (("index", sides[0]), ("mine", *sides, "--engine", "faiss")):
            self.assert_refused(miner(*command, "--output", tmp_path / "out"), "pip install 'bitext-miner[cpu]'", tmp_path / "out")
        assert miner("mine", *sides, "--output", tmp_path / "out").exit_code == 0
        engine = json.loads((tmp_path / "out/candidates/manifest.json").read_text())["details"]["engine"]
        assert engine == {"name": "exact", "reason": "FAISS is not installed"}


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda:0", "cuda"])  # one GPU; all of them, sharded
def test_a_gpu_finds_what_the_cpu_finds(device: str, sides: tuple[Path, Path], exact: Path, tmp_path: Path) -> None:
    if not faiss_index.num_gpus():
        pytest.skip("this FAISS uses no GPU")
    output_of("mine", *sides, "--engine", "faiss", "--device", device, "--output", tmp_path / "out", "--target-recall", "1")
    for direction in ("forward", "backward"):
        assert read_similarities(tmp_path / "out", direction) == read_similarities(exact, direction)
