"""Encoders that people mine with: tiny random models of their architecture, tokenizer and files, against their reference."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.m2m_100.modeling_m2m_100 import M2M100Encoder

import miner
from miner.config.commands import EmbedConfig, EncoderSettings
from miner.encoders import identify, load_encoder
from miner.encoders.base import in_language
from miner.errors import ConfigError
from miner.io.corpus import open_corpus
from pipelines.corpus import embed

TEXTS = ["The cat sees a big house.", "Ein Hund läuft über die Straße, und die Katze schläft.", "кот", "A dog runs over the bridge. " * 3]
CPU = {"device": "cpu", "dtype": "float32"}

pytestmark = pytest.mark.usefixtures("one_thread")


def load(folder: Path, **settings: Any) -> Any:
    return load_encoder(str(folder), EncoderSettings(**CPU, **settings))


def unit(vectors: torch.Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(vectors.float(), dim=-1).detach().numpy()


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
