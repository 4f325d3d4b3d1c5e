"""Encoders that people mine with: tiny random models of their architecture, tokenizer and files, against their reference."""

import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers.models.m2m_100.modeling_m2m_100 import M2M100Encoder

import miner
from miner.config.commands import EmbedConfig, EncoderSettings
from miner.encoders import identify, load_encoder
from miner.encoders.base import in_language
from miner.encoders.layer_tokens import LayerTokens, TokenForm, choose_token_encoder
from miner.encoders.token_vectors import SCALE
from miner.errors import ConfigError, ModelError
from miner.io.corpus import open_corpus
from pipelines.corpus import embed

ST = "sentence_transformers.models"
TEXTS = ["The cat sees a big house.", "Ein Hund läuft über die Straße, und die Katze schläft.", "кот", "A dog runs over the bridge. " * 3]
CPU = {"device": "cpu", "dtype": "float32"}

pytestmark = pytest.mark.usefixtures("one_thread")


def load(folder: Path, **settings: Any) -> Any:
    return load_encoder(str(folder), EncoderSettings(**CPU, **settings))


def unit(vectors: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(vectors.float(), dim=-1).detach().numpy()


SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48, "initializer_range": 0.5}
LETTERS = sorted(set("".join(TEXTS)) - {" "})


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def save_modules(folder: Path, *names: str) -> None:
    """Write `modules.json` as sentence-transformers does."""
    paths = ["", *(f"{number}_{name}" for number, name in enumerate(names[1:], start=1))]
    entries = [
        {"idx": number, "name": str(number), "path": path, "type": f"{ST}.{name}"}
        for number, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
    write_json(folder / "modules.json", entries)


def save_random(folder: Path, config: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config)
    model.save_pretrained(folder, **options)
    return model


def save_word_pieces(folder: Path) -> int:
    """Save a cased tokenizer of word pieces, as LaBSE has it; return the size of its vocabulary."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS), "cat", "The", "##er"]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = transformers.BertTokenizer.from_pretrained(folder, do_lower_case=False, strip_accents=None)
    tokenizer.save_pretrained(folder)
    return len(pieces)


def save_xlm_r(folder: Path, **options: Any) -> int:
    """Save a tokenizer of unigrams, as models that start from XLM-R have it; return the size of its vocabulary."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [*((token, 0.0) for token in special), *((f"▁{text}", -3.0) for text in ("The", "der", "")), *((x, -5.0) for x in LETTERS)]
    tokenizer = Tokenizer(models.Unigram([*pieces, ("<mask>", 0.0)], unk_id=3))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    names = {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", mask_token="<mask>", **names, **options)
    fast.save_pretrained(folder)
    return len(fast)


def save_pooling(folder: Path, flag: str, width: int = 32, **options: Any) -> None:
    flags = {f"pooling_mode_{name}": name == flag for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **flags, **options})


def assert_equals_sentence_transformers(folder: Path, **settings: Any) -> None:
    reference = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, prompt=settings.get("prompt"), normalize_embeddings=True)
    encoder = load(folder, **settings)
    np.testing.assert_allclose(encoder.encode(TEXTS), reference, atol=1e-5)
    assert np.abs(reference @ reference.T)[np.triu_indices(len(TEXTS), 1)].max() < 0.9999
    assert identify(EncoderSettings(encoder=str(folder), **CPU, **settings)).fingerprint == encoder.fingerprint


# LaBSE


@pytest.fixture(scope="module")
def labse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of sentence-transformers/LaBSE: BERT, the first token, a Dense layer with tanh, Normalize."""
    folder = tmp_path_factory.mktemp("labse")
    size = save_word_pieces(folder)
    save_random(folder, transformers.BertConfig(vocab_size=size, max_position_embeddings=64, **SIZES))
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 48, "do_lower_case": False})
    save_modules(folder, "Transformer", "Pooling", "Dense", "Normalize")
    save_pooling(folder, "cls_token")
    activation = "torch.nn.modules.activation.Tanh"
    write_json(folder / "2_Dense/config.json", {"in_features": 32, "out_features": 32, "bias": True, "activation_function": activation})
    torch.save(dict(torch.nn.Linear(32, 32).state_dict(prefix="linear.")), folder / "2_Dense/pytorch_model.bin")
    (folder / "3_Normalize").mkdir()
    return folder


def test_labse(labse: Path) -> None:
    assert_equals_sentence_transformers(labse)
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(labse), transformers.AutoModel.from_pretrained(labse).eval()
    dense = torch.load(labse / "2_Dense/pytorch_model.bin", weights_only=True)
    states = model(**tokenizer(TEXTS, return_tensors="pt", padding=True, truncation=True, max_length=48)).last_hidden_state[:, 0]
    expected = unit(torch.tanh(states @ dense["linear.weight"].T + dense["linear.bias"]))
    np.testing.assert_allclose(load(labse).encode(TEXTS), expected, atol=1e-5)


# Multilingual E5


@pytest.fixture(scope="module")
def e5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of intfloat/multilingual-e5-small: BERT with the pieces of XLM-R, the mean, Normalize; no prompt is stated."""
    folder = tmp_path_factory.mktemp("models") / "multilingual-e5-small"
    size = save_xlm_r(folder)
    save_random(folder, transformers.BertConfig(vocab_size=size, max_position_embeddings=64, pad_token_id=1, **SIZES))
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    save_modules(folder, "Transformer", "Pooling", "Normalize")
    save_pooling(folder, "mean_tokens")
    (folder / "2_Normalize").mkdir()
    return folder


def test_e5_needs_a_prompt(e5: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert_equals_sentence_transformers(e5, prompt="query: ")
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert_equals_sentence_transformers(e5)
    assert "E5 was trained with a prompt before each text; give --prompt 'query: '" in caplog.text


def test_a_prompt_by_name_and_by_default(e5: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(e5, tmp_path / "instruct")
    prompts = {"BitextMining": "Instruct: Retrieve parallel sentences.\nQuery: ", "none": ""}
    write_json(folder / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": "BitextMining"})
    assert_equals_sentence_transformers(folder)
    default, named, other = (load(folder, **settings) for settings in ({}, {"prompt": "BitextMining"}, {"prompt": "none"}))
    assert default.fingerprint == named.fingerprint != other.fingerprint == load(e5).fingerprint
    np.testing.assert_array_equal(other.encode(TEXTS), load(e5).encode(TEXTS))
    with pytest.raises(ConfigError, match=r"--prompt query: not a prompt of .* \(BitextMining, none\); .*'query: '"):
        load(folder, prompt="query")


# BGE-M3


@pytest.fixture(scope="module")
def bge_m3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of BAAI/bge-m3: XLM-R as a pickle, the first token, Normalize, and a linear layer for the vectors of tokens."""
    folder = tmp_path_factory.mktemp("bge-m3")
    size = save_xlm_r(folder, model_max_length=64)
    model = save_random(folder, transformers.XLMRobertaConfig(vocab_size=size, max_position_embeddings=66, pad_token_id=1, **SIZES))
    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 64, "do_lower_case": False})
    save_modules(folder, "Transformer", "Pooling", "Normalize")
    save_pooling(folder, "cls_token")
    (folder / "2_Normalize").mkdir()
    torch.save(dict(torch.nn.Linear(32, 32).state_dict()), folder / "colbert_linear.pt")
    return folder


def test_bge_m3(bge_m3: Path) -> None:
    assert_equals_sentence_transformers(bge_m3)


def test_bge_m3_rescores_by_its_token_head(bge_m3: Path, tmp_path: Path) -> None:
    """The formula of the model: the unit vectors of the linear layer on the last hidden states, here without special tokens."""
    tokens = choose_token_encoder(load(bge_m3), None)
    assert isinstance(tokens, LayerTokens)
    assert tokens.form == TokenForm(3, 32)
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(bge_m3), transformers.AutoModel.from_pretrained(bge_m3).eval()
    head = torch.load(bge_m3 / "colbert_linear.pt", weights_only=True)
    expected = []
    for text in TEXTS:
        inputs = tokenizer(text, return_tensors="pt", truncation=True)
        expected.append(unit(model(**inputs).last_hidden_state[0, 1:-1] @ head["weight"].T + head["bias"]))
    np.testing.assert_allclose(tokens.token_vectors(TEXTS).table[:, :32] / SCALE, np.concatenate(expected), atol=0.6 / SCALE)
    vectors, stored = tokens.encode(TEXTS)
    np.testing.assert_allclose(stored.vectors / SCALE, np.concatenate(expected), atol=0.6 / SCALE)
    np.testing.assert_allclose(vectors, load(bge_m3).encode(TEXTS), atol=1e-6)
    other = choose_token_encoder(load(bge_m3), 2)  # a layer that the head is not for
    assert isinstance(other, LayerTokens)
    states = model(**tokenizer(TEXTS[2], return_tensors="pt"), output_hidden_states=True).hidden_states[2][0, 1:-1]
    np.testing.assert_allclose(other.token_vectors(TEXTS[2:3]).table[:, :32] / SCALE, unit(states), atol=0.6 / SCALE)
    plain = shutil.copytree(bge_m3, tmp_path / "plain")
    (plain / "colbert_linear.pt").unlink()
    assert load(plain).fingerprint != load(bge_m3).fingerprint  # tokens are compared by the fingerprint too


# gte


@pytest.mark.parametrize("model_type", ["gte", "new"])
def test_gte_multilingual(model_type: str, tmp_path: Path) -> None:
    """The layout of gte-multilingual-base as transformers has it; the original one needs code of its own."""
    size = save_xlm_r(tmp_path, model_max_length=64)
    save_random(tmp_path, transformers.GteConfig(vocab_size=size, max_position_embeddings=64, **SIZES))
    save_modules(tmp_path, "Transformer", "Pooling", "Normalize")
    save_pooling(tmp_path, "cls_token")
    (tmp_path / "2_Normalize").mkdir()
    if model_type == "gte":
        assert_equals_sentence_transformers(tmp_path)
        return
    config = json.loads((tmp_path / "config.json").read_text())
    code = {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"}
    write_json(tmp_path / "config.json", {**config, "model_type": "new", "auto_map": code})
    with pytest.raises(ModelError, match=r"needs code of its own \(modeling.NewModel\), which miner does not run; .*docs/encoders.md"):
        load(tmp_path)


# Decoders


def save_decoder(folder: Path, **config: Any) -> Path:
    """The layout of Qwen/Qwen3-Embedding-0.6B: byte pairs, padding on the left, the last token, prompts by name."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: number for number, piece in enumerate([*letters, "th", "er", "Ġd", "<|endoftext|>", "<|im_end|>"])}
    tokenizer = transformers.Qwen2Tokenizer(vocab=vocab, merges=[("t", "h"), ("e", "r"), ("Ġ", "d")], padding_side="left")
    end = "<|endoftext|>"
    tokenizer.backend_tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single=f"$A {end}", special_tokens=[(end, vocab[end])])]
    )
    tokenizer.save_pretrained(folder)
    sizes = {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "vocab_size": len(tokenizer)}
    save_random(folder, transformers.Qwen3Config(**sizes, **config))
    save_modules(folder, "Transformer", "Pooling", "Normalize")
    save_pooling(folder, "lasttoken", include_prompt=True)
    (folder / "2_Normalize").mkdir()
    prompts = {"query": "Instruct: Find the translation\nQuery:", "document": ""}
    write_json(folder / "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": None})
    return folder


@pytest.mark.parametrize("config", [{}, {"is_causal": False}], ids=["causal", "bidirectional"])
def test_decoders_with_the_last_token(config: dict[str, Any], tmp_path: Path) -> None:
    folder = save_decoder(tmp_path / "qwen", **config)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer("cat")["input_ids"][-1] == tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert tokenizer.padding_side == "left"
    assert_equals_sentence_transformers(folder)
    assert_equals_sentence_transformers(folder, prompt="Instruct: Find the translation\nQuery:")
    query = load(folder, prompt="query")
    np.testing.assert_array_equal(query.encode(TEXTS), load(folder, prompt="Instruct: Find the translation\nQuery:").encode(TEXTS))
    one_by_one = np.concatenate([query.encode([text]) for text in TEXTS])
    np.testing.assert_allclose(query.encode(TEXTS), one_by_one, atol=1e-5)  # padding changes nothing


@pytest.mark.parametrize(
    ("name", "config", "is_refused"),
    [
        ("modeling_qwen.Qwen3Model", {}, True),  # as in gte-Qwen2, whose code lets tokens see those after them
        ("modeling_qwen.Qwen3Model", {"is_causal": False}, False),
        ("modeling.OtherModel", {"is_causal": False}, True),
    ],
)
def test_code_of_a_decoder_is_not_replaced_silently(name: str, config: dict[str, Any], is_refused: bool, tmp_path: Path) -> None:
    folder = save_decoder(tmp_path / "qwen", **config)
    content = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**content, "auto_map": {"AutoModel": name, "AutoModelForCausalLM": "modeling_qwen.Other"}})
    if not is_refused:
        load(folder)
        return
    with pytest.raises(ModelError, match="needs code of its own"):
        load(folder)


# SONAR


@pytest.fixture(scope="module")
def sonar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The layout of cointegrated/SONAR_200_text_encoder: an encoder of M2M-100 without decoder, and the tokenizer of NLLB."""
    folder = tmp_path_factory.mktemp("sonar")
    letters = dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", "▁", *sorted(set("".join(TEXTS)) - {" "}), "▁d", "er"])
    vocab = {piece: number for number, piece in enumerate(letters)}
    tokenizer = transformers.NllbTokenizer(vocab=vocab, merges=[("▁", "d"), ("e", "r")], model_max_length=512)
    tokenizer.save_pretrained(folder)
    sizes = {"encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_layers": 2, "decoder_attention_heads": 2}
    config = transformers.M2M100Config(vocab_size=len(tokenizer), d_model=32, max_position_embeddings=128, init_std=0.5, **sizes)
    torch.manual_seed(0)
    M2M100Encoder(config).save_pretrained(folder)
    return folder


def encode_by_model_card(folder: Path, texts: Sequence[str], tag: str) -> np.ndarray:
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), M2M100Encoder.from_pretrained(folder).eval()
    tokenizer.src_lang = tag
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    assert (batch["input_ids"][:, 0] == tokenizer.convert_tokens_to_ids(tag)).all()
    assert tokenizer.convert_tokens_to_ids(tag) != tokenizer.unk_token_id
    states, mask = model(**batch).last_hidden_state, batch["attention_mask"][:, :, None]
    return unit((states * mask).sum(1) / mask.sum(1))


TAGS = {"de": "deu_Latn", "eng": "eng_Latn", "zh": "zho_Hans", "ar": "arb_Arab", "pes": "pes_Arab", "dik": "dik_Latn"}


@pytest.mark.parametrize(("lang", "tag"), TAGS.items())
def test_sonar_tags_the_language(sonar: Path, lang: str, tag: str) -> None:
    encoder = in_language(load(sonar), lang)
    np.testing.assert_allclose(encoder.encode(TEXTS), encode_by_model_card(sonar, TEXTS, tag), atol=1e-5)
    assert encoder.fingerprint == load(sonar).fingerprint == identify(EncoderSettings(encoder=str(sonar), **CPU)).fingerprint


def test_sonar_embeds_a_corpus_in_its_language(sonar: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    embed.run(EmbedConfig(inputs=(str(tmp_path / "text"),), output=str(tmp_path / "out"), lang="de", encoder=str(sonar), **CPU))
    corpus = open_corpus(str(tmp_path / "out"))
    ids = miner.embed(TEXTS).ids
    texts = [text.strip() for text in TEXTS]
    np.testing.assert_allclose(corpus.vectors_of(ids).astype(np.float32), encode_by_model_card(sonar, texts, "deu_Latn"), atol=2e-3)


@pytest.mark.parametrize(("lang", "message"), [("und", "needs the language of texts"), ("lat", "has no tag for the language lat_Latn")])
def test_sonar_needs_a_language_that_it_knows(sonar: Path, lang: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        miner.embed(TEXTS, encoder=str(sonar), lang=lang)
