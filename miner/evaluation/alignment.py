"""Alignment and uniformity: how close positive pairs are, and how evenly all sentences are spread. See docs/evaluation.md for the protocol.

Wang & Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere", ICML 2020.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from miner.arrays import Floats, Floats32
from miner.config.datasets import DatasetFiles
from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, encode_aligned, read_aligned, read_scored_pairs
from miner.evaluation.scores import Score, mean
from miner.evaluation.task_base import AlignedTask
from miner.evaluation.translation_tasks import AlignmentTask

SHARPNESS = 2.0  # t of the paper's potential exp(-t ||x - y||^2)
BLOCK_ROWS = 1024  # rows compared with all others at a time


@dataclass(frozen=True, eq=False)
class AlignmentResult:
    """The result of `miner eval alignment`. Lower is better, for both."""

    distances: Floats  # (n,) squared, of the two sentences of each positive pair
    uniformity: dict[str, float]  # of `source` and `target`, or of all `sentences` of an STS table
    without_vector: int  # pairs of which one sentence has no vector

    def figures(self) -> dict[str, Any]:
        return {
            "n": len(self.distances),
            "without_vector": self.without_vector,
            "alignment": mean(self.distances),
            "uniformity": {**self.uniformity, "mean": sum(self.uniformity.values()) / len(self.uniformity)},
        }

    def summary(self) -> str:
        values = ", ".join(f"{value:.4f} ({side})" for side, value in self.figures()["uniformity"].items())
        return f"{len(self.distances):,} pairs\nalignment   {mean(self.distances):.4f}\nuniformity  {values}"

    def scores(self) -> dict[str, Score]:
        return {"alignment": Score({"all": self.distances[:, None]}, mean)}


def evaluate(encoder: Encoder, task: AlignmentTask) -> AlignmentResult:
    """Measure line-aligned files, or an STS table. Raise DataError if too few sentences have vectors."""
    if task.data is not None:
        return _evaluate_scored_pairs(encoder, task.data, task.min_score)
    return _evaluate_translations(encoder, AlignedTask.check(**task.model_dump(include=set(AlignedTask.model_fields), exclude_none=True)))


def _evaluate_translations(encoder: Encoder, task: AlignedTask) -> AlignmentResult:
    sources, targets = read_aligned(task)
    source, target = encode_aligned(encoder, sources, targets, np.float32)
    has_vectors = source.any(axis=1) & target.any(axis=1)
    if has_vectors.sum() < 2:
        raise DataError(f"{task.source}, {task.target}: fewer than two lines have a vector on both sides; give more lines")
    source, target = source[has_vectors], target[has_vectors]
    by_side = {"source": uniformity(source), "target": uniformity(target)}
    return AlignmentResult(alignment(source, target), by_side, int((~has_vectors).sum()))


def _evaluate_scored_pairs(encoder: Encoder, uri: str | DatasetFiles, min_score: float) -> AlignmentResult:
    """Measure an STS table: alignment over its pairs with a score above `min_score`, uniformity over its different sentences."""
    pairs = read_scored_pairs(uri)
    is_positive = pairs.scores > min_score
    if not is_positive.any():
        raise DataError(f"{uri}: no score is above {min_score:g}, the largest is {pairs.scores.max():g}; lower --min-score")
    vectors = encode(encoder, pairs.first + pairs.second, np.float32)
    first, second = vectors[: len(pairs.first)], vectors[len(pairs.first) :]
    has_vectors = first.any(axis=1) & second.any(axis=1)
    unique_rows = np.unique(pairs.first + pairs.second, return_index=True)[1]
    sentences = vectors[unique_rows[vectors[unique_rows].any(axis=1)]]
    positives = is_positive & has_vectors
    if len(sentences) < 2 or not positives.any():
        raise DataError(f"{uri}: no pair above a score of {min_score:g} has two vectors; name another --encoder")
    without_vector = int((is_positive & ~has_vectors).sum())
    return AlignmentResult(alignment(first[positives], second[positives]), {"sentences": uniformity(sentences)}, without_vector)


def alignment(source: Floats32, target: Floats32) -> Floats:
    """(n, dim) unit rows, twice -> (n,) ||f(x) - f(x+)||^2, whose mean is the paper's alignment."""
    distances: Floats = np.square(source.astype(np.float64) - target).sum(axis=1)
    return distances


def uniformity(vectors: Floats32, block_rows: int = BLOCK_ROWS) -> float:
    """(n, dim) unit rows, n >= 2 -> log of the mean over all pairs of different rows of exp(-2 ||f(x) - f(y)||^2).

    All pairs are compared, in blocks: memory grows linearly with n, time quadratically.
    """
    total = 0.0
    for start in range(0, len(vectors), block_rows):
        cosines = vectors[start : start + block_rows] @ vectors[start:].T  # the upper triangle counts each pair once
        potentials = np.exp(-SHARPNESS * (2 - 2 * cosines.astype(np.float64)))
        total += float(np.triu(potentials, 1).sum())
    return float(np.log(total / (len(vectors) * (len(vectors) - 1) / 2)))
