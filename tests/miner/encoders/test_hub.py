"""Models by hub id, from a hub that this test serves itself."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import constants
from tokenizers import Tokenizer, models

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.errors import ModelError

COMMIT = "0123456789" * 4


def save_model(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "a": 1, "b": 2}, unk_token="a"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>").save_pretrained(folder)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 8}
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(vocab_size=3, **size)).save_pretrained(folder)


class Hub(ThreadingHTTPServer):
    """Serves the models under `root`, by name and file, and remembers what was asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.root = root
        self.asked: list[str] = []


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/")
        self.server.asked.append(path)
        name, _, file = path.partition(f"/resolve/{COMMIT}/")
        if file:
            self.send((self.server.root / name / file).read_bytes())
        elif (self.server.root / (name := path.removeprefix("api/models/").removesuffix("/revision/main"))).is_dir():
            self.send(json.dumps({"id": name, "sha": COMMIT}).encode())
        elif (folder := self.server.root / path.removeprefix("api/models/").removesuffix(f"/tree/{COMMIT}")).is_dir():
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            entries = [(str(file.relative_to(folder)), file.stat().st_size) for file in files]
            self.send(json.dumps([{"type": "file", "path": path, "size": size, "oid": path} for path, size in entries]).encode())
        else:
            self.send(b"{}", 404, {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815 (the server calls it so)

    def send(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        sent = {"Content-Length": str(len(body)), "ETag": f'"{hash(body)}"', "X-Repo-Commit": COMMIT, **(headers or {})}
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    save_model(tmp_path / "hub" / "someone" / "model")
    hub = Hub(tmp_path / "hub")
    address = f"http://127.0.0.1:{hub.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True).start()
    yield hub
    hub.shutdown()
    hub.server_close()


SETTINGS = EncoderSettings(pooling="mean", device="cpu")


def test_a_model_is_fetched_once_and_then_found_without_the_hub(served: Hub) -> None:
    folder = served.root / "someone" / "model"
    (folder / "pytorch_model.bin").write_bytes(b"not wanted where there are safetensors")
    (folder / "onnx").mkdir()
    shutil.copy(folder / "config.json", folder / "onnx" / "config.json")
    local = load_encoder(str(folder), SETTINGS)
    fetched = load_encoder("someone/model", SETTINGS)
    np.testing.assert_array_equal(fetched.encode(["a", "b b"]), local.encode(["a", "b b"]))
    assert fetched.fingerprint == local.fingerprint
    assert not any("pytorch_model" in path or "onnx" in path for path in served.asked)
    served.shutdown()
    served.server_close()
    assert load_encoder("someone/model", SETTINGS).fingerprint == local.fingerprint


def test_pickled_weights_are_fetched_where_there_are_no_others(served: Hub) -> None:
    folder = served.root / "someone" / "model"
    local = load_encoder(str(folder), SETTINGS)
    torch.save(transformers.AutoModel.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    np.testing.assert_array_equal(load_encoder("someone/model", SETTINGS).encode(["a"]), local.encode(["a"]))


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("name", ["someone/nothing", "nothing"])
def test_a_model_the_hub_does_not_have(name: str) -> None:
    with pytest.raises(ModelError, match=f"^{name}: no folder of this name, and no such model on the hub; check the name"):
        load_encoder(name, SETTINGS)


def test_a_hub_that_cannot_be_reached(served: Hub) -> None:
    served.shutdown()
    served.server_close()
    with pytest.raises(ModelError, match=r"^someone/model: no folder of this name, and the model hub cannot be reached"):
        load_encoder("someone/model", SETTINGS)


@pytest.mark.parametrize("name", ["no/such/folder", "a b", "data/"])
def test_a_name_that_is_neither_a_folder_nor_an_id(name: str) -> None:
    with pytest.raises(ModelError, match="neither a folder nor a hub id"):
        load_encoder(name, SETTINGS)
