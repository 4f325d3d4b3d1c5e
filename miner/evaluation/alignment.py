"""Alignment and uniformity: how close positive pairs are, and how evenly all sentences are spread. See docs/evaluation.md for the protocol.

Wang & Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere", ICML 2020.
"""

from typing import Literal, Self

import numpy as np
import pydantic
from pydantic_core import PydanticCustomError

from miner.arrays import Floats, Floats32
from miner.config.datasets import DatasetFiles, TableFile
from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, encode_aligned, read_aligned, read_scored_pairs
from miner.evaluation.scores import EvaluationResult, Score, mean
from miner.evaluation.task_base import AlignedTask, TaskSettings, ValueTable

SHARPNESS = 2.0  # t of the paper's potential exp(-t ||x - y||^2)
BLOCK_ROWS = 1024  # rows compared with all others at a time


class AlignmentTask(TaskSettings):
    """Measure alignment and uniformity: how close translations or paraphrases are, and how evenly all sentences are spread.

    Line i of TARGET translates line i of SOURCE. With --data instead, the pairs of an STS table with a score above --min-score are
    the paraphrases.

    \b
    Example:
      miner eval alignment news.de.txt.gz news.en.txt.gz
      miner eval alignment --data sts-dev.tsv
    """

    CHART = ValueTable(
        values={
            "alignment": ("alignment",),
            **{f"uniformity, {side}": ("uniformity", side) for side in ("source", "target", "sentences", "mean")},
        },
        caption="How close the sentences of {n:,} pairs are, and how evenly all sentences are spread. Lower is better.",
    )
    PATHS = ("source", "target", "data")
    ARGUMENTS = ("source", "target")

    task: Literal["alignment"] = "alignment"
    source: TableFile | None = None
    target: TableFile | None = None
    text_column: str | None = pydantic.Field(None, description="Column of both sides: a name, a number from 1, or a language of TMX.")
    source_column: str | None = pydantic.Field(None, description="Column of the source, if it has another name.")
    target_column: str | None = pydantic.Field(None, description="Column of the target, which may be in the same file: leave TARGET out.")
    data: TableFile | None = pydantic.Field(
        None, description="Table with the columns sentence1, sentence2 and score, instead of SOURCE and TARGET."
    )
    min_score: float = pydantic.Field(4, description="Pairs of the table with a score above this are positives; for scores from 0 to 5.")

    @pydantic.model_validator(mode="after")
    def _check_inputs(self) -> Self:
        is_one_table = isinstance(self.source, DatasetFiles) or None not in (self.source_column, self.target_column)
        has_source, has_target = self.source is not None, self.target is not None or is_one_table
        if (has_source, has_target) != ((False, False) if self.data is not None else (True, True)):
            raise PydanticCustomError("inputs", "give SOURCE and TARGET, or a table of scored pairs as --data")
        return self

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Measure line-aligned files, or an STS table. Raise DataError if too few sentences have vectors."""
        return self._evaluate_translations(encoder) if self.data is None else self._evaluate_scored_pairs(encoder, self.data)

    def _evaluate_translations(self, encoder: Encoder) -> EvaluationResult:
        task = AlignedTask.check(**self.model_dump(include=set(AlignedTask.model_fields), exclude_none=True))
        source, target = encode_aligned(encoder, *read_aligned(task), np.float32)
        has_vectors = source.any(axis=1) & target.any(axis=1)
        if has_vectors.sum() < 2:
            raise DataError(f"{task.source}, {task.target}: fewer than two lines have a vector on both sides; give more lines")
        source, target = source[has_vectors], target[has_vectors]
        by_side = {"source": uniformity(source), "target": uniformity(target)}
        return _summarise(alignment(source, target), by_side, int((~has_vectors).sum()))

    def _evaluate_scored_pairs(self, encoder: Encoder, data: str | DatasetFiles) -> EvaluationResult:
        """Measure an STS table: alignment over its pairs with a score above `min_score`, uniformity over its different sentences."""
        pairs = read_scored_pairs(data)
        is_positive = pairs.scores > self.min_score
        if not is_positive.any():
            raise DataError(f"{data}: no score is above {self.min_score:g}, the largest is {pairs.scores.max():g}; lower --min-score")
        vectors = encode(encoder, pairs.first + pairs.second, np.float32)
        first, second = np.split(vectors, 2)
        has_vectors = first.any(axis=1) & second.any(axis=1)
        unique_rows = np.unique(pairs.first + pairs.second, return_index=True)[1]
        sentences = vectors[unique_rows[vectors[unique_rows].any(axis=1)]]
        positives = is_positive & has_vectors
        if len(sentences) < 2 or not positives.any():
            raise DataError(f"{data}: no pair above a score of {self.min_score:g} has two vectors; name another --encoder")
        without_vector = int((is_positive & ~has_vectors).sum())
        return _summarise(alignment(first[positives], second[positives]), {"sentences": uniformity(sentences)}, without_vector)


def _summarise(distances: Floats, uniformities: dict[str, float], without_vector: int) -> EvaluationResult:
    """Squared distances of positive pairs (n,), uniformity by side, and the number of pairs without vectors. Lower is better, for both."""
    uniformities = {**uniformities, "mean": sum(uniformities.values()) / len(uniformities)}
    values = ", ".join(f"{value:.4f} ({side})" for side, value in uniformities.items())
    return EvaluationResult(
        {"n": len(distances), "without_vector": without_vector, "alignment": mean(distances), "uniformity": uniformities},
        f"{len(distances):,} pairs\nalignment   {mean(distances):.4f}\nuniformity  {values}",
        {"alignment": Score({"all": distances[:, None]}, mean)},
    )


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
