"""Pipelines that run side by side share jobs, and an error in one does not stop the others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from apache_beam.internal import pickler
from square_stage import EXPECTED_SQUARES, SquareTask, read_squares, square_stage

from miner.config.runs import RunConfig
from miner.errors import DataError, StorageError
from miner.io.stages import Stage, shard_name
from pipelines.beam import beam_job
from pipelines.beam.beam_job import PendingFile
from pipelines.beam.runner import Pipeline, run_pipeline, run_stage, run_stages, together
from pipelines.beam.tasks import StageRun
from pipelines.mining import mine
from pipelines.mining.candidates import MiningLimits
from pipelines.runs import run

NAMES = ("a", "b", "c")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The kinds of stages in each job that runs."""
    kinds: list[list[str]] = []
    build_pipeline = beam_job.build_pipeline

    def record_job(missing: Sequence[StageRun], options: Any) -> Any:
        kinds.append(sorted({shards.stage.stage for shards in missing}))
        return build_pipeline(missing, options)

    monkeypatch.setattr(beam_job, "build_pipeline", record_job)
    return kinds


def squares(folder: Path, name: str, num_stages: int = 2, failing_stage: int = -1) -> Pipeline[int]:
    """Write some stages, one after the other, and return their rows."""
    rows = 0
    for number in range(num_stages):
        stage, keys = square_stage(folder / name / str(number))
        failing_shard = next(iter(keys)) if number == failing_stage else ""
        manifest = yield from run_stage(stage, keys, SquareTask(folder / name / str(number), failing_shard, "error"))
        rows += manifest.rows
    return rows


def test_stages_that_are_needed_at_the_same_time_share_a_job(tmp_path: Path, jobs: list[list[str]]) -> None:
    results, failed = run_pipeline(together({name: squares(tmp_path, name) for name in NAMES}))
    assert (results, failed) == (dict.fromkeys(NAMES, 12), {})
    assert jobs == [["squares"], ["squares"]]
    assert all(read_squares(tmp_path / name / number) == EXPECTED_SQUARES for name in NAMES for number in "01")


def test_pipelines_start_when_others_end(tmp_path: Path, jobs: list[list[str]]) -> None:
    lengths = dict(zip(NAMES, (1, 3, 2), strict=True))
    results, _ = run_pipeline(together({name: squares(tmp_path, name, length) for name, length in lengths.items()}, at_once=2))
    assert results == {name: 6 * length for name, length in lengths.items()}
    assert len(jobs) == 3  # a0 b0, b1 c0, b2 c1


def test_a_failed_pipeline_does_not_stop_the_others(tmp_path: Path) -> None:
    pipelines = {name: squares(tmp_path, name, failing_stage=0 if name == "b" else -1) for name in NAMES}
    results, failed = run_pipeline(together(pipelines, skip_failed=True))
    assert results == {"a": 12, "c": 12}
    assert list(failed) == ["b"]
    assert str(failed["b"]).endswith("broken [sic]; fix it")


@pytest.mark.parametrize("skip_failed", [True, False])
def test_errors_that_are_not_skipped_end_all_and_release_what_is_open(tmp_path: Path, skip_failed: bool) -> None:
    closed = []

    def fails() -> Pipeline[int]:
        yield []
        raise StorageError("disk: full") if skip_failed else DataError("text: broken")

    def waits(name: str) -> Pipeline[int]:
        try:
            return (yield from squares(tmp_path, name))
        finally:
            closed.append(name)

    with pytest.raises(StorageError if skip_failed else DataError):
        run_pipeline(together({"a": waits("a"), "b": fails(), "c": waits("c")}, skip_failed=skip_failed))
    assert closed == ["a", "c"]
    assert read_squares(tmp_path / "a/1") == {}


def test_one_error_of_several_stages_is_raised_when_all_are_written(tmp_path: Path) -> None:
    runs = []
    for name in NAMES:
        stage, keys = square_stage(tmp_path / name)
        runs.append(StageRun(stage, keys, SquareTask(tmp_path / name, next(iter(keys)) if name == "a" else "", "error")))
    with pytest.raises(DataError, match="broken"):
        run_pipeline(run_stages(runs))
    assert read_squares(tmp_path / "c") == EXPECTED_SQUARES
    assert not (tmp_path / "a/manifest.json").exists()


class RepeatedTask(SquareTask):
    """Appends the name of each shard that is written to a file."""

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        with Path(self.folder, "written.txt").open("a") as log:
            log.write(f"{name}\n")
        return super().write_shard(name)


def test_a_repeated_bundle_skips_finished_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create = beam_job.beam.Create
    monkeypatch.setattr(beam_job.beam, "Create", lambda elements, **options: create([*elements, *elements], **options))
    stage, keys = square_stage(tmp_path)
    assert run_pipeline(run_stage(stage, keys, RepeatedTask(tmp_path))).rows == 6
    assert sorted((tmp_path / "written.txt").read_text().split()) == sorted(keys)


def test_elements_and_functions_stay_small_however_many_shards_there_are(tmp_path: Path) -> None:
    sizes = []
    for count in (10, 1000):
        names = [shard_name(index, count) for index in range(count)]
        stage = Stage(str(tmp_path / str(count)), "squares", {}, dict.fromkeys(names, "input"))
        shards = StageRun(stage, dict.fromkeys(names, stage.key()), SquareTask(tmp_path))
        file = PendingFile.write([shards] * count, is_remote=False)
        assert [each.shard_keys for each in file.open_writer().runs] == [shards.shard_keys] * count
        sizes.append(len(pickler.dumps(beam_job.WriteShard(file))))
    assert sizes[1] <= sizes[0] + 20 < 1000


def test_a_file_of_pending_shards_that_another_wrote_is_not_loaded(tmp_path: Path) -> None:
    stage, keys = square_stage(tmp_path)
    file = PendingFile.write([StageRun(stage, keys, SquareTask(tmp_path))], is_remote=False)
    PendingFile.write([StageRun(stage, {}, SquareTask(tmp_path))], is_remote=False)
    with pytest.raises(StorageError, match="not the file that this run wrote"):
        file.open_writer()


def run_config(folder: Path, encoder: Path, num_pairs: int) -> RunConfig:
    corpora = {}
    for number in range(num_pairs + 1):
        path = folder / f"c{number}.txt"
        path.write_text("".join(f"one two {line} {number}\n" for line in range(6)))
        corpora[path.stem] = {"files": str(path), "lang": "eng"}
    settings = {"encoder": str(encoder), "pairs": {"pivot": "c0"}, "threshold": 0.5, "engine": "exact", "shards": 2}
    return RunConfig.check(output=str(folder / "out"), corpora=corpora, **settings)


SMALL_RUN = ["ranges", "sentences", "embeddings", "search", "neighbours", "candidates"]


@pytest.mark.parametrize("num_pairs", [1, 3, pytest.param(100, marks=pytest.mark.slow)])
def test_all_pairs_of_a_run_take_six_jobs(tmp_path: Path, toy_encoder: Path, jobs: list[list[str]], num_pairs: int) -> None:
    result = run.run(run_config(tmp_path, toy_encoder, num_pairs))
    assert len(result.pairs) == num_pairs
    assert jobs == [[kind] for kind in SMALL_RUN]


def test_large_pairs_take_at_most_25_jobs_and_the_bytes_do_not_depend_on_what_shares_them(
    tmp_path: Path, toy_encoder: Path, jobs: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(tmp_path, toy_encoder, 2)
    expected = run.run(config)
    jobs.clear()
    pipeline = mine.pipeline

    def mine_by_jobs(config: Any, options: Sequence[str], **settings: Any) -> Pipeline[Any]:
        return pipeline(config, options, MiningLimits(in_process_rows=0), **settings)

    monkeypatch.setattr(mine, "pipeline", mine_by_jobs)
    run.run(config.model_copy(update={"output": str(tmp_path / "large")}))
    assert 6 < len(jobs) <= 25
    jobs.clear()
    run.run(config.model_copy(update={"output": str(tmp_path / "single"), "at_once": 1}))
    assert len(jobs) > 25
    names = [path.relative_to(tmp_path / "out") for path in (tmp_path / "out/pairs").glob("*/**/*") if path.is_file()]
    assert len(names) > 15 * len(expected.pairs)
    for name in names:
        if name.parent.name != "candidates":  # whose manifest has the paths of the corpora
            assert len({(tmp_path / output / name).read_bytes() for output in ("out", "large", "single")}) == 1, name


def test_a_pair_whose_corpus_cannot_be_read_is_skipped_with_its_reason(tmp_path: Path, toy_encoder: Path) -> None:
    config = run_config(tmp_path, toy_encoder, 2)
    (tmp_path / "c2.txt").write_bytes(b"\xff\n")
    result = run.run(config)
    assert list(result.pairs) == ["c0-c1"]
    assert result.skipped["mine c0-c2"] == "needs embed c2, which was skipped"
