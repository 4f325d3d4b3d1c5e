"""The number of requests to S3, counted by its server: few per shard, and none for the content of a shard that has not changed."""

import contextlib
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from command import miner
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from miner import stages, storage
from miner.config.commands import EmbedConfig
from miner.errors import StorageError
from miner.stages import Stage
from pipelines.beam import job, pipeline, watch
from pipelines.corpus import embed

EMBEDDINGS, RERUN = "embeddings", "rerun"


class CountingServer:
    """A server of S3 that records its requests while a role is set."""

    def __init__(self) -> None:
        self.app = DomainDispatcherApplication(create_backend_app)
        self.server = make_server("127.0.0.1", 0, self.answer, threaded=True)
        self.role = ""
        self.requests: list[tuple[str, str, str]] = []  # role, method and path
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        if self.role and "_lock-" not in environ["PATH_INFO"]:  # heartbeats take requests per second, not per shard
            self.requests.append((self.role, environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        return self.app(environ, start_response)

    @contextlib.contextmanager
    def as_role(self, role: str) -> Iterator[None]:
        previous, self.role = self.role, role
        try:
            yield
        finally:
            self.role = previous

    def count(self, role: str) -> int:
        return sum(request[0] == role for request in self.requests)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingServer]:
    """A server that splits the requests of the stage of embeddings into those of the driver and those of the worker."""
    counting = CountingServer()
    names = {"ENDPOINT_URL": counting.url, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "DEFAULT_REGION": "us-east-1"}
    for name, value in names.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    run_job, run_beam = job.run_job, pipeline.run_pipeline

    def run_counted(runs: Sequence[Any], options: Sequence[str]) -> Any:
        with counting.as_role("driver" if runs[0].stage.stage == EMBEDDINGS else ""):
            return run_job(runs, options)

    def run_beam_counted(*args: Any) -> None:
        with counting.as_role("worker" if counting.role else ""):
            run_beam(*args)

    monkeypatch.setattr(job, "run_job", run_counted)
    monkeypatch.setattr(pipeline, "run_pipeline", run_beam_counted)
    for name in ("POLL_SECONDS", "OBJECT_POLL_SECONDS"):
        monkeypatch.setattr(watch, name, 3600.0)
    fsspec.filesystem("s3").clear_instance_cache()
    yield counting
    counting.server.shutdown()
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


def test_a_shard_takes_one_request_of_the_driver_and_six_of_the_worker(server: CountingServer, tmp_path: Path) -> None:
    counts: dict[int, dict[str, int]] = {}
    for num_shards in (4, 14):
        server.requests.clear()
        output = embed_shards(tmp_path, num_shards)
        counts[num_shards] = {role: server.count(role) for role in ("driver", "worker")}
        server.requests.clear()
        embed_into(tmp_path, output, num_shards)
        assert server.count("worker") == 0
        counts[num_shards][RERUN] = server.count("driver")
        read = [path for _, method, path in server.requests if method == "GET" and path.endswith(".parquet")]
        assert read == [], "no shard is read to see that it has not changed"
    added = {role: (counts[14][role] - counts[4][role]) / 10 for role in counts[4]}
    assert added == {"driver": 1, "worker": 6, RERUN: 1}


def test_a_shard_that_changes_on_s3_is_found_and_written_again(server: CountingServer, tmp_path: Path) -> None:
    output = embed_shards(tmp_path, 3)
    fs, folder = storage.filesystem(f"{output}/embeddings")
    path = f"{folder}/{stages.shard_name(1, 3)}"
    data = bytearray(fs.cat_file(path))
    data[len(data) // 2] ^= 1  # of the same size
    fs.pipe_file(path, bytes(data))
    result = miner("verify", output)
    assert result.exit_code == 1
    assert f"{path}: " in result.output
    server.requests.clear()
    embed_into(tmp_path, output, 3)
    written = {path for role, method, path in server.requests if role == "worker" and method == "PUT" and path.endswith(".parquet")}
    assert written == {f"/{path}"}
    assert miner("verify", output).exit_code == 0


def test_a_stopped_stage_resumes_without_reading_what_is_finished(server: CountingServer, tmp_path: Path) -> None:
    output = embed_shards(tmp_path, 3)
    name = stages.shard_name(2, 3)
    for lost in (stages.MANIFEST, f"{stages.MARKERS}/{name}.json", name):
        storage.remove(f"{output}/embeddings/{lost}")
    server.requests.clear()
    embed_into(tmp_path, output, 3)
    shards = {(method, path.rpartition("/")[2]) for _, method, path in server.requests if path.endswith(".parquet")}
    assert shards == {("GET", name), ("PUT", name), ("HEAD", name)}, "the sentences are read, the embeddings written"
    assert miner("verify", output).exit_code == 0


def test_a_copied_shard_is_read_and_kept(server: CountingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy on another store has another etag, but the same checksum."""
    output = embed_shards(tmp_path, 2)
    fs, folder = storage.filesystem(f"{output}/embeddings")
    for name in fs.ls(f"{folder}/_shards", detail=False):
        values = {**storage.read_json(f"s3://{name}"), "version": "1 other"}
        del values["xxh3"]
        storage.write_json(f"s3://{name}", values)
    server.requests.clear()
    monkeypatch.setattr(storage, "_checksums", {})  # as in another process
    embed_into(tmp_path, output, 2)
    assert server.count("worker") == 0
    read = {path for _, method, path in server.requests if method == "GET" and path.endswith(".parquet")}
    assert read == {f"/{folder}/{stages.shard_name(index, 2)}" for index in range(2)}


@pytest.mark.parametrize("num_rows", [1000, 2_500_000], ids=["read at once", "read by blocks"])
@pytest.mark.usefixtures("server")
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
