"""The search stage over shards and stretches of them: against the whole similarity matrix, and again."""

from dataclasses import replace
from pathlib import Path

import dense
import numpy as np
import pytest

from miner import stages, storage
from miner.corpus import Corpus, open_corpus
from miner.errors import DataError, StorageError
from miner.search import neighbours
from pipelines.search import exact
from pipelines.search.exact import SearchRequest, read_neighbours


@pytest.fixture(autouse=True)
def _small_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "BLOCK_BYTES", 1)
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
    exact.run(SearchRequest(source, target, 5, "cpu"), str(tmp_path / "found"))
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
    exact.run_within(corpus, 5, str(tmp_path / "found"), "cpu")
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
    exact.run(SearchRequest(corpus, corpus, 5, "cpu"), str(tmp_path / "found"))
    with pytest.raises(StorageError, match="within"):
        exact.run_within(corpus, 5, str(tmp_path / "found"), "cpu")


class TestGroups:
    """More targets than are searched at a time."""

    @pytest.fixture
    def sides(self, tmp_path: Path) -> tuple[Corpus, Corpus]:
        x, y = vectors(), dense.unit(100, 16, 1)
        source = open_corpus(str(dense.write_corpus(tmp_path / "x", dense.ids(len(x), 2), x, 3)))
        return source, open_corpus(str(dense.write_corpus(tmp_path / "y", dense.ids(len(y), 3), y, 5)))

    @staticmethod
    def files(folder: Path) -> dict[str, bytes]:
        return {name: (folder / name).read_bytes() for name in storage.files_below(str(folder))}

    @pytest.fixture
    def searched(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
        """The blocks that are searched, in order; `self.stops["at"]` is the number of one that fails."""
        found: list[tuple[str, str]] = []
        self.stops: dict[str, int] = {}
        stops, make = self.stops, exact._SearchBlock.make

        def noted(work: exact._SearchBlock, name: str) -> object:
            found.append(work.search.block_names()[name])
            if len(found) == stops.get("at"):
                raise DataError("stopped; run again")
            return make(work, name)

        monkeypatch.setattr(exact._SearchBlock, "make", noted)
        return found

    @pytest.mark.parametrize("group", [1, 2, 4, 5])
    def test_the_same_bytes_in_groups_of_any_size(
        self, group: int, sides: tuple[Corpus, Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: list[tuple[str, str]]
    ) -> None:
        exact.run(SearchRequest(*sides, 5, "cpu"), str(tmp_path / "whole"))
        whole = searched.copy()
        monkeypatch.setattr(exact, "GROUP", group)
        exact.run(SearchRequest(*sides, 5, "cpu"), str(tmp_path / "grouped"))
        assert self.files(tmp_path / "grouped") == self.files(tmp_path / "whole")
        assert sorted(searched[len(whole) :]) == sorted(whole), "each block once"
        names = [shard.name for shard in sides[1].shards]
        groups = [names.index(column) // group for _, column in searched[len(whole) :]]
        assert groups == sorted(groups), "one group after another"
        exact.run(SearchRequest(*sides, 5, "cpu"), str(tmp_path / "grouped"))
        assert len(searched) == 2 * len(whole), "all is there"

    @pytest.mark.parametrize("stopped", range(1, 16))
    def test_a_run_that_was_stopped_goes_on(
        self, stopped: int, sides: tuple[Corpus, Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: list[tuple[str, str]]
    ) -> None:
        exact.run(SearchRequest(*sides, 5, "cpu"), str(tmp_path / "whole"))
        monkeypatch.setattr(exact, "GROUP", 2)
        searched.clear()
        self.stops["at"] = stopped
        with pytest.raises(DataError):
            exact.run(SearchRequest(*sides, 5, "cpu"), str(tmp_path / "grouped"))
        exact.run(SearchRequest(*sides, 5, "cpu"), str(tmp_path / "grouped"))
        assert self.files(tmp_path / "grouped") == self.files(tmp_path / "whole")
        assert len(searched) == 16, "15 blocks, one of them twice"

    def test_corpora_that_grow_by_many_shards(
        self, sides: tuple[Corpus, Corpus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: list[tuple[str, str]]
    ) -> None:
        source, target = sides
        few = replace(source, shards=source.shards[1:]), replace(target, shards=target.shards[2:3])
        monkeypatch.setattr(exact, "GROUP", 2)
        exact.run(SearchRequest(*few, 5, "cpu"), str(tmp_path / "grown"))
        exact.run(SearchRequest(source, target, 5, "cpu"), str(tmp_path / "grown"))
        assert len(searched) == len(set(searched)) == 15
        exact.run(SearchRequest(source, target, 5, "cpu"), str(tmp_path / "whole"))
        assert self.files(tmp_path / "grown") == self.files(tmp_path / "whole")
