"""The number of requests to S3, counted by its server: few per shard, and none for the content of a shard that has not changed."""

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import object_servers
import pyarrow as pa
import pytest
from command import miner
from object_servers import ObjectServer, RequestLog

from miner import stages, storage
from miner.config.commands import EmbedConfig
from miner.errors import StorageError
from miner.stages import Stage
from pipelines.beam import job, pipeline, watch
from pipelines.corpus import embed

EMBEDDINGS, RERUN = "embeddings", "rerun"


@pytest.fixture(scope="module")
def recording() -> Iterator[tuple[ObjectServer, RequestLog]]:
    log = RequestLog()
    started = object_servers.serve("s3", log)
    yield started, log
    started.stop()


@pytest.fixture
def log(recording: tuple[ObjectServer, RequestLog], monkeypatch: pytest.MonkeyPatch) -> Iterator[RequestLog]:
    """The requests of the stage of embeddings, those of the driver and those of the worker."""
    server, requests = recording
    monkeypatch.setitem(fsspec.config.conf, "s3", server.options)
    run_job, run_beam = job.run_job, pipeline.run_pipeline

    def run_counted(runs: Sequence[Any], options: Sequence[str]) -> Any:
        with requests.as_role("driver" if runs[0].stage.stage == EMBEDDINGS else ""):
            return run_job(runs, options)

    def run_beam_counted(*args: Any) -> None:
        with requests.as_role("worker" if requests.role else ""):
            run_beam(*args)

    monkeypatch.setattr(job, "run_job", run_counted)
    monkeypatch.setattr(pipeline, "run_pipeline", run_beam_counted)
    for name in ("POLL_SECONDS", "OBJECT_POLL_SECONDS"):
        monkeypatch.setattr(watch, name, 3600.0)
    fsspec.filesystem("s3").clear_instance_cache()
    requests.requests.clear()
    yield requests
    fsspec.filesystem("s3").clear_instance_cache()


def embed_shards(folder: Path, num_shards: int) -> str:
    """Embed a text into so many shards, and return the output."""
    text, bucket = folder / "text.txt", f"bucket-{uuid.uuid4().hex}"
    text.write_text("".join(f"sentence {number} of this text\n" for number in range(300)))
    fsspec.filesystem("s3").mkdir(bucket)
    embed_into(folder, f"s3://{bucket}/out", num_shards)
    return f"s3://{bucket}/out"


def embed_into(folder: Path, output: str, num_shards: int) -> None:
    embed.run(EmbedConfig(inputs=[str(folder / "text.txt")], output=output, lang="en", shards=num_shards))


def test_a_shard_takes_one_request_of_the_driver_and_six_of_the_worker(log: RequestLog, tmp_path: Path) -> None:
    counts: dict[int, dict[str, int]] = {}
    for num_shards in (4, 14):
        log.requests.clear()
        output = embed_shards(tmp_path, num_shards)
        counts[num_shards] = {role: log.count(role) for role in ("driver", "worker")}
        log.requests.clear()
        embed_into(tmp_path, output, num_shards)
        assert log.count("worker") == 0
        counts[num_shards][RERUN] = log.count("driver")
        assert [path for path in log.paths("GET") if path.endswith(".parquet")] == [], "no shard is read to see that it has not changed"
    added = {role: (counts[14][role] - counts[4][role]) / 10 for role in counts[4]}
    assert added == {"driver": 1, "worker": 6, RERUN: 1}


def test_a_shard_that_changes_on_s3_is_found_and_written_again(log: RequestLog, tmp_path: Path) -> None:
    output = embed_shards(tmp_path, 3)
    fs, folder = storage.filesystem(f"{output}/embeddings")
    path = f"{folder}/{stages.shard_name(1, 3)}"
    data = bytearray(fs.cat_file(path))
    data[len(data) // 2] ^= 1  # of the same size
    fs.pipe_file(path, bytes(data))
    result = miner("verify", output)
    assert result.exit_code == 1
    assert f"{path}: " in result.output
    log.requests.clear()
    embed_into(tmp_path, output, 3)
    written = {request.path for request in log.requests if request.role == "worker" and request.operation == "PUT"}
    assert {name for name in written if name.endswith(".parquet")} == {path}
    assert miner("verify", output).exit_code == 0


def test_a_stopped_stage_resumes_without_reading_what_is_finished(log: RequestLog, tmp_path: Path) -> None:
    output = embed_shards(tmp_path, 3)
    name = stages.shard_name(2, 3)
    for lost in (stages.MANIFEST, f"{stages.MARKERS}/{name}.json", name):
        storage.remove(f"{output}/embeddings/{lost}")
    log.requests.clear()
    embed_into(tmp_path, output, 3)
    shards = {(method, path.rpartition("/")[2]) for _, method, path in log.requests if path.endswith(".parquet")}
    assert shards == {("GET", name), ("PUT", name), ("HEAD", name)}, "the sentences are read, the embeddings written"
    assert miner("verify", output).exit_code == 0


def test_a_copied_shard_is_read_and_kept(log: RequestLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy on another store has another etag, but the same checksum."""
    output = embed_shards(tmp_path, 2)
    fs, folder = storage.filesystem(f"{output}/embeddings")
    for name in fs.ls(f"{folder}/_shards", detail=False):
        values = {**storage.read_json(f"s3://{name}"), "version": "1 other"}
        del values["xxh3"]
        storage.write_json(f"s3://{name}", values)
    log.requests.clear()
    monkeypatch.setattr(storage, "_checksums", {})  # as in another process
    embed_into(tmp_path, output, 2)
    assert log.count("worker") == 0
    read = {path for path in log.paths("GET") if path.endswith(".parquet")}
    assert read == {f"{folder}/{stages.shard_name(index, 2)}" for index in range(2)}


@pytest.mark.parametrize("num_rows", [1000, 2_500_000], ids=["read at once", "read by blocks"])
@pytest.mark.usefixtures("log")
def test_a_flipped_byte_of_an_object_is_found_when_it_is_read(num_rows: int) -> None:
    bucket = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem("s3").mkdir(bucket)
    stage, name = Stage(f"s3://{bucket}/stage", "numbers", {}, {}), "part-00000-of-00001.parquet"
    table = pa.table({"id": np.random.default_rng(0).integers(1 << 62, size=num_rows)})
    stage.start()
    storage.write_table(stage.path(name), table)
    stage.mark_done(name, num_rows, stage.key())
    stage.finish({name: stage.key()})
    for _ in range(2):
        assert storage.read_table(stage.path(name)).equals(table)
    fs, path = storage.filesystem(stage.path(name))
    data = bytearray(fs.cat_file(path))
    data[len(data) // 2] ^= 1
    fs.pipe_file(path, bytes(data))
    for _ in range(2):
        with pytest.raises(StorageError, match="changed since it was written"):
            storage.read_table(stage.path(name))
    assert stage.find_shards({name: stage.key()}) == {}
