"""The exact search stage over shards and blocks: against the whole similarity matrix, and when corpora grow or runs stop."""

import itertools
from dataclasses import replace
from pathlib import Path

import dense
import numpy as np
import pytest

from miner.errors import DataError
from miner.io import stages, storage
from miner.io.corpus import Corpus, open_corpus
from miner.search import blocks, cost_model
from miner.search.neighbours import Neighbours, stack_neighbours
from pipelines.beam.reporting import StageRecord
from pipelines.beam.runner import run_pipeline
from pipelines.search import exact
from pipelines.search.exact import SearchGroupPair, SearchRequest, read_neighbours


def x_vectors() -> np.ndarray:
    """Vectors of which some are equal, and some zero."""
    vectors = dense.unit(170, 16, 0)
    vectors[40:60] = vectors[3]
    vectors[100:110] = 0
    return vectors


def write_corpus(folder: Path, ids: np.ndarray, vectors: np.ndarray, shards: int) -> Corpus:
    """Write a corpus of small row groups, so that a shard is searched in several blocks."""
    return open_corpus(str(dense.write_corpus(folder, ids, vectors, shards, row_group_rows=30)))


def request(source: Corpus, target: Corpus, target_groups_per_pass: int = 32, shards_per_group: int = 1) -> SearchRequest:
    return SearchRequest(source, target, 5, "cpu", 1, shards_per_group, target_groups_per_pass)


def run_search(search: SearchRequest, folder: str) -> None:
    run_pipeline(exact.run(search, folder))


def read_all(folder: Path) -> tuple[np.ndarray, Neighbours]:
    parts = [read_neighbours(str(folder), shard.name) for shard in stages.read_manifest(str(folder)).shards]
    return np.concatenate([ids for ids, _ in parts]), stack_neighbours(neighbours for _, neighbours in parts)


@pytest.mark.parametrize("block_bytes", [1, None])  # in tiles of many blocks, and by one dense product
@pytest.mark.parametrize(
    ("shards", "target_shards", "target_rows", "per_group"),
    [(1, 1, 100, 1), (3, 2, 100, 1), (2, 9, 7, 1), (3, 5, 100, 2), (2, 9, 7, 4)],  # with 7 rows, some shards are empty
)
def test_both_directions_equal_the_whole_matrix(
    shards: int, target_shards: int, target_rows: int, per_group: int, block_bytes: int | None, tmp_path: Path
) -> None:
    x, y = x_vectors(), dense.unit(target_rows, 16, 1)
    x_ids, y_ids = dense.text_ids(len(x), 2), dense.text_ids(len(y), 3)
    source, target = write_corpus(tmp_path / "x", x_ids, x, shards), write_corpus(tmp_path / "y", y_ids, y, target_shards)
    run_search(replace(request(source, target, shards_per_group=per_group), block_bytes=block_bytes), str(tmp_path / "neighbours"))
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
        failures, write_shard = self.failures, SearchGroupPair.write_shard

        def record(task: SearchGroupPair, name: str) -> object:
            pair = task.pairs[name]
            searched.extend(itertools.product(pair.sources, pair.targets))
            if len(searched) == failures.get("at"):
                raise DataError("stopped; run again")
            return write_shard(task, name)

        monkeypatch.setattr(SearchGroupPair, "write_shard", record)
        return searched

    @pytest.mark.slow
    @pytest.mark.parametrize("shards_per_pass", [1, 2, 4, 5])
    def test_output_is_independent_of_the_shards_per_pass(
        self, shards_per_pass: int, sides: tuple[Corpus, Corpus], tmp_path: Path, searched_pairs: list[tuple[str, str]]
    ) -> None:
        run_search(request(*sides), str(tmp_path / "one-pass"))
        expected_pairs = searched_pairs.copy()
        run_search(request(*sides, shards_per_pass), str(tmp_path / "passes"))
        assert self.contents(tmp_path / "passes") == self.contents(tmp_path / "one-pass")
        pairs = searched_pairs[len(expected_pairs) :]
        assert sorted(pairs) == sorted(expected_pairs), "each pair once"
        names = [shard.name for shard in sides[1].shards]
        passes = [names.index(target) // shards_per_pass for _, target in pairs]
        assert passes == sorted(passes), "one pass after another"
        run_search(request(*sides, shards_per_pass), str(tmp_path / "passes"))
        assert len(searched_pairs) == 2 * len(expected_pairs), "a rerun searches nothing"

    @pytest.mark.slow
    @pytest.mark.parametrize("failing_pair", range(1, 16))
    def test_resume_gives_the_same_bytes(
        self, failing_pair: int, sides: tuple[Corpus, Corpus], tmp_path: Path, searched_pairs: list[tuple[str, str]]
    ) -> None:
        run_search(request(*sides), str(tmp_path / "one-pass"))
        searched_pairs.clear()
        self.failures["at"] = failing_pair
        with pytest.raises(DataError):
            run_search(request(*sides, 2), str(tmp_path / "passes"))
        run_search(request(*sides, 2), str(tmp_path / "passes"))
        assert self.contents(tmp_path / "passes") == self.contents(tmp_path / "one-pass")
        assert len(searched_pairs) == 16, "15 pairs, one of them twice"

    def test_growth_by_many_shards_searches_only_new_pairs(
        self, sides: tuple[Corpus, Corpus], tmp_path: Path, searched_pairs: list[tuple[str, str]]
    ) -> None:
        source, target = sides
        fewer = replace(source, shards=source.shards[1:]), replace(target, shards=target.shards[2:3])
        run_search(request(*fewer, 2), str(tmp_path / "grown"))
        run_search(request(source, target, 2), str(tmp_path / "grown"))
        assert len(searched_pairs) == len(set(searched_pairs)) == 15
        run_search(request(source, target), str(tmp_path / "at-once"))
        assert self.contents(tmp_path / "grown") == self.contents(tmp_path / "at-once")

    @pytest.mark.parametrize("per_group", [2, 3])
    def test_growth_in_groups_searches_only_new_pairs(
        self, per_group: int, sides: tuple[Corpus, Corpus], tmp_path: Path, searched_pairs: list[tuple[str, str]]
    ) -> None:
        source, target = sides
        fewer = replace(source, shards=source.shards[1:]), replace(target, shards=target.shards[2:4])
        for corpora in (fewer, sides):
            run_search(request(*corpora, 1, per_group), str(tmp_path / "grown"))
        assert len(searched_pairs) == len(set(searched_pairs)) == 15
        run_search(request(*sides), str(tmp_path / "at-once"))
        assert self.contents(tmp_path / "grown") == self.contents(tmp_path / "at-once")


@pytest.mark.parametrize(("shards", "rows", "expected"), [((1, 1), 1, 1), ((31, 31), 1, 1), ((128, 128), 1, 4), ((5343, 3653), 1, 73)])
def test_groups_have_the_square_root_of_the_shards_if_there_are_enough(shards: tuple[int, int], rows: int, expected: int) -> None:
    assert cost_model.shards_per_group(shards, (rows * shards[0], rows * shards[1])) == expected


def test_groups_fit_into_memory() -> None:
    assert cost_model.shards_per_group((5343, 5343), (10**9, 10**9)) == 44  # 44 x 187,161 rows are less than 2^23
    assert cost_model.shards_per_group((128, 128), (10**9, 10**9)) == 1


@pytest.mark.parametrize("is_resident", [True, False])
def test_the_planned_bytes_are_those_that_are_read(is_resident: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six source shards and four target shards in groups of two, 16 dimensions: three groups and two. Each shard is a block."""
    monkeypatch.setattr(blocks, "default_resident_bytes", lambda _: (1 << 20) * is_resident)
    vectors = dense.unit(72, 16, 0), dense.unit(60, 16, 1)
    ids = dense.text_ids(72, 2), dense.text_ids(60, 3)
    source, target = (write_corpus(tmp_path / str(side), ids[side], vectors[side], (6, 4)[side]) for side in (0, 1))
    request, records = SearchRequest(source, target, 5, "cpu", block_bytes=1, shards_per_group=2), list[StageRecord]()
    run_pipeline(exact.run(request, str(tmp_path / "neighbours")), stage_records=records)
    (read_bytes,) = (record.counters["read_bytes"] for record in records if record.stage == "search")
    assert read_bytes == 72 * 32 * 2 + 60 * 32 * 3 * (1 if is_resident else 2)
    half_a_group = 72 * 32 / 3 / 2
    assert read_bytes == cost_model.exact_read_bytes((6, 4), (72, 60), 16, 2, (1 << 20) if is_resident else half_a_group)


@pytest.mark.parametrize("shards", [(6, 4), (12, 10)])
def test_a_search_keeps_the_first_pairs_of_groups(shards: tuple[int, int], tmp_path: Path) -> None:
    """Of 24 pairs one is searched first, of 120 pairs two: the search that follows reads the shards of the others."""
    sizes, ids = (120, 120), (dense.text_ids(120, 2), dense.text_ids(120, 3))
    vectors = [dense.unit(size, 16, seed) for seed, size in enumerate(sizes)]
    source, target = (write_corpus(tmp_path / str(side), ids[side], vectors[side], shards[side]) for side in (0, 1))
    search, folder, records = request(source, target), str(tmp_path / "neighbours"), list[StageRecord]()
    first = run_pipeline(exact.search_first_pairs(search, folder), stage_records=records)
    num_first = {(6, 4): 1, (12, 10): 2}[shards]
    assert first is not None
    compared = num_first * source.shards[0].rows * sum(shard.rows for shard in target.shards[:num_first]) / num_first
    assert first.share == pytest.approx(compared / 120**2)
    run_pipeline(exact.run(search, folder), stage_records=records)
    assert [record.written for record in records if record.stage == "search"] == [num_first, shards[0] * shards[1] - num_first]
    neighbours = read_all(tmp_path / "neighbours" / "forward")[1]
    similarities = dense.neighbours(vectors[0], vectors[1], ids[1], 5)[1]
    assert (np.sort(neighbours.similarities, axis=None) == np.sort(similarities, axis=None)).all()


def test_few_pairs_of_groups_are_not_searched_first(tmp_path: Path) -> None:
    source, target = (write_corpus(tmp_path / str(seed), dense.text_ids(50, seed), dense.unit(50, 16, seed), 2) for seed in (1, 2))
    assert run_pipeline(exact.search_first_pairs(request(source, target), str(tmp_path / "out"))) is None
    assert not (tmp_path / "out").exists()
