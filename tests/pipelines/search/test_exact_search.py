"""The exact search stage over shards and blocks: against the whole similarity matrix, and when corpora grow or runs stop."""

from dataclasses import replace
from pathlib import Path

import dense
import numpy as np
import pytest

from miner import stages, storage
from miner.corpus import Corpus, open_corpus
from miner.errors import DataError
from miner.search.neighbours import Neighbours, stack_neighbours
from pipelines.search import exact
from pipelines.search.exact import SearchRequest, SearchShardPair, read_neighbours


def x_vectors() -> np.ndarray:
    """Vectors of which some are equal, and some zero."""
    vectors = dense.unit(170, 16, 0)
    vectors[40:60] = vectors[3]
    vectors[100:110] = 0
    return vectors


def write_corpus(folder: Path, ids: np.ndarray, vectors: np.ndarray, shards: int) -> Corpus:
    """Write a corpus of small row groups, so that a shard is searched in several blocks."""
    return open_corpus(str(dense.write_corpus(folder, ids, vectors, shards, row_group_rows=30)))


def request(source: Corpus, target: Corpus, target_shards_per_pass: int = 32) -> SearchRequest:
    return SearchRequest(source, target, 5, "cpu", block_bytes=1, target_shards_per_pass=target_shards_per_pass)


def read_all(folder: Path) -> tuple[np.ndarray, Neighbours]:
    parts = [read_neighbours(str(folder), shard.name) for shard in stages.read_manifest(str(folder)).shards]
    return np.concatenate([ids for ids, _ in parts]), stack_neighbours(neighbours for _, neighbours in parts)


@pytest.mark.parametrize(
    ("shards", "target_shards", "target_rows"),
    [(1, 1, 100), (3, 2, 100), (2, 9, 7)],  # the last with empty shards
)
def test_both_directions_equal_the_whole_matrix(shards: int, target_shards: int, target_rows: int, tmp_path: Path) -> None:
    x, y = x_vectors(), dense.unit(target_rows, 16, 1)
    x_ids, y_ids = dense.text_ids(len(x), 2), dense.text_ids(len(y), 3)
    source, target = write_corpus(tmp_path / "x", x_ids, x, shards), write_corpus(tmp_path / "y", y_ids, y, target_shards)
    exact.run(request(source, target), str(tmp_path / "neighbours"))
    for direction, query_ids, queries, keys, key_ids in (("forward", x_ids, x, y, y_ids), ("backward", y_ids, y, x, x_ids)):
        ids, neighbours = read_all(tmp_path / "neighbours" / direction)
        order, similarities = dense.neighbours(queries, keys, key_ids, 5)
        np.testing.assert_array_equal(ids, query_ids)
        np.testing.assert_array_equal(neighbours.ids, key_ids[order])
        np.testing.assert_array_equal(neighbours.similarities, similarities)


class TestPasses:
    """More target shards than are searched in one pass."""

    @pytest.fixture
    def sides(self, tmp_path: Path) -> tuple[Corpus, Corpus]:
        x, y = x_vectors(), dense.unit(100, 16, 1)
        source = write_corpus(tmp_path / "x", dense.text_ids(len(x), 2), x, 3)
        return source, write_corpus(tmp_path / "y", dense.text_ids(len(y), 3), y, 5)

    @staticmethod
    def contents(folder: Path) -> dict[str, bytes]:
        return {name: (folder / name).read_bytes() for name in storage.files_below(str(folder))}

    @pytest.fixture
    def searched_pairs(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
        """The pairs of shards that are searched, in order; `self.failures["at"]` is the number of one that fails."""
        searched: list[tuple[str, str]] = []
        self.failures: dict[str, int] = {}
        failures, write_shard = self.failures, SearchShardPair.write_shard

        def record(task: SearchShardPair, name: str) -> object:
            searched.append(task.search.shard_pairs()[name])
            if len(searched) == failures.get("at"):
                raise DataError("stopped; run again")
            return write_shard(task, name)

        monkeypatch.setattr(SearchShardPair, "write_shard", record)
        return searched

    @pytest.mark.parametrize("shards_per_pass", [1, 2, 4, 5])
    def test_output_is_independent_of_the_shards_per_pass(
        self, shards_per_pass: int, sides: tuple[Corpus, Corpus], tmp_path: Path, searched_pairs: list[tuple[str, str]]
    ) -> None:
        exact.run(request(*sides), str(tmp_path / "one-pass"))
        expected_pairs = searched_pairs.copy()
        exact.run(request(*sides, shards_per_pass), str(tmp_path / "passes"))
        assert self.contents(tmp_path / "passes") == self.contents(tmp_path / "one-pass")
        pairs = searched_pairs[len(expected_pairs) :]
        assert sorted(pairs) == sorted(expected_pairs), "each pair once"
        names = [shard.name for shard in sides[1].shards]
        passes = [names.index(target) // shards_per_pass for _, target in pairs]
        assert passes == sorted(passes), "one pass after another"
        exact.run(request(*sides, shards_per_pass), str(tmp_path / "passes"))
        assert len(searched_pairs) == 2 * len(expected_pairs), "a rerun searches nothing"

    @pytest.mark.parametrize("failing_pair", range(1, 16))
    def test_resume_gives_the_same_bytes(
        self, failing_pair: int, sides: tuple[Corpus, Corpus], tmp_path: Path, searched_pairs: list[tuple[str, str]]
    ) -> None:
        exact.run(request(*sides), str(tmp_path / "one-pass"))
        searched_pairs.clear()
        self.failures["at"] = failing_pair
        with pytest.raises(DataError):
            exact.run(request(*sides, 2), str(tmp_path / "passes"))
        exact.run(request(*sides, 2), str(tmp_path / "passes"))
        assert self.contents(tmp_path / "passes") == self.contents(tmp_path / "one-pass")
        assert len(searched_pairs) == 16, "15 pairs, one of them twice"

    def test_growth_by_many_shards_searches_only_new_pairs(
        self, sides: tuple[Corpus, Corpus], tmp_path: Path, searched_pairs: list[tuple[str, str]]
    ) -> None:
        source, target = sides
        fewer = replace(source, shards=source.shards[1:]), replace(target, shards=target.shards[2:3])
        exact.run(request(*fewer, 2), str(tmp_path / "grown"))
        exact.run(request(source, target, 2), str(tmp_path / "grown"))
        assert len(searched_pairs) == len(set(searched_pairs)) == 15
        exact.run(request(source, target), str(tmp_path / "at-once"))
        assert self.contents(tmp_path / "grown") == self.contents(tmp_path / "at-once")
