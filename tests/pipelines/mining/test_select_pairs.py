"""Selection of pairs: the pairs of LASER's script, matching by ranges, and `--from-candidates`."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import dense
import numpy as np
import pyarrow.parquet as pq
import pytest
from bitexts import read_outputs
from command import error_of, miner, output_of

from miner.config.choices import MARGINS
from miner.config.commands import MineConfig, PairFilters
from pipelines.mining import mine
from pipelines.mining.candidates import MiningLimits


def noisy_sides() -> tuple[np.ndarray, np.ndarray]:
    """Return vectors of 120 and 150 sentences, 70 of which have a translation at increasing distance, without ties."""
    x, y = dense.unit(120, 24, 0), dense.unit(150, 24, 1)
    y[:70] = 0.5 * y[:70] + np.linspace(0.2, 2, 70)[:, None] * x[:70]
    return x, (y / np.linalg.norm(y.astype(np.float32), axis=1, keepdims=True)).astype(np.float16)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sides")
    x, y = noisy_sides()
    return (
        dense.write_corpus(folder / "x", dense.text_ids(len(x), 2), x, shards=3),
        dense.write_corpus(folder / "y", dense.text_ids(len(y), 3), y, shards=2),
    )


class TestLaser:
    """LASER's `--unify --mode mine --retrieval max --margin ratio -k 4`, and the same with k 3."""

    @pytest.mark.parametrize("k", [3, 4])
    def test_pairs_and_margins_equal_those_of_its_script(self, k: int, sides: tuple[Path, Path], tmp_path: Path) -> None:
        expected = dense.laser(*noisy_sides(), k)
        output_of("mine", *sides, "--output", tmp_path / "out", "--k", k, "--threshold", expected[40][0])
        table = pq.read_table(tmp_path / "out" / "bitext.parquet")
        lines = [(row["source_line"] - 1, row["target_line"] - 1) for row in table.to_pylist()]
        # The script scores in float32, so the pair at the threshold may be above or below it.
        assert lines == [(i, j) for _, i, j in expected[:40]] or lines == [(i, j) for _, i, j in expected[:41]]
        np.testing.assert_allclose(table["margin"].to_numpy(), [score for score, _, _ in expected[: len(lines)]], rtol=1e-3)

    def test_pair_at_the_threshold_is_dropped(self, sides: tuple[Path, Path], tmp_path: Path) -> None:
        output_of("mine", *sides, "--output", tmp_path / "all", "--threshold", "-inf")
        margins = pq.read_table(tmp_path / "all" / "bitext.parquet")["margin"].to_pylist()
        output_of("mine", "--from-candidates", tmp_path / "all", "--output", tmp_path / "out", "--threshold", repr(margins[20]))
        assert pq.read_table(tmp_path / "out" / "bitext.parquet")["margin"].to_pylist() == margins[:20]


SMALL_LIMITS = MiningLimits(matched_rows=0, margin_range_rows=16, margin_samples=9)  # rounds of matching to the last pair
PIPELINES = MiningLimits(in_process_rows=-1, matched_rows=0, margin_range_rows=16, margin_samples=9)


class TestRanges:
    """Large corpora are joined, filtered, matched and sorted by ranges. The bytes are those of small corpora, which fit in memory."""

    def assert_limits_change_nothing(self, folder: Path, sides: tuple[Path, Path], limits: MiningLimits, **settings: Any) -> None:
        for name, run_limits in (("default", MiningLimits()), ("small", limits)):
            paths = {"source": str(sides[0]), "target": str(sides[1]), "output": str(folder / name)}
            mine.run(MineConfig(**paths, **settings), (), run_limits)
        assert pq.read_metadata(folder / "small/bitext.parquet").num_rows > 5
        assert read_outputs(folder / "small") == read_outputs(folder / "default")
        assert not [*(folder / "small").glob(".*"), *(folder / "small").glob("*.steps")]

    @pytest.mark.parametrize("settings", [{"retrieval": "max"}, {"retrieval": "intersection", "margin": "distance"}])
    def test_small_ranges_give_the_same_bytes(self, settings: dict[str, str], sides: tuple[Path, Path], tmp_path: Path) -> None:
        self.assert_limits_change_nothing(tmp_path, sides, SMALL_LIMITS, k=3, threshold=0.1, **settings)

    @pytest.mark.slow
    def test_every_step_runs_as_a_pipeline(self, sides: tuple[Path, Path], tmp_path: Path) -> None:
        self.assert_limits_change_nothing(
            tmp_path, sides, PIPELINES, k=3, threshold=0.1, pair_filters=PairFilters.none().model_copy(update={"hubs": 1.5})
        )

    def test_filters_of_both_sides_and_ties(self, tmp_path: Path) -> None:
        """There are few different vectors, so margins are equal and ids decide; dropped hubs make room for other candidates."""
        x, y = dense.unit(40, 8, 4)[np.arange(60) % 7], dense.unit(40, 8, 4)[np.arange(90) % 11]
        source = dense.write_corpus(tmp_path / "x", dense.text_ids(len(x), 2), x, shards=3)
        target = dense.write_corpus(tmp_path / "y", dense.text_ids(len(y), 3), y, shards=4)
        settings = {"threshold": 0.1, "pair_filters": PairFilters.none().model_copy(update={"hubs": 2.5}), "keep_dropped": True}
        self.assert_limits_change_nothing(tmp_path, (source, target), SMALL_LIMITS, **settings)
        default, small = (tmp_path / name / "dropped.parquet" for name in ("default", "small"))
        assert pq.read_metadata(default).num_rows > 16
        assert default.read_bytes() == small.read_bytes()


class TestFromCandidates:
    @pytest.mark.parametrize("margin", MARGINS)
    def test_bytes_equal_those_of_a_full_run(self, margin: str, sides: tuple[Path, Path], tmp_path: Path) -> None:
        output_of("mine", *sides, "--output", tmp_path / "first", "--k", 3)
        for retrieval, threshold in itertools.product(("max", "intersection", "all"), ((), ("--threshold", "0.3"))):
            options = ("--margin", margin, "--retrieval", retrieval, *threshold)
            output_of("mine", "--from-candidates", tmp_path / "first", "--output", tmp_path / "selected", *options)
            output_of("mine", *sides, "--output", tmp_path / "full", "--k", 3, *options)
            assert read_outputs(tmp_path / "selected") == read_outputs(tmp_path / "full")

    def test_output_can_be_moved_with_its_texts_and_compared_with_gold(self, toy_encoder: Path, tmp_path: Path) -> None:
        for name, text in (("en", "one two\nthree four\n"), ("fr", "trois quatre\nun deux\n"), ("gold", "1\t2\n2\t1\n")):
            (tmp_path / name).write_text(text)
        output_of("mine", tmp_path / "en", tmp_path / "fr", "--output", tmp_path / "first", "--encoder", toy_encoder)
        shutil.move(tmp_path / "first", tmp_path / "moved")
        options = ("--from-candidates", tmp_path / "moved", "--gold", tmp_path / "gold", "--threshold", "1")
        assert "F1 1.0000" in output_of("mine", *options, "--output", tmp_path / "out")
        assert "F1 1.0000" in output_of("mine", *options, "--output", tmp_path / "moved")  # in place


class TestErrors:
    def error_of(self, *arguments: object, output: Path) -> str:
        """Return the error message; nothing is written."""
        message = error_of("mine", *arguments, "--output", output)
        assert not output.exists()
        return message

    def test_folder_without_candidates(self, sides: tuple[Path, Path], tmp_path: Path) -> None:
        message = self.error_of("--from-candidates", sides[0], output=tmp_path / "out")
        assert "x/candidates: no finished stage `candidates`" in message

    def test_corpus_that_is_missing_or_changed(self, tmp_path: Path) -> None:
        x, y = noisy_sides()
        for name, vectors in (("x", x), ("y", y)):
            dense.write_corpus(tmp_path / name, dense.text_ids(len(vectors), 2), vectors)
        output_of("mine", tmp_path / "x", tmp_path / "y", "--output", tmp_path / "first")
        dense.write_corpus(tmp_path / "z", dense.text_ids(len(y), 2), y[::-1])
        (tmp_path / "y").rename(tmp_path / "moved")
        assert "y: not an embeddings directory" in self.error_of("--from-candidates", tmp_path / "first", output=tmp_path / "out")
        (tmp_path / "z").rename(tmp_path / "y")
        message = self.error_of("--from-candidates", tmp_path / "first", output=tmp_path / "out")
        assert "y: changed since the candidates in" in message

    def test_truncated_shard(self, sides: tuple[Path, Path], tmp_path: Path) -> None:
        output_of("mine", *sides, "--output", tmp_path / "first")
        shard = tmp_path / "first" / "candidates" / "part-00001-of-00003.parquet"
        shard.write_bytes(shard.read_bytes()[:-9])
        assert f"{shard}: not a complete Parquet file" in self.error_of("--from-candidates", tmp_path / "first", output=tmp_path / "out")

    @pytest.mark.parametrize("arguments", [("x", "y"), ("--k", "4"), ("--max-tokens", "9"), ("--strict",)])
    def test_option_of_an_earlier_stage_is_wrong_usage(self, arguments: tuple[str, ...], tmp_path: Path) -> None:
        result = miner("mine", *arguments, "--from-candidates", tmp_path, "--output", tmp_path / "out")
        assert result.exit_code == 2
        assert "has no effect with --from-candidates; remove it" in result.stderr

    @pytest.mark.parametrize(("arguments", "message"), [((), "SOURCE: missing, and required"), (("x",), "give TARGET")])
    def test_missing_side_is_wrong_usage(self, arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
        result = miner("mine", *arguments, "--output", tmp_path / "out")
        assert result.exit_code == 2
        assert message in result.stderr
