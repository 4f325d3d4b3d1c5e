"""The number of requests to S3, counted by its server: few per shard, and none for the content of a shard that has not changed."""

import posixpath
import re
import uuid
from collections import Counter
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

from miner.config.commands import EmbedConfig, MineConfig
from miner.errors import StorageError
from miner.io import records, stages, storage, table_files
from miner.io.stages import Stage
from pipelines.beam import beam_job, reporting, runner
from pipelines.corpus import embed
from pipelines.mining import mine
from pipelines.mining.candidates import MiningLimits

RERUN = "rerun"
SHARD = re.compile(r"/(part|block)-[\d-]+(of-\d+)?\.\w+$")
EVERY_STEP_A_JOB = MiningLimits(in_process_rows=0)


@pytest.fixture(scope="module", params=["s3"])
def recording(request: pytest.FixtureRequest) -> Iterator[tuple[ObjectServer, RequestLog]]:
    log = RequestLog()
    started = object_servers.serve(request.param, log)
    yield started, log
    started.stop()


@pytest.fixture
def log(recording: tuple[ObjectServer, RequestLog], monkeypatch: pytest.MonkeyPatch) -> Iterator[RequestLog]:
    """The requests of the stages after the sentences, those of the driver and those of the worker."""
    server, requests = recording
    monkeypatch.setitem(fsspec.config.conf, server.protocol, server.options)
    run_job, run_beam = runner.run_job, beam_job.run_pipeline

    def run_counted(runs: Sequence[Any], *args: Any) -> Any:
        with requests.as_role("" if runs[0].stage.stage in ("ranges", "sentences") else "driver"):
            return run_job(runs, *args)

    def run_beam_counted(*args: Any) -> None:
        with requests.as_role("worker" if requests.role else ""):
            run_beam(*args)

    monkeypatch.setattr(runner, "run_job", run_counted)
    monkeypatch.setattr(beam_job, "run_pipeline", run_beam_counted)
    for name in ("POLL_SECONDS", "OBJECT_POLL_SECONDS"):
        monkeypatch.setattr(reporting, name, 3600.0)
    fsspec.filesystem(server.protocol).clear_instance_cache()
    requests.requests.clear()
    yield requests
    fsspec.filesystem(server.protocol).clear_instance_cache()


def embed_shards(folder: Path, num_shards: int, protocol: str = "s3") -> str:
    """Embed a text into this number of shards, and return the output."""
    text, bucket = folder / "text.txt", f"bucket-{uuid.uuid4().hex}"
    text.write_text("".join(f"sentence {number} of this text\n" for number in range(300)))
    fsspec.filesystem(protocol).mkdir(bucket)
    embed_into(folder, f"{protocol}://{bucket}/out", num_shards)
    return f"{protocol}://{bucket}/out"


def embed_into(folder: Path, output: str, num_shards: int) -> None:
    embed.run(EmbedConfig(inputs=[str(folder / "text.txt")], output=output, lang="en", shards=num_shards))


def test_a_shard_takes_one_request_of_the_driver_and_five_of_the_worker(log: RequestLog, tmp_path: Path) -> None:
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
    assert added == {"driver": 1, "worker": 5, RERUN: 1}


@pytest.mark.slow
@pytest.mark.parametrize("recording", ["s3", "gs"], indirect=True)
def test_a_step_of_mining_takes_one_request_for_each_file_that_a_shard_needs(
    recording: tuple[ObjectServer, RequestLog], log: RequestLog, tmp_path: Path
) -> None:
    num_shards = 3
    sides = [embed_shards(tmp_path, num_shards, recording[0].protocol) for _ in range(2)]
    output = f"{sides[0].rpartition('/')[0]}/mined"
    log.requests.clear()
    with log.as_role("driver"):
        mine.run(MineConfig(source=sides[0], target=sides[1], output=output, engine="exact", threshold=1.0), limits=EVERY_STEP_A_JOB)
    worker, driver = ([request for request in log.requests if request.role == role] for role in ("worker", "driver"))
    shards = Counter(posixpath.dirname(request.path) for request in worker if request.operation == "PUT" and SHARD.search(request.path))
    assert {request.operation for request in worker} == {"GET", "PUT"}
    own = [request for request in worker if "/_" in request.path or request.operation == "PUT"]
    jobs = sum(request.path.endswith("_pending.pickle") for request in own)
    assert len(own) - jobs == 4 * shards.total(), "a look for a failure and for the marker, the shard, and its marker"
    reads = Counter(request.path for request in worker if request.operation == "GET" and SHARD.search(request.path))
    folders = {posixpath.basename(posixpath.dirname(path)): count for path, count in reads.items()}
    assert folders == {
        "embeddings": num_shards,
        "blocks": 2,  # by the merge of its sources and of its targets
        "forward": 2,  # by the edges and by the candidates
        "backward": 1,
        "forward-edges": num_shards,
        "merged-edges": 2 * num_shards,  # by the texts and by the rescored pairs
        "texts": num_shards,
        "sentences": 2,
        "rescored": num_shards,
        "candidates": 2,  # by the sample and by the scores
        "scored": num_shards,
        "selected": num_shards,
        "matched": num_shards,
        "target-texts": num_shards,
        "source-texts": 1,
    }
    read = [request.path for request in driver if request.operation == "GET" and SHARD.search(request.path)]
    assert len(read) == len(set(read)) > 0


def test_a_stopped_stage_resumes_without_reading_what_is_finished(log: RequestLog, tmp_path: Path) -> None:
    output = embed_shards(tmp_path, 3)
    name = stages.shard_name(2, 3)
    for lost in (stages.MANIFEST, f"{stages.MARKERS}/{name}.json", name):
        storage.remove(f"{output}/embeddings/{lost}")
    log.requests.clear()
    embed_into(tmp_path, output, 3)
    shards = {(method, path.rpartition("/")[2]) for _, method, path in log.requests if path.endswith(".parquet")}
    assert shards == {("GET", name), ("PUT", name)}, "the sentences are read, the embeddings written"
    assert miner("verify", output).exit_code == 0


def test_a_copied_shard_is_read_and_kept(log: RequestLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy on another store has another etag, but the same checksum."""
    output = embed_shards(tmp_path, 2)
    fs, folder = storage.filesystem(f"{output}/embeddings")
    for name in fs.ls(f"{folder}/_shards", detail=False):
        values = records.read(f"s3://{name}", dict)
        records.write(f"s3://{name}", {**values, "version": "1 other"})
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
    table_files.write_table(stage.path(name), table)
    stage.mark_done(name, num_rows, stage.key())
    stage.finish({name: stage.key()})
    for _ in range(2):
        assert table_files.read_table(stage.path(name)).equals(table)
    fs, path = storage.filesystem(stage.path(name))
    data = bytearray(fs.cat_file(path))
    data[len(data) // 2] ^= 1
    fs.pipe_file(path, bytes(data))
    for _ in range(2):
        with pytest.raises(StorageError, match="not a complete Parquet file"):
            table_files.read_table(stage.path(name))
    assert stage.find_shards({name: stage.key()}) == {}


def test_a_file_that_is_read_whole_takes_one_request_and_is_checked(log: RequestLog) -> None:
    bucket, data = f"bucket-{uuid.uuid4().hex}", bytes(range(256)) * 1000
    fsspec.filesystem("s3").mkdir(bucket)
    stage, name = Stage(f"s3://{bucket}/stage", "index", {}, {}), "part-00000-of-00001.faiss"
    stage.start()
    with storage.atomic(stage.path(name)) as handle:
        handle.write(data)
    stage.mark_done(name, 1, stage.key())
    (checksum,) = (shard.checksum for shard in stage.finish({name: stage.key()}).shards)
    log.requests.clear()
    with log.as_role("worker"):
        assert [storage.read_whole(stage.path(name), checksum) for _ in range(2)] == [data] * 2
    files = [posixpath.basename(path) for _, operation, path in log.requests if operation == "GET"]
    assert (files, len(log.requests)) == ([name, name], 2)
    fs, path = storage.filesystem(stage.path(name))
    fs.pipe_file(path, data[:-1] + b"\0")
    with pytest.raises(StorageError, match="changed since it was written"):
        storage.read_whole(stage.path(name), checksum)


def write_row_groups(uri: str, num_groups: int, num_rows: int) -> list[pa.Table]:
    rows = np.random.default_rng(0).integers(1 << 62, size=(num_groups, num_rows))
    tables = [pa.table({"id": group, "other": group[::-1]}) for group in rows]
    with table_files.parquet_writer(uri, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return tables


@pytest.mark.parametrize(("num_rows", "num_requests"), [(100, 1), (50_000, 2)], ids=["small file", "large file"])
def test_a_row_group_takes_few_requests_and_its_pages_are_checked(log: RequestLog, num_rows: int, num_requests: int) -> None:
    bucket = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem("s3").mkdir(bucket)
    uri = f"s3://{bucket}/t.parquet"
    tables = write_row_groups(uri, 3, num_rows)
    with log.as_role("worker"):
        assert table_files.read_row_group(uri, 1).equals(tables[1])
    assert [request.operation for request in log.requests] == ["GET"] * num_requests
    fs, path = storage.filesystem(uri)
    data = bytearray(fs.cat_file(path))
    data[len(data) // 2] ^= 1
    fs.pipe_file(path, bytes(data))
    with pytest.raises(StorageError, match=r"t\.parquet: not a complete Parquet file"):
        table_files.read_row_group(uri, 1)


def test_footers_take_a_request_each_unless_they_are_long(log: RequestLog) -> None:
    bucket = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem("s3").mkdir(bucket)
    uris = [f"s3://{bucket}/{num_groups}.parquet" for num_groups in (1, 2, 600)]
    for uri, num_groups in zip(uris, (1, 2, 600), strict=True):
        write_row_groups(uri, num_groups, 3)
    with log.as_role("driver"):
        assert [footer.num_row_groups for footer in table_files.read_footers(uris[:2])] == [1, 2]
    assert [request.operation for request in log.requests] == ["GET", "GET"]
    assert [footer.num_row_groups for footer in table_files.read_footers(uris)] == [1, 2, 600]
    with pytest.raises(StorageError, match="no such file"):
        table_files.read_footers([f"s3://{bucket}/missing.parquet"])
