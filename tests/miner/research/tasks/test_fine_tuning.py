"""Pair classification by fine-tuned transformers: what transfers to another language is known, as it shares all words or none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command import error_of, output_of
from safetensors.torch import save_file

from miner.encoders.int8_linear import is_exact
from miner.errors import ModelError
from miner.training import run
from miner.training.config import TrainConfig
from miner.training.models.heads import FirstTokenHead, NliHead, load_head, save_head

WORDS = {
    "eng": tiny.NUMBERS["eng_Latn"],
    "sco": tiny.NUMBERS["eng_Latn"],
    "rus": tiny.NUMBERS["rus_Cyrl"],
}  # Scots has the words of English
ENGLISH, SCOTS, RUSSIAN = WORDS
OPTIONS = ("--lang-column", "lang", "--fine-tune", "--pooling", "cls", "--batch-size", "16")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_transformer(tmp_path_factory.mktemp("fine-tuning") / "model", dropout=0.0, layers=1)


def rows(langs: list[str], count: int, seed: int) -> list[tuple[str, ...]]:
    """Return pairs of numbers, the same ones in every language, labelled by whether the first is low."""
    numbers = np.random.default_rng(seed).integers(0, 10, size=(count, 2))
    labels = ["low" if first < 5 else "high" for first, _ in numbers]
    return [
        (lang, WORDS[lang][first], WORDS[lang][second], label)
        for lang in langs
        for (first, second), label in zip(numbers, labels, strict=True)
    ]


HEAD = ("lang", "sentence1", "sentence2", "label")


def measure(folder: Path, *arguments: object) -> dict[str, Any]:
    output_of("eval", "pair-classification", *arguments, "--json", folder / "f.json")
    figures: dict[str, Any] = json.loads((folder / "f.json").read_text())
    return figures


def accuracies(figures: dict[str, Any]) -> list[float]:
    return [figures["languages"][lang]["accuracy"] for lang in (ENGLISH, SCOTS, RUSSIAN)]


@pytest.mark.slow
def test_fine_tuning_transfers_to_shared_words_and_translate_train_to_all_languages(model: Path, tmp_path: Path) -> None:
    train = tiny.write_tsv(tmp_path / "train.tsv", HEAD, rows([ENGLISH, RUSSIAN], 160, 1))
    test = tiny.write_tsv(tmp_path / "test.tsv", HEAD, rows([ENGLISH, SCOTS, RUSSIAN], 80, 2))
    task = ("--train", train, "--test", test, "--encoder", model, "--epochs", 15, "--lr", "5e-3", *OPTIONS)
    transfer = measure(tmp_path, *task, "--train-lang", ENGLISH)
    assert (transfer["trained_on"], transfer["classes"]) == (160, 2)
    english, scots, russian = accuracies(transfer)
    assert english == scots == 1.0
    assert russian < 0.8  # ten unknown words: about chance
    translated = measure(tmp_path, *task)
    assert translated["trained_on"] == 320
    assert accuracies(translated) == [1.0, 1.0, 1.0]


def train_classifier(model: Path, folder: Path, loss: str, train: Path) -> Path:
    columns = {"first": "sentence1", "second": "sentence2", "label": "label"}
    source = {"strategy": "labelled_pairs", "files": [str(train)], "columns": columns, "labels": ["low", "high"]}
    config = {
        "encoder": {"kind": "transformer", "model": str(model), "pooling": "cls", "max_tokens": 8},
        "data": [{**source, "joint": loss == "classification"}],
        "objective": [{"loss": loss}],
        "training": {"steps": 150, "batch_size": 16, "lr": 5e-3},
    }
    return Path(run.train(TrainConfig.check(**config), str(folder / loss)).encoder)


@pytest.mark.parametrize("loss", ["classification", "nli_head"])
def test_saved_classifier_is_tested_without_training(loss: str, model: Path, tmp_path: Path) -> None:
    train = tiny.write_tsv(tmp_path / "train.tsv", HEAD, rows([ENGLISH], 160, 1))
    test = tiny.write_tsv(tmp_path / "test.tsv", HEAD, rows([ENGLISH, SCOTS], 60, 2))
    encoder = train_classifier(model, tmp_path, loss, train)
    figures = measure(tmp_path, "--test", test, "--encoder", encoder, "--lang-column", "lang")
    assert (figures["trained_on"], figures["classes"]) == (None, 2)
    perfect = {"n": 60, "accuracy": 1.0, "macro_f1": 1.0}
    for lang in (ENGLISH, SCOTS):
        assert figures["languages"][lang] == {**perfect, "majority": figures["languages"][lang]["majority"]}
    assert figures["languages"][ENGLISH]["majority"] < 0.7
    (tmp_path / "suite.yaml").write_text(f"data: {tmp_path}\ntasks: [{{task: pair-classification, test: test.tsv, lang_column: lang}}]\n")
    table = output_of("eval", "suite", "--config", tmp_path / "suite.yaml", "--encoder", encoder)
    assert table.split()[1:] == ["pair-classification:", "accuracy", "1.0000"]
    unknown = tiny.write_tsv(tmp_path / "unknown.tsv", HEAD, [(ENGLISH, "one", "two", "neither")])
    message = error_of("eval", "pair-classification", "--test", unknown, "--encoder", encoder)
    assert "the classifier does not know the label 'neither', only low, high" in message
    (encoder / f"{loss}.safetensors").write_bytes(b"broken")
    assert "changed since it was written" in error_of("eval", "pair-classification", "--test", test, "--encoder", encoder)
    (encoder / "checksums.json").unlink()
    assert "not a classifier from `miner train`" in error_of("eval", "pair-classification", "--test", test, "--encoder", encoder)


def test_heads_survive_saving_and_loading(tmp_path: Path) -> None:
    for number, head in enumerate((FirstTokenHead(6, 3), NliHead(6, 3, hidden=5))):
        save_head(tmp_path / f"{number}.safetensors", head, ["a", "b", "c"])
        loaded, labels = load_head(tmp_path / f"{number}.safetensors")
        assert (type(loaded), labels, loaded.training) == (type(head), ("a", "b", "c"), False)
        x = torch.randn(4, 6)
        inputs = (x, x.flip(0)) if isinstance(head, NliHead) else (x,)
        assert torch.equal(loaded(*inputs), head.eval()(*inputs))


@pytest.mark.parametrize("metadata", [None, {}, {"labels": "no"}, {"labels": '["a"]'}])
def test_other_files_are_not_heads(metadata: dict[str, str] | None, tmp_path: Path) -> None:
    save_file({"layers.1.weight": torch.zeros(2, 6)}, tmp_path / "classification.safetensors", metadata=metadata)
    with pytest.raises(ModelError, match="train it again"):
        load_head(tmp_path / "classification.safetensors")


def test_impossible_classification_is_an_error(model: Path, tmp_path: Path, toy_encoder: Path) -> None:
    train = tiny.write_tsv(tmp_path / "train.tsv", HEAD, rows([ENGLISH], 40, 1))
    other = tiny.write_tsv(tmp_path / "other.tsv", HEAD, [(ENGLISH, "one", "two", "2")])
    pooled = ("--encoder", model, "--pooling", "cls")
    for arguments, message in (
        (("--train", train, "--test", train, "--fine-tune", "--encoder", toy_encoder), "only transformers can be fine-tuned"),
        (("--test", train, "--fine-tune", *pooled), "--fine-tune and --train-lang require training rows; give --train"),
        (("--test", train, "--train-lang", "eng", "--lang-column", "lang", *pooled), "require training rows; give --train"),
        (("--test", train, *pooled), f"{model}: no classifier beside the encoder; give --train"),
        (("--test", train, "--encoder", toy_encoder), f"{toy_encoder}: no classifier beside the encoder"),
        (("--train", train, "--test", other, *pooled), "no test row has a label of the training rows, such as"),
        (("--train", train, "--test", train, "--fine-tune", "--encoder", model, "--pooling", "weightedmean"), "unknown encoder.pooling"),
        (("--train", train, "--test", train, "--fine-tune", "--epochs", "0", *pooled), "--epochs: expected more than 0"),
        (("--train", train, "--test", train, "--fine-tune", "--lr", "1e12", *pooled), "the loss is"),
    ):
        assert message in error_of("eval", "pair-classification", *arguments, "--json", tmp_path / "f.json")
        assert not (tmp_path / "f.json").exists()


@pytest.mark.skipif(not is_exact(), reason="needs exact int8 products")
def test_weights_in_int8_cannot_be_trained(model: Path, tmp_path: Path) -> None:
    train = tiny.write_tsv(tmp_path / "train.tsv", HEAD, rows([ENGLISH], 40, 1))
    arguments = ("--train", train, "--test", train, "--encoder", model, "--pooling", "cls", "--fine-tune", "--dtype", "int8")
    assert "--fine-tune: weights cannot be trained in int8" in error_of("eval", "pair-classification", *arguments)


@pytest.mark.slow
def test_fine_tuning_has_a_limit_of_its_own(model: Path, tmp_path: Path) -> None:
    """The word that decides the label is the eighth of the first text; the encoder itself reads 8 tokens."""
    train, test = (
        tiny.write_tsv(
            tmp_path / f"{name}.tsv",
            HEAD,
            [(lang, " ".join([*["zero"] * 7, first]), second, label) for lang, first, second, label in rows([ENGLISH], count, seed)],
        )
        for name, count, seed in (("train", 160, 1), ("test", 80, 2))
    )
    config = {
        "encoder": {"kind": "transformer", "model": str(model), "pooling": "cls", "inference_max_tokens": 8},
        "data": [{"strategy": "unsupervised", "files": [str(train)], "columns": {"text": "sentence1"}}],
        "objective": [{"loss": "info_nce"}],
        "training": {"steps": 1, "batch_size": 2, "lr": 1e-9},
    }
    encoder = run.train(TrainConfig.check(**config), str(tmp_path / "short")).encoder
    task = ("--train", train, "--test", test, "--encoder", encoder, "--epochs", 15, "--lr", "5e-3", *OPTIONS)
    assert measure(tmp_path, *task)["languages"][ENGLISH]["accuracy"] == 1.0
    assert measure(tmp_path, *task, "--pair-tokens", 8)["languages"][ENGLISH]["accuracy"] < 0.8
    message = error_of("eval", "pair-classification", *task, "--pair-tokens", 39)
    assert "room for 38 tokens" in message
