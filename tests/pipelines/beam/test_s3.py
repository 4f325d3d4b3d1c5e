"""Inputs and outputs on S3: servers of its protocol on this machine, moto and the one of `make clusters`, which also lose connections."""

import contextlib
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
import pytest
from botocore.exceptions import ClientError
from command import error_of, output_of
from moto.server import ThreadedMotoServer
from s3fs.errors import translate_boto_error
from scripts import load_script

from miner.errors import StorageError
from miner.io import lock, storage
from miner.io.object_stores import is_outage
from miner.text import readers
from miner.text.readers import InputState

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module", params=["moto", pytest.param("versitygw", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Host and port."""
    if request.param == "moto":
        started = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        started.start()
        yield started.get_host_and_port()
        started.stop()
        return
    clusters = load_script("clusters", ROOT / "deploy" / "clusters")
    if not clusters.is_fetched("s3", clusters.FOLDER):
        pytest.skip("the server is not fetched; `make clusters` does it")
    folder = tmp_path_factory.mktemp("s3")
    (folder / "versitygw").symlink_to(clusters.FOLDER / "versitygw")
    try:
        address = urlsplit(clusters.start("s3", folder).splitlines()[0].partition("=")[2])
        yield address.hostname, address.port
    finally:
        clusters.stop("s3", folder)


class Proxy:
    """Passes bytes on to the server; after a number of packets, the connection is cut instead."""

    def __init__(self, server: tuple[str, int], every: int) -> None:
        self.server, self.every, self.count, self.cut = server, every, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.listen, daemon=True).start()

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.listener.getsockname())

    def listen(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        upstream = socket.create_connection(self.server)
        threading.Thread(target=self.copy, args=(upstream, client, False), daemon=True).start()
        self.copy(client, upstream, True)

    def fails(self) -> bool:
        self.count += 1
        fails = self.every > 0 and self.count % self.every == 0
        self.cut += fails
        return fails

    def copy(self, source: socket.socket, sink: socket.socket, requests: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if requests and self.fails():
                    break
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def bucket(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Proxy]]:
    """A bucket of this test alone, and the way to it."""
    proxy = Proxy(server, 0)
    for name, value in {
        "ENDPOINT_URL": proxy.url,
        "ACCESS_KEY_ID": "miner",
        "SECRET_ACCESS_KEY": "miner-secret",
        "DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fsspec.filesystem("s3").clear_instance_cache()
    name = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem("s3").mkdir(name)
    yield f"s3://{name}", proxy
    proxy.listener.close()
    fsspec.filesystem("s3").clear_instance_cache()


def put_texts(uri: str, rows: int = 60) -> list[str]:
    """Real sentences in English and German."""
    for lang in ("en", "de"):
        lines = (EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()[:rows]
        with fsspec.open(f"{uri}/{lang}.txt", "w", encoding="utf-8") as handle:
            handle.write("\n".join(lines))
    return [f"{uri}/en.txt", f"{uri}/de.txt"]


def mined(sides: list[str], output: str) -> dict[str, bytes]:
    options = ("--engine", "exact", "--threshold", 1.05, "--source-lang", "en", "--target-lang", "de")
    output_of("mine", *sides, "--output", output, *options)
    fs, path = storage.filesystem(output)
    return {name: fs.cat_file(f"{path}/{name}") for name in ("bitext.tsv.gz", "bitext.parquet")}


@pytest.mark.slow
def test_a_bitext_on_s3_is_that_of_a_disk_though_connections_are_lost(bucket: tuple[str, Proxy], tmp_path: Path) -> None:
    uri, proxy = bucket
    sides = put_texts(uri)
    expected = mined(sides, str(tmp_path / "out"))
    proxy.every = 90
    assert mined([sides[0], str(tmp_path / "out/target")], f"{uri}/out") == expected
    assert proxy.cut > 3
    proxy.every = 0
    assert [name for name in storage.files_below(f"{uri}/out") if name.endswith(".tmp") or lock.PREFIX in name] == []
    output_of("verify", f"{uri}/out")


def test_of_runs_that_start_at_once_one_holds_a_folder(bucket: tuple[str, Proxy]) -> None:
    uri = f"{bucket[0]}/held"
    start, let_go, got, refused = threading.Barrier(6), threading.Event(), [], []

    def attempt() -> None:
        start.wait()
        try:
            with lock.hold(uri):
                got.append(1)
                let_go.wait()
        except StorageError as error:
            refused.append(str(error))
            if len(refused) == 5:
                let_go.set()

    threads = [threading.Thread(target=attempt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (len(got), len(refused)) == (1, 5)


def test_the_signature_of_a_text_is_the_checksum_of_its_file_system(bucket: tuple[str, Proxy]) -> None:
    (uri, _) = put_texts(bucket[0])
    fs, path = storage.filesystem(uri)
    assert readers.input_state(uri) == InputState(str(fs.checksum(path)), fs.size(path))


@pytest.mark.slow
def test_a_server_that_is_down_for_a_while_is_waited_for(bucket: tuple[str, Proxy], caplog: pytest.LogCaptureFixture) -> None:
    """Botocore and s3fs alone give up after a few seconds."""
    uri, proxy = bucket
    storage.write_json(f"{uri}/a.json", [1])
    address = proxy.listener.getsockname()
    proxy.listener.shutdown(socket.SHUT_RDWR)
    proxy.listener.close()

    def restart() -> None:
        time.sleep(30)
        proxy.listener = socket.create_server(address)
        proxy.listen()

    start = time.monotonic()
    threading.Thread(target=restart, daemon=True).start()
    assert storage.read_json(f"{uri}/a.json") == [1]
    assert time.monotonic() - start > 29
    assert "repeated for up to 120 s" in caplog.text


@pytest.mark.slow
def test_the_message_says_how_long_an_object_store_was_asked(bucket: tuple[str, Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINER_RETRY_SECONDS", "4")
    uri, proxy = bucket
    proxy.listener.shutdown(socket.SHUT_RDWR)
    proxy.listener.close()
    start = time.monotonic()
    with pytest.raises(StorageError, match=r"Could not connect .*; check the address and the credentials, .* \(tried for [0-9]+ s\)"):
        storage.read_json(f"{uri}/a.json")
    assert 4 < time.monotonic() - start < 60
    monkeypatch.setenv("MINER_RETRY_SECONDS", "soon")
    assert "MINER_RETRY_SECONDS=soon: not a number of seconds" in error_of("verify", f"{uri}/out")


@pytest.mark.parametrize(
    ("code", "status", "repeated"),
    [("InternalError", 500, True), ("ServiceUnavailable", 503, True), ("SlowDown", 503, True), ("AccessDenied", 403, False)],
)
def test_only_answers_of_a_busy_store_are_repeated(code: str, status: int, repeated: bool) -> None:
    error = ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "GetObject")
    with pytest.raises(StorageError) as raised, storage.storage_errors("s3://bucket/a"):
        raise translate_boto_error(error)
    assert is_outage(raised.value) == repeated
