"""Retrieval: how often the sentence found for a line is the line across from it. See docs/evaluation.md for the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.lines import encode, read_lines
from miner.mining.margin import margins, mean_similarities
from miner.search.exact import Block, search_block
from miner.search.neighbours import Neighbours

Vectors = npt.NDArray[np.float16]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Accuracy:
    """Shares of lines, of 1: `forward` by searching the targets for each source, `backward` the other way round."""

    forward: float
    backward: float

    @property
    def mean(self) -> float:
        return (self.forward + self.backward) / 2

    def figures(self) -> dict[str, float]:
        return {"forward": self.forward, "backward": self.backward, "mean": self.mean}


@dataclass(frozen=True)
class Result:
    """What `miner eval retrieval` found."""

    lines: int
    accuracy: Mapping[str, Accuracy]  # by cosine, and by ratio margin

    def figures(self) -> dict[str, Any]:
        return {"n": self.lines, "accuracy": {name: accuracy.figures() for name, accuracy in self.accuracy.items()}}

    def summary(self) -> str:
        return f"{self.lines:,} lines\n{table(self.accuracy)}"


def table(rows: Mapping[str, Accuracy]) -> str:
    """Accuracies in percent, a line each."""
    width = max(map(len, rows))
    head = f"{'':{width}}  forward  backward    mean"
    lines = [f"{name:{width}}  {100 * a.forward:7.2f}  {100 * a.backward:8.2f}  {100 * a.mean:6.2f}" for name, a in rows.items()]
    return "\n".join([head, *lines])


def evaluate(encoder: Encoder, source: str, target: str, k: int, text_column: str | None = None) -> Result:
    """Line-aligned files -> how well the encoder finds line i of one from line i of the other.

    Raises DataError for files that cannot be read, hold no lines, or differ in their number of lines.
    """
    sources, targets = read_lines(source, text_column), read_lines(target, text_column)
    if len(sources) != len(targets):
        raise DataError(f"{source} has {len(sources)} lines, {target} has {len(targets)}; line i of one must translate line i of the other")
    if not sources:
        raise DataError(f"{source}: no lines; give a file with a sentence on each line")
    vectors = encode(encoder, sources + targets)
    return Result(len(sources), accuracies(vectors[: len(sources)], vectors[len(sources) :], k))


def accuracies(source: Vectors, target: Vectors, k: int) -> dict[str, Accuracy]:
    """source and target (n, dim), unit or zero rows, row i the translation of row i -> accuracy by cosine and by ratio margin.

    A row without a vector finds nothing and is found by nothing, which counts as wrong.
    """
    forward, backward = search(source, target, k)
    forward_means, backward_means = mean_similarities(forward.similarities), mean_similarities(backward.similarities)
    by_margin = Accuracy(
        _share_right(best_margin(forward, forward_means, backward_means)),
        _share_right(best_margin(backward, backward_means, forward_means)),
    )
    return {"cosine": by_cosine(forward, backward), "ratio": by_margin}


def by_cosine(forward: Neighbours, backward: Neighbours) -> Accuracy:
    """The accuracy of the nearest neighbours; of equally near ones the first in the file."""
    return Accuracy(_share_right(forward.ids[:, 0]), _share_right(backward.ids[:, 0]))


def search(source: Vectors, target: Vectors, k: int) -> tuple[Neighbours, Neighbours]:
    """(n, dim), (m, dim) -> the k nearest of each, by row number, exactly; a zero row has no neighbours and is none."""
    blocks = [Block(np.flatnonzero(vectors.any(axis=1)), vectors[vectors.any(axis=1)]) for vectors in (source, target)]
    found = search_block(blocks[0], blocks[1], k)
    return _spread(found[0], blocks[0].ids, len(source)), _spread(found[1], blocks[1].ids, len(target))


def _spread(found: Neighbours, rows: Rows, count: int) -> Neighbours:
    """The neighbours of some rows -> of all `count` rows, the others having none."""
    ids, similarities = np.full((count, found.k), -1, dtype=np.int64), np.full((count, found.k), np.nan)
    ids[rows], similarities[rows] = found.ids, found.similarities
    return Neighbours(ids, similarities)


def best_margin(found: Neighbours, means: npt.NDArray[np.float64], other_means: npt.NDArray[np.float64]) -> Rows:
    """Neighbours (n, k), means (n,) and means of the other side (m,) -> (n,) the neighbour with the largest ratio margin.

    Among the k nearest, as in LASER's xSIM; of equal margins the nearer one, then the first in the file; -1 where there is none.
    """
    ratio = margins("ratio", found.similarities, means[:, None], other_means[found.ids])
    ratio = np.where(np.isnan(ratio), -np.inf, ratio)
    best = ratio.argmax(axis=1)[:, None]
    answer = np.where(np.isneginf(ratio).all(axis=1), -1, np.take_along_axis(found.ids, best, axis=1)[:, 0])
    return answer.astype(np.int64)


def _share_right(answers: Rows) -> float:
    return float((answers == np.arange(len(answers))).mean())
