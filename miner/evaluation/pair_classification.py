"""Classification of pairs of texts, as of paraphrases and entailment: by a linear probe, or by a fine-tuned transformer.

See docs/evaluation.md for the protocol.
"""

import numpy as np
import numpy.typing as npt

from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation import probe
from miner.evaluation.inputs import encode
from miner.evaluation.probe import Features, LabelledRows, ProbeResult
from miner.evaluation.settings import PairClassificationTask

Vectors = npt.NDArray[np.float32]

BLOCK = 8192  # pairs whose features are held at a time


def evaluate(encoder: Encoder, task: PairClassificationTask) -> ProbeResult:
    """Tables of pairs and labels -> how the pairs to test on are labelled.

    Where there is nothing to train on, by the classifier that the encoder comes with; with `task.fine_tune` by one that is trained
    together with a copy of the encoder; else by a probe. DataError as in `probe.read`, ConfigError where the encoder cannot serve.
    """
    columns = task.first_column, task.second_column
    if task.train is None:
        return _ready(encoder, task, probe.read_test(task, *columns))
    train, test = probe.read(task, *columns)
    if task.fine_tune:
        from miner.evaluation import fine_tuning  # loads all of the training, which takes seconds

        predicted = fine_tuning.predict(encoder, task, train, test)
        return ProbeResult(probe.by_language(test, predicted), len(train.labels), len(set(train.labels)))
    vectors = (encode(encoder, [*rows.texts[0], *rows.texts[1]], np.float32) for rows in (train, test))
    (u, v), (u_test, v_test) = (np.split(both, 2) for both in vectors)
    blocks = (features(u_test[at : at + BLOCK], v_test[at : at + BLOCK]) for at in range(0, len(u_test), BLOCK))
    return probe.run(features(u, v), blocks, train, test)


def _ready(encoder: Encoder, task: PairClassificationTask, test: LabelledRows) -> ProbeResult:
    """By the classifier that was trained with the encoder."""
    from miner.evaluation import classifiers  # as above

    classifier = classifiers.beside(encoder)
    if strange := [label for label in test.labels if label not in classifier.labels]:
        known = ", ".join(classifier.labels)
        raise DataError(f"{task.test}: the label {strange[0]!r} is none that the classifier knows ({known}); name another --label-column")
    return ProbeResult(probe.by_language(test, classifier.predict(*test.texts)), None, len(classifier.labels))


def features(u: Vectors, v: Vectors) -> Features:
    """Vectors (n, dim) of the first and the second texts -> (n, 4 dim): u, v, |u - v| and u * v (Conneau et al. 2017, section 3.1)."""
    found: Features = np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
    return found
