"""BUCC as the score of a training run: F1 equals that of `miner eval bucc --protocol sample`, and wrong settings are errors."""

from collections.abc import Sequence
from pathlib import Path

import dense
import numpy as np
import pytest

from miner.config.datasets import DatasetFiles
from miner.encoders import load_encoder
from miner.errors import ConfigError, DataError
from miner.evaluation.bucc import BuccTask
from miner.training.config import TrainConfig, check_config
from miner.training.settings import EvaluationSettings
from miner.training.steps.bucc_dev import read_bucc
from miner.training.steps.validation import ValidationSet

GERMAN = ["eins zwei", "drei", "vier fünf", "sechs eins", "eins zwei", "sieben", "acht drei"]  # two sentences have the same text
ENGLISH = ["one two", "three four", "four five", "six", "seven one", "eight three", "nine"]
GOLD = [(1, 1), (2, 2), (3, 3), (4, 4), (6, 5), (7, 6)]
WORDS = {"eins": 0, "zwei": 1, "drei": 2, "vier": 3, "fünf": 4, "sechs": 5, "sieben": 6, "acht": 7}
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def encode(texts: Sequence[str]) -> np.ndarray:
    """Return unit vectors: a component per word, translations sharing theirs, and a constant."""
    vectors = np.full((len(texts), 10), 0.3)
    for row, text in enumerate(texts):
        for word in text.split():
            vectors[row, WORDS[word] if word in WORDS else NUMBERS.index(word)] += 1
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def write(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for lang, texts in (("de", GERMAN), ("en", ENGLISH)):
        lines = "".join(f"{lang}-{row:09}\t{text}\n" for row, text in enumerate(texts, start=1))
        (folder / f"de-en.sample.{lang}").write_text(lines)
    (folder / "de-en.sample.gold").write_text("".join(f"de-{source:09}\ten-{target:09}\n" for source, target in GOLD))
    return folder


def files(folder: Path, **values: object) -> DatasetFiles:
    checked: DatasetFiles = DatasetFiles.check(dataset="bucc", path=str(folder), **values)
    return checked


def test_f1_equals_brute_force(tmp_path: Path) -> None:
    (dev_set,) = read_bucc(files(write(tmp_path)))
    german, english = list(dict.fromkeys(GERMAN)), ENGLISH
    mined = dense.mine(encode(german), encode(english), np.arange(len(german)), np.arange(len(english)), 4, "ratio")
    gold = {(GERMAN[source - 1], ENGLISH[target - 1]) for source, target in GOLD}
    # Two sentences are "eins zwei", so no pair of it is accepted.
    pairs = [(margin, (german[i], english[j]) in gold) for margin, i, j in mined if german[i] != "eins zwei"]
    scores = []
    for lowest, _ in pairs:
        accepted = [is_gold for margin, is_gold in pairs if margin >= lowest]
        scores.append(2 * sum(accepted) / (len(accepted) + len(GOLD)))
    assert 0.5 < max(scores) < 1
    assert dev_set.f1(lambda sources, targets: (encode(sources), encode(targets))) == pytest.approx(max(scores))


def test_f1_equals_that_of_the_sample_protocol(toy_encoder: Path, tmp_path: Path) -> None:
    encoder = load_encoder(str(toy_encoder))
    (dev_set,) = read_bucc(files(write(tmp_path), languages=["de", "en"], split="sample"))
    expected = BuccTask(data=str(tmp_path), protocol="sample").evaluate(encoder).figures["mean"]["f1"]
    f1 = dev_set.f1(lambda *sides: (encoder.encode(sides[0]).astype(np.float16), encoder.encode(sides[1]).astype(np.float16)))
    assert f1 == pytest.approx(expected)


def test_wrong_settings_are_errors(tmp_path: Path) -> None:
    folder = write(tmp_path / "bucc")
    with pytest.raises(ConfigError, match=r"the metric bucc reads {dataset: bucc, path: ...}, not dev.tsv"):
        ValidationSet(EvaluationSettings(metric="bucc", files=["dev.tsv"]), [])
    with pytest.raises(ConfigError, match=r"evaluation.columns: bucc has no columns; remove them"):
        ValidationSet(EvaluationSettings(metric="bucc", files=[files(folder)], columns={"source": "de"}), [])
    with pytest.raises(DataError, match="no sentences in 'en'; name both languages of a pair, or none"):
        read_bucc(files(folder, languages=["de"]))
    (folder / "de-en.sample.gold").unlink()
    with pytest.raises(DataError, match="no gold beside it"):
        read_bucc(files(folder))


def test_two_encoders_are_an_error() -> None:
    config = TrainConfig.check(
        encoder={"kind": "transformer", "model": "model", "towers": "pair"},
        data=[{"strategy": "parallel", "files": ["a.tsv"], "columns": {"source": "de", "target": "en"}}],
        objective=[{"loss": "info_nce"}],
        training={"steps": 1},
        evaluation={"metric": "bucc", "files": {"dataset": "bucc", "path": "bucc2018"}},
    )
    with pytest.raises(ConfigError, match=r"bucc needs one encoder, and encoder.towers pair trains two; choose retrieval"):
        check_config(config)
