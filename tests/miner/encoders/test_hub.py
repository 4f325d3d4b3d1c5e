"""Models by hub id, from a local hub server."""

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
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, models, pre_tokenizers

from miner.config.commands import EncoderSettings
from miner.encoders import STATIC, find_folder, find_kind, load_encoder, mining_profile
from miner.encoders.static import StaticEncoder
from miner.errors import ModelError

COMMIT = "0123456789" * 4


def save_model(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "a": 1, "b": 2}, unk_token="a"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>").save_pretrained(folder)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 8}
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(vocab_size=3, **size)).save_pretrained(folder)


class Hub(ThreadingHTTPServer):
    """Serve the models below `root` and record the requested paths."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.root = root
        self.requested_paths: list[str] = []


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/")
        self.server.requested_paths.append(path)
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

    do_HEAD = do_GET  # noqa: N815 (name set by BaseHTTPRequestHandler)

    def send(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        all_headers = {"Content-Length": str(len(body)), "ETag": f'"{hash(body)}"', "X-Repo-Commit": COMMIT, **(headers or {})}
        for name, value in all_headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    save_model(tmp_path / "hub" / "someone" / "model")
    server = Hub(tmp_path / "hub")
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


SETTINGS = EncoderSettings(pooling="mean", device="cpu")


def test_model_is_downloaded_once_and_then_loaded_offline(hub: Hub) -> None:
    folder = hub.root / "someone" / "model"
    (folder / "pytorch_model.bin").write_bytes(b"ignored where there are safetensors")
    (folder / "onnx").mkdir()
    shutil.copy(folder / "config.json", folder / "onnx" / "config.json")
    local = load_encoder(str(folder), SETTINGS)
    downloaded = load_encoder("someone/model", SETTINGS)
    np.testing.assert_array_equal(downloaded.encode(["a", "b b"]), local.encode(["a", "b b"]))
    assert downloaded.fingerprint == local.fingerprint
    assert not any("pytorch_model" in path or "onnx" in path for path in hub.requested_paths)
    hub.shutdown()
    hub.server_close()
    assert load_encoder("someone/model", SETTINGS).fingerprint == local.fingerprint


def test_pickled_weights_are_downloaded_where_there_are_no_safetensors(hub: Hub) -> None:
    folder = hub.root / "someone" / "model"
    local = load_encoder(str(folder), SETTINGS)
    torch.save(transformers.AutoModel.from_pretrained(folder).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    np.testing.assert_array_equal(load_encoder("someone/model", SETTINGS).encode(["a"]), local.encode(["a"]))


def save_static_models(root: Path, builtin: StaticEncoder) -> None:
    """Save the models in the layouts of model2vec, sentence-transformers and this package."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = np.arange(12, dtype=np.float32).reshape(3, 4)
    StaticModel(vectors, tokenizer, normalize=True).save_pretrained(str(root / "model2vec"))
    embedding = modules.StaticEmbedding(tokenizer, embedding_weights=vectors)
    SentenceTransformer(modules=[embedding, modules.Normalize()]).save_pretrained(str(root / "sentence-transformers"))
    shutil.copytree(builtin.folder, root / "miner")


def test_static_models_are_downloaded_whole(hub: Hub) -> None:
    save_static_models(hub.root / "static", load_encoder("builtin"))
    for name in ("model2vec", "sentence-transformers", "miner"):
        local = load_encoder(str(hub.root / "static" / name))
        assert find_kind(f"static/{name}") == STATIC  # so candidates are rescored as with a folder
        downloaded = load_encoder(f"static/{name}")
        np.testing.assert_array_equal(downloaded.encode(["a", "b b a"]), local.encode(["a", "b b a"]))
        assert downloaded.fingerprint == local.fingerprint
    assert mining_profile.read(find_folder("static/miner")) == mining_profile.read(find_folder("builtin"))


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("name", ["someone/nothing", "nothing"])
def test_model_missing_on_the_hub_is_an_error(name: str) -> None:
    with pytest.raises(ModelError, match=f"^{name}: no folder of this name, and no such model on the hub; check the name"):
        load_encoder(name, SETTINGS)


def test_unreachable_hub_is_an_error(hub: Hub) -> None:
    hub.shutdown()
    hub.server_close()
    with pytest.raises(ModelError, match=r"^someone/model: no folder of this name, and the model hub cannot be reached"):
        load_encoder("someone/model", SETTINGS)


@pytest.mark.parametrize("name", ["no/such/folder", "a b", "data/"])
def test_name_that_is_neither_folder_nor_hub_id_is_an_error(name: str) -> None:
    with pytest.raises(ModelError, match="neither a folder nor a hub id"):
        load_encoder(name, SETTINGS)
