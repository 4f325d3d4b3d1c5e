"""Deciding apart from searching: the pairs of LASER's script, and `--from-candidates`, which gives what a run from the start gives."""

import itertools
import shutil
from pathlib import Path

import dense
import numpy as np
import pyarrow.parquet as pq
import pytest
from command import miner, refused, told

from pipelines.beam import shuffle
from pipelines.mining import match, sort_pairs

OUTPUTS = ("bitext.tsv.gz", "bitext.parquet", "manifest.json")


def contents(output: Path) -> dict[str, bytes]:
    return {name: (output / name).read_bytes() for name in OUTPUTS}


def noisy_sides() -> tuple[np.ndarray, np.ndarray]:
    """Sentences of which some have a translation, at any distance; without ties."""
    x, y = dense.unit(120, 24, 0), dense.unit(150, 24, 1)
    y[:70] = 0.5 * y[:70] + np.linspace(0.2, 2, 70)[:, None] * x[:70]
    return x, (y / np.linalg.norm(y.astype(np.float32), axis=1, keepdims=True)).astype(np.float16)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sides")
    x, y = noisy_sides()
    return (
        dense.write_corpus(folder / "x", dense.ids(len(x), 2), x, shards=3),
        dense.write_corpus(folder / "y", dense.ids(len(y), 3), y, shards=2),
    )


class TestLaser:
    """`--unify --mode mine --retrieval max --margin ratio -k 4`; ours of k 3 as well, and with a threshold of a pair's own score."""

    @pytest.mark.parametrize("k", [3, 4])
    def test_the_pairs_and_scores_are_those_of_its_script(self, k: int, sides: tuple[Path, Path], tmp_path: Path) -> None:
        expected = dense.laser(*noisy_sides(), k)
        told("mine", *sides, "--output", tmp_path / "out", "--k", k, "--threshold", expected[40][0])
        table = pq.read_table(tmp_path / "out" / "bitext.parquet")
        lines = [(row["source_line"] - 1, row["target_line"] - 1) for row in table.to_pylist()]
        assert lines == [(i, j) for _, i, j in expected[:40]] or lines == [(i, j) for _, i, j in expected[:41]]  # they differ by rounding
        np.testing.assert_allclose(table["margin"].to_numpy(), [score for score, _, _ in expected[: len(lines)]], rtol=1e-3)

    def test_a_pair_at_the_threshold_is_out(self, sides: tuple[Path, Path], tmp_path: Path) -> None:
        told("mine", *sides, "--output", tmp_path / "all", "--threshold", "-inf")
        margins = pq.read_table(tmp_path / "all" / "bitext.parquet")["margin"].to_pylist()
        told("mine", "--from-candidates", tmp_path / "all", "--output", tmp_path / "out", "--threshold", repr(margins[20]))
        assert pq.read_table(tmp_path / "out" / "bitext.parquet")["margin"].to_pylist() == margins[:20]


@pytest.fixture
def in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for corpora of any size: few rows in a range, rounds of matching to the last pair."""
    for module, name, value in ((match, "AT_ONCE", 0), (sort_pairs, "RANGE", 16), (sort_pairs, "SAMPLE", 9)):
        monkeypatch.setattr(module, name, value)


class TestInSteps:
    """Large corpora are joined, judged, matched and put in order by ranges, with the bytes that small ones give at once."""

    def same(self, given: tuple[object, ...], folder: Path, request: pytest.FixtureRequest) -> None:
        told("mine", *given, "--output", folder / "at once")
        request.getfixturevalue("in_steps")
        told("mine", *given, "--output", folder / "in steps")
        assert pq.read_metadata(folder / "in steps/bitext.parquet").num_rows > 5
        assert contents(folder / "in steps") == contents(folder / "at once")
        assert not [*(folder / "in steps").glob(".*"), *(folder / "in steps").glob("*.steps")]

    @pytest.mark.parametrize("options", [("max",), ("intersection", "--margin", "distance")])
    def test_the_bytes_are_those_of_small_corpora(
        self, options: tuple[str, ...], sides: tuple[Path, Path], tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        self.same((*sides, "--k", 3, "--threshold", "0.1", "--retrieval", *options), tmp_path, request)

    def test_every_step_may_be_a_pipeline(
        self, sides: tuple[Path, Path], tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shuffle.ShuffleSteps.__init__, "__defaults__", ((), -1))
        self.same((*sides, "--k", 3, "--threshold", "0.1", "--filter", "hubs=1.5"), tmp_path, request)

    def test_filters_from_both_sides_and_ties(self, tmp_path: Path, request: pytest.FixtureRequest) -> None:
        """All vectors lie on a few points, so margins are equal and ids decide; hubs are dropped, which moves others up."""
        x, y = dense.unit(40, 8, 4)[np.arange(60) % 7], dense.unit(40, 8, 4)[np.arange(90) % 11]
        source = dense.write_corpus(tmp_path / "x", dense.ids(len(x), 2), x, shards=3)
        target = dense.write_corpus(tmp_path / "y", dense.ids(len(y), 3), y, shards=4)
        self.same((source, target, "--threshold", "0.1", "--filter", "hubs=3", "--keep-dropped"), tmp_path, request)
        one, other = (tmp_path / name / "dropped.parquet" for name in ("at once", "in steps"))
        assert pq.read_metadata(one).num_rows > 16
        assert one.read_bytes() == other.read_bytes()


class TestFromCandidates:
    @pytest.mark.parametrize("margin", ["ratio", "distance", "absolute"])
    def test_it_gives_the_bytes_of_a_run_from_the_start(self, margin: str, sides: tuple[Path, Path], tmp_path: Path) -> None:
        told("mine", *sides, "--output", tmp_path / "first", "--k", 3)
        for retrieval, threshold in itertools.product(("max", "intersection", "all"), ((), ("--threshold", "0.3"))):
            options = ("--margin", margin, "--retrieval", retrieval, *threshold)
            told("mine", "--from-candidates", tmp_path / "first", "--output", tmp_path / "again", *options)
            told("mine", *sides, "--output", tmp_path / "fresh", "--k", 3, *options)
            assert contents(tmp_path / "again") == contents(tmp_path / "fresh")

    def test_texts_embedded_under_the_output_move_with_it_and_gold_is_asked_again(self, toy_encoder: Path, tmp_path: Path) -> None:
        for name, text in (("en", "one two\nthree four\n"), ("fr", "trois quatre\nun deux\n"), ("gold", "1\t2\n2\t1\n")):
            (tmp_path / name).write_text(text)
        told("mine", tmp_path / "en", tmp_path / "fr", "--output", tmp_path / "first", "--encoder", toy_encoder)
        shutil.move(tmp_path / "first", tmp_path / "moved")
        options = ("--from-candidates", tmp_path / "moved", "--gold", tmp_path / "gold", "--threshold", "1")
        assert "F1 1.0000" in told("mine", *options, "--output", tmp_path / "out")
        assert "F1 1.0000" in told("mine", *options, "--output", tmp_path / "moved")  # in place


class TestCannotBeDecided:
    def refused(self, *arguments: object, output: Path) -> str:
        """What is said of it; nothing was written."""
        said = refused("mine", *arguments, "--output", output)
        assert not output.exists()
        return said

    def test_a_folder_without_candidates(self, sides: tuple[Path, Path], tmp_path: Path) -> None:
        said = self.refused("--from-candidates", sides[0], output=tmp_path / "out")
        assert "x/candidates: no manifest.json" in said

    def test_candidates_of_sides_that_are_gone_or_changed(self, tmp_path: Path) -> None:
        x, y = noisy_sides()
        for name, vectors in (("x", x), ("y", y)):
            dense.write_corpus(tmp_path / name, dense.ids(len(vectors), 2), vectors)
        told("mine", tmp_path / "x", tmp_path / "y", "--output", tmp_path / "first")
        dense.write_corpus(tmp_path / "z", dense.ids(len(y), 2), y[::-1])
        (tmp_path / "y").rename(tmp_path / "gone")
        assert "y: not a folder of `miner embed`" in self.refused("--from-candidates", tmp_path / "first", output=tmp_path / "out")
        (tmp_path / "z").rename(tmp_path / "y")
        said = self.refused("--from-candidates", tmp_path / "first", output=tmp_path / "out")
        assert "y: not what the candidates in" in said

    def test_a_shard_that_is_truncated(self, sides: tuple[Path, Path], tmp_path: Path) -> None:
        told("mine", *sides, "--output", tmp_path / "first")
        shard = tmp_path / "first" / "candidates" / "part-00001-of-00003.parquet"
        shard.write_bytes(shard.read_bytes()[:-9])
        assert f"{shard}: not a complete Parquet file" in self.refused("--from-candidates", tmp_path / "first", output=tmp_path / "out")

    @pytest.mark.parametrize("given", [("x", "y"), ("--k", "4"), ("--encoder", "builtin"), ("--strict",)])
    def test_what_was_decided_before_is_wrong_usage(self, given: tuple[str, ...], tmp_path: Path) -> None:
        result = miner("mine", *given, "--from-candidates", tmp_path, "--output", tmp_path / "out")
        assert result.exit_code == 2
        assert "has no part in what --from-candidates decides" in result.stderr

    @pytest.mark.parametrize("given", [(), ("x",)])
    def test_a_side_that_is_missing_is_wrong_usage(self, given: tuple[str, ...], tmp_path: Path) -> None:
        result = miner("mine", *given, "--output", tmp_path / "out")
        assert result.exit_code == 2
        assert "Missing argument" in result.stderr
