"""Losses of a training batch against plain loops over the vectors that the encoder gives to its texts."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from tiny import config

from miner.training import run
from miner.training.config import TrainConfig
from miner.training.steps.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS = ["even", "odd"]
BATCH = 8
Rows = list[list[float]]


def prepare(folder: Path, objective: dict[str, Any]) -> Trainer:
    """Prepare training on labelled pairs in three languages, with two translated views of each pair."""
    tiny.save_transformer(folder / "model", dropout=0.0)
    rows = [
        [lang, tiny.sentence(lang, digits), tiny.sentence(lang, digits[::-1]), LABELS[digits[0] % 2]]
        for lang in tiny.NUMBERS
        for digits in tiny.numbers(12, seed=4)
    ]
    path = tiny.write_tsv(folder / "labelled.tsv", ["lang", "a", "b", "label"], rows)
    columns = {"lang": "lang", "first": "a", "second": "b", "label": "label"}
    values = config(folder, batch_size=BATCH)
    values["encoder"] |= {"pooling": "cls"}
    views = {"full_translation": 1, "partial_translation": 1}
    values["data"] = [{"strategy": "labelled_pairs", "files": [str(path)], "columns": columns, "labels": LABELS, "views": views}]
    values["objective"] = [objective]
    return run.prepare(TrainConfig(**values), folder / "out")[0]


def encode_unit_rows(tower: Any, pairs: tuple[list[str], list[str] | None]) -> Rows:
    tokens = tower.tokenize(*pairs)
    with torch.no_grad():
        vectors: Rows = tower(tower.collate(tokens, np.arange(len(tokens)))).double().tolist()
    return [[x / math.hypot(*vector) for x in vector] for vector in vectors]


def compute(folder: Path, objective: dict[str, Any]) -> tuple[float, Rows, list[Rows], list[int]]:
    """Return the loss of a batch, the unit vectors of its anchors and of their views, and the labels."""
    trainer = prepare(folder, objective)
    stream = trainer.streams[0]
    batch = stream.draw(np.random.default_rng(0))
    loss = trainer.accumulate_gradients(trainer.loader.load(batch, stream, [0])).read_losses()["loss"]
    tower = trainer.towers[0].eval()
    anchors = encode_unit_rows(tower, batch.views["anchor"].read(np.random.default_rng(0)))
    parts = [encode_unit_rows(tower, part.read(np.random.default_rng(0))) for part in batch.views["positive"].parts]
    assert batch.labels is not None
    return loss, anchors, [list(views) for views in zip(*parts, strict=True)], batch.labels.tolist()


def similarity(first: list[float], second: list[float]) -> float:
    return math.fsum(a * b for a, b in zip(first, second, strict=True))


def label_contrast_of_samples(anchors: Rows, views: list[Rows], labels: list[int]) -> list[float]:
    """Return by sample the mean over its views of the contrast with the views of other labels, at temperature 1."""
    values = []
    for anchor, own_views, label in zip(anchors, views, labels, strict=True):
        others = [view for own, other in zip(views, labels, strict=True) if other != label for view in own]
        negatives = math.fsum(math.exp(similarity(anchor, view)) for view in others)
        shares = [math.exp(s) / (math.exp(s) + negatives) for s in (similarity(anchor, view) for view in own_views)]
        values.append(-math.fsum(map(math.log, shares)) / len(shares))
    return values


def squared_errors_of_samples(anchors: Rows, views: list[Rows], labels: list[int]) -> list[float]:
    """Return by sample the mean over its views of the squared distance."""
    del labels
    return [math.fsum(math.dist(anchor, view) ** 2 for view in own) / len(own) for anchor, own in zip(anchors, views, strict=True)]


@pytest.mark.parametrize(
    ("objective", "reference"),
    [
        ({"loss": "label_contrast", "temperature": 1.0}, label_contrast_of_samples),
        ({"loss": "alignment", "distance": "mse"}, squared_errors_of_samples),
    ],
    ids=["label_contrast", "alignment"],
)
def test_losses_are_means_over_samples_and_with_their_number_as_weight_sums(
    folder: Path, objective: dict[str, Any], reference: Callable[..., list[float]]
) -> None:
    loss, anchors, views, labels = compute(folder, objective)
    assert [len(own) for own in views] == [2] * BATCH
    values = reference(anchors, views, labels)
    assert loss == pytest.approx(math.fsum(values) / BATCH, abs=1e-5)
    shutil.rmtree(folder / "out")
    total, *_ = compute(folder, {**objective, "weight": BATCH})
    assert total == pytest.approx(math.fsum(values), abs=1e-4)
