"""Classification of text pairs, such as paraphrases and entailment: by a linear probe, or by a fine-tuned transformer.

See docs/evaluation.md for the protocol.
"""

import numpy as np

from miner.arrays import Floats32
from miner.encoders import Encoder
from miner.encoders.pair import PairEncoder
from miner.errors import DataError
from miner.evaluation import probe
from miner.evaluation.inputs import encode
from miner.evaluation.label_tasks import PairClassificationTask
from miner.evaluation.probe import LabelledRows, ProbeResult

BLOCK_PAIRS = 8192  # pairs whose features are in memory at a time


def evaluate(encoder: Encoder, task: PairClassificationTask) -> ProbeResult:
    """Classify the test pairs.

    Without training rows, by the classifier saved beside the encoder; with `task.fine_tune`, by one trained together with a copy of the
    encoder; otherwise by a probe. Raise DataError as `probe.read_rows` does, and ConfigError if the encoder does not support the way.
    """
    columns = task.first_column, task.second_column
    if isinstance(encoder, PairEncoder):
        raise encoder.missing_side()
    if task.train is None:
        return _test_saved_classifier(encoder, task, probe.read_test_rows(task, *columns))
    train, test = probe.read_rows(task, *columns)
    if task.fine_tune:
        from miner.evaluation import fine_tuning  # imports the trainer, which takes seconds

        predicted = fine_tuning.predict(encoder, task, train, test)
        return ProbeResult(probe.items_by_language(test, predicted), len(train.labels), len(set(train.labels)))
    vectors = (encode(encoder, [*rows.texts[0], *rows.texts[1]], np.float32) for rows in (train, test))
    (u, v), (u_test, v_test) = (np.split(both_sides, 2) for both_sides in vectors)
    starts = range(0, len(u_test), BLOCK_PAIRS)
    blocks = (features(u_test[start : start + BLOCK_PAIRS], v_test[start : start + BLOCK_PAIRS]) for start in starts)
    return probe.classify(features(u, v), blocks, train, test)


def _test_saved_classifier(encoder: Encoder, task: PairClassificationTask, test: LabelledRows) -> ProbeResult:
    from miner.evaluation import classifiers  # imports the trainer

    classifier = classifiers.load_saved(encoder)
    if unknown := [label for label in test.labels if label not in classifier.labels]:
        labels = ", ".join(classifier.labels)
        raise DataError(f"{task.test}: the classifier does not know the label {unknown[0]!r}, only {labels}; name another --label-column")
    return ProbeResult(probe.items_by_language(test, classifier.predict(*test.texts)), None, len(classifier.labels))


def features(u: Floats32, v: Floats32) -> Floats32:
    """Vectors (n, dim) of the first and the second texts -> (n, 4 dim): u, v, |u - v| and u * v (Conneau et al. 2017, section 3.1)."""
    combined: Floats32 = np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
    return combined
