"""Progress counts the work within unfinished shards, with a rate and the time that is left."""

import gzip
import logging
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from square_stage import SquareTask, square_stage

from miner.config.commands import EmbedConfig, MineConfig, TextSettings
from miner.progress import Progress, add_work, count_work, progress_of, running_work
from miner.text import readers
from pipelines.beam import runner
from pipelines.beam.runner import run_pipeline, run_stage
from pipelines.corpus import embed
from pipelines.mining import mine

STEPS, UNITS = 5, 10


class SlowTask(SquareTask):
    """Does the work of each shard in steps of half a second."""

    work_unit = "step"
    label = "left"

    def work(self, names: Sequence[str]) -> Mapping[str, int]:
        return dict.fromkeys(names, STEPS * UNITS)

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        for _ in range(STEPS):
            time.sleep(0.5)
            add_work(UNITS)
        return super().write_shard(name)


def progress_in(records: list[logging.LogRecord], stage: str) -> list[Progress]:
    return [progress for record in records if (progress := progress_of(record)) is not None and progress.stage == stage]


@pytest.mark.slow
def test_progress_moves_within_a_shard(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "needs_beam", lambda _num_shards, _options: False)  # its start would lower the rate
    stage, keys = square_stage(tmp_path)
    names = list(keys)[:2]
    with caplog.at_level(logging.INFO):
        run_pipeline(run_stage(stage, {name: keys[name] for name in names}, SlowTask(tmp_path)))
    reports = progress_in(caplog.records, stage.stage)
    total = len(names) * STEPS * UNITS
    done = [report.done for report in reports]
    assert (done[0], done[-1]) == (0, total)
    assert done == sorted(done)
    assert len({value for value in done if value % (STEPS * UNITS)}) >= 2, "no progress within a shard"
    assert {(report.total, report.unit) for report in reports} == {(total, "step")}
    within = next(report for report in reports if 0 < report.done < total)
    match = re.fullmatch(r"left, (\d+) steps/s, (\d+) s left", within.note)
    assert match, within.note
    assert 5 <= int(match[1]) <= 20
    assert running_work(stage.folder) == {}


def test_embedding_reports_sentences_and_the_side(tmp_path: Path, toy_encoder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "text").write_text("".join(f"one two {number}\n" for number in range(50)))
    with caplog.at_level(logging.INFO):
        config = EmbedConfig(inputs=(str(tmp_path / "text"),), output=str(tmp_path / "source"), encoder=str(toy_encoder), shards=2)
        embed.run(config)
    last = progress_in(caplog.records, "embeddings")[-1]
    assert (last.done, last.total, last.unit) == (50, 50, "sentence")
    assert last.note.startswith("source, ")


def test_reading_reports_the_bytes_of_the_input(tmp_path: Path, toy_encoder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with gzip.open(tmp_path / "text.gz", "wt") as file:
        file.writelines(f"one two {number}\n" for number in range(20_000))
    (tmp_path / "table.csv").write_text("text\n" + "".join(f"one two {number}\n" for number in range(20_000)))
    for name, column in (("table.csv", "text"), ("text.gz", None)):
        size = (tmp_path / name).stat().st_size
        with count_work("stage", "a"):
            list(readers.read_sentences(str(tmp_path / name), TextSettings(text_column=column)))
            assert running_work("stage") == {"a": size}
    with caplog.at_level(logging.INFO):
        embed.run(EmbedConfig(inputs=(str(tmp_path / "text.gz"),), output=str(tmp_path / "source"), encoder=str(toy_encoder)))
    last = progress_in(caplog.records, "ranges")[-1]
    assert (last.done, last.total, last.unit) == (size, size, "byte")


def test_rescoring_reports_sentences(tmp_path: Path, toy_encoder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("source", "target"):
        (tmp_path / name).write_text("".join(f"one two {number}\n" for number in range(50)))
    config = MineConfig(source=str(tmp_path / "source"), target=str(tmp_path / "target"), output=str(tmp_path / "mined"))
    with caplog.at_level(logging.INFO):
        mine.run(config.model_copy(update={"encoder": str(toy_encoder), "rescore": "late"}))
    last = progress_in(caplog.records, "joining")[-1]
    assert (last.done, last.total, last.unit) == (100, 100, "sentence")


def test_work_is_counted_for_the_shard_of_the_thread() -> None:
    add_work(1)  # outside a shard: ignored
    with count_work("stage", "a"):
        add_work(2)
        add_work(3)
        assert running_work("stage") == {"a": 5}
    assert running_work("stage") == {}
