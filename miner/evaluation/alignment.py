"""Alignment and uniformity: how close translations are, and how evenly all sentences are spread. See docs/evaluation.md for the protocol.

Wang & Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere", ICML 2020.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, read_aligned
from miner.evaluation.scores import Floats, Score, mean
from miner.evaluation.tasks import AlignmentTask

Vectors = npt.NDArray[np.float32]

SHARPNESS = 2.0  # t of the paper's potential exp(-t ||x - y||^2)
BLOCK_ROWS = 1024  # rows compared with all others at a time


@dataclass(frozen=True, eq=False)
class AlignmentResult:
    """The result of `miner eval alignment`. Lower is better, for both."""

    distances: Floats  # (n,) squared, of each line to its translation
    uniformity: dict[str, float]  # of `source` and `target`
    left_out: int  # lines without a vector on one side

    def figures(self) -> dict[str, Any]:
        return {
            "n": len(self.distances),
            "left_out": self.left_out,
            "alignment": mean(self.distances),
            "uniformity": {**self.uniformity, "mean": sum(self.uniformity.values()) / 2},
        }

    def summary(self) -> str:
        values = ", ".join(f"{value:.4f} ({side})" for side, value in self.figures()["uniformity"].items())
        return f"{len(self.distances):,} lines\nalignment   {mean(self.distances):.4f}\nuniformity  {values}"

    def scores(self) -> dict[str, Score]:
        return {"alignment": Score({"all": self.distances[:, None]}, mean)}


def evaluate(encoder: Encoder, task: AlignmentTask) -> AlignmentResult:
    """Measure line-aligned files. Raise DataError if fewer than two lines have vectors on both sides."""
    sources, targets = read_aligned(task)
    vectors = encode(encoder, sources + targets, np.float32)
    source, target = vectors[: len(sources)], vectors[len(sources) :]
    has_vectors = source.any(axis=1) & target.any(axis=1)
    if has_vectors.sum() < 2:
        raise DataError(f"{task.source}, {task.target}: fewer than two lines have a vector on both sides; give more lines")
    source, target = source[has_vectors], target[has_vectors]
    by_side = {"source": uniformity(source), "target": uniformity(target)}
    return AlignmentResult(alignment(source, target), by_side, int((~has_vectors).sum()))


def alignment(source: Vectors, target: Vectors) -> Floats:
    """(n, dim) unit rows, twice -> (n,) ||f(x) - f(x+)||^2, whose mean is the paper's alignment."""
    distances: Floats = np.square(source.astype(np.float64) - target).sum(axis=1)
    return distances


def uniformity(vectors: Vectors, block_rows: int = BLOCK_ROWS) -> float:
    """(n, dim) unit rows, n >= 2 -> log of the mean over all pairs of different rows of exp(-2 ||f(x) - f(y)||^2).

    All pairs are compared, in blocks: memory grows linearly with n, time quadratically.
    """
    total = 0.0
    for start in range(0, len(vectors), block_rows):
        cosines = vectors[start : start + block_rows] @ vectors[start:].T  # the upper triangle counts each pair once
        potentials = np.exp(-SHARPNESS * (2 - 2 * cosines.astype(np.float64)))
        total += float(np.triu(potentials, 1).sum())
    return float(np.log(total / (len(vectors) * (len(vectors) - 1) / 2)))
