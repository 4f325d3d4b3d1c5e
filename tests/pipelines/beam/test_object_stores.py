"""Inputs and outputs on GCS and S3, by servers of their protocols on this machine: the bytes of a local run, and few requests."""

import contextlib
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import job_servers
import object_servers
import pytest
from command import miner, output_of
from distributed import LocalCluster
from object_servers import ObjectServer, RequestLog

from miner.config.commands import EmbedConfig
from miner.errors import DamagedError, StorageError
from miner.io import lock, stages, storage
from pipelines.beam import reporting
from pipelines.corpus import embed

SHARDS = 3
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def log() -> RequestLog:
    return RequestLog(role="client")


@pytest.fixture(scope="module", params=["gs", "s3"])
def server(request: pytest.FixtureRequest, log: RequestLog) -> Iterator[ObjectServer]:
    started = object_servers.serve(request.param, log)
    yield started
    started.stop()


@pytest.fixture
def bucket(server: ObjectServer, log: RequestLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of this test alone."""
    monkeypatch.setitem(fsspec.config.conf, server.protocol, server.options)
    for name in ("POLL_SECONDS", "OBJECT_POLL_SECONDS"):
        monkeypatch.setattr(reporting, name, 3600.0)
    fsspec.filesystem(server.protocol).clear_instance_cache()
    name = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem(server.protocol).mkdir(name)
    log.requests.clear()
    yield f"{server.protocol}://{name}"
    fsspec.filesystem(server.protocol).clear_instance_cache()


def embeddings(log: RequestLog, operation: str) -> set[str]:
    """Return the names of the shards of embeddings that were read or written."""
    return set(re.findall(r"/embeddings/(part-[0-9of-]+\.parquet)$", "\n".join(log.paths(operation)), re.MULTILINE))


def embed_into(folder: Path, output: str) -> None:
    """Embed a text into shards."""
    text = folder / "text.txt"
    text.write_text("".join(f"sentence {number} of this text\n" for number in range(300)))
    embed.run(EmbedConfig(inputs=[str(text)], output=output, lang="en", shards=SHARDS))


def tables(output: str) -> dict[str, bytes]:
    """Return the content of every table of an output, by name."""
    names = [name for name in storage.files_below(output) if name.endswith(".parquet")]
    return {name: storage.read_bytes(f"{output}/{name}") for name in names}


def test_embeddings_on_a_store_are_those_of_a_disk_and_no_shard_is_read_again(log: RequestLog, bucket: str, tmp_path: Path) -> None:
    embed_into(tmp_path, str(tmp_path / "out"))
    embed_into(tmp_path, f"{bucket}/out")
    expected = tables(str(tmp_path / "out"))
    assert len(expected) == 2 * SHARDS
    assert tables(f"{bucket}/out") == expected
    log.requests.clear()
    embed_into(tmp_path, f"{bucket}/out")
    assert (embeddings(log, "GET"), embeddings(log, "PUT")) == (set(), set())
    assert miner("verify", f"{bucket}/out").exit_code == 0


def test_a_shard_that_changes_on_a_store_is_found_and_written_again(log: RequestLog, bucket: str, tmp_path: Path) -> None:
    output, name = f"{bucket}/out", stages.shard_name(1, SHARDS)
    embed_into(tmp_path, output)
    expected = tables(output)
    fs, path = storage.filesystem(f"{output}/embeddings/{name}")
    data = bytearray(fs.cat_file(path))
    data[len(data) // 2] ^= 1  # of the same size
    fs.pipe_file(path, bytes(data))
    result = miner("verify", output)
    assert (result.exit_code, f"{path}: " in result.output) == (1, True)
    log.requests.clear()
    embed_into(tmp_path, output)
    assert embeddings(log, "PUT") == {name}
    assert tables(output) == expected


@pytest.mark.parametrize("server", ["gs"], indirect=True)
@pytest.mark.parametrize(("num_blocks", "num_requests"), [(1, 1), (6, 3)], ids=["one request", "blocks"])
def test_an_upload_needs_no_request_for_its_version(log: RequestLog, bucket: str, num_blocks: int, num_requests: int) -> None:
    block = bytes(range(256)) * 40960  # 10 MB
    log.requests.clear()
    with storage.atomic(f"{bucket}/whole") as handle:
        for _ in range(num_blocks):
            handle.write(block)
    state = storage.describe(f"{bucket}/whole")
    assert [request.operation for request in log.requests] == ["PUT"] * num_requests
    assert storage.read_bytes(f"{bucket}/whole") == block * num_blocks
    assert storage.versions(bucket) == {"whole": state.version}


@pytest.mark.parametrize("num_bytes", [10, 60 << 20], ids=["one request", "parts"])
def test_an_object_appears_when_its_block_ends_and_not_if_it_raises(bucket: str, num_bytes: int) -> None:
    with contextlib.suppress(ZeroDivisionError), storage.atomic(f"{bucket}/whole") as handle:
        handle.write(bytes(num_bytes))
        assert not storage.exists(f"{bucket}/whole")
        raise ZeroDivisionError
    assert not storage.exists(f"{bucket}/whole")
    with storage.atomic(f"{bucket}/whole") as handle:
        handle.write(bytes(num_bytes))
        assert not storage.exists(f"{bucket}/whole")
    assert storage.sizes(bucket) == {"whole": num_bytes}


def test_an_empty_object_has_no_bytes_in_any_range(bucket: str) -> None:
    """Stores answer with an error (416) to a range of an object that has no byte there, such as a marker that was cut to nothing."""
    for name, content in (("empty", b""), ("small", b"abc")):
        fs, path = storage.filesystem(f"{bucket}/{name}")
        fs.pipe_file(path, content)
    uris = [f"{bucket}/{name}" for name in ("empty", "small", "missing")]
    assert storage.read_bytes(uris[0]) == b""
    assert storage.read_parts(uris, 0, 100) == [b"", b"abc", None]
    assert (storage.read_range(uris[1], 1, 9), storage.read_range(uris[1], 5, 9)) == (b"bc", b"")
    with pytest.raises(DamagedError, match="empty: not JSON"):
        storage.read_json(uris[0])


def test_files_that_do_not_exist_are_removed_without_an_error(bucket: str) -> None:
    storage.write_json(f"{bucket}/first", 1)
    storage.remove_files([f"{bucket}/first", f"{bucket}/second"])
    storage.remove_files([f"{bucket}/first", f"{bucket}/second"])
    assert storage.names_in(bucket) == []


def test_one_run_at_a_time_holds_a_folder(bucket: str) -> None:
    with lock.hold(f"{bucket}/held"), pytest.raises(StorageError, match="held by"), lock.hold(f"{bucket}/held"):
        pass
    assert storage.create_json(f"{bucket}/created", 1)
    assert not storage.create_json(f"{bucket}/created", 2)
    assert storage.read_json(f"{bucket}/created") == 1


def test_a_text_that_is_not_on_a_store_is_one_line(server: ObjectServer, bucket: str, tmp_path: Path) -> None:
    for uri in (f"{bucket}/missing.txt", f"{server.protocol}://no-such-bucket/missing.txt"):
        result = miner("embed", uri, "--output", tmp_path / "out")
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert result.stderr.startswith(f"miner: error: {uri}: no such file")
        assert not (tmp_path / "out").exists()


@contextlib.contextmanager
def start_dask() -> Iterator[list[str]]:
    """Start a Dask cluster of two worker processes; yield the options that select it."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, protocol="tcp://", dashboard_address=None) as started:
        yield ["--runner=DaskRunner", f"--dask_client_address={started.scheduler_address}"]


@pytest.fixture(params=[start_dask, job_servers.serve], ids=["Dask", "job service"])
def cluster(request: pytest.FixtureRequest, server: ObjectServer, log: RequestLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The options that select a cluster of worker processes, whose requests have the role of a worker."""
    server_of_workers = object_servers.serve(server.protocol, log, role="worker")
    for name, value in {**server_of_workers.environment, "PYTHONPATH": str(EXAMPLES.parent)}.items():
        monkeypatch.setenv(name, value)
    with request.param() as options:
        yield options
    server_of_workers.stop()


def mine_examples(bucket: str, output: str, *beam_options: str) -> dict[str, bytes]:
    """Mine the texts in a bucket. Return the bitext."""
    languages = ("--source-lang", "en", "--target-lang", "de")
    settings = ("--shards", SHARDS, "--engine", "exact", "--threshold", 1.05, *languages)
    output_of("mine", f"{bucket}/en.txt", f"{bucket}/de.txt", "--output", output, *settings, "--", *beam_options)
    return {name: storage.read_bytes(f"{output}/{name}") for name in ("bitext.parquet", "bitext.tsv.gz")}


@pytest.mark.slow
@pytest.mark.parametrize("server", ["gs", "s3"], indirect=True)
def test_a_cluster_that_writes_to_a_bucket_gives_the_bitext_of_a_local_run(
    log: RequestLog, bucket: str, cluster: list[str], tmp_path: Path
) -> None:
    for lang in ("en", "de"):
        lines = (EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()[:200]
        with storage.atomic(f"{bucket}/{lang}.txt") as handle:
            handle.write("\n".join(lines).encode())
    expected = mine_examples(bucket, str(tmp_path / "out"))
    log.requests.clear()
    assert mine_examples(bucket, f"{bucket}/out", *cluster) == expected
    embedded = [request.role for request in log.requests if request.operation == "PUT" and "/embeddings/part-" in request.path]
    assert embedded == ["worker"] * 2 * SHARDS
    assert miner("verify", f"{bucket}/out").exit_code == 0
