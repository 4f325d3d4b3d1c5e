"""What a run tells of itself: Beam's counters, the summary, and logs for programs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from apache_beam.metrics import MetricsFilter
from command import miner

from pipelines.beam import runner

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
    result = miner("run", settings, "--no-report", *options)
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads((settings.parent / "out/run.json").read_text())
    return summary


def weight(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("part-*"))


def test_the_summary_adds_up_what_was_made(settings: Path) -> None:
    out = settings.parent / "out"
    told = run(settings)["counters"]
    assert {name: told["ranges"][name] for name in ("shards", "sentences", "skipped")} == {"shards": 2, "sentences": 7, "skipped": 1}
    bytes_ = {name: sum(weight(out / "corpora" / lang / name) for lang in ("en", "fr")) for name in ("sentences", "embeddings")}
    assert told["sentences"] == {"shards": 4, "sentences": 6, "skipped": 1, "bytes": bytes_["sentences"]}
    assert told["embeddings"] == {"shards": 4, "sentences": 6, "skipped": 0, "tokens": 12, "bytes": bytes_["embeddings"]}
    assert {name: told["search"][name] for name in ("shards", "blocks")} == {"shards": 4, "blocks": 4}
    assert told["neighbours"]["sentences"] == 6
    assert told["candidates"]["pairs"] >= 3


def test_each_stage_has_a_record_and_what_is_kept_adds_nothing(settings: Path) -> None:
    first = run(settings)["stages"]
    embedded = [stage for stage in first if stage["stage"] == "embeddings"]
    assert [(stage["folder"].split("/")[-2], stage["shards"], stage["made"]) for stage in embedded] == [("en", 2, 2), ("fr", 2, 2)]
    assert all(stage["seconds"] > 0 and stage["set_aside"] == {} for stage in first)
    again = run(settings)
    assert [stage["made"] for stage in again["stages"]] == [0] * len(again["stages"])
    assert not any(again["counters"].values())


def test_counters_of_beam_are_those_of_the_summary(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    build = runner.build

    def watched(names: list[str], make: Any, options: Any) -> Any:
        pipeline = build(names, make, options)
        begin = pipeline.run
        pipeline.run = lambda: results.append((make.stage.stage, begin())) or results[-1][1]
        return pipeline

    monkeypatch.setattr(runner, "build", watched)
    told = run(settings)["counters"]
    found: dict[str, dict[str, int]] = {}
    for stage, result in results:
        for counter in result.metrics().query(MetricsFilter().with_namespace(stage))["counters"]:
            counts = found.setdefault(stage, {})
            counts[counter.key.metric.name] = counts.get(counter.key.metric.name, 0) + counter.committed
    assert found == told


class TestJsonLines:
    """`--log-format json`: an object on each line of stderr."""

    @pytest.mark.parametrize("place", ["before", "after"])
    def test_lines_tell_stage_and_shard(self, settings: Path, place: str) -> None:
        option = ("--log-format", "json")
        words = (*option, "run", settings, "--no-report") if place == "before" else ("run", settings, "--no-report", *option)
        result = miner(*words)
        assert result.exit_code == 0
        lines = [json.loads(line) for line in result.stderr.splitlines()]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
        assert {line["level"] for line in lines} == {"INFO"}
        made = [(line["stage"], line["shard"]) for line in lines if line["message"].endswith("is made")]
        assert made.count(("embeddings", "part-00001-of-00002.parquet")) == 2
        ends = {line["stage"]: line["figures"] for line in lines if "figures" in line}
        assert ends["candidates"]["counters"]["pairs"] >= 3

    def test_an_error_is_an_object_too(self, tmp_path: Path) -> None:
        result = miner("--log-format", "json", "embed", tmp_path / "missing.txt", "--output", tmp_path / "out")
        assert (result.exit_code, result.stdout) == (1, "")
        (line,) = map(json.loads, result.stderr.splitlines())
        assert (line["level"], line["kind"]) == ("ERROR", "DataError")
        assert line["message"] == f"{tmp_path}/missing.txt: no such file; check the name"
