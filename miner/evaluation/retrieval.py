"""Retrieval: how often the line retrieved for line i is line i of the other side. See docs/evaluation.md for the protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from miner.arrays import Bools, Floats, Ints, Vectors
from miner.encoders import Encoder
from miner.encoders.base import search_device
from miner.encoders.pair import SOURCE, TARGET
from miner.evaluation.inputs import TextPart, encode_aligned, encode_tokens, read_aligned
from miner.evaluation.scores import Score, mean, percent, table
from miner.evaluation.translation_tasks import RetrievalTask
from miner.mining.candidates import ScoredPairs, join_neighbours, score
from miner.mining.in_memory import search_vectors
from miner.mining.late_scores import TokenSides, rescore
from miner.mining.margin import margins, mean_similarities
from miner.mining.matching import best_of_sources, best_of_targets, rank
from miner.search.neighbours import Neighbours
from miner.units import counted

Answers = Ints  # (n, 2): the line retrieved for line i, forward and backward; -1 if none
Hits = Bools  # (n, 2): whether it is line i

HEADS = ("forward", "backward", "mean")


@dataclass(frozen=True)
class Accuracy:
    """Shares of lines: `forward` by searching the targets for each source, `backward` the other way round."""

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
    is_hit: Hits = answers == np.arange(len(answers))[:, None]
    return is_hit


def f1(answers: Answers) -> Accuracy:
    """Return the mean over lines of F1 with answers as classes, MTEB's F1 of bitext mining: a line retrieved for others too scores less."""
    shares = []
    for column, is_hit in zip(answers.T, hits(answers).T, strict=True):
        num_retrieved = np.bincount(column[column >= 0], minlength=len(column))
        shares.append(float((2 * is_hit / (1 + num_retrieved)).mean()))
    return Accuracy(*shares)


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """The result of `miner eval retrieval`."""

    answers: Mapping[str, Answers]  # `cosine`, `ratio` for ratio margin, and maybe `late` for that blended with late interaction

    def _rows(self) -> dict[str, Accuracy]:
        rows = {name: accuracy(hits(answers)) for name, answers in self.answers.items()}
        return {**rows, "cosine F1": f1(self.answers["cosine"]), "xSIM error": accuracy(~hits(self.answers["ratio"]))}

    def figures(self) -> dict[str, Any]:
        rows = {name: row.figures() for name, row in self._rows().items()}
        xsim, f1 = rows.pop("xSIM error"), rows.pop("cosine F1")
        return {"n": len(self.answers["ratio"]), "accuracy": rows, "f1": {"cosine": f1}, "xsim": xsim}

    def summary(self) -> str:
        return f"{counted(len(self.answers['ratio']), 'line')}\n{table(HEADS, {name: row.cells() for name, row in self._rows().items()})}"

    def scores(self) -> dict[str, Score]:
        return {f"accuracy, {name}": Score({"all": hits(answers)}, mean) for name, answers in self.answers.items()}


def evaluate(encoder: Encoder, task: RetrievalTask) -> RetrievalResult:
    """Retrieve line i of one file from line i of the other, both ways.

    Raise DataError for files that cannot be read, have no lines, or differ in their number of lines.
    """
    sources, targets = read_aligned(task)
    tokens = encode_tokens(encoder, TextPart(sources, side=SOURCE), TextPart(targets, side=TARGET), task)
    return RetrievalResult(retrieve(*encode_aligned(encoder, sources, targets), task.k, tokens, search_device(encoder)))


def retrieve(source: Vectors, target: Vectors, k: int, tokens: TokenSides | None = None, device: str = "cpu") -> dict[str, Answers]:
    """Return the rows retrieved by cosine and by ratio margin from sources and targets (n, dim), where row i translates row i.

    With `tokens`, also by ratio margin blended with late interaction. Rows are unit vectors or zero. A zero row retrieves nothing and is
    never retrieved.
    """
    answers = {}
    forward, backward = search_vectors(source, target, k if tokens is None else max(k, tokens.candidates), device)
    if tokens is not None:
        rows = np.arange(len(source)), np.arange(len(target))
        candidates = rescore(join_neighbours(*rows, forward, backward, k), *rows, tokens, k, device)
        answers["late"] = _best_candidates(score(candidates, "ratio"), len(source))
    forward, backward = forward.nearest(k), backward.nearest(k)
    forward_means, backward_means = mean_similarities(forward.similarities), mean_similarities(backward.similarities)
    by_margin = [nearest_by_margin(forward, forward_means, backward_means), nearest_by_margin(backward, backward_means, forward_means)]
    return {"cosine": nearest_by_cosine(forward, backward), "ratio": np.stack(by_margin, axis=1), **answers}


def _best_candidates(pairs: ScoredPairs, num_lines: int) -> Answers:
    """Return the neighbour with the largest margin of each source and of each target, of equal ones the first; -1 if there is none."""
    ranked, answers = rank(pairs), np.full((num_lines, 2), -1)
    forward, backward = ranked.take(best_of_sources(ranked)), ranked.take(best_of_targets(ranked))
    answers[forward.source_ids, 0], answers[backward.target_ids, 1] = forward.target_ids, backward.source_ids
    return answers


def nearest_by_cosine(forward: Neighbours, backward: Neighbours) -> Answers:
    """Return the nearest neighbours, of equally near ones the first in the file."""
    return np.stack([forward.ids[:, 0], backward.ids[:, 0]], axis=1)


def nearest_by_margin(neighbours: Neighbours, means: Floats, other_means: Floats) -> Ints:
    """Neighbours (n, k), means (n,) and means of the other side (m,) -> (n,) the neighbour with the largest ratio margin.

    Of the k nearest, as in LASER's xSIM; of equal margins the nearer one, then the first in the file; -1 if there is none.
    """
    ratio = margins("ratio", neighbours.similarities, means[:, None], other_means[neighbours.ids])
    ratio = np.where(np.isnan(ratio), -np.inf, ratio)
    best = ratio.argmax(axis=1)[:, None]
    answers = np.where(np.isneginf(ratio).all(axis=1), -1, np.take_along_axis(neighbours.ids, best, axis=1)[:, 0])
    return answers.astype(np.int64)
