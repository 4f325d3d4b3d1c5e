"""Retrieval: how often the sentence found for a line is the line across from it. See docs/evaluation.md for the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miner.encoders import Encoder
from miner.evaluation.inputs import encode, read_aligned
from miner.evaluation.scores import Score, mean, percent, table
from miner.evaluation.settings import RetrievalTask
from miner.mining.margin import margins, mean_similarities
from miner.search.exact import VectorBlock, search_block
from miner.search.neighbours import Neighbours

Vectors = npt.NDArray[np.float16]
Rows = npt.NDArray[np.int64]
Answers = Rows  # (n, 2): the line found for line i, forward and backward; -1 where none is
Hits = npt.NDArray[np.bool_]  # (n, 2): whether it is line i

HEADS = ("forward", "backward", "mean")


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

    def cells(self) -> list[str]:
        return [percent(share) for share in self.figures().values()]


def accuracy(hits: Hits) -> Accuracy:
    return Accuracy(*(float(share) for share in hits.mean(axis=0)))


def hits(answers: Answers) -> Hits:
    right: Hits = answers == np.arange(len(answers))[:, None]
    return right


def f1(answers: Answers) -> Accuracy:
    """The mean over lines of F1, where an answer is a class: MTEB's F1 of bitext mining. A line found for others too counts less."""
    shares = []
    for column, right in zip(answers.T, hits(answers).T, strict=True):
        times = np.bincount(column[column >= 0], minlength=len(column))
        shares.append(float((2 * right / (1 + times)).mean()))
    return Accuracy(*shares)


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """What `miner eval retrieval` found."""

    answers: Mapping[str, Answers]  # by cosine, and by ratio margin

    def _rows(self) -> dict[str, Accuracy]:
        rows = {name: accuracy(hits(answers)) for name, answers in self.answers.items()}
        return {**rows, "cosine F1": f1(self.answers["cosine"]), "xSIM error": accuracy(~hits(self.answers["ratio"]))}

    def figures(self) -> dict[str, Any]:
        rows = {name: row.figures() for name, row in self._rows().items()}
        xsim, f1 = rows.pop("xSIM error"), rows.pop("cosine F1")
        return {"n": len(self.answers["ratio"]), "accuracy": rows, "f1": {"cosine": f1}, "xsim": xsim}

    def summary(self) -> str:
        return f"{len(self.answers['ratio']):,} lines\n{table(HEADS, {name: row.cells() for name, row in self._rows().items()})}"

    def scores(self) -> dict[str, Score]:
        return {f"accuracy, {name}": Score({"all": hits(answers)}, mean) for name, answers in self.answers.items()}


def evaluate(encoder: Encoder, task: RetrievalTask) -> RetrievalResult:
    """Line-aligned files -> how well the encoder finds line i of one from line i of the other.

    Raises DataError for files that cannot be read, hold no lines, or differ in their number of lines.
    """
    sources, targets = read_aligned(task)
    vectors = encode(encoder, sources + targets)
    return RetrievalResult(find(vectors[: len(sources)], vectors[len(sources) :], task.k))


def find(source: Vectors, target: Vectors, k: int) -> dict[str, Answers]:
    """source and target (n, dim), unit or zero rows, row i the translation of row i -> what is found by cosine and by ratio margin.

    A row without a vector finds nothing and is found by nothing.
    """
    forward, backward = search(source, target, k)
    forward_means, backward_means = mean_similarities(forward.similarities), mean_similarities(backward.similarities)
    answers = [best_margin(forward, forward_means, backward_means), best_margin(backward, backward_means, forward_means)]
    return {"cosine": by_cosine(forward, backward), "ratio": np.stack(answers, axis=1)}


def by_cosine(forward: Neighbours, backward: Neighbours) -> Answers:
    """The nearest neighbours; of equally near ones the first in the file."""
    return np.stack([forward.ids[:, 0], backward.ids[:, 0]], axis=1)


def search(source: Vectors, target: Vectors, k: int) -> tuple[Neighbours, Neighbours]:
    """(n, dim), (m, dim) -> the k nearest of each, by row number, exactly; a zero row has no neighbours and is none."""
    blocks = [VectorBlock(np.flatnonzero(vectors.any(axis=1)), vectors[vectors.any(axis=1)]) for vectors in (source, target)]
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
