"""Classification of text pairs, such as paraphrases and entailment: by a linear probe, or by a fine-tuned transformer.

See docs/evaluation.md for the protocol.
"""

from typing import Literal, Self

import numpy as np
import pydantic
from pydantic_core import PydanticCustomError

from miner.arrays import Floats32
from miner.config.datasets import TableFile
from miner.encoders import Encoder
from miner.encoders.pair import PairEncoder
from miner.errors import DataError
from miner.evaluation.inputs import encode
from miner.evaluation.scores import EvaluationResult
from miner.research.tasks.probe import ProbeTask, predict, read_rows, read_test_rows, summarise

BLOCK_PAIRS = 8192  # pairs whose features are in memory at a time


class PairClassificationTask(ProbeTask):
    """Measure the accuracy of a classifier of text pairs, such as those of PAWS-X and XNLI.

    By default a linear classifier on frozen embeddings; with --fine-tune the encoder is trained too; without --train it is the classifier
    that `miner train` saved beside the encoder. --train-lang en is zero-shot transfer from English; a table of translations without
    --train-lang is translate-train.

    \b
    Example:
      miner eval pair-classification --train pawsx.train.tsv --test pawsx.test.tsv.gz --lang-column lang --train-lang en --fine-tune \\
        --encoder FacebookAI/xlm-roberta-base --pooling cls
    """

    task: Literal["pair-classification"] = "pair-classification"
    train: TableFile | None = pydantic.Field(
        None, description="Table of the training rows; without it, the encoder's own classifier is tested."
    )
    first_column: str = pydantic.Field("sentence1", description="Column of the first text.")
    second_column: str = pydantic.Field("sentence2", description="Column of the second text.")
    fine_tune: bool = pydantic.Field(False, description="Fine-tune a copy of the encoder, a transformer, instead of training a probe.")
    epochs: float = pydantic.Field(5, gt=0, description="Epochs of fine-tuning.")
    lr: float = pydantic.Field(2e-5, gt=0, description="Peak learning rate of fine-tuning.")
    batch_size: int = pydantic.Field(32, ge=1, description="Pairs per step of fine-tuning.")
    seed: int = pydantic.Field(0, ge=0, description="Seed of fine-tuning.")
    pair_tokens: int | None = pydantic.Field(
        None, ge=2, description="Truncate longer pairs in fine-tuning; by default, at 512 tokens or what the model can read."
    )

    @pydantic.model_validator(mode="after")
    def _check_training(self) -> Self:
        if self.train is None and (self.fine_tune or self.train_langs):
            raise PydanticCustomError("train", "--fine-tune and --train-lang require training rows; give --train")
        return self

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Classify the test pairs.

        Without training rows, by the classifier saved beside the encoder; with `fine_tune`, by one trained together with a copy of the
        encoder; otherwise by a probe. Raise DataError as `read_rows` does, and ConfigError if the encoder does not support the way.
        """
        if isinstance(encoder, PairEncoder):
            raise encoder.missing_side()
        if self.train is None:
            return self._test_saved_classifier(encoder)
        train, test = read_rows(self, self.first_column, self.second_column)
        if self.fine_tune:
            from miner.research.tasks import classifiers  # imports the trainer, which takes seconds

            predicted = classifiers.fine_tune(encoder, self, train, test)
        else:
            vectors = (encode(encoder, [*rows.texts[0], *rows.texts[1]], np.float32) for rows in (train, test))
            (u, v), (u_test, v_test) = (np.split(both_sides, 2) for both_sides in vectors)
            starts = range(0, len(u_test), BLOCK_PAIRS)
            blocks = (features(u_test[start : start + BLOCK_PAIRS], v_test[start : start + BLOCK_PAIRS]) for start in starts)
            predicted = predict(features(u, v), np.array(train.labels), blocks)
        return summarise(test, predicted, len(set(train.labels)), len(train.labels))

    def _test_saved_classifier(self, encoder: Encoder) -> EvaluationResult:
        from miner.research.tasks import classifiers  # imports the trainer

        test = read_test_rows(self, self.first_column, self.second_column)
        classifier = classifiers.load_saved(encoder)
        if unknown := [label for label in test.labels if label not in classifier.labels]:
            labels = ", ".join(classifier.labels)
            raise DataError(
                f"{self.test}: the classifier does not know the label {unknown[0]!r}, only {labels}; name another --label-column"
            )
        return summarise(test, classifier.predict(*test.texts), len(classifier.labels), None)


def features(u: Floats32, v: Floats32) -> Floats32:
    """Vectors (n, dim) of the first and the second texts -> (n, 4 dim): u, v, |u - v| and u * v (Conneau et al. 2017, section 3.1)."""
    combined: Floats32 = np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
    return combined
