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
from miner.evaluation.settings import AlignmentTask

Vectors = npt.NDArray[np.float32]

SHARPNESS = 2.0  # t of the paper's potential exp(-t ||x - y||^2)
BLOCK = 1024  # rows compared with all others at a time


@dataclass(frozen=True, eq=False)
class AlignmentResult:
    """What `miner eval alignment` found. Less is better, of both."""

    distances: Floats  # (n,) squared, of each line to its translation
    uniformity: dict[str, float]  # of the sources, and of the targets
    left_out: int  # lines without a vector on one side

    def figures(self) -> dict[str, Any]:
        return {
            "n": len(self.distances),
            "left_out": self.left_out,
            "alignment": mean(self.distances),
            "uniformity": {**self.uniformity, "mean": sum(self.uniformity.values()) / 2},
        }

    def summary(self) -> str:
        uniformity = self.figures()["uniformity"]
        told = ", ".join(f"{value:.4f} ({side})" for side, value in uniformity.items())
        return f"{len(self.distances):,} lines\nalignment   {mean(self.distances):.4f}\nuniformity  {told}"

    def scores(self) -> dict[str, Score]:
        return {"alignment": Score({"all": self.distances[:, None]}, mean)}


def evaluate(encoder: Encoder, task: AlignmentTask) -> AlignmentResult:
    """Line-aligned files -> distances between and within them. DataError where fewer than two lines have vectors on both sides."""
    sources, targets = read_aligned(task)
    vectors = encode(encoder, sources + targets, np.float32)
    source, target = vectors[: len(sources)], vectors[len(sources) :]
    known = source.any(axis=1) & target.any(axis=1)
    if known.sum() < 2:
        raise DataError(f"{task.source}, {task.target}: fewer than two lines say something on both sides; give more")
    source, target = source[known], target[known]
    return AlignmentResult(alignment(source, target), {"source": uniformity(source), "target": uniformity(target)}, int((~known).sum()))


def alignment(source: Vectors, target: Vectors) -> Floats:
    """(n, dim) unit rows, twice -> (n,) ||f(x) - f(x+)||^2, of which the paper's alignment is the mean."""
    distances: Floats = np.square(source.astype(np.float64) - target).sum(axis=1)
    return distances


def uniformity(vectors: Vectors) -> float:
    """(n, dim) unit rows, n at least 2 -> log of the mean over all pairs of different rows of exp(-2 ||f(x) - f(y)||^2).

    Every pair is looked at, in blocks of BLOCK rows, so that memory grows with n alone and time with its square.
    """
    total = 0.0
    for start in range(0, len(vectors), BLOCK):
        cosines = vectors[start : start + BLOCK] @ vectors[start:].T  # of each pair once, and of some in this block twice
        potentials = np.exp(-SHARPNESS * (2 - 2 * cosines.astype(np.float64)))
        total += float(np.triu(potentials, 1).sum())
    return float(np.log(total / (len(vectors) * (len(vectors) - 1) / 2)))
