"""Failed shards: retried, then skipped, reported and tried by the next run; with `--strict`, fatal."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import error_of, miner, output_of

from miner.errors import ConfigError, DataError, StorageError
from miner.io import stages, storage
from miner.io.stages import Stage
from pipelines.beam import shards
from pipelines.beam.runner import run_pipeline, run_stage
from pipelines.beam.tasks import RetryPolicy, ShardTask

NAMES = [stages.shard_name(index, 24, ".json") for index in range(24)]


class FailingTask(ShardTask):
    """Write the index of each shard. The shards in `num_failures` raise `error` in that many first attempts."""

    retry_policy = RetryPolicy(wait_seconds=0)

    def __init__(self, folder: Path, num_failures: Mapping[str, int], error: Exception) -> None:
        self.folder, self.num_failures, self.error = str(folder), num_failures, error

    def write_shard(self, name: str) -> tuple[int, Mapping[str, int]]:
        with (Path(self.folder) / "attempts.txt").open("a") as log:
            log.write(f"{name}\n")
        if count_attempts(Path(self.folder), name) <= self.num_failures.get(name, 0):
            raise self.error
        storage.write_json(storage.join(self.folder, name), stages.shard_index(name))
        return 1, {}


def run(folder: Path, num_failures: Mapping[str, int], error: Exception, skip_failed: bool = True) -> stages.Manifest:
    stage = Stage(str(folder), "numbers", {}, {})
    return run_pipeline(
        run_stage(stage, dict.fromkeys(NAMES, stage.key()), FailingTask(folder, num_failures, error), skip_failed=skip_failed)
    )


def count_attempts(folder: Path, name: str) -> int:
    return (folder / "attempts.txt").read_text().splitlines().count(name)


class TestStage:
    """One stage."""

    def test_transient_errors_are_retried(self, tmp_path: Path) -> None:
        manifest = run(tmp_path, {NAMES[3]: 2}, OSError(5, "Input/output error"), skip_failed=False)
        assert [shard.name for shard in manifest.shards] == NAMES
        assert count_attempts(tmp_path, NAMES[3]) == 3
        assert manifest.skipped == {}

    def test_lasting_errors_skip_the_shard_until_the_next_run(self, tmp_path: Path) -> None:
        manifest = run(tmp_path, {NAMES[3]: 5}, ValueError("no such thing\nmore"))
        assert [shard.name for shard in manifest.shards] == [name for name in NAMES if name != NAMES[3]]
        reason = f"{tmp_path / NAMES[3]}: ValueError: no such thing; fix the cause and run the same command again"
        assert stages.read_manifest(str(tmp_path)).skipped == {NAMES[3]: reason}
        assert not (tmp_path / shards.SKIPPED).exists()
        rerun = run(tmp_path, {NAMES[3]: 5}, ValueError("no such thing"))
        assert [shard.name for shard in rerun.shards] == NAMES
        assert rerun.skipped == {}
        assert [count_attempts(tmp_path, name) for name in NAMES[:5]] == [1, 1, 1, 6, 1]

    def test_data_errors_are_not_retried(self, tmp_path: Path) -> None:
        manifest = run(tmp_path, {NAMES[0]: 9}, DataError("text: broken; fix it"))
        assert manifest.skipped == {NAMES[0]: "text: broken; fix it"}
        assert count_attempts(tmp_path, NAMES[0]) == 1

    @pytest.mark.parametrize("error", [ConfigError("settings"), StorageError("disk: full; free some space")])
    def test_errors_of_all_shards_end_the_stage(self, tmp_path: Path, error: Exception) -> None:
        with pytest.raises(type(error), match=str(error)):
            run(tmp_path, {NAMES[3]: 9}, error)

    def test_a_stage_that_needs_every_shard_ends(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="broken; fix it"):
            run(tmp_path, {NAMES[3]: 9}, DataError("text: broken; fix it"), skip_failed=False)
        assert not (tmp_path / stages.MANIFEST).exists()

    def test_a_stage_without_any_shard_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="broken; fix it"):
            run(tmp_path, dict.fromkeys(NAMES, 9), DataError("text: broken; fix it"))

    def test_a_stage_that_skips_most_shards_ends_early(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="broken; fix it"):
            run(tmp_path, dict.fromkeys(NAMES[:-1], 9), DataError("text: broken; fix it"))
        assert sum(count_attempts(tmp_path, name) for name in NAMES) < len(NAMES)


ENGLISH = ["one two", "three", "four five", "seven eight", "nine", "ten one", "two four", "five three"]
FRENCH = ["un deux", "trois", "quatre cinq", "sept huit", "neuf", "dix un", "deux quatre", "cinq trois"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Files in two languages, one of them truncated."""
    for lang, lines in (("en", ENGLISH), ("fr", FRENCH)):
        (tmp_path / lang).mkdir()
        for number, part in enumerate((lines[:4], lines[4:6], lines[6:])):
            (tmp_path / lang / f"{number}.txt.gz").write_bytes(gzip.compress("\n".join(part).encode()))
    truncated = tmp_path / "en" / "1.txt.gz"
    truncated.write_bytes(truncated.read_bytes()[:-9])
    return tmp_path


def write_config(folder: Path, encoder: Path, **settings: Any) -> Path:
    corpora = {lang: f"{folder}/{lang}/*.txt.gz" for lang in ("en", "fr")}
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({"output": str(folder / "out"), "corpora": corpora, "encoder": str(encoder), **settings}))
    return path


def read_pairs(folder: Path) -> set[tuple[str, ...]]:
    lines = gzip.decompress((folder / "bitext.tsv.gz").read_bytes()).decode().splitlines()
    return {tuple(line.split("\t")[1:]) for line in lines}


class TestRun:
    """`miner run`, `miner embed` and `miner mine`."""

    def test_a_broken_file_is_skipped_until_it_is_fixed(self, texts: Path, toy_encoder: Path) -> None:
        settings = write_config(texts, toy_encoder, engine="exact", threshold=0.5)
        result = miner("run", settings, "--json", texts / "run.json")
        assert result.exit_code == 3, result.output
        assert f"{texts}/en/1.txt.gz: truncated or not .gz" in result.stderr
        assert "1 skipped" in result.stderr.splitlines()[-1]
        summary = json.loads((texts / "run.json").read_text())
        (skipped,) = summary["skipped"]
        assert skipped == f"{texts}/en/1.txt.gz"
        assert summary["corpora"]["en"]["unique"] == 6
        skipped_sentences = {*ENGLISH[4:6]}
        assert read_pairs(texts / "out/pairs/en-fr") == {
            pair for pair in zip(ENGLISH, FRENCH, strict=True) if pair[0] not in skipped_sentences
        }
        assert "to do  embed en" in output_of("run", settings, "--dry-run")
        assert "1 skipped" in miner("status", texts / "out").stdout
        rerun = miner("run", settings)
        assert rerun.exit_code == 3
        assert "en-fr: 6 pairs, kept" in rerun.stdout
        faults = miner("verify", texts / "out")
        assert faults.exit_code == 1
        assert f"{texts}/en/1.txt.gz" in faults.stdout
        (texts / "en" / "1.txt.gz").write_bytes(gzip.compress("\n".join(ENGLISH[4:6]).encode()))
        output_of("run", settings)
        assert read_pairs(texts / "out/pairs/en-fr") == set(zip(ENGLISH, FRENCH, strict=True))
        output_of("verify", texts / "out")

    def test_a_broken_file_that_is_deleted_is_forgotten(self, texts: Path, toy_encoder: Path) -> None:
        settings = write_config(texts, toy_encoder, engine="exact", threshold=0.5)
        assert miner("run", settings).exit_code == 3
        embed = ("embed", f"{texts}/en/*", "--lang", "en", "--encoder", toy_encoder, "--output", texts / "alone")
        assert miner(*embed).exit_code == 3
        (texts / "en" / "1.txt.gz").unlink()
        for words in (("run", settings), embed, ("verify", texts / "out"), ("verify", texts / "alone")):
            output_of(*words)
        assert "skipped" not in miner("status", texts / "out").stdout

    def test_strict_makes_broken_files_fatal(self, texts: Path, toy_encoder: Path) -> None:
        settings = write_config(texts, toy_encoder)
        assert f"{texts}/en/1.txt.gz: truncated or not .gz" in error_of("run", settings, "--strict")
        assert not list(texts.glob("out/corpora/en/**/manifest.json"))

    def test_a_corpus_that_cannot_be_read_is_skipped(self, texts: Path, toy_encoder: Path) -> None:
        (texts / "de").mkdir()
        (texts / "de" / "0.txt.gz").write_bytes(b"no such thing")
        (texts / "en" / "1.txt.gz").unlink()
        settings = write_config(texts, toy_encoder, threshold=0.5)
        result = miner("run", settings, "--set", f"corpora.de={texts}/de/*.txt.gz")
        assert result.exit_code == 3
        summary = json.loads((texts / "out/run.json").read_text())
        assert list(summary["pairs"]) == ["en-fr"]
        assert set(summary["skipped"]) == {"embed de", "mine en-de", "mine fr-de"}
        assert "truncated or not .gz" in summary["skipped"]["embed de"]

    def test_embed_and_mine_skip_broken_files(self, texts: Path, toy_encoder: Path) -> None:
        result = miner("embed", f"{texts}/en/*.txt.gz", "--encoder", toy_encoder, "--output", texts / "en.out", "--shards", 2)
        assert result.exit_code == 3
        assert "6 unique sentences" in result.stdout
        sides = (texts / "en.out", f"{texts}/fr/*.txt.gz")
        result = miner("mine", *sides, "--encoder", toy_encoder, "--output", texts / "mined", "--threshold", 0.5)
        assert result.exit_code == 3
        assert f"{texts}/en/1.txt.gz" in result.stderr
        assert len(read_pairs(texts / "mined")) == 6

    @pytest.mark.slow
    def test_a_shard_on_which_the_encoder_fails_is_skipped(self, texts: Path, toy_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from miner.encoders.static import StaticEncoder

        encode = StaticEncoder.encode

        def fails(self: StaticEncoder, sentences: list[str]) -> Any:
            if "three" in sentences:
                raise ValueError("threes are not for me")
            return encode(self, sentences)

        (texts / "en" / "1.txt.gz").unlink()
        settings = write_config(texts, toy_encoder, threshold=0.5, shards=3)
        with monkeypatch.context() as patch:
            patch.setattr(StaticEncoder, "encode", fails)
            result = miner("run", settings)
        assert result.exit_code == 3, result.output
        assert "ValueError: threes are not for me" in result.stderr
        pairs = read_pairs(texts / "out/pairs/en-fr")
        assert pairs < {*zip(ENGLISH, FRENCH, strict=True)}
        assert ("three", "trois") not in pairs
        output_of("run", settings)
        assert read_pairs(texts / "out/pairs/en-fr") == {pair for pair in zip(ENGLISH, FRENCH, strict=True) if pair[0] not in ENGLISH[4:6]}
        output_of("verify", texts / "out")
