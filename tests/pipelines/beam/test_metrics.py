"""What a run reports: Beam counters, the summary, and JSON logs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from apache_beam.metrics import MetricsFilter
from command import miner, output_of

from pipelines.beam import beam_job

ENGLISH = ["one two", "", "three four five", "one two", "seven"]  # one empty, one twice
FRENCH = ["un deux", "trois quatre cinq", "sept"]


@pytest.fixture
def settings(toy_encoder: Path, tmp_path: Path) -> Path:
    for lang, lines in (("en", ENGLISH), ("fr", FRENCH)):
        (tmp_path / f"{lang}.txt").write_text("".join(f"{line}\n" for line in lines))
    corpora = {lang: str(tmp_path / f"{lang}.txt") for lang in ("en", "fr")}
    values = {"output": str(tmp_path / "out"), "corpora": corpora, "encoder": str(toy_encoder), "shards": 2, "engine": "exact"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**values, "threshold": 0.5}))
    return tmp_path / "run.yaml"


def run(settings: Path, *options: str) -> dict[str, Any]:
    """Run `miner run` and return its summary."""
    output_of("run", settings, "--no-report", *options)
    summary: dict[str, Any] = json.loads((settings.parent / "out/run.json").read_text())
    return summary


def shard_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("part-*"))


def test_the_summary_counts_what_was_written(settings: Path) -> None:
    out = settings.parent / "out"
    counters = run(settings)["counters"]
    assert {name: counters["ranges"][name] for name in ("shards", "sentences", "skipped")} == {"shards": 2, "sentences": 7, "skipped": 1}
    sizes = {name: sum(shard_bytes(out / "corpora" / lang / name) for lang in ("en", "fr")) for name in ("sentences", "embeddings")}
    assert counters["sentences"] == {"shards": 4, "sentences": 6, "skipped": 1, "bytes": sizes["sentences"]}
    assert counters["embeddings"] == {"shards": 4, "sentences": 6, "skipped": 0, "tokens": 12, "bytes": sizes["embeddings"]}
    assert {name: counters["search"][name] for name in ("shards", "blocks")} == {"shards": 4, "blocks": 4}
    assert counters["neighbours"]["sentences"] == 6
    assert counters["candidates"]["pairs"] >= 3


def test_each_stage_has_a_record_and_finished_shards_are_not_counted_again(settings: Path) -> None:
    records = run(settings)["stages"]
    embedded = [record for record in records if record["stage"] == "embeddings"]
    assert [(record["folder"].split("/")[-2], record["shards"], record["written"]) for record in embedded] == [("en", 2, 2), ("fr", 2, 2)]
    assert all(record["seconds"] > 0 and record["skipped"] == {} for record in records)
    rerun = run(settings)
    assert [record["written"] for record in rerun["stages"]] == [0] * len(rerun["stages"])
    assert not any(rerun["counters"].values())


def test_beam_counters_equal_the_summary(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    build_pipeline = beam_job.build_pipeline

    def record_result(missing: list[Any], options: Any) -> Any:
        pipeline = build_pipeline(missing, options)
        run_pipeline = pipeline.run
        pipeline.run = lambda: results.append((missing[0].stage.stage, run_pipeline())) or results[-1][1]
        return pipeline

    monkeypatch.setattr(beam_job, "build_pipeline", record_result)
    summary = run(settings)["counters"]
    counters: dict[str, dict[str, int]] = {}
    for stage, result in results:
        for metric in result.metrics().query(MetricsFilter().with_namespace(stage))["counters"]:
            counts = counters.setdefault(stage, {})
            counts[metric.key.metric.name] = counts.get(metric.key.metric.name, 0) + metric.committed
    assert counters == summary


class TestJsonLines:
    """`--log-format json`: one JSON object per line of stderr."""

    @pytest.mark.parametrize("position", ["before", "after"])
    def test_lines_name_stage_and_shard(self, settings: Path, position: str) -> None:
        option = ("--log-format", "json")
        words = (*option, "run", settings, "--no-report") if position == "before" else ("run", settings, "--no-report", *option)
        result = miner(*words)
        assert result.exit_code == 0
        lines = [json.loads(line) for line in result.stderr.splitlines()]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
        assert {line["level"] for line in lines} == {"INFO"}
        written = [(line["stage"], line["shard"]) for line in lines if line["message"].endswith("is written")]
        assert written.count(("embeddings", "part-00001-of-00002.parquet")) == 2
        figures = {line["stage"]: line["figures"] for line in lines if "figures" in line}
        assert figures["candidates"]["counters"]["pairs"] >= 3

    def test_errors_are_objects(self, tmp_path: Path) -> None:
        result = miner("--log-format", "json", "embed", tmp_path / "missing.txt", "--output", tmp_path / "out")
        assert (result.exit_code, result.stdout) == (1, "")
        (line,) = map(json.loads, result.stderr.splitlines())
        assert (line["level"], line["kind"]) == ("ERROR", "DataError")
        assert line["message"] == f"{tmp_path}/missing.txt: no such file; check the name"
