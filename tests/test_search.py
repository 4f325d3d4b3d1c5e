"""The search stage over shards and stretches of them: against the whole similarity matrix, and again."""

from pathlib import Path

import dense
import numpy as np
import pytest

from miner import stages, storage
from miner.corpus import open_corpus
from miner.errors import StorageError
from miner.search import neighbours
from pipelines import search
from pipelines.search import Search, read_neighbours


@pytest.fixture(autouse=True)
def _small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BLOCK_BYTES", 1)
    monkeypatch.setattr(dense, "ROW_GROUP", 30)


def vectors() -> np.ndarray:
    """Some of them equal, some zero."""
    found = dense.unit(170, 16, 0)
    found[40:60] = found[3]
    found[100:110] = 0
    return found


def read(folder: Path) -> tuple[np.ndarray, neighbours.Neighbours]:
    parts = [read_neighbours(str(folder), shard.name) for shard in stages.read_manifest(str(folder)).shards]
    return np.concatenate([ids for ids, _ in parts]), neighbours.stack(found for _, found in parts)


@pytest.mark.parametrize(("shards", "targets"), [(1, 1), (3, 2)])
def test_both_directions_equal_the_whole_matrix(shards: int, targets: int, tmp_path: Path) -> None:
    x, y = vectors(), dense.unit(100, 16, 1)
    x_ids, y_ids = dense.ids(len(x), 2), dense.ids(len(y), 3)
    source = open_corpus(str(dense.write_corpus(tmp_path / "x", x_ids, x, shards)))
    target = open_corpus(str(dense.write_corpus(tmp_path / "y", y_ids, y, targets)))
    search.run(Search(source, target, 5, "cpu"), str(tmp_path / "found"))
    for direction, own, ours, theirs, others in (("forward", x_ids, x, y, y_ids), ("backward", y_ids, y, x, x_ids)):
        ids, found = read(tmp_path / "found" / direction)
        order, similarities = dense.neighbours(ours, theirs, others, 5)
        np.testing.assert_array_equal(ids, own)
        np.testing.assert_array_equal(found.ids, others[order])
        np.testing.assert_array_equal(found.similarities, similarities)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_corpus_is_searched_within_itself(shards: int, tmp_path: Path) -> None:
    x = vectors()
    x_ids = dense.ids(len(x), 2)
    corpus = open_corpus(str(dense.write_corpus(tmp_path / "x", x_ids, x, shards)))
    search.run_within(corpus, 5, str(tmp_path / "found"), "cpu")
    ids, found = read(tmp_path / "found" / "forward")
    similarities = x.astype(np.float64) @ x.astype(np.float64).T
    np.fill_diagonal(similarities, np.nan)
    wanted = neighbours.nearest(np.tile(x_ids, (len(x), 1)), similarities, 5)
    np.testing.assert_array_equal(ids, x_ids)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_array_equal(found.similarities, wanted.similarities)
    assert storage.names_in(str(tmp_path / "found")) == ["forward"]


def test_a_folder_of_two_sides_is_not_taken_for_one_within(tmp_path: Path) -> None:
    x = vectors()
    corpus = open_corpus(str(dense.write_corpus(tmp_path / "x", dense.ids(len(x), 2), x)))
    search.run(Search(corpus, corpus, 5, "cpu"), str(tmp_path / "found"))
    with pytest.raises(StorageError, match="within"):
        search.run_within(corpus, 5, str(tmp_path / "found"), "cpu")
