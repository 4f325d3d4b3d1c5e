"""Static encoders and sentence-transformers and model2vec: each reads the folders of the other, with the same vectors."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from miner.encoders import STATIC, find_kind, load_encoder, static, static_export
from miner.errors import ModelError

EXAMPLES = Path(__file__).parents[3] / "examples"
WORDS = ["[UNK]", "one", "two", "three", "four", "un", "deux"]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Return real sentences in four scripts, and marks, spaces, ligatures and cases that normalisation changes."""
    lines = [
        line for lang in ("en", "de", "ru", "hi") for line in (EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()[:100]
    ]
    marks = "\u0308\u3099\u3000\u00a8\u200d\u00a0\ufb01\U0001f469 "
    hard = [f"{mark}a {mark} b{mark} \u0301 {mark}\u0300\u0301c" for mark in marks]
    return [*lines, *hard, "  a   b ", "日本語のテキスト、空白なし。", "ｆｕｌｌ　ｗｉｄｔｈ", "İstanbul STRASSE straße", "a\tb"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built-in encoder as `miner train` saves encoders."""
    folder = tmp_path_factory.mktemp("saved")
    builtin = load_encoder("builtin")
    static.save(folder, builtin.vectors, (builtin.folder / static.PIECES).read_bytes())
    assert static_export.write(folder)
    return folder


@pytest.mark.slow
def test_both_libraries_load_a_static_encoder_with_the_same_vectors(saved: Path, texts: list[str]) -> None:
    encoder = load_encoder(str(saved))  # with 8 bits in all dimensions, where the built-in encoder has 4 in most
    expected = encoder.encode(texts)
    by_model2vec = StaticModel.from_pretrained(str(saved))
    for vectors in (SentenceTransformer(str(saved), device="cpu").encode(texts), by_model2vec.encode(texts)):
        is_equal = np.isclose(vectors, expected, atol=1e-5).all(axis=1)
        assert is_equal.mean() > 0.995  # the tokenizers library splits a few texts differently: see `static_export`
    long = " ".join(texts)  # model2vec cuts texts at 512 tokens unless the folder says otherwise
    np.testing.assert_allclose(by_model2vec.encode([long]), encoder.encode([long]), atol=1e-3)
    assert np.einsum("nd,nd->n", load_encoder("builtin").encode(texts), expected).min() > 0.999


def test_their_files_in_a_folder_are_checked(saved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(saved, tmp_path / "damaged")
    (folder / "tokenizer.json").write_text("{}")
    assert "tokenizer.json" in json.loads((folder / "checksums.json").read_text())["files"]
    (folder / "miner.json").unlink()
    (folder / "checksums.json").unlink()
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load_encoder(str(folder))


def test_pieces_that_other_libraries_cannot_have_are_left_out(toy_encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(toy_encoder, tmp_path / "words")
    assert not static_export.write(folder)  # a SentencePiece model of words
    assert not (folder / "modules.json").exists()


def word_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    return tokenizer


TOY_TEXTS = ["one two", "Deux un ONE", "three unknown three", "", "four"]


def unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("is_quantized", [True, False])
def test_folder_of_model2vec_is_a_static_encoder(tmp_path: Path, normalize: bool, is_quantized: bool) -> None:
    """Quantized: words share rows, each with a weight of its own."""
    random = np.random.default_rng(0)
    quantized = {"weights": random.uniform(0.5, 2, len(WORDS)), "token_mapping": np.array([0, 1, 2, 3, 3, 1, 2])} if is_quantized else {}
    vectors = random.normal(size=(4 if is_quantized else len(WORDS), 8)).astype(np.float32)
    model = StaticModel(vectors, word_tokenizer(), normalize=normalize, **quantized)
    model.save_pretrained(tmp_path / "model")
    encoder = load_encoder(str(tmp_path / "model"))
    assert find_kind(str(tmp_path / "model")) == STATIC
    np.testing.assert_allclose(encoder.encode(TOY_TEXTS), unit(model.encode(TOY_TEXTS)), atol=1e-5)
    np.testing.assert_array_equal(encoder.encode(["", "unknown"]), 0)
    assert len(encoder.token_vectors(["one unknown two"]).bounds) == 2


@pytest.mark.parametrize("is_normalized", [True, False])
def test_folder_of_sentence_transformers_is_a_static_encoder(tmp_path: Path, is_normalized: bool) -> None:
    """Unlike model2vec, StaticEmbedding keeps the vector of the unknown word."""
    weights = np.random.default_rng(1).normal(size=(len(WORDS), 8)).astype(np.float32)
    parts = [modules.StaticEmbedding(word_tokenizer(), embedding_weights=weights), *([modules.Normalize()] if is_normalized else [])]
    model = SentenceTransformer(modules=parts, device="cpu")
    model.save(str(tmp_path / "model"))
    encoder = load_encoder(str(tmp_path / "model"))
    np.testing.assert_allclose(encoder.encode(TOY_TEXTS), unit(model.encode(TOY_TEXTS)), atol=1e-5)
    other = weights.copy()
    other[2] += 1
    SentenceTransformer(modules=[modules.StaticEmbedding(word_tokenizer(), embedding_weights=other)], device="cpu").save(
        str(tmp_path / "b")
    )
    assert load_encoder(str(tmp_path / "b")).fingerprint != encoder.fingerprint == load_encoder(str(tmp_path / "model")).fingerprint


def test_other_modules_after_a_static_embedding_are_an_error(tmp_path: Path) -> None:
    weights = np.ones((len(WORDS), 8), np.float32)
    parts = [modules.StaticEmbedding(word_tokenizer(), embedding_weights=weights), modules.Dense(8, 4)]
    SentenceTransformer(modules=parts, device="cpu").save(str(tmp_path / "model"))
    with pytest.raises(ModelError, match="module Dense after StaticEmbedding is not supported"):
        load_encoder(str(tmp_path / "model"))


def test_damaged_vectors_are_an_error(tmp_path: Path) -> None:
    StaticModel(np.ones((len(WORDS), 8), np.float32), word_tokenizer()).save_pretrained(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "short")
    (tmp_path / "short" / "model.safetensors").write_bytes((tmp_path / "model" / "model.safetensors").read_bytes()[:80])
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_encoder(str(tmp_path / "short"))
    StaticModel(np.ones((2, 8), np.float32), word_tokenizer(), token_mapping=np.array([0, 1, 5, 0, 1, 0, 1])).save_pretrained(
        tmp_path / "b"
    )
    with pytest.raises(ModelError, match="not the vectors"):
        load_encoder(str(tmp_path / "b"))


def test_tokenizers_that_fail_are_one_line(tmp_path: Path) -> None:
    """One that panics while it is read, and one that has no token for unknown text."""
    StaticModel(np.ones((len(WORDS), 8), np.float32), word_tokenizer()).save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    content = json.loads(path.read_text())
    damaged = {
        "Precompiled": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "????"}},
        "UNK": {"model": content["model"] | {"unk_token": "[NONE]"}},
    }
    for reason, values in damaged.items():
        path.write_text(json.dumps(content | values))
        with pytest.raises(ModelError, match=rf"tokenizer\.json: .*{reason}"):
            load_encoder(str(tmp_path / "model")).encode(["text that is not known"])
