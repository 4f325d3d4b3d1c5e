"""Exported encoders: equal in `miner`, sentence-transformers and transformers, with classifiers beside them."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Pooling, Transformer
from tiny import config

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.errors import ConfigError
from miner.training import run
from miner.training.config import TrainConfig
from miner.training.data.batches import tower_index

pytestmark = pytest.mark.usefixtures("one_thread")  # tiny models are faster in one thread


def mean(state: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.stack([row[is_token.bool()].mean(dim=0) for row, is_token in zip(state, mask, strict=True)])


# Reference poolings of the hidden states of transformers (embeddings first) and mask. Layers above layer:1 are not exported.
REFERENCE_POOLINGS = {
    "cls": lambda states, mask: states[-1][:, 0],  # noqa: ARG005
    "avg": lambda states, mask: mean(states[-1], mask),
    "avg_top2": lambda states, mask: (mean(states[-1], mask) + mean(states[-2], mask)) / 2,
    "avg_first_last": lambda states, mask: (mean(states[1], mask) + mean(states[-1], mask)) / 2,
    "layer:1": lambda states, mask: mean(states[1], mask),
    "max": lambda states, mask: torch.stack([row[is_token.bool()].amax(dim=0) for row, is_token in zip(states[-1], mask, strict=True)]),
}


def encode_with_transformers(folder: Path, pooling: str, texts: list[str]) -> np.ndarray:
    """Encode with transformers alone, computing the pooling and an exported head by hand."""
    model, tokenizer = transformers.AutoModel.from_pretrained(folder).eval(), transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=9, return_tensors="pt")
    with torch.no_grad():
        vectors = REFERENCE_POOLINGS[pooling](model(**inputs, output_hidden_states=True).hidden_states, inputs["attention_mask"])
    for dense in folder.glob("*_Dense"):
        layer = load_file(dense / "model.safetensors")
        vectors = torch.tanh(vectors @ layer["linear.weight"].T + layer["linear.bias"])
    return torch.nn.functional.normalize(vectors, dim=1).numpy()


@pytest.mark.parametrize("pooling", REFERENCE_POOLINGS)
@pytest.mark.parametrize("head", ["dropped", "kept", "none"])
def test_exported_encoder_is_equal_in_all_libraries(folder: Path, pooling: str, head: str) -> None:
    tiny.save_transformer(folder / "model", dropout=0.0)
    values = config(folder, steps=1)
    values["encoder"] |= {
        "pooling": pooling,
        "head": "none" if head == "none" else "mlp",
        "keep_head": head == "kept",
        "inference_max_tokens": 9,
    }
    trainer = run.prepare(TrainConfig(**values), folder / "out")[0]
    trainer.export_encoders()
    texts = ["one two", "drei eins vier", "null", "nine " * 12]
    tower = trainer.towers[0]
    if head == "dropped":
        tower.head = None
    with torch.no_grad():
        trained = torch.nn.functional.normalize(tower(tower.collate(tower.tokenize(texts), np.arange(len(texts)))), dim=1).numpy()
    exported = folder / "out" / "encoder"
    ours = load_encoder(str(exported), EncoderSettings(dtype="float32")).encode(texts)
    theirs = SentenceTransformer(str(exported), device="cpu").encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(ours, trained, atol=1e-5)
    np.testing.assert_allclose(theirs, trained, atol=1e-5)
    assert len(list(exported.glob("*_Dense"))) == (head == "kept")
    np.testing.assert_allclose(encode_with_transformers(exported, pooling, texts), trained, atol=1e-5)


def test_all_layers_are_trained_and_a_lower_layer_is_exported(folder: Path) -> None:
    """Training reads the first token of the last layer, the exported encoder the mean of layer 8."""
    tiny.save_transformer(folder / "model", dropout=0.0, layers=12)
    values = config(folder, steps=2)
    values["encoder"] |= {"pooling": "cls", "inference_pooling": "layer:8"}
    trainer = run.prepare(TrainConfig(**values), folder / "out")[0]
    tower = trainer.towers[0]
    before = {name: weight.detach().clone() for name, weight in tower.named_parameters()}
    trainer.run(None)
    changed = {name for name, weight in tower.named_parameters() if not torch.equal(weight, before[name])}
    for layer in range(12):
        assert f"model.encoder.layer.{layer}.output.dense.weight" in changed
    texts = ["one two", "drei eins vier", "null"]
    inputs = tower.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = tower.model.eval()(**inputs, output_hidden_states=True).hidden_states
        trained = tower(tower.collate(tower.tokenize(texts), np.arange(3)))
    assert len(states) == 13
    torch.testing.assert_close(trained, states[12][:, 0], atol=1e-6, rtol=0)
    exported = load_encoder(str(folder / "out" / "encoder"), EncoderSettings(dtype="float32")).encode(texts)
    expected = torch.nn.functional.normalize(mean(states[8], inputs["attention_mask"]), dim=1)
    np.testing.assert_allclose(exported, expected.numpy(), atol=1e-6)
    assert transformers.AutoConfig.from_pretrained(folder / "out" / "encoder").num_hidden_layers == 8


@pytest.mark.parametrize("encoder", [{"pooling": "cls", "inference_pooling": "layer:1"}, {"pooling": "max", "head": "mlp"}], ids=str)
def test_dev_score_is_that_of_the_exported_encoder(folder: Path, encoder: dict[str, str]) -> None:
    values = config(folder, steps=3)
    values["encoder"] |= encoder
    values["evaluation"] = {"files": [str(tiny.write_pairs(folder / "dev.tsv", 60, 2))], "columns": {"source": "en", "target": "de"}}
    result = run.train(TrainConfig(**values), str(folder / "out"))
    rows = [line.split("\t") for line in (folder / "dev.tsv").read_text().splitlines()[1:]]
    exported = load_encoder(str(folder / "out" / "encoder"), EncoderSettings(dtype="float32"))
    similarities = exported.encode([row[0] for row in rows]) @ exported.encode([row[1] for row in rows]).T
    accuracies = [np.mean(similarities.argmax(axis=axis) == np.arange(len(rows))) for axis in (0, 1)]
    assert result.score == pytest.approx(np.mean(accuracies))


def test_classifier_is_saved_beside_its_encoder(folder: Path) -> None:
    """Logits computed from the saved file have the accuracy that the run reports."""
    rows = [
        (tiny.sentence("eng_Latn", row), tiny.sentence("deu_Latn", row[::-1]), ["even", "odd"][row[0] % 2]) for row in tiny.numbers(60, 3)
    ]
    columns = {"first": "a", "second": "b", "label": "label"}
    path = str(tiny.write_tsv(folder / "labelled.tsv", ["a", "b", "label"], rows))
    source = {"strategy": "labelled_pairs", "files": [path], "columns": columns, "labels": ["odd", "even"]}
    values = config(folder, steps=25, lr=5e-3)
    values["encoder"] |= {"pooling": "cls"}
    values["data"] = [{**source, "name": "joint"}, {**source, "name": "apart", "joint": False}]
    values["objective"] = [{"loss": "classification", "data": ["joint"]}, {"loss": "nli_head", "data": ["apart"]}]
    values["evaluation"] = {"metric": "accuracy", "files": [path], "columns": columns, "every": 25}
    result = run.train(TrainConfig(**values), str(folder / "out"))
    exported = folder / "out" / "encoder"
    model, tokenizer = transformers.AutoModel.from_pretrained(exported).eval(), transformers.AutoTokenizer.from_pretrained(exported)
    with safe_open(exported / "classification.safetensors", "pt") as file:
        labels = json.loads(file.metadata()["labels"])
        weight, bias = (file.get_tensor(f"layers.1.{name}") for name in ("weight", "bias"))
    with torch.no_grad():
        inputs = tokenizer([row[0] for row in rows], [row[1] for row in rows], padding=True, return_tensors="pt")
        predicted = (model(**inputs).last_hidden_state[:, 0] @ weight.T + bias).argmax(dim=1).tolist()
    assert np.mean([labels[number] == row[2] for number, row in zip(predicted, rows, strict=True)]) == pytest.approx(result.score)
    assert load_file(exported / "nli_head.safetensors")["layers.3.weight"].shape == (2, 256)
    assert load_encoder(str(exported)).dim == tiny.WIDTH


def list_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_training_continues_with_the_pooling_and_head_of_a_folder(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = config(folder, steps=1)
    values["encoder"] |= {"pooling": "max", "head": "mlp", "keep_head": True}
    first = Path(run.train(TrainConfig(**values), str(folder / "first")).encoder)
    values["encoder"] = {"kind": "transformer", "model": str(first), "head": "mlp"}
    tower = run.prepare(TrainConfig(**values), folder / "second")[0].towers[0]
    assert tower.pooling == "max"
    torch.testing.assert_close(tower.head[0].weight.detach(), load_file(first / "2_Dense" / "model.safetensors")["linear.weight"])
    assert not list_warnings(caplog)
    values["encoder"]["head"] = "none"
    assert run.prepare(TrainConfig(**values), folder / "third")[0].towers[0].head is None
    assert list_warnings(caplog) == [f"{first}: its Dense layer is not used; set encoder.head to mlp to continue from it"]


@pytest.mark.parametrize("layers", [[(tiny.WIDTH, 16)], [(tiny.WIDTH, tiny.WIDTH)] * 2])
def test_head_of_another_shape_is_an_error(folder: Path, layers: list[tuple[int, int]]) -> None:
    modules = [Transformer(str(folder / "model")), Pooling(tiny.WIDTH), *(Dense(*sizes) for sizes in layers)]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "dense"))
    values = config(folder, steps=1)
    values["encoder"] = {"kind": "transformer", "model": str(folder / "dense"), "head": "mlp"}
    with pytest.raises(ConfigError, match="Dense layers are not one Linear of 32 and a Tanh"):
        run.prepare(TrainConfig(**values), folder / "out")


def test_second_texts_use_the_encoder_of_the_anchors(folder: Path) -> None:
    """Two towers encode two languages: positives and negatives use the other tower, the second text of an NLI pair does not."""
    assert [tower_index(view, 2) for view in ("anchor", "second", "positive", "negative")] == [0, 0, 1, 1]
    rows = [("one", "two", "yes"), ("three", "four", "no")]
    source = {"strategy": "labelled_pairs", "labels": ["yes", "no"], "joint": False, "columns": {"first": 1, "second": 2, "label": 3}}
    values = config(folder, steps=1, batch_size=2)
    values["encoder"]["towers"] = "pair"
    values["data"] = [{**source, "files": [str(tiny.write_tsv(folder / "nli.tsv", rows[0], rows[1:]))]}]
    values["objective"] = [{"loss": "nli_head"}]
    trainer = run.prepare(TrainConfig(**values), folder / "out")[0]
    tiny.compute_gradients(trainer)
    first_has_gradient, second_has_gradient = ([weight.grad is not None for weight in tower.parameters()] for tower in trainer.towers)
    assert any(first_has_gradient)
    assert not any(second_has_gradient)


def test_two_towers_of_one_model_are_exported_as_two_sides(folder: Path) -> None:
    values = config(folder, steps=3)
    values["encoder"]["towers"] = "pair"
    values["objective"] = [{"loss": "momentum", "queue": 16, "momentum": 0.9}]
    run.train(TrainConfig(**values), str(folder / "out"))
    first, second = (load_encoder(str(folder / "out" / "encoder" / side)) for side in ("source", "target"))
    assert first.fingerprint != second.fingerprint
