"""Encoders by URI: copied once per host, checked, copied again when they change or are damaged."""

import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from command import error_of, miner
from tiny import save_transformer

from miner.config.commands import EncoderSettings
from miner.encoders import identify, load_encoder, publish, transformer_parts
from miner.encoders.pair import write as write_pair
from miner.errors import ConfigError, MinerError, ModelError
from miner.io import records

TEXTS = ["one two", "trois"]


class Handler(SimpleHTTPRequestHandler):
    """Serve a folder, count the requests, and cut the first ones of some files."""

    requests: Counter[str]
    failing: Counter[str]

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.requests[name] += 1
        if self.failing[name] > 0:
            self.failing[name] -= 1
            self.close_connection = True
            return
        super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(toy_encoder: Path, tmp_path: Path) -> Iterator[tuple[str, Path, type[Handler]]]:
    """Return the URL of a copy of the toy encoder on a web server, its folder there, and the handler."""
    folder = tmp_path / "www/toy"
    publish.copy_encoder(str(toy_encoder), str(folder))
    handler = type("OneHandler", (Handler,), {"requests": Counter(), "failing": Counter()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(tmp_path / "www")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/toy", folder, handler
    server.shutdown()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/encoders"


@pytest.fixture
def bucket() -> Iterator[str]:
    yield "memory://encoders/toy"
    fsspec.filesystem("memory").store.clear()


def vectors(name: str) -> np.ndarray:
    return load_encoder(name).encode(TEXTS)


def test_processes_of_a_host_copy_an_encoder_once(served: Any, toy_encoder: Path, cache: Path) -> None:
    url, _, handler = served
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(each, vectors(str(toy_encoder))) for each in pool.map(vectors, [url] * 4))
    assert handler.requests["vectors.safetensors"] == 1
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 1


def test_lost_connections_are_retried(served: Any, toy_encoder: Path) -> None:
    url, _, handler = served
    handler.failing.update({"checksums.json": 1, "vectors.safetensors": 2})
    assert np.array_equal(vectors(url), vectors(str(toy_encoder)))
    assert handler.requests["vectors.safetensors"] == 3


def test_an_encoder_that_changes_at_its_uri_is_copied_again(bucket: str, toy_encoder: Path, tmp_path: Path, cache: Path) -> None:
    publish.copy_encoder(str(toy_encoder), bucket)
    first = load_encoder(bucket).fingerprint
    fs = fsspec.filesystem("memory")
    other = tmp_path / "other"
    shutil.copytree(toy_encoder, other)
    (other / "checksums.json").unlink()
    (other / "miner.json").write_text((toy_encoder / "miner.json").read_text() + " ")
    fs.rm(bucket, recursive=True)
    publish.copy_encoder(str(other), bucket)
    assert load_encoder(bucket).fingerprint == first  # the mapping is the same, the files are not
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 2


def test_a_damaged_copy_is_replaced(bucket: str, toy_encoder: Path, cache: Path) -> None:
    publish.copy_encoder(str(toy_encoder), bucket)
    vectors(bucket)
    (file,) = cache.glob("*/vectors.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert np.array_equal(vectors(bucket), vectors(str(toy_encoder)))


def test_errors_name_the_uri(served: Any, bucket: str, toy_encoder: Path) -> None:
    url, folder, _ = served
    publish.copy_encoder(str(toy_encoder), bucket)
    fsspec.filesystem("memory").pipe_file(f"{bucket}/vectors.safetensors", b"other")
    with pytest.raises(ModelError, match=r"^memory://encoders/toy/vectors.safetensors: is not what checksums.json lists; copy"):
        load_encoder(bucket)
    with pytest.raises(ModelError, match=r"^memory://encoders/none: no such encoder folder; check the address"):
        load_encoder("memory://encoders/none")
    with pytest.raises(ModelError, match=r"^nowhere://encoders/toy: Protocol not known: nowhere; check"):
        load_encoder("nowhere://encoders/toy")
    (folder / "checksums.json").unlink()
    with pytest.raises(ModelError, match=rf"^{url}: no checksums.json, which lists the files on a web server; `miner fetch"):
        load_encoder(url)


def test_a_list_of_files_outside_the_folder_is_refused(served: Any) -> None:
    url, folder, _ = served
    files = records.read(str(folder / "checksums.json"), dict)["files"]
    records.write(str(folder / "checksums.json"), {"files": {f"../{name}": checksum for name, checksum in files.items()}})
    with pytest.raises(ModelError, match=r"'\.\./\S+' is not a file in"):
        load_encoder(url)


def test_fetch_copies_an_encoder_with_its_checksums(toy_encoder: Path, tmp_path: Path) -> None:
    for _ in range(2):  # the second run finds the copy complete
        miner("fetch", str(toy_encoder), "--output", str(tmp_path / "copy"))
        assert np.array_equal(vectors(str(tmp_path / "copy")), vectors(str(toy_encoder)))
        assert (tmp_path / "copy/checksums.json").exists()
        assert not (tmp_path / "copy/checksums.started.json").exists()
    assert error_of("fetch", "builtin", "--output", str(tmp_path / "copy")).endswith(
        "contains another encoder; choose another --output, new or empty"
    )
    (tmp_path / "copy/mine.txt").write_text("mine")
    assert "contains mine.txt; choose another --output" in error_of("fetch", str(toy_encoder), "--output", str(tmp_path / "copy"))


@pytest.mark.parametrize("moment", range(9))
def test_a_stopped_fetch_is_completed(moment: int, toy_encoder: Path, tmp_path: Path) -> None:
    """A process that writes COPIED_BYTES or a record ends itself at its `moment`th such write, as if it was killed."""
    program = f"""
import os, sys
from miner.encoders import publish
from miner.io import records, storage
writes = iter(range(100))
def stop(function):
    def run(*arguments):
        if next(writes) == {moment}:
            os._exit(9)
        return function(*arguments)
    return run
publish.COPIED_BYTES = 1 << 12
publish.shutil.copyfileobj = lambda source, copy, size: [write(copy, block) for block in iter(lambda: source.read(size), b"")]
write = stop(lambda copy, block: copy.write(block))
records.write, storage.remove = stop(records.write), stop(storage.remove)
publish.copy_encoder(sys.argv[1], sys.argv[2])
"""
    killed = subprocess.run([sys.executable, "-c", program, str(toy_encoder), str(tmp_path / "copy")], check=False)
    assert killed.returncode in (0, 9)
    if killed.returncode:
        with pytest.raises(MinerError):
            load_encoder(str(tmp_path / "copy"))
    publish.copy_encoder(str(toy_encoder), str(tmp_path / "copy"))
    copied = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    assert {name: copied.pop(name) for name in ("checksums.json",)}
    assert copied == {path.name: path.read_bytes() for path in toy_encoder.iterdir() if path.name != "checksums.json"}


def test_fetches_at_once_give_one_copy(toy_encoder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "miner", "fetch", "OF", "--output", str(tmp_path / "copy")]
    encoders = [str(toy_encoder), "builtin", str(toy_encoder)]
    processes = [subprocess.Popen([*command[:4], name, *command[5:]], stderr=subprocess.PIPE, text=True) for name in encoders]
    errors = [process.communicate()[1] for process in processes]
    assert 0 in [process.returncode for process in processes]
    refusals = ("held by", "another run starts there", "choose another --output")
    for process, error in zip(processes, errors, strict=True):
        assert process.returncode == 0 or any(refusal in error for refusal in refusals), error
    found = load_encoder(str(tmp_path / "copy")).fingerprint
    assert found in {load_encoder(name).fingerprint for name in encoders}


def test_readers_wait_for_the_end_of_a_copy(bucket: str, toy_encoder: Path) -> None:
    publish.copy_encoder(str(toy_encoder), bucket)
    records.write(f"{bucket}/checksums.started.json", {"files": {}})
    with pytest.raises(ModelError, match=r"toy: a copy of an encoder that is not complete; wait for `miner fetch`, or run it again"):
        load_encoder(bucket)
    publish.copy_encoder(str(toy_encoder), bucket)
    assert np.array_equal(vectors(bucket), vectors(str(toy_encoder)))


def test_verify_reports_a_copy_that_is_not_complete(toy_encoder: Path, tmp_path: Path) -> None:
    publish.copy_encoder(str(toy_encoder), str(tmp_path / "copy"))
    (tmp_path / "copy/checksums.json").rename(tmp_path / "copy/checksums.started.json")
    result = miner("verify", tmp_path / "copy")
    assert result.exit_code == 1
    assert "a copy of an encoder that is not complete" in result.stdout


def test_fetch_follows_no_links_out_of_the_encoder_or_the_output(toy_encoder: Path, tmp_path: Path) -> None:
    linked = shutil.copytree(toy_encoder, tmp_path / "linked")
    (tmp_path / "secret").write_text("secret")
    (linked / "notes.txt").symlink_to(tmp_path / "secret")
    assert "notes.txt: a link to a file outside the encoder" in error_of("fetch", str(linked), "--output", str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()
    assert f"inside the encoder {toy_encoder}" in error_of("fetch", str(toy_encoder), "--output", str(toy_encoder / "copy"))
    publish.copy_encoder(str(toy_encoder), str(tmp_path / "copy"))
    (tmp_path / "copy/miner.json").unlink()
    (tmp_path / "copy/miner.json").symlink_to(tmp_path / "secret")
    assert "miner.json: a link out of this output; remove it" in error_of("fetch", str(toy_encoder), "--output", str(tmp_path / "copy"))
    assert (tmp_path / "secret").read_text() == "secret"
    (tmp_path / "copy/miner.json").unlink()
    publish.copy_encoder(str(toy_encoder), str(tmp_path / "copy"))
    assert (tmp_path / "copy/miner.json").read_bytes() == (toy_encoder / "miner.json").read_bytes()


@pytest.mark.parametrize(
    ("name", "message"), [("/", "so not an encoder; check the path"), ("", "no encoder is named"), (" ", "no encoder is named")]
)
def test_names_of_no_encoder_are_one_line(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_encoder(name)


def test_the_identity_of_an_encoder_is_known_without_loading_it(toy_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = save_transformer(tmp_path / "plain")
    for side in ("source", "target"):
        save_transformer(tmp_path / "pair" / side, seed=len(side))
    write_pair(tmp_path / "pair", 32, {"source": [], "target": []})
    cases = [
        EncoderSettings(encoder=str(toy_encoder)),
        EncoderSettings(encoder=str(plain), pooling="mean", dtype="float32"),
        EncoderSettings(encoder=str(plain), pooling="cls", max_tokens=7, dtype="float32"),
        EncoderSettings(encoder=str(tmp_path / "pair"), pooling="mean", side="source", dtype="float32"),
    ]
    loaded = [load_encoder(each.encoder, each) for each in cases]
    monkeypatch.setattr(transformer_parts, "load_model", None)
    identities = [identify(each.model_copy(update={"device": "cuda"})) for each in cases]
    assert [(each.fingerprint, each.dim) for each in identities] == [(each.fingerprint, each.dim) for each in loaded]
    assert [each.kind for each in identities] == ["static", "transformer", "transformer", "pair"]
    with pytest.raises(ConfigError, match="unknown device 'gpu'"):
        identify(EncoderSettings(encoder=str(toy_encoder), device="gpu"))
    with pytest.raises(ConfigError, match="specifies no pooling"):
        identify(EncoderSettings(encoder=str(plain)))
