"""What the papers say cannot work does not: contrast without negatives collapses, momentum contrast without momentum does not converge."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from miner.encoders import load_encoder
from miner.training import run
from miner.training.settings import TrainConfig

pytestmark = pytest.mark.usefixtures("one_thread")  # what is tiny is done sooner without threads that wait for one another


def trained(folder: Path, objective: dict[str, Any]) -> tuple[float, float]:
    """Of unseen numbers: how often the German is nearest to the English, and the mean cosine of two different ones in English."""
    tiny.save_transformer(folder / "model")
    tiny.write_pairs(folder / "pairs.tsv")
    values = tiny.config(folder, steps=70, batch_size=48, lr=5e-3, warmup=0.1, schedule="cosine", clip=1.0)
    values["encoder"]["max_tokens"] = 12
    encoder = load_encoder(run.train(TrainConfig(**{**values, "objective": [objective]}), str(folder / "out")).encoder)
    unseen = tiny.numbers(200, seed=7)
    english, german = (encoder.encode([tiny.sentence(lang, row) for row in unseen]) for lang in ("eng_Latn", "deu_Latn"))
    cosines = english @ english.T
    right = (english @ german.T).argmax(axis=1) == np.arange(len(unseen))
    return float(right.mean()), float(cosines[~np.eye(len(unseen), dtype=bool)].mean())


def test_with_negatives_sentences_come_apart(tmp_path: Path) -> None:
    right, alike = trained(tmp_path, {"loss": "info_nce"})
    assert right > 0.9
    assert alike < 0.3


@pytest.mark.parametrize("distance", ["cosine", "mse"])
def test_alignment_without_negatives_makes_all_sentences_one(tmp_path: Path, distance: str) -> None:
    right, alike = trained(tmp_path, {"loss": "alignment", "distance": distance})
    assert right < 0.5
    assert alike > 0.99


@pytest.mark.parametrize(("momentum", "least", "most"), [(0.9, 0.9, 1.0), (0.0, 0.0, 0.1)])
@pytest.mark.slow
def test_momentum_contrast_lives_by_its_momentum(tmp_path: Path, momentum: float, least: float, most: float) -> None:
    right, _ = trained(tmp_path, {"loss": "momentum", "momentum": momentum, "queue": 512})
    assert least <= right <= most
