"""Shards that cannot be made: tried again, set aside and told, tried by the next run; or fatal, with `--strict`."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import miner, refused

from miner import stages, storage
from miner.errors import ConfigError, DataError, StorageError
from miner.stages import Stage
from pipelines.beam import retry
from pipelines.beam.retry import set_aside_in
from pipelines.beam.runner import ShardTask, run_stage
from pipelines.runs import scheduler
from pipelines.runs.scheduler import ScheduledTask

NAMES = [stages.shard_name(index, 24, ".json") for index in range(24)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting between attempts."""
    monkeypatch.setattr(retry, "WAIT_SECONDS", 0)


class Failing(ShardTask):
    """Shards that hold their number; some fail, the first so many times."""

    def __init__(self, folder: Path, failing: Mapping[str, int], error: Exception) -> None:
        self.folder, self.failing, self.error = str(folder), failing, error

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        with (Path(self.folder) / "attempts.txt").open("a") as log:
            log.write(f"{name}\n")
        if self.made_before(name) <= self.failing.get(name, 0):
            raise self.error
        storage.write_json(storage.join(self.folder, name), stages.shard_index(name))
        return 1, {}

    def made_before(self, name: str) -> int:
        return (Path(self.folder) / "attempts.txt").read_text().splitlines().count(name)


def run(folder: Path, failing: Mapping[str, int], error: Exception, spare: bool = True) -> stages.Manifest:
    stage = Stage(str(folder), "numbers", {}, {})
    return run_stage(stage, dict.fromkeys(NAMES, stage.key()), Failing(folder, failing, error), spare=spare)


def attempts(folder: Path, name: str) -> int:
    return (folder / "attempts.txt").read_text().splitlines().count(name)


class TestStage:
    """What one stage does."""

    def test_what_passes_is_tried_again(self, tmp_path: Path) -> None:
        manifest = run(tmp_path, {NAMES[3]: 2}, OSError(5, "Input/output error"), spare=False)
        assert [shard.name for shard in manifest.shards] == NAMES
        assert attempts(tmp_path, NAMES[3]) == 3
        assert set_aside_in(manifest) == {}

    def test_what_does_not_pass_is_set_aside_told_and_tried_by_the_next_run(self, tmp_path: Path) -> None:
        manifest = run(tmp_path, {NAMES[3]: 5}, ValueError("no such thing\nmore"))
        assert [shard.name for shard in manifest.shards] == [name for name in NAMES if name != NAMES[3]]
        reason = f"{tmp_path / NAMES[3]}: ValueError: no such thing; see to it, and run the same command again"
        assert set_aside_in(stages.read_manifest(str(tmp_path))) == {NAMES[3]: reason}
        assert not (tmp_path / retry.SET_ASIDE).exists()
        again = run(tmp_path, {NAMES[3]: 5}, ValueError("no such thing"))
        assert [shard.name for shard in again.shards] == NAMES
        assert set_aside_in(again) == {}
        assert [attempts(tmp_path, name) for name in NAMES[:5]] == [1, 1, 1, 6, 1]

    def test_wrong_data_is_not_tried_again(self, tmp_path: Path) -> None:
        manifest = run(tmp_path, {NAMES[0]: 9}, DataError("text: broken; mend it"))
        assert set_aside_in(manifest) == {NAMES[0]: "text: broken; mend it"}
        assert attempts(tmp_path, NAMES[0]) == 1

    @pytest.mark.parametrize("error", [ConfigError("settings"), StorageError("disk: full; free some space")])
    def test_what_is_not_the_shards_fault_ends_the_stage(self, tmp_path: Path, error: Exception) -> None:
        with pytest.raises(type(error), match=str(error)):
            run(tmp_path, {NAMES[3]: 9}, error)

    def test_a_stage_that_needs_all_its_shards_ends(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="broken; mend it"):
            run(tmp_path, {NAMES[3]: 9}, DataError("text: broken; mend it"), spare=False)
        assert not (tmp_path / stages.MANIFEST).exists()

    def test_one_shard_at_least_must_be_made(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="broken; mend it"):
            run(tmp_path, dict.fromkeys(NAMES, 9), DataError("text: broken; mend it"))

    def test_where_most_fail_it_is_no_matter_of_a_shard(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="broken; mend it"):
            run(tmp_path, dict.fromkeys(NAMES[:-1], 9), DataError("text: broken; mend it"))
        assert sum(attempts(tmp_path, name) for name in NAMES) < len(NAMES)


ENGLISH = ["one two", "three", "four five", "seven eight", "nine", "ten one", "two four", "five three"]
FRENCH = ["un deux", "trois", "quatre cinq", "sept huit", "neuf", "dix un", "deux quatre", "cinq trois"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Two languages in several files, of which one is cut off."""
    for lang, lines in (("en", ENGLISH), ("fr", FRENCH)):
        (tmp_path / lang).mkdir()
        for number, part in enumerate((lines[:4], lines[4:6], lines[6:])):
            (tmp_path / lang / f"{number}.txt.gz").write_bytes(gzip.compress("\n".join(part).encode()))
    cut(tmp_path / "en" / "1.txt.gz")
    return tmp_path


def cut(path: Path) -> bytes:
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    return whole


def config(folder: Path, encoder: Path, **settings: Any) -> Path:
    corpora = {lang: f"{folder}/{lang}/*.txt.gz" for lang in ("en", "fr")}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({"output": str(folder / "out"), "corpora": corpora, "encoder": str(encoder), **settings}))
    return path


def mined(folder: Path) -> set[tuple[str, ...]]:
    lines = gzip.decompress((folder / "bitext.tsv.gz").read_bytes()).decode().splitlines()
    return {tuple(line.split("\t")[1:]) for line in lines}


@pytest.mark.parametrize("at_once", [1, 3])
def test_tasks_that_need_one_that_failed_are_left_out(at_once: int) -> None:
    made: list[str] = []

    def fail() -> None:
        raise DataError("broken")

    needs = {"a": (), "b": (), "ab": ("a", "b"), "bc": ("b", "c"), "c": (), "abc": ("ab", "c")}
    tasks = [ScheduledTask(name, fail if name == "a" else lambda name=name: made.append(name), wanted) for name, wanted in needs.items()]
    failed = scheduler.run(tasks, at_once, spare=True)
    assert {name: str(error) for name, error in failed.items()} == {
        "a": "broken",
        "ab": "it needs a, which is set aside",
        "abc": "it needs ab, which is set aside",
    }
    assert sorted(made) == ["b", "bc", "c"]


def done(*arguments: object) -> str:
    result = miner(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


class TestRun:
    """`miner run`, and the commands it stands for."""

    def test_a_broken_file_is_left_out_told_and_taken_when_it_is_mended(self, texts: Path, toy_encoder: Path) -> None:
        settings = config(texts, toy_encoder, engine="exact", threshold=0.5)
        result = miner("run", settings, "--json", texts / "run.json")
        assert result.exit_code == 3, result.output
        assert f"{texts}/en/1.txt.gz: truncated or not .gz" in result.stderr
        assert "1 set aside" in result.stderr.splitlines()[-1]
        summary = json.loads((texts / "run.json").read_text())
        (place,) = summary["set_aside"]
        assert place == f"{texts}/en/1.txt.gz"
        assert summary["corpora"]["en"]["unique"] == 6
        left_out = {*ENGLISH[4:6]}
        assert mined(texts / "out/pairs/en-fr") == {pair for pair in zip(ENGLISH, FRENCH, strict=True) if pair[0] not in left_out}
        assert "to do  embed en" in done("run", settings, "--dry-run")
        assert "set aside" in miner("status", texts / "out").stdout
        again = miner("run", settings)
        assert again.exit_code == 3
        assert "en-fr: 6 pairs, kept" in again.stdout
        faults = miner("verify", texts / "out")
        assert faults.exit_code == 1
        assert f"{texts}/en/1.txt.gz" in faults.stdout
        (texts / "en" / "1.txt.gz").write_bytes(gzip.compress("\n".join(ENGLISH[4:6]).encode()))
        done("run", settings)
        assert mined(texts / "out/pairs/en-fr") == set(zip(ENGLISH, FRENCH, strict=True))
        done("verify", texts / "out")

    def test_strict_makes_it_fatal(self, texts: Path, toy_encoder: Path) -> None:
        settings = config(texts, toy_encoder)
        assert f"{texts}/en/1.txt.gz: truncated or not .gz" in refused("run", settings, "--strict")
        assert not list(texts.glob("out/**/manifest.json"))

    def test_a_corpus_that_cannot_be_read_leaves_the_others(self, texts: Path, toy_encoder: Path) -> None:
        (texts / "de").mkdir()
        (texts / "de" / "0.txt.gz").write_bytes(b"no such thing")
        (texts / "en" / "1.txt.gz").unlink()
        settings = config(texts, toy_encoder, threshold=0.5)
        result = miner("run", settings, "--set", f"corpora.de={texts}/de/*.txt.gz")
        assert result.exit_code == 3
        summary = json.loads((texts / "out/run.json").read_text())
        assert list(summary["pairs"]) == ["en-fr"]
        assert set(summary["set_aside"]) == {"embed de", "mine en-de", "mine fr-de"}
        assert "truncated or not .gz" in summary["set_aside"]["embed de"]

    def test_embed_and_mine_do_so_too(self, texts: Path, toy_encoder: Path) -> None:
        result = miner("embed", f"{texts}/en/*.txt.gz", "--encoder", toy_encoder, "--output", texts / "en.out", "--shards", 2)
        assert result.exit_code == 3
        assert "6 unique sentences" in result.stdout
        sides = (texts / "en.out", f"{texts}/fr/*.txt.gz")
        result = miner("mine", *sides, "--encoder", toy_encoder, "--output", texts / "mined", "--threshold", 0.5)
        assert result.exit_code == 3
        assert f"{texts}/en/1.txt.gz" in result.stderr
        assert len(mined(texts / "mined")) == 6

    def test_an_encoder_that_fails_on_one_shard(self, texts: Path, toy_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from miner.encoders.static import StaticEncoder

        encode = StaticEncoder.encode

        def fails(self: StaticEncoder, sentences: list[str]) -> Any:
            if "three" in sentences:
                raise ValueError("threes are not for me")
            return encode(self, sentences)

        (texts / "en" / "1.txt.gz").unlink()
        settings = config(texts, toy_encoder, threshold=0.5, shards=3)
        with monkeypatch.context() as patch:
            patch.setattr(StaticEncoder, "encode", fails)
            result = miner("run", settings)
        assert result.exit_code == 3, result.output
        assert "ValueError: threes are not for me" in result.stderr
        pairs = mined(texts / "out/pairs/en-fr")
        assert pairs < {*zip(ENGLISH, FRENCH, strict=True)}
        assert ("three", "trois") not in pairs
        done("run", settings)
        assert mined(texts / "out/pairs/en-fr") == {pair for pair in zip(ENGLISH, FRENCH, strict=True) if pair[0] not in ENGLISH[4:6]}
        done("verify", texts / "out")
