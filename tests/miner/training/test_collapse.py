"""Failures that the papers predict: losses without negatives collapse, momentum contrast without momentum does not converge."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from miner.encoders import load_encoder
from miner.training import run
from miner.training.config import TrainConfig

pytestmark = pytest.mark.usefixtures("one_thread")  # tiny models are faster in one thread


def train(folder: Path, objective: dict[str, Any]) -> tuple[float, float]:
    """Return, for unseen numbers, the retrieval accuracy from English to German and the mean cosine of different English sentences."""
    tiny.save_transformer(folder / "model")
    tiny.write_pairs(folder / "pairs.tsv")
    values = tiny.config(folder, steps=70, batch_size=48, lr=5e-3, warmup=0.1, schedule="cosine", clip=1.0)
    values["encoder"]["max_tokens"] = 12
    encoder = load_encoder(run.train(TrainConfig(**{**values, "objective": [objective]}), str(folder / "out")).encoder)
    unseen = tiny.numbers(200, seed=7)
    english, german = (encoder.encode([tiny.sentence(lang, row) for row in unseen]) for lang in ("eng_Latn", "deu_Latn"))
    cosines = english @ english.T
    is_correct = (english @ german.T).argmax(axis=1) == np.arange(len(unseen))
    return float(is_correct.mean()), float(cosines[~np.eye(len(unseen), dtype=bool)].mean())


def test_info_nce_separates_sentences(tmp_path: Path) -> None:
    accuracy, cosine = train(tmp_path, {"loss": "info_nce"})
    assert accuracy > 0.9
    assert cosine < 0.3


@pytest.mark.parametrize("distance", ["cosine", "mse"])
def test_alignment_without_negatives_collapses(tmp_path: Path, distance: str) -> None:
    accuracy, cosine = train(tmp_path, {"loss": "alignment", "distance": distance})
    assert accuracy < 0.5
    assert cosine > 0.99


@pytest.mark.parametrize(("momentum", "min_accuracy", "max_accuracy"), [(0.9, 0.9, 1.0), (0.0, 0.0, 0.1)])
@pytest.mark.slow
def test_momentum_contrast_needs_momentum(tmp_path: Path, momentum: float, min_accuracy: float, max_accuracy: float) -> None:
    accuracy, _ = train(tmp_path, {"loss": "momentum", "momentum": momentum, "queue": 512})
    assert min_accuracy <= accuracy <= max_accuracy
