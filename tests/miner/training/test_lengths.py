"""Limits of training, inference and fine-tuning, and the counts of texts that were cut."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import yaml
from command import miner

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.encoders.transformer import TransformerEncoder

WORDS = tiny.NUMBERS["eng_Latn"]
LONG = " ".join(WORDS[position % 10] for position in range(30))  # 32 tokens with the special ones; the model reads 38

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write 12 pairs: the English side of 4 of them has 9 words, all others 4."""
    tiny.save_transformer(tmp_path / "model", dropout=0.0)
    pairs = [[tiny.sentence(lang, digits) for lang in ("eng_Latn", "deu_Latn")] for digits in tiny.numbers(12, seed=1)]
    for pair in pairs[:4]:
        pair[0] += " one two three four five"
    tiny.write_tsv(tmp_path / "pairs.tsv", ["en", "de"], pairs)
    return tmp_path


def train(folder: Path, output: str, **encoder: Any) -> tuple[Path, dict[str, Any], str]:
    """Train two epochs; return the encoder, the result and standard error."""
    values = tiny.config(folder, epochs=2, steps=None, batch_size=6, log_every=1)
    values["encoder"] |= encoder
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    result = miner("train", folder / "config.yaml", "--output", folder / output)
    assert result.exit_code == 0, result.output
    return folder / output / "encoder", json.loads((folder / output / "result.json").read_text()), result.stderr


def load(folder: Path, **settings: Any) -> TransformerEncoder:
    encoder = load_encoder(str(folder), EncoderSettings(device="cpu", **settings))
    assert isinstance(encoder, TransformerEncoder)
    return encoder


def test_an_encoder_that_was_trained_on_short_texts_reads_long_ones(folder: Path) -> None:
    encoder, _, _ = train(folder, "out", max_tokens=8)
    trained, untrained = load(encoder), load(folder / "model", pooling="mean")
    assert trained.max_tokens == untrained.max_tokens == 38
    others = [" ".join([*LONG.split()[:-1], WORDS[0]]), " ".join(LONG.split()[:6])]
    long, *changed = trained.encode([LONG, *others])
    assert all(np.abs(long - vector).max() > 1e-4 for vector in changed)  # the last of 30 words counts


def test_inference_has_a_limit_of_its_own(folder: Path) -> None:
    encoder, _, _ = train(folder, "out", max_tokens=8, inference_max_tokens=16)
    assert load(encoder).max_tokens == 16
    first, second = load(encoder).encode([LONG, " ".join(LONG.split()[:14])])
    np.testing.assert_allclose(first, second, atol=1e-5)


def test_cut_texts_are_counted_in_training(folder: Path) -> None:
    """4 of 24 texts have 11 tokens, all others 6."""
    _, result, warnings = train(folder, "cut", max_tokens=10)
    assert (result["texts"], result["cut_texts"]) == (48, 8)
    lines = [json.loads(line) for line in (folder / "cut" / "log.jsonl").read_text().splitlines()]
    assert [lines[1]["cut_texts"], lines[3]["cut_texts"]] == [4, 8]
    assert warnings.count("longer than encoder.max_tokens (10) and cut in training") == 1
    _, result, warnings = train(folder, "whole", max_tokens=11)
    assert (result["texts"], result["cut_texts"]) == (48, 0)
    assert "longer than" not in warnings


def test_cut_texts_of_a_static_encoder_are_counted(folder: Path) -> None:
    values = tiny.config(folder, epochs=1, steps=None, batch_size=6)
    values["encoder"] = {"kind": "static", "dim": 8, "max_pieces": 12, "piece_dropout": 0, "spelling_buckets": 0}
    values["encoder"]["vocabulary"] = {"size": 40, "character_coverage": 1.0}
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    result = miner("train", folder / "config.yaml", "--output", folder / "out")
    assert result.exit_code == 0, result.output
    encoder = load_encoder(str(folder / "out" / "encoder"))
    rows = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()[1:]]
    lengths = [len(encoder.pieces.encode(text)) for row in rows for text in row]  # type: ignore[attr-defined]
    counts = json.loads((folder / "out" / "result.json").read_text())
    assert (counts["texts"], counts["cut_texts"]) == (24, sum(length > 12 for length in lengths))
    assert 0 < counts["cut_texts"] < 24
    assert result.stderr.count("longer than encoder.max_pieces (12)") == 1


def test_cut_texts_are_counted_in_embedding(folder: Path) -> None:
    (folder / "texts.txt").write_text("one two\n" + "one two three four five six seven\n" + LONG + "\n")
    options = ("--encoder", folder / "model", "--pooling", "mean", "--max-tokens", 9)
    output = ("--output", folder / "corpus", "--json", folder / "f.json")
    result = miner("embed", folder / "texts.txt", "--lang", "eng_Latn", *options, *output)
    assert result.exit_code == 0, result.output
    assert "1 truncated at the limit of the encoder" in result.output
    assert json.loads((folder / "f.json").read_text())["truncated_texts"] == 1


@pytest.mark.parametrize("setting", ["max_tokens", "inference_max_tokens"])
def test_a_limit_above_that_of_the_model_is_an_error(folder: Path, setting: str) -> None:
    values = tiny.config(folder)
    values["encoder"][setting] = 39
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    result = miner("train", folder / "config.yaml", "--output", folder / "out")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "room for 38 tokens" in result.stderr
