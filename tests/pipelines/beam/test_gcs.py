"""Outputs on GCS, by an emulator on this machine: the bytes of a local run, and few requests."""

import contextlib
import importlib.util
import io
import logging
import re
import threading
import uuid
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
import pytest
from command import miner

from miner import lock, stages, storage
from miner.config.commands import EmbedConfig
from miner.errors import StorageError
from pipelines.beam import watch
from pipelines.corpus import embed

PACKAGES = ("gcsfs", "gcp_storage_emulator")
missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason="pip install gcsfs gcp-storage-emulator")
SHARDS = 3
READ, WRITE = "GET /download/", "POST /upload/"


class Emulator:
    """An emulator of GCS that records its requests, except those of locks, which are per second."""

    def __init__(self) -> None:
        from gcp_storage_emulator.server import RequestHandler
        from gcp_storage_emulator.storage import Storage

        requests: list[str] = []

        class Handler(RequestHandler):  # type: ignore[misc]
            def parse_request(self) -> bool:
                if not super().parse_request():
                    return False
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                self.rfile = io.BytesIO(body)
                name = re.search(rb'"name": "(.*?)"', body[:1000])  # of an object that is uploaded by one request
                request = f"{self.command} {unquote(self.path)} {name[1].decode() if name else ''}"
                if "_lock-" not in request:
                    requests.append(request)
                return True

        self.requests, self.bucket = requests, f"bucket-{uuid.uuid4().hex}"
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, Storage(use_memory_fs=True)))
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def embeddings(self, action: str) -> set[str]:
        """Return the names of the shards of embeddings that were read or written."""
        urls = "\n".join(request for request in self.requests if request.startswith(action))
        return set(re.findall(r"/embeddings/(part-[0-9of-]+\.parquet)", urls))


def create_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the emulator refuse to create an object that exists, as GCS does."""
    from gcp_storage_emulator.exceptions import NotFound
    from gcp_storage_emulator.handlers import objects

    upload, creating = objects._multipart_upload, threading.Lock()

    def upload_once(request: Any, response: Any, objects_: Any) -> None:
        with creating:
            if request.query.get("ifGenerationMatch") == ["0"]:
                with contextlib.suppress(NotFound):
                    objects_.get_file_obj(request.params["bucket_name"], request.data["meta"]["name"])
                    response.status = HTTPStatus.PRECONDITION_FAILED
                    return
            upload(request, response, objects_)

    monkeypatch.setattr(objects, "_multipart_upload", upload_once)


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    create_once(monkeypatch)
    started = Emulator()
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # by gRPC, which the emulator does not answer
    monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon", "endpoint_url": f"http://127.0.0.1:{started.server.server_port}"})
    for name in ("POLL_SECONDS", "OBJECT_POLL_SECONDS"):
        monkeypatch.setattr(watch, name, 3600.0)
    fsspec.filesystem("gs").clear_instance_cache()
    yield started
    fsspec.filesystem("gs").clear_instance_cache()
    started.server.shutdown()


@pytest.fixture
def bucket(emulator: Emulator) -> str:
    fsspec.filesystem("gs").mkdir(emulator.bucket)
    return f"gs://{emulator.bucket}"


def embed_into(folder: Path, output: str) -> None:
    """Embed a text into shards."""
    text = folder / "text.txt"
    text.write_text("".join(f"sentence {number} of this text\n" for number in range(300)))
    embed.run(EmbedConfig(inputs=[str(text)], output=output, lang="en", shards=SHARDS))


def tables(output: str) -> dict[str, bytes]:
    """Return the content of every table of an output, by name."""
    names = [name for name in storage.files_below(output) if name.endswith(".parquet")]
    return {name: storage.read_bytes(f"{output}/{name}") for name in names}


def test_embeddings_on_gcs_are_those_of_a_disk_and_no_shard_is_read_again(emulator: Emulator, bucket: str, tmp_path: Path) -> None:
    embed_into(tmp_path, str(tmp_path / "out"))
    embed_into(tmp_path, f"{bucket}/out")
    expected = tables(str(tmp_path / "out"))
    assert len(expected) == 2 * SHARDS
    assert tables(f"{bucket}/out") == expected
    emulator.requests.clear()
    embed_into(tmp_path, f"{bucket}/out")
    assert (emulator.embeddings(READ), emulator.embeddings(WRITE)) == (set(), set())
    assert miner("verify", f"{bucket}/out").exit_code == 0


def test_a_shard_that_changes_on_gcs_is_found_and_written_again(emulator: Emulator, bucket: str, tmp_path: Path) -> None:
    output, name = f"{bucket}/out", stages.shard_name(1, SHARDS)
    embed_into(tmp_path, output)
    expected = tables(output)
    fs, path = storage.filesystem(f"{output}/embeddings/{name}")
    data = bytearray(fs.cat_file(path))
    data[len(data) // 2] ^= 1  # of the same size
    fs.pipe_file(path, bytes(data))
    result = miner("verify", output)
    assert (result.exit_code, f"{path}: " in result.output) == (1, True)
    emulator.requests.clear()
    embed_into(tmp_path, output)
    assert emulator.embeddings(WRITE) == {name}
    assert tables(output) == expected


@pytest.mark.parametrize(("num_blocks", "num_requests"), [(1, 1), (6, 3)], ids=["one request", "blocks"])
def test_an_upload_needs_no_request_for_its_version(emulator: Emulator, bucket: str, num_blocks: int, num_requests: int) -> None:
    block = bytes(range(256)) * 40960  # 10 MB
    emulator.requests.clear()
    with storage.atomic(f"{bucket}/whole") as handle:
        for _ in range(num_blocks):
            handle.write(block)
    state = storage.describe(f"{bucket}/whole")
    assert [request[: len(WRITE)] for request in emulator.requests] == [WRITE] * num_requests
    assert storage.read_bytes(f"{bucket}/whole") == block * num_blocks
    assert storage.versions(bucket) == {"whole": state.version}


def test_an_object_whose_block_raises_does_not_appear(bucket: str) -> None:
    with contextlib.suppress(ZeroDivisionError), storage.atomic(f"{bucket}/whole") as handle:
        handle.write(b"some bytes")
        assert not storage.exists(f"{bucket}/whole")
        raise ZeroDivisionError
    assert not storage.exists(f"{bucket}/whole")


def test_files_that_do_not_exist_are_removed_without_an_error(bucket: str) -> None:
    storage.write_json(f"{bucket}/first", 1)
    storage.remove_files([f"{bucket}/first", f"{bucket}/second"])
    storage.remove_files([f"{bucket}/first", f"{bucket}/second"])
    assert storage.names_in(bucket) == []


def test_one_run_at_a_time_holds_a_folder_on_gcs(bucket: str) -> None:
    with lock.hold(f"{bucket}/held"), pytest.raises(StorageError, match="held by"), lock.hold(f"{bucket}/held"):
        pass
    assert storage.create_json(f"{bucket}/created", 1)
    assert not storage.create_json(f"{bucket}/created", 2)
    assert storage.read_json(f"{bucket}/created") == 1


def test_a_text_that_is_not_on_gcs_is_one_line(bucket: str, tmp_path: Path) -> None:
    for uri in (f"{bucket}/missing.txt", "gs://no-such-bucket/missing.txt"):
        result = miner("embed", uri, "--output", tmp_path / "out")
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert result.stderr.startswith(f"miner: error: {uri}: no such file")
