"""Retrieval: how often the line retrieved for line i is line i of the other side. See docs/evaluation.md for the protocol."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from miner.arrays import Bools, Floats, Ints, Vectors
from miner.encoders import Encoder
from miner.encoders.base import search_device
from miner.encoders.pair import SOURCE, TARGET
from miner.evaluation.inputs import TextPart, encode_aligned, encode_tokens, read_aligned
from miner.evaluation.scores import EvaluationResult, Score, figure_table, mean
from miner.evaluation.task_base import AlignedTask, BarChart, RescoredTask
from miner.mining.candidates import ScoredPairs, join_neighbours, score
from miner.mining.in_memory import search_vectors
from miner.mining.late_scores import TokenSides, rescore
from miner.mining.margin import margins, mean_similarities
from miner.mining.matching import best_of_sources, best_of_targets, rank
from miner.search.neighbours import Neighbours
from miner.units import counted

Answers = Ints  # (n, 2): the line retrieved for line i, forward and backward; -1 if none
Hits = Bools  # (n, 2): whether it is line i
Accuracy = dict[str, float]  # share of lines: `forward` by searching the targets for each source, `backward`, and the `mean` of both

DIRECTIONS = {name: name for name in ("forward", "backward", "mean")}  # columns of a table


class RetrievalTask(AlignedTask, RescoredTask):
    """Measure how often line i of TARGET is retrieved for line i of SOURCE, and vice versa.

    By cosine, by ratio margin among the k nearest neighbours, which is xSIM, and by that margin blended with late interaction, as
    `miner mine` does with a static encoder. SOURCE and TARGET are text with one sentence per line.

    \b
    Example:
      miner eval retrieval news.de.txt.gz news.en.txt.gz --encoder sentence-transformers/LaBSE
    """

    CHART = BarChart(
        groups="accuracy",
        value="mean",
        caption="Accuracy, the mean of both directions",
        axis="accuracy",
        is_share=True,
    )

    task: Literal["retrieval"] = "retrieval"

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Retrieve line i of one file from line i of the other, both ways.

        Raise DataError for files that cannot be read, have no lines, or differ in their number of lines.
        """
        sources, targets = read_aligned(self)
        tokens = encode_tokens(encoder, TextPart(sources, side=SOURCE), TextPart(targets, side=TARGET), self)
        return summarise(retrieve(*encode_aligned(encoder, sources, targets), self.k, tokens, search_device(encoder)))


def summarise(answers: Mapping[str, Answers]) -> EvaluationResult:
    """Report the accuracy by `cosine`, by `ratio` margin and maybe by that blended with late interaction, `late`."""
    shares = {name: accuracy(hits(of_score)) for name, of_score in answers.items()}
    cosine_f1, xsim, num_lines = f1(answers["cosine"]), accuracy(~hits(answers["ratio"])), len(answers["ratio"])
    return EvaluationResult(
        {"n": num_lines, "accuracy": shares, "f1": {"cosine": cosine_f1}, "xsim": xsim},
        f"{counted(num_lines, 'line')}\n{figure_table({**shares, 'cosine F1': cosine_f1, 'xSIM error': xsim}, DIRECTIONS)}",
        {f"accuracy, {name}": Score({"all": hits(of_score)}, mean) for name, of_score in answers.items()},
    )


def both_directions(forward: float, backward: float) -> Accuracy:
    return {"forward": forward, "backward": backward, "mean": (forward + backward) / 2}


def accuracy(hits: Hits) -> Accuracy:
    return both_directions(*(float(share) for share in hits.mean(axis=0)))


def hits(answers: Answers) -> Hits:
    is_hit: Hits = answers == np.arange(len(answers))[:, None]
    return is_hit


def f1(answers: Answers) -> Accuracy:
    """Return the mean over lines of F1 with answers as classes, MTEB's F1 of bitext mining: a line retrieved for others too scores less."""
    shares = []
    for column, is_hit in zip(answers.T, hits(answers).T, strict=True):
        num_retrieved = np.bincount(column[column >= 0], minlength=len(column))
        shares.append(float((2 * is_hit / (1 + num_retrieved)).mean()))
    return both_directions(*shares)


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
